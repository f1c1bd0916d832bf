/*
 * residency_types.h - the store from inside.  Included by src/residency/ and by tests, by nobody else.
 *
 * Words
 *   chunk     an extent of one file that is resident as a whole or not at all.
 *   slab      the memory that holds all slots: mapped once, never given back in parts.
 *   class     the slots of one size; they lie one after the other in the slab.
 *   slot      room for one chunk of its class.  Its number never changes, its generation does, with every new chunk.
 *   lease     one pin on one slot, given to one caller.
 *   read      the way of a chunk into its slot: waiting in one of the store's queues, or taken by the I/O method.
 *
 * A slot's states
 *
 *            place                      read ended                 evict
 *   FREE ────────────► LOADING ─────────────────────► READY ─────────────────► FREE
 *    ▲                    │  │      read failed, pinned                          ▲
 *    │                    │  └──────────────────────► FAILED ── last release ────┤
 *    └── cancelled before it was submitted            read failed, not pinned ───┘
 *
 * A chunk whose read failed is forgotten at once, so that the next acquire reads it again, in another slot if need be.
 *
 * A chunk is read into its slot at (offset % alignment), so that its aligned superset can be read straight into place; when
 * that is no multiple of data_alignment, it is moved down to one before it becomes READY:
 *
 *   file   ├──────┬────chunk─────┬───┤   multiples of the alignment
 *   slot   ├─shift┴──────────────┴───┴──── not used ────┤ slot_bytes
 *
 * Invariants (weir_store_broken checks them, tests call it after every operation)
 *   slots_count = free + loading + ready + failed, in all and per class
 *   loading = queued for demand + queued for prefetch + taken by the I/O method
 *   sum of slot.pins = leases held ≤ leases_max;   pins > 0 in every FAILED slot;   pins = 0 in every FREE slot
 *   chunk.slot = s  ⇔  slot[s].chunk = c and slot[s] is LOADING or READY
 *   the policy holds the same chunks in the same slots; evictable ⇔ READY and pins = 0
 *   slab_bytes + tables_bytes ≤ budget_bytes;   reads in flight ≤ queue depth
 *
 * Threads: everything below is guarded by store.mutex, except slot.state, which is read without it: a holder of a lease may
 * read the slot's bytes after it has seen READY (acquire order), because the slot cannot change while it is pinned.
 */
#ifndef WEIR_RESIDENCY_TYPES_H
#define WEIR_RESIDENCY_TYPES_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "residency/layout.h"
#include "residency/policy.h"
#include "weir/store.h"

#define WEIR_STORE_BATCH 256 /* requests handed to the I/O method, and completions collected, in one call */

typedef enum weir_slot_state { WEIR_SLOT_FREE, WEIR_SLOT_LOADING, WEIR_SLOT_READY, WEIR_SLOT_FAILED } weir_slot_state;

typedef enum weir_slot_list_name {
	WEIR_IN_NONE, /* in no list */
	WEIR_IN_FREE, /* its class's free list; ⇔ FREE */
	WEIR_IN_DEMAND, /* store.demand; LOADING */
	WEIR_IN_PREFETCH, /* store.prefetch; LOADING */
	WEIR_IN_IO, /* taken by the I/O method; LOADING */
} weir_slot_list_name;

typedef struct weir_slot {
	atomic_uint state; /* weir_slot_state */
	uint32_t generation;
	uint32_t chunk; /* the one it holds or will hold; the last one when FREE or FAILED */
	uint32_t class_index;
	uint32_t pins; /* = leases on this slot */
	uint32_t prev, next; /* in the list that `list` names */
	uint8_t list; /* weir_slot_list_name */
	bool prefetched; /* brought by a prefetch and not acquired since */
	int code, sys_errno; /* FAILED: what the read said */
	uint64_t failed_offset;
} weir_slot;

typedef struct weir_slot_list {
	uint32_t head, tail, count;
	uint8_t name; /* weir_slot_list_name of its members */
} weir_slot_list;

typedef struct weir_store_class {
	uint64_t slot_bytes;
	uint64_t slab_offset; /* of its first slot; slot s lies at slab_offset + (s - slots_first) × slot_bytes */
	uint32_t slots_first, slots_count;
	uint32_t prefetching; /* LOADING slots with prefetched set; ≤ half of slots_count, or 1 */
	weir_slot_list free;
} weir_store_class;

typedef struct weir_store_chunk {
	uint64_t offset;
	uint64_t bytes;
	uint32_t file;
	uint32_t class_index;
	uint32_t slot; /* WEIR_NONE when neither LOADING nor READY */
} weir_store_chunk;

struct weir_lease {
	weir_store *store;
	const void *data; /* where the chunk's first byte is or will be */
	uint32_t slot; /* WEIR_NONE: not held */
	uint32_t generation; /* = the slot's, as long as the lease is held */
	uint32_t chunk;
	uint32_t next_free;
};

struct weir_store {
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* some read ended, or the thread in weir_io_wait came back */
	weir_io *io;
	unsigned char *slab;
	uint64_t slab_bytes;
	uint64_t tables_bytes; /* this struct and the workspace */
	uint64_t budget_bytes;
	void *workspace; /* everything that the pointers below point to */
	uint32_t alignment; /* of offsets, lengths and memory; power of two */
	uint32_t data_alignment; /* of a chunk's first byte in memory; power of two, ≤ alignment; 1 when none is wanted */
	uint32_t chunks_count, classes_count, slots_count, leases_max, files_count;

	weir_store_chunk *chunks;
	weir_store_class *classes;
	weir_slot *slots;
	weir_lease *leases;
	uint32_t *files; /* the I/O method's number of each path */
	weir_io_request *requests; /* [WEIR_STORE_BATCH] scratch */
	weir_io_completion *completions; /* [WEIR_STORE_BATCH] scratch */
	const uint64_t *sums; /* checksum of each chunk, or NULL; borrowed */
	weir_policy policy;

	weir_slot_list demand; /* reads that somebody acquired, oldest first */
	weir_slot_list prefetch; /* reads that are only hints: started while the I/O method has nothing else to do */
	uint32_t lease_free; /* head of the list through next_free */
	uint32_t leases_held;
	uint32_t states_count[4]; /* slots per state; sum = slots_count */
	uint64_t reads_ended; /* completions taken, failed ones too */

	bool io_waiting; /* a thread is in weir_io_wait */
	uint32_t sleepers; /* threads in pthread_cond_wait */
	uint32_t waiters; /* threads that wait for a read, either way */
	uint64_t stall_start_ns; /* when waiters became 1 */
	uint64_t io_bytes_base; /* the I/O method's bytes at the last reset of the statistics */
	uint64_t page_cache_bytes_base; /* likewise */
	weir_store_stats stats; /* counters only */
};

/* slots.c: state changes.  All with the mutex held. */
void weir_slot_list_push(weir_store *store, weir_slot_list *list, uint32_t slot);
void weir_slot_list_remove(weir_store *store, weir_slot_list *list, uint32_t slot);
unsigned char *weir_slot_base(const weir_store *store, uint32_t slot);
uint32_t weir_chunk_shift(const weir_store *store, uint32_t chunk); /* of a READY chunk's first byte from its slot's */
/* A FREE slot for `chunk`, off its list: a free one, or that of a victim, or of a prefetch that has not begun; or WEIR_NONE. */
uint32_t weir_slot_take(weir_store *store, uint32_t chunk, weir_policy_purpose purpose);
/* FREE → LOADING for `chunk`, queued for reading. */
void weir_slot_place(weir_store *store, uint32_t slot, uint32_t chunk, weir_policy_purpose purpose);
/* LOADING → READY, or FAILED, or FREE. */
void weir_slot_finish(weir_store *store, uint32_t slot, const weir_io_completion *completion);
void weir_slot_pin(weir_store *store, uint32_t slot);
void weir_slot_unpin(weir_store *store, uint32_t slot);
/* An acquire met this slot: true when a prefetch had brought its chunk and this is the first acquire since. */
bool weir_slot_claim_prefetch(weir_store *store, uint32_t slot);

/* reads.c: with the mutex held. */
void weir_reads_start_demanded(weir_store *store);
void weir_reads_start_prefetches(weir_store *store);
int weir_reads_collect(weir_store *store); /* how many reads ended, or a negative code; starts further ones */
int weir_reads_sleep(weir_store *store); /* until some read has ended; WEIR_EBUSY when none is under way */
void weir_reads_begin_stall(weir_store *store);
void weir_reads_end_stall(weir_store *store);

/* check.c: the first invariant that does not hold, as text, or NULL; and the same as 0 or WEIR_EINVAL.  Any thread. */
const char *weir_store_broken(const weir_store *store);
int weir_store_check(const weir_store *store);

#endif
