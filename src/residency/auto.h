/*
 * auto.h - choosing a policy while running, by how each candidate would have done.
 *
 * Candidates ("odds", "lfu", "lru") are replayed over some of the sets, up to WEIR_AUTO_SETS_MAX of the largest class, with as
 * many slots as those sets' share.  A replay holds chunk numbers, no chunks, so it costs little: all tables are carved from the
 * policy's workspace, and a visit of a set that is not watched costs nothing.
 *
 *   every WEIR_AUTO_WINDOW_TICKS:   hits ← 3/4 hits + those of the window, for each candidate
 *   a candidate comes into force when it hits more often than the one in force by WEIR_AUTO_MARGIN, at two windows in a row
 *
 * "odds" is in force at first.  A policy that fails below one token cycle (a global LRU) is no candidate.
 */
#ifndef WEIR_RESIDENCY_AUTO_H
#define WEIR_RESIDENCY_AUTO_H

#include "residency/policy.h"
#include "residency/replay.h"

#define WEIR_AUTO_CANDIDATES 3
#define WEIR_AUTO_SETS_MAX 16U
#define WEIR_AUTO_WINDOW_TICKS 16U
#define WEIR_AUTO_MARGIN 0.01

struct weir_auto {
	weir_replay replays[WEIR_AUTO_CANDIDATES];
	double hits[WEIR_AUTO_CANDIDATES], demanded; /* of past windows, ageing */
	uint32_t active; /* candidate in force */
	uint32_t rival, rival_windows; /* the one that was better at the last windows, and at how many */
	uint32_t *watched; /* [sets] its number among the sets that are replayed, or WEIR_NONE */
	uint32_t *chunk_set; /* of the replays' chunks */
	uint32_t *totals; /* [the replays' chunks] scratch of weir_auto_seed */
	uint32_t first[WEIR_AUTO_SETS_MAX]; /* the replays' first chunk of each set */
};

weir_auto *weir_auto_carve(const weir_policy_shape *shape, weir_workspace *workspace);
void weir_auto_init(weir_policy *policy, const weir_policy_shape *shape);

/* A visit of a set has ended: picks are numbers within the set. */
void weir_auto_visit(weir_policy *policy, uint32_t set, const uint16_t *picks, uint32_t count);
void weir_auto_tick(weir_policy *policy);

/* The policy was seeded: so are the replays. */
void weir_auto_seed(weir_policy *policy);

#endif
