/*
 * pack.h - what a pack is inside: the structs that its writer fills and its reader checks, and the bytes between them.
 *
 *   file     [header][index]..[checksums]..[dense tensor]..[dense tensor]..[expert 0][expert 1]...    .. padding to alignment
 *
 *   group    chunks that follow each other at one distance: a dense tensor (one chunk), or a layer's experts (one each).
 *   chunk    a slice of each of the group's members, side by side.
 *   member   a tensor in its group; every tensor is one.
 *   unit     what one checksum covers: at most unit_bytes of one slice.
 *
 * All places follow from the order of groups and members and from the sizes of tensors (weir_pack_place): a file that states
 * others is refused, so nothing can overlap or lie outside.
 *
 * Invariants once it is open (weir_pack_check walks them)
 *   every tensor is the member of exactly one group;   group.count × member.bytes = tensor.source.bytes
 *   group.offset = end of the group before;   stride = members' bytes, each rounded up to the alignment
 *   units are numbered by group, chunk, member, place;   units_done ≤ units_count, and = when finished
 *
 * One thread builds; afterwards nothing changes.
 */
#ifndef WEIR_FORMAT_PACK_H
#define WEIR_FORMAT_PACK_H

#include "base/arena.h"
#include "base/names.h"
#include "os/file.h"
#include "weir/pack.h"

#define WEIR_PACK_MAGIC "WEIRPACK"
#define WEIR_PACK_VERSION 1u
#define WEIR_PACK_HEADER_BYTES 4096u
#define WEIR_PACK_ALIGNMENT 4096u
#define WEIR_PACK_ALIGNMENT_MAX (1u << 21)
#define WEIR_PACK_INDEX_BYTES_MAX (256ull << 20)
#define WEIR_PACK_UNITS_MAX (1ull << 32)
#define WEIR_PACK_REPLACES 1ull /* flag */

typedef struct weir_pack_fingerprint {
	uint64_t kept[2]; /* of what stays in the checkpoint, whatever is freed: sizes, headers, samples of dense weights */
	uint64_t moved[2]; /* of samples of experts */
} weir_pack_fingerprint;

typedef struct weir_pack_header {
	uint64_t flags, file_bytes, alignment, index_bytes, units_count, units_done;
	weir_pack_fingerprint fingerprint;
	uint64_t index_hash; /* of the index and the padding after it */
	uint64_t sums_hash; /* of the first units_done checksums */
} weir_pack_header;

typedef struct weir_pack_source {
	const char *name;
	uint64_t bytes;
} weir_pack_source;

typedef struct weir_pack_member {
	uint32_t tensor;
	uint64_t offset; /* in each chunk */
	uint64_t bytes; /* of a slice */
	uint64_t unit_bytes;
	uint64_t units_first; /* in each chunk */
} weir_pack_member;

typedef struct weir_pack_group {
	uint64_t offset, stride;
	uint32_t count; /* chunks */
	uint32_t members_first, members_count;
	uint64_t units_first, units_per_chunk;
} weir_pack_group;

struct weir_pack {
	char *path;
	weir_file_identity identity;
	weir_pack_header header;
	uint64_t sums_offset, data_offset;
	weir_arena arena; /* names */
	weir_names names;
	weir_pack_source *sources;
	weir_pack_tensor *tensors;
	weir_pack_group *groups;
	weir_pack_member *members;
	uint32_t *tensor_member; /* tensor → its member */
	uint64_t *sums; /* [units_count] */
	uint32_t sources_count, tensors_count, groups_count, members_count;
	uint64_t tensors_bytes, chunks_count;
};

weir_pack *weir_pack_new(const char *path);

/* Makes room for what the counts say; 0 or WEIR_ENOMEM. */
int weir_pack_reserve(weir_pack *pack, uint32_t sources, uint32_t tensors, uint32_t groups, uint32_t members);

/* From the tensors, groups (count, members_first, members_count) and members (tensor, unit_bytes): all offsets, sizes, units
 * and the totals.  header.alignment and header.index_bytes must be set.  NULL, or which rule is broken. */
const char *weir_pack_place(weir_pack *pack);

/* The index as bytes, without padding (malloc, the caller frees); NULL without memory. */
unsigned char *weir_pack_encode_index(const weir_pack *pack, uint64_t *bytes);
uint64_t weir_pack_index_bytes(const weir_pack *pack);

/* The header as it stands in the file; fills in sums_hash. */
void weir_pack_encode_header(weir_pack *pack, unsigned char block[WEIR_PACK_HEADER_BYTES]);

/* Hash of index[0..bytes) followed by zeros up to the place of the checksums. */
uint64_t weir_pack_hash_index(const unsigned char *index, uint64_t bytes, uint64_t padded_bytes);

/* Opens a pack, finished or not. */
int weir_pack_open_any(const char *path, weir_pack **pack, weir_error *error);

/* Checksum of a whole unit in memory. */
uint64_t weir_pack_hash(const void *data, size_t bytes);

/* A tensor that has an expert in each slice of its last dimension, and lies expert by expert in a pack.  Known by GGUF's names
 * for routed experts ("blk.7.ffn_up_exps.weight") and by its three dimensions. */
bool weir_pack_is_expert(const weir_tensor *tensor);

/* Units of a slice of the member. */
uint64_t weir_pack_member_units(const weir_pack_member *member);

/* Walks the invariants; NULL, or which one does not hold.  For tests and fuzzers. */
const char *weir_pack_check(const weir_pack *pack);

#endif
