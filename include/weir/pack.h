/*
 * pack.h - packs: a model's weights a second time, arranged for reading.
 *
 *   model.gguf ── weir_pack_write ──► model.weir     dense weights in order of use, then each expert's parts side by side
 *        └──────── weir_pack_matches ─────┘           everything aligned and with checksums; docs/pack-format.md has each byte
 *
 * A pack holds weights only: names, vocabulary and the rest of the header stay in the checkpoint that it was made from, and it
 * serves that checkpoint alone.  Its fingerprint says which one that is.
 *
 * For safetensors there is no pack: weir_pack_write writes another safetensors file, whose tensors begin at pages or at least
 * at multiples of their elements, so that every reader can map it in place.
 *
 * Caveats first:
 * - A pack is untrusted input like any checkpoint: opening it checks every count, size and offset.  What its weights are is
 *   checked by their checksums, when they are read for a model or by weir_verify.
 * - `replace` frees the space of the experts in the checkpoint itself.  What is left of it is of use to weir alone, together
 *   with its pack: any other program would read zeros there.
 *
 * Threads: an open pack does not change; every function that takes a const one may be called from any thread at the same
 * time.  weir_pack_write and weir_verify work in threads of their own and call back from the thread that called them.
 */
#ifndef WEIR_PACK_H
#define WEIR_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/checkpoint.h"
#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_pack weir_pack;

/*
 * One tensor in a pack.  Its bytes are those of the checkpoint, cut into `slices_count` slices (the experts of an expert
 * tensor, or 1), of which each lies in one piece: slice s at offset + s × stride_bytes.  Each slice is covered by checksums
 * (XXH3-64), one for every unit_bytes of it, the last one shorter.
 */
typedef struct weir_pack_tensor {
	weir_tensor source; /* name, type, shape, and the place in the checkpoint: shard, offset, bytes */
	uint64_t offset; /* of the first slice, in the pack */
	uint64_t slice_bytes; /* slices_count × slice_bytes = source.bytes */
	uint64_t stride_bytes; /* 0 when there is one slice */
	uint64_t unit_bytes; /* 0 when the tensor has no bytes */
	uint32_t slices_count;
	uint32_t group; /* tensors with the same number lie together, slice by slice */
} weir_pack_tensor;

/* Opens a pack and checks its header and index; weights are not read.  WEIR_EFORMAT and WEIR_EUNSUPPORTED with the rule, also
 * for a pack that is not finished; WEIR_ECHECKSUM when header or index are not what was written; otherwise as
 * weir_checkpoint_open. */
int weir_pack_open(const char *path, weir_pack **pack, weir_error *error);
void weir_pack_close(weir_pack *pack); /* NULL is allowed */

/* True when the file begins as a pack does; false also when it cannot be read. */
bool weir_pack_recognize(const char *path);

const char *weir_pack_file(const weir_pack *pack); /* the path that it was opened by */
uint32_t weir_pack_version(const weir_pack *pack); /* of the format */
uint64_t weir_pack_bytes(const weir_pack *pack); /* of the file */
uint64_t weir_pack_alignment(const weir_pack *pack); /* of offsets in it, bytes */
bool weir_pack_replaces(const weir_pack *pack); /* experts were freed in the checkpoint: only the pack has them */
uint32_t weir_pack_sources_count(const weir_pack *pack); /* shards of the checkpoint */
const char *weir_pack_source_name(const weir_pack *pack, uint32_t shard); /* a plain file name; NULL beyond the last */
uint64_t weir_pack_source_bytes(const weir_pack *pack, uint32_t shard); /* 0 beyond */
uint32_t weir_pack_tensors_count(const weir_pack *pack);
uint64_t weir_pack_tensors_bytes(const weir_pack *pack); /* of all of them together */
uint64_t weir_pack_chunks_count(const weir_pack *pack); /* dense tensors, and experts of each layer */
const weir_pack_tensor *weir_pack_tensor_at(const weir_pack *pack, uint32_t index); /* NULL beyond the last */
const weir_pack_tensor *weir_pack_find(const weir_pack *pack, const char *name); /* NULL: none; O(1) */
/* The checksum of bytes [unit × unit_bytes, ...) of a slice; 0 when there is no such unit. */
uint64_t weir_pack_checksum(const weir_pack *pack, uint32_t tensor, uint32_t slice, uint64_t unit);

/* 0 when the pack was made from this very checkpoint (sizes, headers and samples of the weights are compared, a few dozen
 * small reads); WEIR_ECHANGED with the difference otherwise. */
int weir_pack_matches(const weir_pack *pack, const weir_checkpoint *checkpoint, weir_error *error);

/* The pack's place beside a model: "DIR/model.weir" for "DIR/model.gguf", "DIR/m.weir" for "DIR/m-00001-of-00003.gguf".
 * malloc'ed, the caller frees; NULL without memory. */
char *weir_pack_path_beside(const char *model_path);

/*
 * Refuses a checkpoint of which weights were never written or were freed: WEIR_EUNSUPPORTED names the first tensor that lies
 * in a hole of its file.  weir never computes on the zeros that reading there would give.  A hole of less than 1 MiB that
 * does not cover a whole tensor is taken for zeros that were meant.
 */
int weir_checkpoint_check_holes(const weir_checkpoint *checkpoint, weir_error *error);

/* Called now and then with what is done; bytes of what `stage` names ("packing", "checking"...).  Not 0 stops the work. */
typedef int (*weir_pack_progress)(const char *stage, uint64_t done_bytes, uint64_t total_bytes, void *user);

typedef struct weir_pack_options {
	const char *output; /* NULL: beside the model (GGUF); needed for safetensors, a directory for a sharded set */
	bool replace; /* afterwards free the experts' space in the checkpoint: GGUF, all of it on one file system that can */
	bool force; /* write anew even if a matching pack is there */
	uint32_t threads; /* that read and write; 0 takes the default (6) */
	weir_pack_progress progress; /* NULL for none */
	void *user;
} weir_pack_options;

typedef struct weir_pack_result {
	char output[4096];
	uint64_t output_bytes;
	uint64_t written_bytes; /* in this call: less when it went on where an earlier one had stopped */
	uint64_t resumed_bytes; /* found written, and checked */
	uint64_t freed_bytes; /* of the checkpoint */
	double seconds;
	bool up_to_date; /* a matching pack was there: nothing was written */
} weir_pack_result;

/*
 * Writes the pack of a GGUF checkpoint, or the aligned copy of a safetensors one.  Everything is written beside ("OUTPUT.part")
 * and renamed when it is whole and on the drive.
 *
 * A pack that was interrupted, by whatever, is gone on with by the next call: "OUTPUT.part" says how far it is, and that much
 * is read back and checked first.  When the space runs out, the partial file is removed. WEIR_ENOSPACE before anything is
 * written when there is too little of it; WEIR_EBUSY when another call writes the same output; WEIR_EINTERRUPTED when
 * `progress` asked to stop; WEIR_ECHANGED when a shard changed meanwhile.
 */
int weir_pack_write(const char *model_path, const weir_pack_options *options, weir_pack_result *result, weir_error *error);

typedef struct weir_verify_options {
	uint32_t threads; /* that read; 0 takes the default (6) */
	weir_pack_progress progress; /* NULL for none */
	void *user;
} weir_verify_options;

typedef struct weir_verify_result {
	char pack[4096], checkpoint[4096]; /* which files were checked; "" for none */
	uint64_t pack_bytes; /* of the pack: every byte of it was looked at */
	uint64_t checkpoint_bytes; /* of the checkpoint: compared with the pack's checksums, or only read if there is no pack */
	uint64_t freed_bytes; /* of the checkpoint: no longer there, because the pack replaces them */
	double seconds;
} weir_verify_result;

/*
 * Reads everything and compares: of a pack every byte, padding included, and, when the checkpoint that it names lies beside it,
 * the weights there as well.  `path` may also be that checkpoint.  A checkpoint without a pack has no checksums: its headers
 * are checked, and that each byte can be read.
 * WEIR_ECHECKSUM names file, offset and tensor (and expert); WEIR_ECHANGED when the checkpoint is not the pack's.
 */
int weir_verify(const char *path, const weir_verify_options *options, weir_verify_result *result, weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
