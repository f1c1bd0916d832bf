/*
 * policy.c - the bookkeeping that all policies share: recency lists per set, counts, quotas, and the choice of the set that
 * gives up a slot.  What differs between policies is in policy_methods.c.
 *
 * Owns nothing (the tables are carved from the caller's workspace), locks nothing, allocates nothing.
 */
#include "residency/auto.h"
#include "residency/odds.h"

#include <assert.h>
#include <string.h>

#define COUNT_MAX (UINT32_MAX - WEIR_POLICY_COUNT_ONE)

void weir_policy_carve(weir_policy *policy, const weir_policy_methods *methods, const weir_policy_shape *shape,
		       weir_workspace *workspace)
{
	policy->chunks = weir_workspace_take(workspace, shape->chunks_count, sizeof *policy->chunks);
	policy->slots = weir_workspace_take(workspace, shape->slots_count, sizeof *policy->slots);
	policy->sets = weir_workspace_take(workspace, shape->sets_count, sizeof *policy->sets);
	policy->classes = weir_workspace_take(workspace, shape->classes_count, sizeof *policy->classes);
	policy->odds = methods->learns ? weir_odds_carve(shape, workspace) : NULL;
	policy->chooser = methods->chooses ? weir_auto_carve(shape, workspace) : NULL;
}

static void init_sets(weir_policy *policy, const weir_policy_shape *shape)
{
	for (uint32_t i = 0; i < policy->classes_count; i++)
		policy->classes[i] = (weir_policy_class){.slots_count = shape->class_slots[i]};
	for (uint32_t i = 0; i < policy->sets_count; i++) {
		weir_policy_class *owner = &policy->classes[shape->set_class[i]];

		if (owner->sets_count++ == 0)
			owner->sets_first = i;
		policy->sets[i] =
			(weir_policy_set){.class_index = shape->set_class[i], .oldest = WEIR_NONE, .newest = WEIR_NONE};
	}
}

static void init_chunks(weir_policy *policy, const weir_policy_shape *shape)
{
	uint32_t first = 0;

	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		uint32_t set = shape->chunk_set[i];

		policy->chunks[i] =
			(weir_policy_chunk){.set = set, .slot = WEIR_NONE, .member = policy->sets[set].chunks_count++};
		policy->classes[policy->sets[set].class_index].chunks_count++;
	}
	for (uint32_t i = 0; i < policy->sets_count; i++) {
		policy->sets[i].first = first;
		first += policy->sets[i].chunks_count;
	}
	for (uint32_t i = 0; i < policy->chunks_count; i++)
		policy->chunks[i].member += policy->sets[policy->chunks[i].set].first;
}

void weir_policy_init(weir_policy *policy, const weir_policy_methods *methods, const weir_policy_shape *shape)
{
	assert(shape->chunks_count <= WEIR_POLICY_CHUNKS_MAX);
	policy->methods = methods;
	policy->chunks_count = shape->chunks_count;
	policy->classes_count = shape->classes_count;
	policy->sets_count = shape->sets_count;
	policy->slots_count = shape->slots_count;
	policy->tick = 0;
	policy->order = 0;
	init_sets(policy, shape);
	init_chunks(policy, shape);
	for (uint32_t i = 0; i < policy->slots_count; i++)
		policy->slots[i] = (weir_policy_slot){.prev = WEIR_NONE, .next = WEIR_NONE, .chunk = WEIR_NONE};
	if (policy->odds)
		weir_odds_init(policy, shape);
	if (policy->chooser)
		weir_auto_init(policy, shape);
}

void weir_policy_rescored(weir_policy *policy, uint32_t set)
{
	policy->sets[set].lowest_known = false;
}

void weir_policy_rescored_all(weir_policy *policy)
{
	for (uint32_t set = 0; set < policy->sets_count; set++)
		policy->sets[set].lowest_known = false;
}

void weir_policy_use(weir_policy *policy, const weir_policy_methods *methods)
{
	policy->methods = methods;
	weir_policy_rescored_all(policy);
}

/* Counts as if each set had been demanded from for a while: a chunk demanded in every visit stands at the most that ageing
 * leaves of a count. */
void weir_policy_seed(weir_policy *policy, const uint32_t *totals)
{
	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		policy->chunks[i].total = totals[i];
		policy->sets[policy->chunks[i].set].seeded += totals[i];
	}
	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		weir_policy_chunk *chunk = &policy->chunks[i];
		const weir_policy_set *set = &policy->sets[chunk->set];
		double share = set->seeded ? (double)chunk->total / (double)set->seeded : 0;

		chunk->count = (uint32_t)(share * WEIR_POLICY_HALF_LIFE_TICKS * WEIR_POLICY_COUNT_ONE);
	}
	if (policy->odds)
		weir_odds_seed(policy);
	if (policy->chooser)
		weir_auto_seed(policy);
	weir_policy_rescored_all(policy);
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

	entry->order = ++policy->order;
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
	if (entry->total < UINT32_MAX)
		entry->total++;
	entry->demand_tick = policy->tick;
	set->lowest_known = false;
	if (policy->odds)
		weir_odds_demand(policy, chunk);
	if (entry->slot == WEIR_NONE)
		return;
	policy->slots[entry->slot].unused = false;
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
	set->lowest_known = false;
	link_newest(policy, set, slot);
	if (policy->odds && purpose != WEIR_FOR_DEMAND)
		weir_odds_expect(policy, chunk);
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
	set->lowest_known = false;
	entry->evictable = evictable;
	if (evictable)
		set->evictable++;
	else
		set->evictable--;
}

void weir_policy_tick(weir_policy *policy)
{
	policy->tick++;
	if (policy->odds)
		weir_odds_tick(policy);
	if (policy->chooser)
		weir_auto_tick(policy);
	weir_policy_rescored_all(policy); /* scores may depend on age */
	if (policy->tick % WEIR_POLICY_HALF_LIFE_TICKS != 0)
		return;
	for (uint32_t i = 0; i < policy->chunks_count; i++)
		policy->chunks[i].count /= 2;
}

void weir_policy_settle(weir_policy *policy)
{
	if (policy->odds)
		weir_odds_settle(policy);
}

/* ---- victims ---- */

static bool is_fresh(const weir_policy *policy, const weir_policy_slot *slot)
{
	return slot->unused && policy->tick - slot->prefetch_tick < WEIR_POLICY_STALE_TICKS;
}

/* The slot of the set that goes first, without the fresh ones if asked. */
static uint32_t pick(const weir_policy *policy, uint32_t set, bool spare_fresh, double *slot_score)
{
	uint32_t lowest = WEIR_NONE;
	double lowest_score = 0;

	for (uint32_t slot = policy->sets[set].oldest; slot != WEIR_NONE; slot = policy->slots[slot].next) {
		const weir_policy_slot *entry = &policy->slots[slot];
		double score;

		if (!entry->evictable || (spare_fresh && is_fresh(policy, entry)))
			continue;
		score = policy->methods->score(policy, entry->chunk);
		if (lowest != WEIR_NONE && score >= lowest_score)
			continue;
		lowest = slot;
		lowest_score = score;
		if (score <= 0) /* no score is less */
			break;
	}
	*slot_score = lowest_score;
	return lowest;
}

static uint32_t lowest_of(weir_policy *policy, uint32_t set)
{
	weir_policy_set *entry = &policy->sets[set];

	if (!entry->lowest_known) {
		entry->lowest = pick(policy, set, false, &entry->lowest_score);
		entry->lowest_known = true;
	}
	return entry->lowest;
}

/* Score × nearness of the slot of the set that goes first.  Nearness changes with each visit, so ranks are kept for one. */
static void update_rank(weir_policy *policy, uint32_t set)
{
	weir_policy_set *entry = &policy->sets[set];
	uint64_t now = policy->odds ? policy->odds->visits : 0;

	if (entry->lowest_known && entry->rank_at == now)
		return;
	if (lowest_of(policy, set) == WEIR_NONE)
		return;
	entry->rank = entry->lowest_score * (policy->methods->learns ? weir_odds_nearness(policy, set) : 1);
	entry->rank_at = now;
}

/* The lowest of a pool; the fresh ones are left out if asked, and with them what else their set has. */
static uint32_t lowest_of_pool(weir_policy *policy, const weir_policy_class *owner, bool spare_fresh)
{
	uint32_t lowest = WEIR_NONE;
	double lowest_rank = 0;

	for (uint32_t set = owner->sets_first; set < owner->sets_first + owner->sets_count; set++) {
		const weir_policy_set *entry = &policy->sets[set];

		if (entry->evictable == 0)
			continue;
		update_rank(policy, set);
		if (lowest != WEIR_NONE && entry->rank > lowest_rank)
			continue;
		if (entry->lowest == WEIR_NONE || (spare_fresh && is_fresh(policy, &policy->slots[entry->lowest])))
			continue;
		if (lowest != WEIR_NONE && entry->rank >= lowest_rank &&
		    policy->slots[entry->lowest].order > policy->slots[lowest].order)
			continue;
		lowest = entry->lowest;
		lowest_rank = entry->rank;
	}
	return lowest;
}

/* (resident + extra - quota) × chunks of the class: whole numbers, comparable between the sets of one class. */
static int64_t excess(const weir_policy *policy, uint32_t set, uint32_t extra)
{
	const weir_policy_set *entry = &policy->sets[set];
	const weir_policy_class *owner = &policy->classes[entry->class_index];

	return ((int64_t)entry->resident + extra) * owner->chunks_count - (int64_t)owner->slots_count * entry->chunks_count;
}

static uint32_t victim_for_demand(weir_policy *policy, uint32_t own)
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
	return fullest == WEIR_NONE ? WEIR_NONE : lowest_of(policy, fullest);
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
	double score;
	uint32_t slot = other == WEIR_NONE ? WEIR_NONE : pick(policy, other, true, &score);

	if (slot != WEIR_NONE)
		return slot;
	slot = pick(policy, own, true, &score);
	if (slot == WEIR_NONE || purpose == WEIR_FOR_EXPECTED)
		return slot;
	return policy->methods->less_wanted(policy, slot, chunk) ? slot : WEIR_NONE;
}

static uint32_t victim_in_pool(weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	const weir_policy_class *owner = &policy->classes[policy->sets[policy->chunks[chunk].set].class_index];
	uint32_t slot = lowest_of_pool(policy, owner, purpose != WEIR_FOR_DEMAND);

	if (slot == WEIR_NONE || purpose != WEIR_FOR_PREFETCH)
		return slot;
	return policy->methods->less_wanted(policy, slot, chunk) ? slot : WEIR_NONE;
}

uint32_t weir_policy_victim(weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	if (policy->methods->pooled)
		return victim_in_pool(policy, chunk, purpose);
	if (purpose != WEIR_FOR_DEMAND)
		return victim_for_hint(policy, chunk, purpose);
	return victim_for_demand(policy, policy->chunks[chunk].set);
}

/* ---- invariants ---- */

static const char *set_broken(const weir_policy *policy, uint32_t set)
{
	const weir_policy_set *entry = &policy->sets[set];
	uint32_t resident = 0, evictable = 0, previous = WEIR_NONE;
	double score;

	for (uint32_t slot = entry->oldest; slot != WEIR_NONE; slot = policy->slots[slot].next) {
		const weir_policy_slot *held = &policy->slots[slot];

		if (resident++ >= policy->slots_count)
			return "policy: list of a set has an end";
		if (held->prev != previous)
			return "policy: prev and next of a set's list are inverse";
		if (held->chunk == WEIR_NONE || policy->chunks[held->chunk].set != set)
			return "policy: a set's list holds chunks of that set";
		if (previous != WEIR_NONE && policy->slots[previous].order >= held->order)
			return "policy: a set's list is in the order of its moves";
		evictable += held->evictable;
		previous = slot;
	}
	if (entry->newest != previous)
		return "policy: newest = end of the list";
	if (entry->resident != resident || entry->evictable != evictable)
		return "policy: resident, evictable = what the set's list holds";
	if (entry->lowest_known && entry->lowest != pick(policy, set, false, &score))
		return "policy: the lowest of a set is known only while it is";
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
	if (filled != resident || mapped != resident)
		return "policy: sum of resident = filled slots = mapped chunks";
	return policy->odds ? weir_odds_broken(policy) : NULL;
}
