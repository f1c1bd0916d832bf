/*
 * checkpoint.h - a model as files: open it, walk its tensors and metadata, map a tensor without copying it.
 *
 *   path ──► weir_checkpoint ──► weir_tensor {name, dtype, shape, shard, offset, bytes}  ──► weir_mapping (zero copy)
 *            (headers only)  └─► weir_metadata {key, type, values}
 *
 * Caveats first:
 * - A checkpoint is untrusted input.  Opening it checks every count, size and offset; a file that breaks a rule is refused
 *   with the rule.  What passes still holds the file's own bytes: names, keys and texts may contain control characters, so
 *   escape them before they reach a terminal.
 * - Opening reads headers only.  No descriptor stays open; a shard is opened again when it is mapped, and refused with
 *   WEIR_ECHANGED when it is no longer the file that was opened (device, inode, size or modification time).
 * - A mapping shows the file's pages.  Removing the file, or replacing it by rename, leaves a mapping whole; truncating it, or
 *   writing over it in place, does not: reading past the new end raises SIGBUS, as with any mmap.  Whoever cannot promise that
 *   files stay as they are takes a copy (weir_mapping_read), or reads through a weir_store, where such a file gives an error.
 *
 * Lifetime: pointers from a checkpoint are valid until weir_checkpoint_close; a mapping is valid until weir_mapping_close,
 * also after its checkpoint was closed.
 * Threads: a checkpoint does not change after it is opened, so every function that takes a const one may be called from any
 * thread at the same time.  A mapping may be closed by any thread, once, and once more for each weir_mapping_retain.
 */
#ifndef WEIR_CHECKPOINT_H
#define WEIR_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_checkpoint weir_checkpoint;
typedef struct weir_mapping weir_mapping;

typedef enum weir_format { WEIR_FORMAT_GGUF = 1, WEIR_FORMAT_SAFETENSORS = 2 } weir_format;

const char *weir_format_name(weir_format format); /* "gguf", "safetensors"; never NULL */

/*
 * Element types, those of ggml and those of safetensors in one list: name, value (part of the ABI), number in ggml (-1: none),
 * elements per quantisation block, bytes per block, alignment in bytes that a typed view needs.  Sources: ggml.h and
 * ggml-common.h of ggml 0.25, the Dtype of safetensors 0.8.  Types below one byte are counted in the smallest group that
 * fills bytes.
 */
#define WEIR_DTYPE_TABLE(X)                                                                                                    \
	X(F32, 1, 0, 1, 4, 4)                                                                                                  \
	X(F16, 2, 1, 1, 2, 2)                                                                                                  \
	X(BF16, 3, 30, 1, 2, 2)                                                                                                \
	X(F64, 4, 28, 1, 8, 8)                                                                                                 \
	X(I8, 5, 24, 1, 1, 1)                                                                                                  \
	X(I16, 6, 25, 1, 2, 2)                                                                                                 \
	X(I32, 7, 26, 1, 4, 4)                                                                                                 \
	X(I64, 8, 27, 1, 8, 8)                                                                                                 \
	X(U8, 9, -1, 1, 1, 1)                                                                                                  \
	X(U16, 10, -1, 1, 2, 2)                                                                                                \
	X(U32, 11, -1, 1, 4, 4)                                                                                                \
	X(U64, 12, -1, 1, 8, 8)                                                                                                \
	X(BOOL, 13, -1, 1, 1, 1)                                                                                               \
	X(C64, 14, -1, 1, 8, 8)                                                                                                \
	X(F8_E4M3, 15, -1, 1, 1, 1)                                                                                            \
	X(F8_E5M2, 16, -1, 1, 1, 1)                                                                                            \
	X(F8_E8M0, 17, -1, 1, 1, 1)                                                                                            \
	X(F8_E4M3FNUZ, 18, -1, 1, 1, 1)                                                                                        \
	X(F8_E5M2FNUZ, 19, -1, 1, 1, 1)                                                                                        \
	X(F6_E2M3, 20, -1, 4, 3, 1)                                                                                            \
	X(F6_E3M2, 21, -1, 4, 3, 1)                                                                                            \
	X(F4, 22, -1, 2, 1, 1)                                                                                                 \
	X(Q4_0, 32, 2, 32, 18, 2)                                                                                              \
	X(Q4_1, 33, 3, 32, 20, 4)                                                                                              \
	X(Q5_0, 34, 6, 32, 22, 2)                                                                                              \
	X(Q5_1, 35, 7, 32, 24, 4)                                                                                              \
	X(Q8_0, 36, 8, 32, 34, 2)                                                                                              \
	X(Q8_1, 37, 9, 32, 36, 4)                                                                                              \
	X(Q2_K, 38, 10, 256, 84, 4)                                                                                            \
	X(Q3_K, 39, 11, 256, 110, 2)                                                                                           \
	X(Q4_K, 40, 12, 256, 144, 4)                                                                                           \
	X(Q5_K, 41, 13, 256, 176, 4)                                                                                           \
	X(Q6_K, 42, 14, 256, 210, 2)                                                                                           \
	X(Q8_K, 43, 15, 256, 292, 4)                                                                                           \
	X(IQ2_XXS, 44, 16, 256, 66, 2)                                                                                         \
	X(IQ2_XS, 45, 17, 256, 74, 2)                                                                                          \
	X(IQ3_XXS, 46, 18, 256, 98, 2)                                                                                         \
	X(IQ1_S, 47, 19, 256, 50, 2)                                                                                           \
	X(IQ4_NL, 48, 20, 32, 18, 2)                                                                                           \
	X(IQ3_S, 49, 21, 256, 110, 2)                                                                                          \
	X(IQ2_S, 50, 22, 256, 82, 2)                                                                                           \
	X(IQ4_XS, 51, 23, 256, 136, 2)                                                                                         \
	X(IQ1_M, 52, 29, 256, 56, 1)                                                                                           \
	X(TQ1_0, 53, 34, 256, 54, 2)                                                                                           \
	X(TQ2_0, 54, 35, 256, 66, 2)                                                                                           \
	X(MXFP4, 55, 39, 32, 17, 1)                                                                                            \
	X(NVFP4, 56, 40, 64, 36, 1)                                                                                            \
	X(Q1_0, 57, 41, 128, 18, 2)                                                                                            \
	X(Q2_0, 58, 42, 64, 18, 2)

#define WEIR_DTYPE_ENUM(name, value, ggml, block_elements, block_bytes, alignment) WEIR_DTYPE_##name = (value),
typedef enum weir_dtype { WEIR_DTYPE_NONE = 0, WEIR_DTYPE_TABLE(WEIR_DTYPE_ENUM) } weir_dtype;
#undef WEIR_DTYPE_ENUM

typedef struct weir_dtype_info {
	weir_dtype dtype;
	int32_t ggml_type; /* number in ggml's enum, or -1 */
	uint32_t block_elements; /* elements that are stored together */
	uint32_t block_bytes; /* ... in this many bytes */
	uint32_t alignment_bytes; /* of an address through which elements are read as C values */
	const char *name; /* "Q4_K", "BF16" */
} weir_dtype_info;

/* What is known of a type; NULL for a number that is none.  Thread-safe. */
const weir_dtype_info *weir_dtype_describe(weir_dtype dtype);

#define WEIR_RANK_MAX 8

/*
 * One tensor.  `shape` stands in the order of the file's own format and tools: GGUF from the innermost dimension outwards (as
 * ggml's ne: a matrix of R rows with C columns is {C, R}), safetensors from the outermost inwards ({R, C}).
 * weir_tensor_shape_row_major gives the second order for both.  A tensor of rank 0 has one element.
 */
typedef struct weir_tensor {
	const char *name; /* ends with NUL and holds none before it; otherwise any bytes */
	const char *dtype_name;
	weir_dtype dtype;
	uint32_t block_elements; /* bytes = elements / block_elements × block_bytes */
	uint32_t block_bytes;
	uint32_t rank;
	uint64_t shape[WEIR_RANK_MAX]; /* shape[0..rank), 1 beyond */
	uint64_t elements;
	uint32_t shard; /* which file */
	uint64_t offset; /* of the first byte in that file, bytes */
	uint64_t bytes; /* 0 when a dimension is 0 */
} weir_tensor;

/* Types of metadata; the numbers are those of GGUF. */
typedef enum weir_value_type {
	WEIR_VALUE_UINT8 = 0,
	WEIR_VALUE_INT8 = 1,
	WEIR_VALUE_UINT16 = 2,
	WEIR_VALUE_INT16 = 3,
	WEIR_VALUE_UINT32 = 4,
	WEIR_VALUE_INT32 = 5,
	WEIR_VALUE_FLOAT32 = 6,
	WEIR_VALUE_BOOL = 7,
	WEIR_VALUE_STRING = 8,
	WEIR_VALUE_UINT64 = 10,
	WEIR_VALUE_INT64 = 11,
	WEIR_VALUE_FLOAT64 = 12
} weir_value_type;

const char *weir_value_type_name(weir_value_type type); /* "uint8", "string"; never NULL */

typedef struct weir_value {
	union {
		uint64_t natural; /* UINT8..UINT64, BOOL (0 or 1) */
		int64_t integer; /* INT8..INT64 */
		double real; /* FLOAT32, FLOAT64 */
		uint64_t text_bytes; /* STRING: length of `text` */
	} as;
	const char *text; /* STRING: any bytes, NUL among them, and one NUL after them; else NULL */
} weir_value;

/* One entry of metadata: a value, or an array of which the first values are kept. */
typedef struct weir_metadata {
	const char *key;
	weir_value_type type; /* of the value, or of each element */
	bool is_array;
	uint64_t count; /* elements in the file; 1 when it is no array */
	uint64_t kept; /* values[0..kept) are there */
	const weir_value *values;
} weir_metadata;

typedef struct weir_checkpoint_options {
	uint64_t header_bytes_max; /* refuse longer headers; 0 takes 256 MiB (GGUF) and 100,000,000 bytes (safetensors) */
	uint32_t array_numbers_kept; /* of each array of numbers in metadata; 0 takes 1024 */
	uint32_t array_strings_kept; /* of each array of strings; 0 takes 8 */
} weir_checkpoint_options;

/*
 * Opens a checkpoint by one of
 *   a .gguf file: alone, or any shard of a set named PREFIX-00001-of-00003.gguf, which opens the whole set;
 *   a .safetensors file;
 *   a safetensors index (*.safetensors.index.json), whose shards lie beside it;
 *   a directory that holds exactly one of those.
 * `options` may be NULL.  WEIR_EFORMAT, WEIR_EUNSUPPORTED: the message gives the rule, error->file the shard.  WEIR_ENOTFOUND,
 * WEIR_EACCESS, WEIR_ENOTREGULAR (a FIFO, socket or device is never waited for), WEIR_EIO, WEIR_ENOMEM, WEIR_ELIMIT.
 */
int weir_checkpoint_open(const char *path, const weir_checkpoint_options *options, weir_checkpoint **checkpoint,
			 weir_error *error);
void weir_checkpoint_close(weir_checkpoint *checkpoint); /* NULL is allowed */

weir_format weir_checkpoint_format(const weir_checkpoint *checkpoint);
uint32_t weir_checkpoint_version(const weir_checkpoint *checkpoint); /* GGUF's number; 0 for safetensors */
const char *weir_checkpoint_architecture(const weir_checkpoint *checkpoint); /* general.architecture, or NULL */
bool weir_checkpoint_aligned(const weir_checkpoint *checkpoint); /* each tensor's offset suits its type's alignment_bytes */

uint32_t weir_checkpoint_shards_count(const weir_checkpoint *checkpoint);
const char *weir_checkpoint_shard_path(const weir_checkpoint *checkpoint, uint32_t shard); /* NULL beyond the last */
uint64_t weir_checkpoint_shard_bytes(const weir_checkpoint *checkpoint, uint32_t shard); /* of the file; 0 beyond */

/* Tensors, numbered in the order of the header (GGUF) or of the data (safetensors), shard after shard. */
uint32_t weir_checkpoint_tensors_count(const weir_checkpoint *checkpoint);
uint64_t weir_checkpoint_tensors_bytes(const weir_checkpoint *checkpoint); /* of all of them together */
const weir_tensor *weir_checkpoint_tensor(const weir_checkpoint *checkpoint, uint32_t index); /* NULL beyond the last */
const weir_tensor *weir_checkpoint_find(const weir_checkpoint *checkpoint, const char *name); /* NULL: none; O(1) */
uint32_t weir_checkpoint_index(const weir_checkpoint *checkpoint, const char *name); /* UINT32_MAX: none */
void weir_tensor_shape_row_major(const weir_checkpoint *checkpoint, const weir_tensor *tensor,
				 uint64_t shape[WEIR_RANK_MAX]); /* outermost first, 1 beyond the rank */

/* Metadata: of the first shard, in the order of the file. */
uint32_t weir_checkpoint_metadata_count(const weir_checkpoint *checkpoint);
const weir_metadata *weir_checkpoint_metadata(const weir_checkpoint *checkpoint, uint32_t index); /* NULL beyond */
const weir_metadata *weir_checkpoint_metadata_find(const weir_checkpoint *checkpoint, const char *key); /* NULL: none */
/* values[index] as a number that is not negative: 0, WEIR_ENOTFOUND (not kept, NULL entry) or WEIR_EINVAL (another kind). */
int weir_metadata_natural(const weir_metadata *metadata, uint64_t index, uint64_t *natural);

/* 0 while every shard is still the file that was opened; WEIR_ECHANGED with the shard otherwise. */
int weir_checkpoint_check_unchanged(const weir_checkpoint *checkpoint, weir_error *error);

/*
 * Maps one tensor read-only, by whole pages, without reading it.  The first byte's address has the alignment of the tensor's
 * offset within a page: compare with weir_dtype_info.alignment_bytes before reading it as C values.  A tensor without bytes
 * gives a valid pointer and 0 bytes.  WEIR_EUNSUPPORTED when it lies in a hole of its file: moved to a pack, or never written.
 */
int weir_mapping_open(const weir_checkpoint *checkpoint, uint32_t tensor, weir_mapping **mapping, weir_error *error);

/* Maps bytes [offset, offset + bytes) of any regular file.  WEIR_EINVAL when they reach past its end. */
int weir_mapping_open_extent(const char *path, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error);

/*
 * The same bytes, read into pages of our own instead of mapped: they begin at a page, whatever the offset in the file, and what
 * happens to the file later does not reach them.  For tensors that are not aligned, and for files that may change.  Takes
 * `bytes` of memory until it is closed.  Also WEIR_EIO, WEIR_ENOMEM.
 */
int weir_mapping_read(const weir_checkpoint *checkpoint, uint32_t tensor, weir_mapping **mapping, weir_error *error);
int weir_mapping_read_extent(const char *path, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error);

const void *weir_mapping_data(const weir_mapping *mapping); /* never NULL */
uint64_t weir_mapping_bytes(const weir_mapping *mapping);
bool weir_mapping_copied(const weir_mapping *mapping); /* made by weir_mapping_read */

/*
 * Lets the process write to the mapping, for libraries that know no read-only arrays.  A page that is written becomes the
 * process's own: the file, and other mappings of it, never change.  Every array over this mapping sees the write.
 */
int weir_mapping_allow_writes(weir_mapping *mapping, weir_error *error);

/* One more reference, which wants one more weir_mapping_close; returns its argument.  Any thread that holds a reference. */
weir_mapping *weir_mapping_retain(weir_mapping *mapping);
/* Drops a reference; the last one unmaps.  NULL is allowed; no callbacks, no locks: safe in any thread. */
void weir_mapping_close(weir_mapping *mapping);

#ifdef __cplusplus
}
#endif
#endif
