/*
 * policy_methods.c - the policies themselves: what "wanted least" means within one set.
 *
 *   lru           least recently demanded, per group
 *   lfu           least often demanded, counts ageing, ties by recency, per group; "auto"
 *   lru-global    ... over all chunks of a size: the naive ones, kept to compare with.  A global LRU
 *   lfu-global    hits nothing once the slots hold less than one token cycle.
 *
 * Both walk the set's recency list from its old end: the first that may go (lru), or the one with the lowest count (lfu).
 */
#include "residency/policy.h"

#include <string.h>

static bool may_go(const weir_policy *policy, const weir_policy_slot *slot, bool spare_fresh)
{
	return slot->evictable && !(spare_fresh && weir_policy_fresh(policy, slot));
}

static uint32_t pick_oldest(const weir_policy *policy, uint32_t set, bool spare_fresh)
{
	for (uint32_t slot = policy->sets[set].oldest; slot != WEIR_NONE; slot = policy->slots[slot].next)
		if (may_go(policy, &policy->slots[slot], spare_fresh))
			return slot;
	return WEIR_NONE;
}

static uint32_t pick_rarest(const weir_policy *policy, uint32_t set, bool spare_fresh)
{
	uint32_t rarest = WEIR_NONE;
	uint32_t rarest_count = UINT32_MAX;

	for (uint32_t slot = policy->sets[set].oldest; slot != WEIR_NONE; slot = policy->slots[slot].next) {
		const weir_policy_slot *entry = &policy->slots[slot];
		uint32_t count = policy->chunks[entry->chunk].count;

		if (count >= rarest_count || !may_go(policy, entry, spare_fresh))
			continue;
		rarest = slot;
		rarest_count = count;
		if (count == 0)
			break;
	}
	return rarest;
}

/* Without counts, only time speaks against a resident chunk: not demanded in this tick or the last. */
static bool older_than_a_tick(const weir_policy *policy, uint32_t slot, uint32_t chunk)
{
	(void)chunk;
	return policy->tick - policy->chunks[policy->slots[slot].chunk].demand_tick >= 2;
}

static bool rarer(const weir_policy *policy, uint32_t slot, uint32_t chunk)
{
	return policy->chunks[policy->slots[slot].chunk].count < policy->chunks[chunk].count;
}

const weir_policy_methods weir_policy_table[] = {
	{"lfu", true, pick_rarest, rarer},
	{"lru", true, pick_oldest, older_than_a_tick},
	{"lfu-global", false, pick_rarest, rarer},
	{"lru-global", false, pick_oldest, older_than_a_tick},
	{NULL, false, NULL, NULL},
};

const weir_policy_methods *weir_policy_find(const char *name)
{
	if (!name || strcmp(name, "auto") == 0)
		return &weir_policy_table[0];
	for (const weir_policy_methods *methods = weir_policy_table; methods->name; methods++)
		if (strcmp(methods->name, name) == 0)
			return methods;
	return NULL;
}
