/*
 * replay.h - a store without a drive: runs a policy over demands and counts hits, for traces and for choosing a policy.
 *
 * Threads: one replay per thread.  Owns its tables; reads and writes no file.
 */
#ifndef WEIR_RESIDENCY_REPLAY_H
#define WEIR_RESIDENCY_REPLAY_H

#include "residency/policy.h"
#include "weir/error.h"

typedef struct weir_replay {
	weir_policy policy;
	uint32_t *free_slots; /* stack per class: free_slots[free_first[c] .. free_first[c] + free_count[c]) */
	uint32_t *free_first;
	uint32_t *free_count;
	uint64_t demanded;
	uint64_t hits;
	void *memory;
} weir_replay;

/* Carves its tables out of `workspace`, and fills them: for a replay within something else's memory; not to be closed. */
void weir_replay_carve(weir_replay *replay, const weir_policy_methods *methods, const weir_policy_shape *shape,
		       weir_workspace *workspace);
void weir_replay_init(weir_replay *replay, const weir_policy_methods *methods, const weir_policy_shape *shape);

/* Opens a replay of the named policy.  WEIR_EINVAL for an unknown name or an empty shape, WEIR_ENOMEM. */
int weir_replay_open(weir_replay *replay, const char *policy, const weir_policy_shape *shape);
void weir_replay_close(weir_replay *replay);

/* The demand of one acquire: all chunks are pinned together, those that are there first, as the store does it.  Returns how
 * many were hits.  A chunk for which no slot can be freed counts as demanded and is not kept. */
uint32_t weir_replay_demand(weir_replay *replay, const uint32_t *chunks, uint32_t count);

#endif
