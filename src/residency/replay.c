/*
 * replay.c - see replay.h.  Mirrors the order of the store's acquire: what is resident is pinned before any victim is sought.
 */
#include "residency/replay.h"

#include <stdlib.h>
#include <string.h>

void weir_replay_carve(weir_replay *replay, const weir_policy_methods *methods, const weir_policy_shape *shape,
		       weir_workspace *workspace)
{
	weir_policy_carve(&replay->policy, methods, shape, workspace);
	replay->free_slots = weir_workspace_take(workspace, shape->slots_count, sizeof *replay->free_slots);
	replay->free_first = weir_workspace_take(workspace, shape->classes_count, sizeof *replay->free_first);
	replay->free_count = weir_workspace_take(workspace, shape->classes_count, sizeof *replay->free_count);
}

static void fill_free(weir_replay *replay, const weir_policy_shape *shape)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < shape->classes_count; i++) {
		replay->free_first[i] = next;
		replay->free_count[i] = shape->class_slots[i];
		next += shape->class_slots[i];
	}
	for (uint32_t slot = 0; slot < shape->slots_count; slot++)
		replay->free_slots[slot] = slot;
}

void weir_replay_init(weir_replay *replay, const weir_policy_methods *methods, const weir_policy_shape *shape)
{
	weir_policy_init(&replay->policy, methods, shape);
	fill_free(replay, shape);
	replay->demanded = replay->hits = 0;
}

static int open_counted(weir_replay *replay, const weir_policy_methods *methods, const weir_policy_shape *shape)
{
	weir_workspace workspace = {0};

	weir_replay_carve(replay, methods, shape, &workspace);
	if (workspace.used == SIZE_MAX)
		return WEIR_ENOMEM;
	workspace.capacity = workspace.used;
	workspace.base = replay->memory = aligned_alloc(WEIR_WORKSPACE_ALIGNMENT, workspace.used);
	workspace.used = 0;
	if (!workspace.base)
		return WEIR_ENOMEM;
	weir_replay_carve(replay, methods, shape, &workspace);
	weir_replay_init(replay, methods, shape);
	return 0;
}

/* The shape with the chunks of each set counted. */
int weir_replay_open(weir_replay *replay, const char *policy, const weir_policy_shape *shape)
{
	const weir_policy_methods *methods = weir_policy_find(policy);
	weir_policy_shape counted = *shape;
	uint32_t *set_chunks;
	int code;

	memset(replay, 0, sizeof *replay);
	if (!methods || shape->chunks_count == 0 || shape->chunks_count > WEIR_POLICY_CHUNKS_MAX || shape->slots_count == 0)
		return WEIR_EINVAL;
	set_chunks = calloc(shape->sets_count, sizeof *set_chunks);
	if (!set_chunks)
		return WEIR_ENOMEM;
	for (uint32_t i = 0; i < shape->chunks_count; i++)
		set_chunks[shape->chunk_set[i]]++;
	counted.set_chunks = set_chunks;
	code = open_counted(replay, methods, &counted);
	free(set_chunks);
	return code;
}

void weir_replay_close(weir_replay *replay)
{
	free(replay->memory);
	memset(replay, 0, sizeof *replay);
}

static uint32_t take_slot(weir_replay *replay, uint32_t chunk)
{
	weir_policy *policy = &replay->policy;
	uint32_t class_index = policy->sets[policy->chunks[chunk].set].class_index;
	uint32_t slot;

	if (replay->free_count[class_index] > 0)
		return replay->free_slots[replay->free_first[class_index] + --replay->free_count[class_index]];
	slot = weir_policy_victim(policy, chunk, WEIR_FOR_DEMAND);
	if (slot != WEIR_NONE)
		weir_policy_remove(policy, slot);
	return slot;
}

static void set_pinned(weir_replay *replay, const uint32_t *chunks, uint32_t count, bool pinned)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = replay->policy.chunks[chunks[i]].slot;

		if (slot != WEIR_NONE)
			weir_policy_set_evictable(&replay->policy, slot, !pinned);
	}
}

uint32_t weir_replay_demand(weir_replay *replay, const uint32_t *chunks, uint32_t count)
{
	uint32_t hits = 0;

	set_pinned(replay, chunks, count, true);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot;

		if (replay->policy.chunks[chunks[i]].slot != WEIR_NONE) {
			hits++;
		} else if ((slot = take_slot(replay, chunks[i])) != WEIR_NONE) {
			weir_policy_insert(&replay->policy, chunks[i], slot, WEIR_FOR_DEMAND);
		}
		weir_policy_demand(&replay->policy, chunks[i]);
	}
	set_pinned(replay, chunks, count, false);
	weir_policy_settle(&replay->policy);
	replay->demanded += count;
	replay->hits += hits;
	return hits;
}
