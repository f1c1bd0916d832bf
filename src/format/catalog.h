/*
 * catalog.h - what a checkpoint is inside, and the steps by which the format readers build it.
 *
 *   shards[]   path, identity                       tensors[i].shard ──► shards
 *   tensors[]  in file order, shard after shard     names: tensor name ──► index into tensors
 *   metadata   of the first shard
 *
 * Invariants once it is open: each tensor's name occurs once; elements and bytes are those of its shape and type;
 * offset + bytes ≤ its shard's bytes when bytes > 0; tensors_bytes is the sum of all bytes.  weir_catalog_check walks them.
 *
 * The checkpoint owns all of it.  One thread builds; afterwards nothing changes.
 */
#ifndef WEIR_FORMAT_CATALOG_H
#define WEIR_FORMAT_CATALOG_H

#include "base/arena.h"
#include "base/names.h"
#include "format/metadata.h"
#include "os/file.h"
#include "weir/checkpoint.h"

/* Limits on what a file may claim; more is refused with WEIR_EUNSUPPORTED. */
#define WEIR_GGUF_HEADER_BYTES_MAX (256ull << 20)
#define WEIR_SAFETENSORS_HEADER_BYTES_MAX 100000000ull /* the format's own limit */
#define WEIR_TENSORS_MAX (1u << 22)
#define WEIR_METADATA_MAX (1u << 20)
#define WEIR_NAME_BYTES_MAX 65535u
#define WEIR_STRING_BYTES_MAX (64ull << 20) /* of one text in metadata */

typedef struct weir_shard {
	const char *path;
	weir_file_identity identity;
} weir_shard;

struct weir_checkpoint {
	weir_checkpoint_options options; /* with the defaults filled in, but for header_bytes_max */
	weir_format format;
	uint32_t version;
	const char *architecture; /* lies in metadata */
	weir_arena arena;
	weir_shard *shards;
	uint32_t shards_count, shards_capacity;
	weir_tensor *tensors;
	uint32_t tensors_count, tensors_capacity;
	uint64_t tensors_bytes;
	weir_names names;
	weir_metadata_set metadata;
};

/* Adds an open file as the next shard; its number is shards_count - 1. */
int weir_catalog_add_shard(weir_checkpoint *checkpoint, const weir_file *file, weir_error *error);

/* Sets dtype, dtype_name, block_elements, block_bytes, elements and bytes from `info`, rank and shape[0..rank), and fills
 * shape beyond the rank with 1.  False when a number does not fit (products count zeros as one: the order does not matter)
 * or the elements do not fill whole blocks. */
bool weir_tensor_measure(weir_tensor *tensor, const weir_dtype_info *info);

/* Adds a tensor of the last shard, copying its name[0..name_bytes).  Refuses names that are there already or hold NUL, and
 * extents beyond the file. */
int weir_catalog_add_tensor(weir_checkpoint *checkpoint, const weir_tensor *tensor, const char *name, size_t name_bytes,
			    weir_error *error);

/* Refuses tensors[first..count), all of one shard, when two of them share a byte. */
int weir_catalog_check_overlap(const weir_checkpoint *checkpoint, uint32_t first, weir_error *error);

/* Walks the invariants above; NULL, or which one does not hold.  For tests and fuzzers. */
const char *weir_catalog_check(const weir_checkpoint *checkpoint);

#endif
