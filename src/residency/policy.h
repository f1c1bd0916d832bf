/*
 * policy.h - which chunk gives up its slot: bookkeeping over chunk, set and slot numbers.
 *
 * A policy does no I/O, owns no memory and knows no store: the store and the offline replay (replay.h) run this same code.
 *
 * Terms
 *   class   slots of one size; a chunk can only take a slot of its class.
 *   set     the chunks of one group (all experts of one tensor) that share a class.  Quotas are per set:
 *               quota = slots of the class × chunks of the set ÷ chunks of the class
 *   excess  resident - quota.  A set below its quota may borrow whatever is free.
 *   count   how often a chunk was demanded, in units of WEIR_POLICY_COUNT_ONE; it survives eviction, and halves every
 *           WEIR_POLICY_HALF_LIFE_TICKS ticks.
 *   fresh   brought by a prefetch, not demanded since, and younger than WEIR_POLICY_STALE_TICKS.
 *
 *   score   what a policy thinks of a chunk: the lowest of a set goes first, of equals the one that moved longest ago.
 *
 * Policies with quotas ("lru", "lfu", "lfru"): the victim of a demand comes from the set with the largest excess, the demanding
 * set counted with one chunk more than it has; ties go to the demanding set, then to the lowest number.  So when every set is
 * at its quota, a set evicts from itself.
 *
 *   quota 4 each     A ■■■■■■    B ■■■     C ■■■           C demands:  A gives (excess 2 against 0)
 *                    A ■■■■      B ■■■■    C ■■■■          C demands:  C gives (excess 0 against 1)
 *
 * Policies with one pool ("odds", "lru-global", "lfu-global"): the victim is the lowest of the class.
 *
 * The victim of a prefetch is never fresh, and either comes from another set that is over its quota by a whole slot, or is
 * less wanted than the chunk to come (by score; "lru": not demanded in this tick or the last).
 *
 * "auto" runs one of the others and watches how some would have done (auto.h).
 *
 * Threads: none; the caller locks.
 */
#ifndef WEIR_RESIDENCY_POLICY_H
#define WEIR_RESIDENCY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "residency/workspace.h"

#define WEIR_NONE UINT32_MAX
#define WEIR_POLICY_COUNT_ONE 256U
#define WEIR_POLICY_HALF_LIFE_TICKS 32U
#define WEIR_POLICY_STALE_TICKS 2U
#define WEIR_POLICY_CHUNKS_MAX (1U << 30) /* keeps every product of two numbers below 2^63 */

typedef struct weir_policy weir_policy;
typedef struct weir_odds weir_odds;
typedef struct weir_auto weir_auto;

/* A prefetch is a vague hint: it displaces only what is less wanted.  An expectation is a good guess at the next demand: it may
 * displace what that demand would, which counts alone would keep. */
typedef enum weir_policy_purpose { WEIR_FOR_DEMAND, WEIR_FOR_PREFETCH, WEIR_FOR_EXPECTED } weir_policy_purpose;

/* What differs between policies. */
typedef struct weir_policy_methods {
	const char *name;
	bool pooled; /* one pool for each class; else quotas */
	bool learns; /* needs the tables of odds.h */
	bool chooses; /* "auto": runs the first of its candidates, then whichever does best */
	double (*score)(const weir_policy *policy, uint32_t chunk);
	/* Whether the chunk in `slot` may go for a prefetch of `chunk`. */
	bool (*less_wanted)(const weir_policy *policy, uint32_t slot, uint32_t chunk);
} weir_policy_methods;

/* Method tables, ended by a NULL name.  weir_policy_find gives the one of that name (NULL gives "auto"), or NULL. */
extern const weir_policy_methods weir_policy_table[];
const weir_policy_methods *weir_policy_find(const char *name);

typedef struct weir_policy_shape {
	uint32_t chunks_count; /* ≤ WEIR_POLICY_CHUNKS_MAX */
	uint32_t sets_count;
	uint32_t classes_count;
	uint32_t slots_count; /* = sum of class_slots */
	const uint32_t *chunk_set; /* [chunks_count] */
	const uint32_t *set_chunks; /* [sets_count] chunks of each */
	const uint32_t *set_class; /* [sets_count], ascending */
	const uint32_t *class_slots; /* [classes_count] */
} weir_policy_shape;

typedef struct weir_policy_chunk {
	uint32_t set;
	uint32_t slot; /* WEIR_NONE when not resident */
	uint32_t count;
	uint32_t total; /* demands in all, and those of earlier runs (weir_policy_seed) */
	uint32_t demand_tick; /* of the last demand; 0 before the first */
	uint32_t member; /* place among all chunks in order of their sets: sets[set].first + number within the set */
} weir_policy_chunk;

typedef struct weir_policy_slot {
	uint32_t prev, next; /* in the set's list, least recent first */
	uint32_t chunk; /* WEIR_NONE when empty; else chunks[chunk].slot = this slot */
	uint32_t prefetch_tick;
	uint64_t order; /* when it moved to the new end of its list; ascending along the list */
	bool evictable; /* ready and not pinned */
	bool unused; /* brought by a prefetch and not demanded since */
} weir_policy_slot;

typedef struct weir_policy_set {
	uint32_t class_index;
	uint32_t chunks_count;
	uint32_t resident; /* = length of the list = slots whose chunk is of this set */
	uint32_t evictable; /* = slots in the list that are evictable; ≤ resident */
	uint32_t oldest, newest;
	uint32_t first; /* member number of its first chunk */
	uint64_t seeded; /* sum of the totals taken over from earlier runs */
	uint32_t lowest; /* the evictable slot that goes first, where lowest_known; WEIR_NONE: there is none */
	bool lowest_known;
	double lowest_score;
	double rank; /* of the lowest in its pool, as of rank_at */
	uint64_t rank_at; /* weir_odds.visits */
} weir_policy_set;

typedef struct weir_policy_class {
	uint32_t slots_count;
	uint32_t chunks_count; /* = sum of its sets' chunks_count */
	uint32_t sets_first, sets_count;
} weir_policy_class;

struct weir_policy {
	const weir_policy_methods *methods; /* in force */
	bool chooses; /* they may change */
	uint32_t chunks_count, sets_count, classes_count, slots_count;
	uint32_t tick;
	weir_policy_chunk *chunks;
	weir_policy_slot *slots;
	weir_policy_set *sets;
	weir_policy_class *classes;
	uint64_t order; /* of the last move in any list */
	weir_odds *odds; /* NULL unless it learns */
	weir_auto *chooser; /* NULL unless it chooses */
};

/* Carves the tables out of `workspace`; measures them if it has no memory, which reads the counts and set_chunks of `shape`. */
void weir_policy_carve(weir_policy *policy, const weir_policy_methods *methods, const weir_policy_shape *shape,
		       weir_workspace *workspace);

/* Fills carved tables: nothing resident, nothing counted. */
void weir_policy_init(weir_policy *policy, const weir_policy_methods *methods, const weir_policy_shape *shape);

/* Takes over what earlier runs counted: totals[chunks_count], at the beginning. */
void weir_policy_seed(weir_policy *policy, const uint32_t *totals);

void weir_policy_demand(weir_policy *policy, uint32_t chunk); /* resident or not: hit, joined and miss all count */
void weir_policy_insert(weir_policy *policy, uint32_t chunk, uint32_t slot,
			weir_policy_purpose purpose); /* not evictable yet */
void weir_policy_remove(weir_policy *policy, uint32_t slot);
void weir_policy_set_evictable(weir_policy *policy, uint32_t slot, bool evictable);
void weir_policy_tick(weir_policy *policy);

/* To be called after the demands of an acquire, when their reads have been begun: what can be put off is done now. */
void weir_policy_settle(weir_policy *policy);

/* The slot to evict so that `chunk` can come, or WEIR_NONE.  Changes nothing that shows. */
uint32_t weir_policy_victim(weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose);

/* The first invariant above that does not hold, as text; NULL when all hold.  O(chunks + slots). */
const char *weir_policy_broken(const weir_policy *policy);

/* For odds.c and auto.c: scores of a set, or of all sets, have changed; other methods are in force from now on. */
void weir_policy_rescored(weir_policy *policy, uint32_t set);
void weir_policy_rescored_all(weir_policy *policy);
void weir_policy_use(weir_policy *policy, const weir_policy_methods *methods);

#endif
