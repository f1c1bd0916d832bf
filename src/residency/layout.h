/*
 * layout.h - size classes, sets, and how the slab is divided: arithmetic over the chunk list, before anything is read.
 *
 *   room      bytes that a chunk takes in a slot: its aligned superset, align_up(offset % alignment + bytes)
 *   class     slots of one size.  Rooms that differ by no more than about 3 % share a class, so that a slab has few sizes
 *   set       the chunks of one group that are in one class (policy.h counts over sets)
 *
 * Threads: none.  A layout owns its arrays; weir_layout_free gives them back.
 */
#ifndef WEIR_RESIDENCY_LAYOUT_H
#define WEIR_RESIDENCY_LAYOUT_H

#include "weir/store.h"

typedef struct weir_size_class {
	uint64_t slot_bytes; /* = the largest room among its chunks; a multiple of the alignment */
	uint32_t chunks_count; /* > 0 */
	uint32_t slots_count; /* ≤ chunks_count */
} weir_size_class;

typedef struct weir_layout {
	uint32_t alignment; /* power of two */
	uint32_t chunks_count;
	uint32_t classes_count;
	uint32_t sets_count;
	weir_size_class *classes; /* [classes_count], largest slots first */
	uint32_t *chunk_set; /* [chunks_count] */
	uint32_t *set_class; /* [sets_count], ascending */
	uint32_t *set_chunks; /* [sets_count] chunks of each */
} weir_layout;

/* Sorts the chunks into classes and sets.  WEIR_EINVAL for a chunk without bytes or whose end wraps, WEIR_ENOMEM. */
int weir_layout_make(weir_layout *layout, const weir_chunk *chunks, uint32_t chunks_count, uint32_t alignment,
		     weir_error *error);
void weir_layout_free(weir_layout *layout);

/* Gives each class its slots out of `bytes`, each slot costing slot_bytes + slot_overhead_bytes: in proportion to the bytes of
 * the class's chunks, but at least `slots_least` (or one per chunk, if there are fewer).  WEIR_EBUDGET when it does not fit. */
int weir_layout_divide(weir_layout *layout, uint64_t bytes, uint64_t slot_overhead_bytes, uint32_t slots_least);

/* What the least and the most useful number of slots cost, by the same measure.  WEIR_EINVAL when the sum wraps. */
int weir_layout_cost(const weir_layout *layout, uint64_t slot_overhead_bytes, uint32_t slots_least, uint64_t *least_bytes,
		     uint64_t *all_bytes);

#endif
