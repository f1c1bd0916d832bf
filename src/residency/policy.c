/*
 * policy.c - the bookkeeping that all policies share: recency lists per set, counts, quotas, and the choice of the set that
 * gives up a slot.  What differs between policies is in policy_methods.c.
 *
 * Owns nothing (the tables are carved from the caller's workspace), locks nothing, allocates nothing.
 */
#include "residency/policy.h"

#include <assert.h>
#include <string.h>

#define COUNT_MAX (UINT32_MAX - WEIR_POLICY_COUNT_ONE)

static uint32_t sets_needed(const weir_policy_shape *shape)
{
	return shape->sets_count > shape->classes_count ? shape->sets_count : shape->classes_count;
}

void weir_policy_carve(weir_policy *policy, const weir_policy_shape *shape, weir_workspace *workspace)
{
	policy->chunks = weir_workspace_take(workspace, shape->chunks_count, sizeof *policy->chunks);
	policy->slots = weir_workspace_take(workspace, shape->slots_count, sizeof *policy->slots);
	policy->sets = weir_workspace_take(workspace, sets_needed(shape), sizeof *policy->sets);
	policy->classes = weir_workspace_take(workspace, shape->classes_count, sizeof *policy->classes);
}

static void init_sets(weir_policy *policy, const weir_policy_shape *shape)
{
	for (uint32_t i = 0; i < policy->classes_count; i++)
		policy->classes[i] = (weir_policy_class){.slots_count = shape->class_slots[i]};
	for (uint32_t i = 0; i < policy->sets_count; i++) {
		uint32_t class_index = policy->methods->by_group ? shape->set_class[i] : i;
		weir_policy_class *owner = &policy->classes[class_index];

		if (owner->sets_count++ == 0)
			owner->sets_first = i;
		policy->sets[i] = (weir_policy_set){.class_index = class_index, .oldest = WEIR_NONE, .newest = WEIR_NONE};
	}
}

static void init_chunks(weir_policy *policy, const weir_policy_shape *shape)
{
	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		uint32_t set = shape->chunk_set[i];

		if (!policy->methods->by_group)
			set = shape->set_class[set];
		policy->chunks[i] = (weir_policy_chunk){.set = set, .slot = WEIR_NONE};
		policy->sets[set].chunks_count++;
		policy->classes[policy->sets[set].class_index].chunks_count++;
	}
}

void weir_policy_init(weir_policy *policy, const weir_policy_methods *methods, const weir_policy_shape *shape)
{
	assert(shape->chunks_count <= WEIR_POLICY_CHUNKS_MAX);
	policy->methods = methods;
	policy->chunks_count = shape->chunks_count;
	policy->classes_count = shape->classes_count;
	policy->sets_count = methods->by_group ? shape->sets_count : shape->classes_count;
	policy->slots_count = shape->slots_count;
	policy->tick = 0;
	init_sets(policy, shape);
	init_chunks(policy, shape);
	for (uint32_t i = 0; i < policy->slots_count; i++)
		policy->slots[i] = (weir_policy_slot){.prev = WEIR_NONE, .next = WEIR_NONE, .chunk = WEIR_NONE};
}

static void unlink_slot(weir_policy *policy, weir_policy_set *set, uint32_t slot)
{
	weir_policy_slot *entry = &policy->slots[slot];

	if (entry->prev != WEIR_NONE)
		policy->slots[entry->prev].next = entry->next;
	else
		set->oldest = entry->next;
	if (entry->next != WEIR_NONE)
		policy->slots[entry->next].prev = entry->prev;
	else
		set->newest = entry->prev;
	entry->prev = entry->next = WEIR_NONE;
}

static void link_newest(weir_policy *policy, weir_policy_set *set, uint32_t slot)
{
	weir_policy_slot *entry = &policy->slots[slot];

	entry->prev = set->newest;
	entry->next = WEIR_NONE;
	if (set->newest != WEIR_NONE)
		policy->slots[set->newest].next = slot;
	else
		set->oldest = slot;
	set->newest = slot;
}

void weir_policy_demand(weir_policy *policy, uint32_t chunk)
{
	weir_policy_chunk *entry = &policy->chunks[chunk];
	weir_policy_set *set = &policy->sets[entry->set];

	if (entry->count < COUNT_MAX)
		entry->count += WEIR_POLICY_COUNT_ONE;
	entry->demand_tick = policy->tick;
	if (entry->slot == WEIR_NONE)
		return;
	policy->slots[entry->slot].unused = false;
	if (set->newest == entry->slot)
		return;
	unlink_slot(policy, set, entry->slot);
	link_newest(policy, set, entry->slot);
}

void weir_policy_insert(weir_policy *policy, uint32_t chunk, uint32_t slot, weir_policy_purpose purpose)
{
	weir_policy_set *set = &policy->sets[policy->chunks[chunk].set];
	weir_policy_slot *entry = &policy->slots[slot];

	assert(entry->chunk == WEIR_NONE && policy->chunks[chunk].slot == WEIR_NONE);
	entry->chunk = chunk;
	entry->evictable = false;
	entry->unused = purpose != WEIR_FOR_DEMAND;
	entry->prefetch_tick = policy->tick;
	policy->chunks[chunk].slot = slot;
	set->resident++;
	link_newest(policy, set, slot);
}

void weir_policy_remove(weir_policy *policy, uint32_t slot)
{
	weir_policy_slot *entry = &policy->slots[slot];
	weir_policy_set *set = &policy->sets[policy->chunks[entry->chunk].set];

	weir_policy_set_evictable(policy, slot, false);
	unlink_slot(policy, set, slot);
	set->resident--;
	policy->chunks[entry->chunk].slot = WEIR_NONE;
	entry->chunk = WEIR_NONE;
	entry->unused = false;
}

void weir_policy_set_evictable(weir_policy *policy, uint32_t slot, bool evictable)
{
	weir_policy_slot *entry = &policy->slots[slot];
	weir_policy_set *set = &policy->sets[policy->chunks[entry->chunk].set];

	if (entry->evictable == evictable)
		return;
	entry->evictable = evictable;
	if (evictable)
		set->evictable++;
	else
		set->evictable--;
}

void weir_policy_tick(weir_policy *policy)
{
	policy->tick++;
	if (policy->tick % WEIR_POLICY_HALF_LIFE_TICKS != 0)
		return;
	for (uint32_t i = 0; i < policy->chunks_count; i++)
		policy->chunks[i].count /= 2;
}

bool weir_policy_fresh(const weir_policy *policy, const weir_policy_slot *slot)
{
	return slot->unused && policy->tick - slot->prefetch_tick < WEIR_POLICY_STALE_TICKS;
}

/* (resident + extra - quota) × chunks of the class: whole numbers, comparable between the sets of one class. */
static int64_t excess(const weir_policy *policy, uint32_t set, uint32_t extra)
{
	const weir_policy_set *entry = &policy->sets[set];
	const weir_policy_class *owner = &policy->classes[entry->class_index];

	return ((int64_t)entry->resident + extra) * owner->chunks_count - (int64_t)owner->slots_count * entry->chunks_count;
}

static uint32_t victim_for_demand(const weir_policy *policy, uint32_t own)
{
	const weir_policy_class *owner = &policy->classes[policy->sets[own].class_index];
	uint32_t fullest = WEIR_NONE;
	int64_t fullest_excess = INT64_MIN;

	for (uint32_t set = owner->sets_first; set < owner->sets_first + owner->sets_count; set++) {
		int64_t over = excess(policy, set, set == own);

		if (policy->sets[set].evictable == 0)
			continue;
		if (over > fullest_excess || (over == fullest_excess && set == own)) {
			fullest = set;
			fullest_excess = over;
		}
	}
	return fullest == WEIR_NONE ? WEIR_NONE : policy->methods->pick(policy, fullest, false);
}

/* Another set with at least one whole slot more than its quota, and no less over it than `own` would be. */
static uint32_t borrower(const weir_policy *policy, uint32_t own)
{
	const weir_policy_class *owner = &policy->classes[policy->sets[own].class_index];
	int64_t least = excess(policy, own, 1);
	uint32_t fullest = WEIR_NONE;

	if (least < (int64_t)owner->chunks_count)
		least = owner->chunks_count;
	for (uint32_t set = owner->sets_first; set < owner->sets_first + owner->sets_count; set++) {
		if (set == own || policy->sets[set].evictable == 0 || excess(policy, set, 0) < least)
			continue;
		fullest = set;
		least = excess(policy, set, 0) + 1;
	}
	return fullest;
}

static uint32_t victim_for_hint(const weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	uint32_t own = policy->chunks[chunk].set;
	uint32_t other = borrower(policy, own);
	uint32_t slot = other == WEIR_NONE ? WEIR_NONE : policy->methods->pick(policy, other, true);

	if (slot != WEIR_NONE)
		return slot;
	slot = policy->methods->pick(policy, own, true);
	if (slot == WEIR_NONE || purpose == WEIR_FOR_EXPECTED)
		return slot;
	return policy->methods->less_wanted(policy, slot, chunk) ? slot : WEIR_NONE;
}

uint32_t weir_policy_victim(const weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	if (purpose != WEIR_FOR_DEMAND)
		return victim_for_hint(policy, chunk, purpose);
	return victim_for_demand(policy, policy->chunks[chunk].set);
}

static const char *set_broken(const weir_policy *policy, uint32_t set)
{
	const weir_policy_set *entry = &policy->sets[set];
	uint32_t resident = 0, evictable = 0, previous = WEIR_NONE;

	for (uint32_t slot = entry->oldest; slot != WEIR_NONE; slot = policy->slots[slot].next) {
		const weir_policy_slot *held = &policy->slots[slot];

		if (resident++ >= policy->slots_count)
			return "policy: list of a set has an end";
		if (held->prev != previous)
			return "policy: prev and next of a set's list are inverse";
		if (held->chunk == WEIR_NONE || policy->chunks[held->chunk].set != set)
			return "policy: a set's list holds chunks of that set";
		evictable += held->evictable;
		previous = slot;
	}
	if (entry->newest != previous)
		return "policy: newest = end of the list";
	if (entry->resident != resident || entry->evictable != evictable)
		return "policy: resident, evictable = what the set's list holds";
	return NULL;
}

const char *weir_policy_broken(const weir_policy *policy)
{
	uint32_t filled = 0, resident = 0, mapped = 0;

	for (uint32_t set = 0; set < policy->sets_count; set++) {
		const char *broken = set_broken(policy, set);

		if (broken)
			return broken;
		resident += policy->sets[set].resident;
	}
	for (uint32_t slot = 0; slot < policy->slots_count; slot++) {
		uint32_t chunk = policy->slots[slot].chunk;

		if (chunk != WEIR_NONE && policy->chunks[chunk].slot != slot)
			return "policy: chunk to slot and slot to chunk are inverse";
		filled += chunk != WEIR_NONE;
	}
	for (uint32_t chunk = 0; chunk < policy->chunks_count; chunk++)
		mapped += policy->chunks[chunk].slot != WEIR_NONE;
	return filled == resident && mapped == resident ? NULL : "policy: sum of resident = filled slots = mapped chunks";
}
