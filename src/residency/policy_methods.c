/*
 * policy_methods.c - the policies themselves: what each thinks of a chunk, as a score of which the lowest goes first.
 *
 *   auto          odds, or lfu or lru where those are seen to do better (auto.h)
 *   odds          how likely the next token wants it, by the time until its layer comes round again (odds.h); one pool
 *   lfu           how often it was demanded, counts ageing; quotas
 *   lru           all alike, so that time alone decides; quotas
 *   lfru          how often, divided by how long ago; quotas
 *   lfu-global    lfu over all chunks of a size, to compare with
 *   lru-global    lru over all chunks of a size, to compare with: it hits nothing once the slots hold less than one token cycle
 */
#include <string.h>

#include "residency/odds.h"

static double by_count(const weir_policy *policy, uint32_t chunk)
{
	return policy->chunks[chunk].count;
}

static double by_time(const weir_policy *policy, uint32_t chunk)
{
	(void)policy;
	(void)chunk;
	return 0;
}

static double by_count_and_age(const weir_policy *policy, uint32_t chunk)
{
	const weir_policy_chunk *entry = &policy->chunks[chunk];

	return (double)entry->count / (double)(policy->tick - entry->demand_tick + 1);
}

static double by_odds(const weir_policy *policy, uint32_t chunk)
{
	return weir_odds_of(policy, chunk);
}

/* Without counts, only time speaks against a resident chunk: not demanded in this tick or the last. */
static bool older_than_a_tick(const weir_policy *policy, uint32_t slot, uint32_t chunk)
{
	(void)chunk;
	return policy->tick - policy->chunks[policy->slots[slot].chunk].demand_tick >= 2;
}

static bool scored_less(const weir_policy *policy, uint32_t slot, uint32_t chunk)
{
	return policy->methods->score(policy, policy->slots[slot].chunk) < policy->methods->score(policy, chunk);
}

const weir_policy_methods weir_policy_table[] = {
	{"auto", true, true, true, by_odds, scored_less},
	{"odds", true, true, false, by_odds, scored_less},
	{"lfu", false, false, false, by_count, scored_less},
	{"lru", false, false, false, by_time, older_than_a_tick},
	{"lfru", false, false, false, by_count_and_age, scored_less},
	{"lfu-global", true, false, false, by_count, scored_less},
	{"lru-global", true, false, false, by_time, older_than_a_tick},
	{NULL, false, false, false, NULL, NULL},
};

const weir_policy_methods *weir_policy_find(const char *name)
{
	if (!name)
		return &weir_policy_table[0];
	for (const weir_policy_methods *methods = weir_policy_table; methods->name; methods++)
		if (strcmp(methods->name, name) == 0)
			return methods;
	return NULL;
}
