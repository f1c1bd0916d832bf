/*
 * check.c - walks a whole store and names the first invariant of residency_types.h that does not hold.
 *
 * For tests and fuzzers, after every operation: O(chunks + slots + leases), with the mutex held.
 */
#include "residency/residency_types.h"

static const weir_slot *slot_at(const weir_store *store, uint32_t slot)
{
	return &store->slots[slot];
}

static weir_slot_state state_of(const weir_slot *slot)
{
	return atomic_load_explicit(&slot->state, memory_order_relaxed);
}

static bool list_fits_state(const weir_slot *slot)
{
	switch (state_of(slot)) {
	case WEIR_SLOT_FREE:
		return slot->list == WEIR_IN_FREE && slot->pins == 0;
	case WEIR_SLOT_LOADING:
		return slot->list == WEIR_IN_DEMAND || slot->list == WEIR_IN_PREFETCH || slot->list == WEIR_IN_IO;
	case WEIR_SLOT_READY:
		return slot->list == WEIR_IN_NONE;
	case WEIR_SLOT_FAILED:
		return slot->list == WEIR_IN_NONE && slot->pins > 0;
	}
	return false;
}

static const char *list_broken(const weir_store *store, const weir_slot_list *list)
{
	uint32_t count = 0, previous = WEIR_NONE;

	for (uint32_t slot = list->head; slot != WEIR_NONE; slot = slot_at(store, slot)->next) {
		if (count++ >= store->slots_count)
			return "a list of slots has an end";
		if (slot_at(store, slot)->list != list->name || slot_at(store, slot)->prev != previous)
			return "slot.list and slot.prev say where the slot is";
		previous = slot;
	}
	return count == list->count && previous == list->tail ? NULL : "list.count, list.tail = what the list holds";
}

static const char *slot_broken(const weir_store *store, uint32_t number)
{
	const weir_slot *slot = slot_at(store, number);
	const weir_policy_slot *held = &store->policy.slots[number];
	weir_slot_state state = state_of(slot);
	bool holds = state == WEIR_SLOT_LOADING || state == WEIR_SLOT_READY;

	if (!list_fits_state(slot))
		return "a slot's state fits its list and its pins";
	if (holds && store->chunks[slot->chunk].slot != number)
		return "slot.chunk = c => chunk[c].slot = slot";
	if (held->chunk != (holds ? slot->chunk : WEIR_NONE))
		return "the policy holds the same chunks in the same slots";
	if (held->evictable != (state == WEIR_SLOT_READY && slot->pins == 0))
		return "evictable <=> READY and pins = 0";
	if (slot->prefetched && !holds)
		return "prefetched => LOADING or READY";
	return NULL;
}

static const char *slots_broken(const weir_store *store)
{
	uint32_t states[4] = {0}, lists[WEIR_IN_IO + 1] = {0};
	uint64_t pins = 0;

	for (uint32_t i = 0; i < store->slots_count; i++) {
		const char *broken = slot_broken(store, i);

		if (broken)
			return broken;
		states[state_of(slot_at(store, i))]++;
		lists[slot_at(store, i)->list]++;
		pins += slot_at(store, i)->pins;
	}
	for (int state = 0; state < 4; state++)
		if (states[state] != store->states_count[state])
			return "free + loading + ready + failed = slots";
	if (pins != store->leases_held)
		return "sum of pins = leases held";
	if (lists[WEIR_IN_DEMAND] != store->demand.count || lists[WEIR_IN_PREFETCH] != store->prefetch.count)
		return "the read queues hold the slots that say so";
	if (lists[WEIR_IN_IO] != weir_io_pending(store->io))
		return "loading = queued + taken by the I/O method";
	return NULL;
}

static const char *classes_broken(const weir_store *store)
{
	uint32_t slots = 0;

	for (uint32_t i = 0; i < store->classes_count; i++) {
		const weir_store_class *owner = &store->classes[i];
		uint32_t prefetching = 0;
		const char *broken = list_broken(store, &owner->free);

		if (broken)
			return broken;
		if (owner->slots_first != slots || owner->slots_count == 0)
			return "classes follow each other, none without slots";
		for (uint32_t slot = slots; slot < slots + owner->slots_count; slot++) {
			if (slot_at(store, slot)->class_index != i)
				return "slot.class_index = the class whose range it is in";
			prefetching += slot_at(store, slot)->prefetched && state_of(slot_at(store, slot)) == WEIR_SLOT_LOADING;
		}
		if (prefetching != owner->prefetching)
			return "class.prefetching = LOADING slots with prefetched set";
		if (prefetching > 1 && prefetching > owner->slots_count / 2)
			return "class.prefetching <= half of its slots, or 1";
		slots += owner->slots_count;
	}
	return slots == store->slots_count ? NULL : "sum of the classes' slots = slots";
}

static const char *chunks_broken(const weir_store *store)
{
	uint32_t resident = 0;

	for (uint32_t i = 0; i < store->chunks_count; i++) {
		const weir_store_chunk *chunk = &store->chunks[i];

		if (chunk->slot == WEIR_NONE)
			continue;
		resident++;
		if (chunk->slot >= store->slots_count || slot_at(store, chunk->slot)->chunk != i)
			return "chunk.slot = s => slot[s].chunk = chunk";
		if (slot_at(store, chunk->slot)->class_index != chunk->class_index)
			return "a chunk is in a slot of its class";
	}
	if (resident != store->states_count[WEIR_SLOT_LOADING] + store->states_count[WEIR_SLOT_READY])
		return "resident chunks = loading + ready";
	return NULL;
}

static const char *leases_broken(const weir_store *store)
{
	uint32_t held = 0, spare = 0;

	for (uint32_t i = 0; i < store->leases_max; i++) {
		const weir_lease *lease = &store->leases[i];

		if (lease->slot == WEIR_NONE)
			continue;
		held++;
		if (slot_at(store, lease->slot)->generation != lease->generation ||
		    slot_at(store, lease->slot)->chunk != lease->chunk)
			return "a held lease's slot has its generation and its chunk";
	}
	for (uint32_t i = store->lease_free; i != WEIR_NONE && spare <= store->leases_max; i = store->leases[i].next_free)
		spare++;
	return held == store->leases_held && held + spare == store->leases_max ? NULL : "leases held + free = leases_max";
}

static const char *sums_broken(const weir_store *store)
{
	const weir_store_stats *stats = &store->stats;

	if (store->slab_bytes + store->tables_bytes > store->budget_bytes)
		return "slab + tables <= budget";
	if (weir_io_in_flight(store->io) > weir_io_queue_depth(store->io))
		return "reads in flight <= queue depth";
	if (stats->demanded != stats->hits + stats->joined + stats->misses)
		return "demanded = hits + joined + misses";
	return NULL;
}

static const char *first_broken(const weir_store *store)
{
	const char *broken = sums_broken(store);

	if (!broken)
		broken = slots_broken(store);
	if (!broken)
		broken = classes_broken(store);
	if (!broken)
		broken = list_broken(store, &store->demand);
	if (!broken)
		broken = list_broken(store, &store->prefetch);
	if (!broken)
		broken = chunks_broken(store);
	if (!broken)
		broken = leases_broken(store);
	return broken ? broken : weir_policy_broken(&store->policy);
}

const char *weir_store_broken(const weir_store *store)
{
	pthread_mutex_t *mutex = (pthread_mutex_t *)&store->mutex; /* looking changes nothing else */
	const char *broken;

	pthread_mutex_lock(mutex);
	broken = first_broken(store);
	pthread_mutex_unlock(mutex);
	return broken;
}

int weir_store_check(const weir_store *store)
{
	return weir_store_broken(store) ? WEIR_EINVAL : 0;
}
