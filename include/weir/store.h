/*
 * store.h - a byte budget over the chunks of a checkpoint: acquire, use, release.
 *
 * A store owns one slab of memory, allocated once and divided into slots.  A chunk (one extent of one file: an expert's part,
 * a row range) is read into a slot when it is acquired and stays there until another chunk needs the slot.
 *
 * The lifetime rule: a lease pins its slot; the pointer it gives is valid until the lease is released; one release for each
 * acquire.
 *
 * Threads: all functions on one store may be called from any thread; a lease belongs to the thread that uses it.
 */
#ifndef WEIR_STORE_H
#define WEIR_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_store weir_store;
typedef struct weir_lease weir_lease;

/* What a store can hold: `group` is the set that a per-layer policy counts over (all experts of one tensor), numbered from 0
 * without gaps. */
typedef struct weir_chunk {
	uint32_t file; /* index into weir_store_options.paths */
	uint32_t group;
	uint64_t offset; /* in the file, bytes */
	uint64_t bytes;
} weir_chunk;

typedef struct weir_store_options {
	const char *const *paths; /* files that the chunks lie in */
	uint32_t paths_count;
	const weir_chunk *chunks; /* copied; chunk ids are indexes into it */
	uint32_t chunks_count;
	uint64_t budget_bytes; /* of the slab and the store's own tables together */
	uint32_t leases_max; /* leases held at one time; 0 takes 4096 */
	const char *policy; /* a name of weir/simulate.h; NULL is "auto" */
	const char *io_method; /* "auto", "uring", "threads", "mmap" */
	const char *io_fault; /* for tests; NULL for none */
	uint32_t queue_depth; /* 0 takes the default */
	uint32_t piece_bytes; /* 0 takes the default */
	uint32_t slots_least; /* of each size (or one per chunk, if there are fewer); 0 takes 1 */
	uint32_t data_alignment; /* chunks are moved to a multiple of this (a power of two, at most 64) once they are
				    read, where their offset in the file is none; 0: they stay where they were read to */
	bool page_cache; /* read from there what it holds, while that is faster; it is never filled */
	uint64_t in_flight_bytes; /* no further read begins while as many are under way; 0: only queue_depth counts */
} weir_store_options;

/* Counters since open or since weir_store_reset_stats.  demanded = hits + joined + misses. */
typedef struct weir_store_stats {
	uint64_t demanded; /* chunks acquired */
	uint64_t hits; /* ... that were ready */
	uint64_t joined; /* ... that were already being read */
	uint64_t misses; /* ... that had to be read */
	uint64_t prefetched; /* chunks read because of weir_store_prefetch and weir_store_expect */
	uint64_t prefetch_used; /* ... of which were acquired before they were evicted */
	uint64_t evictions;
	uint64_t bytes_read; /* from the drive or the page cache, alignment included */
	uint64_t stall_ns; /* time during which at least one thread waited for a read */
	uint32_t slots_count, slots_free, slots_loading, slots_ready, slots_pinned;
	uint64_t slab_bytes;
	uint32_t slots_failed; /* read failed and lease not yet released; slots_count = free + loading + ready + failed */
	uint64_t page_cache_bytes; /* of bytes_read, what the page cache held */
} weir_store_stats;

/* Where a lease's bytes lie, for callers that address slots by number: the slots of one size are evenly spaced, and
 * data = base + index × stride_bytes + shift_bytes. */
typedef struct weir_lease_position {
	const void *base;
	uint64_t stride_bytes;
	uint32_t index;
	uint32_t shift_bytes; /* the chunk's offset modulo the alignment, rounded down to a multiple of data_alignment */
} weir_lease_position;

/* Opens a store: opens the files, divides the budget, reads nothing.  Sizes that differ by no more than about 3 % share slots
 * of the larger size; each size gets slots in proportion to the bytes of its chunks.  WEIR_EBUDGET when not even slots_least
 * slots of each size fit.  WEIR_EINVAL for chunks without bytes or past the end of their file, and unknown names. */
int weir_store_open(const weir_store_options *options, weir_store **store, weir_error *error);

/* Closes it: waits for reads in flight, frees the slab.  All leases must have been released.  NULL is allowed. */
void weir_store_close(weir_store *store);

/* Budgets that a store over these options needs: at the least (`slots_least` slots of each size), and to hold everything.
 * Opens the files to learn the drive's alignment; without paths, 4096 is assumed. */
int weir_store_sizes(const weir_store_options *options, uint32_t slots_least, uint64_t *least_bytes, uint64_t *all_bytes);

/* Pins chunks[0..count) in order and starts the reads of those that are not there, without waiting.  Stops at the first chunk
 * for which no slot can be freed or no lease is left.  Returns how many leases were made (0..count) or a negative code.
 * Chunks that are resident are never evicted for others of the same call.  When fewer leases were made than wanted: use and
 * release those and come back for the rest; when none was made and none is held, weir_store_wait_read. */
int weir_store_acquire(weir_store *store, const uint32_t *chunks, uint32_t count, weir_lease **leases, weir_error *error);

/* Starts reads of chunks that will probably be wanted, as far as slots are free or hold less wanted chunks; a hint that never
 * evicts a pinned chunk and never fails.  Returns how many are now ready or on their way.  They are read while no acquired
 * chunk waits for the drive; weir_store_poll, or any wait, keeps them going. */
int weir_store_prefetch(weir_store *store, const uint32_t *chunks, uint32_t count);

/* The same for chunks that the next acquires will want with a good chance: takes the slots that those would take, also of
 * chunks that were used more often. */
int weir_store_expect(weir_store *store, const uint32_t *chunks, uint32_t count);

/* Waits until the chunk is there and gives its first byte.  The pointer has the alignment of the chunk's file offset modulo
 * the drive's alignment (and modulo 64).  WEIR_EIO with file and offset when the read failed, WEIR_ECHANGED when the file is
 * not what it was: the lease must still be released; an acquire of the same chunk reads it again. */
int weir_lease_wait(weir_lease *lease, const void **data, weir_error *error);

/* Waits until at least one of leases[0..count) is there (or failed) and gives its index.  Those that are ready are given in
 * order of the array. */
int weir_store_wait_any(weir_store *store, weir_lease *const *leases, uint32_t count, uint32_t *index, weir_error *error);

/* Waits until all of leases[0..count) are there; data[i] is the first byte of leases[i].  Fails as weir_lease_wait does, for
 * the first in order that failed; all of them must still be released. */
int weir_store_wait_all(weir_store *store, weir_lease *const *leases, uint32_t count, const void **data, weir_error *error);

/* True when the data is there (or the read failed): weir_lease_wait will not block.  Becomes true when some thread waits or
 * calls weir_store_poll. */
bool weir_lease_ready(const weir_lease *lease);
uint32_t weir_lease_chunk(const weir_lease *lease);
void weir_lease_get_position(const weir_lease *lease, weir_lease_position *position);

/* Gives the lease back.  Allowed before the chunk is there: the read then ends by itself, and the chunk stays if it can.
 * NULL is allowed. */
void weir_lease_release(weir_lease *lease);
void weir_store_release_all(weir_store *store, weir_lease *const *leases, uint32_t count); /* each of them */

/* Collects finished reads and starts further ones, without waiting: for callers that compute between acquires.  Returns how
 * many reads ended, or a negative code. */
int weir_store_poll(weir_store *store);

/* Reads that were handed to the drive or wait to be, as of the last poll or wait: 0 means that the drive is idle as far as this
 * store goes. */
uint32_t weir_store_reads_under_way(weir_store *store);

/* True when the chunk is in memory or on its way.  A moment's truth: only a lease keeps it. */
bool weir_store_has(weir_store *store, uint32_t chunk);

/* Waits until some read ends, whoever asked for it: slots may be free then.  WEIR_EBUSY at once when none is under way, so
 * that only a release can free a slot. */
int weir_store_wait_read(weir_store *store);

/* Marks the end of a token: ages the policy's counts. */
void weir_store_tick(weir_store *store);

/* How often each chunk was demanded: counts[chunks_count].  What a run has counted, given to the next by weir_store_seed before
 * its first demand, tells its policy from the beginning which chunks are wanted often; the counts then go on from there. */
void weir_store_get_counts(weir_store *store, uint32_t *counts);
void weir_store_seed(weir_store *store, const uint32_t *counts);

/* A weight whose experts are chunks, by which counts are known from one run to the next. */
typedef struct weir_counted_weight {
	const char *name;
	uint64_t bytes; /* of all experts together */
	uint32_t experts;
	const uint32_t *chunks; /* chunks[experts]; NULL: this store does not hold them */
} weir_counted_weight;

/* The same by way of a small file in ${XDG_CACHE_HOME:-~/.cache}/weir/models, one for each model: `model` is the file that the
 * first weight lies in, and with its size and time of change, and the weights' names, experts and bytes, says which one it is.
 * Load seeds, before the first demand, and gives the sum of what was counted: 0 when there is nothing, or nothing sound.  Save
 * writes beside and renames.  Neither fails: what cannot be read is not there, what cannot be written is lost.  Counts are kept
 * below 65536 by halving a weight's; of more than 8192 weights or 262144 experts none are kept. */
uint64_t weir_store_load_counts(weir_store *store, const char *model, const weir_counted_weight *weights,
				uint32_t weights_count);
void weir_store_save_counts(weir_store *store, const char *model, const weir_counted_weight *weights, uint32_t weights_count);

void weir_store_get_stats(weir_store *store, weir_store_stats *stats);
void weir_store_reset_stats(weir_store *store);
const char *weir_store_policy(weir_store *store);
const char *weir_store_io_method(const weir_store *store);

#ifdef __cplusplus
}
#endif
#endif
