/*
 * acquire.c - acquire, prefetch, release: who gets which slot.
 *
 * An acquire goes over its chunks twice.  First it pins what is resident, so that a miss early in the list cannot evict a hit
 * late in it.  Then, in order, it counts the demands and finds slots for the misses; at the first that finds none it lets go
 * of what it had pinned further on.  All reads are handed over in one call.
 *
 *   chunks    a      b      c      d        (b, d resident)
 *   pass 1    -      pin    -      pin
 *   pass 2    read   hit    none!           → two leases; d is unpinned again
 *
 * Nothing here waits or allocates.
 */
#include <assert.h>

#include "base/fail.h"
#include "residency/residency_types.h"

static weir_lease *lease_make(weir_store *store, uint32_t slot)
{
	weir_lease *lease = &store->leases[store->lease_free];
	const weir_slot *entry = &store->slots[slot];

	store->lease_free = lease->next_free;
	store->leases_held++;
	lease->slot = slot;
	lease->generation = entry->generation;
	lease->chunk = entry->chunk;
	lease->data = weir_slot_base(store, slot) + weir_chunk_shift(store, entry->chunk);
	weir_slot_pin(store, slot);
	return lease;
}

static void lease_drop(weir_store *store, weir_lease *lease)
{
	assert(lease->slot != WEIR_NONE && store->slots[lease->slot].generation == lease->generation);
	weir_slot_unpin(store, lease->slot);
	lease->slot = WEIR_NONE;
	lease->next_free = store->lease_free;
	store->lease_free = (uint32_t)(lease - store->leases);
	store->leases_held--;
}

static void pin_resident(weir_store *store, const uint32_t *chunks, uint32_t count, weir_lease **leases)
{
	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = store->chunks[chunks[i]].slot;

		leases[i] = slot == WEIR_NONE ? NULL : lease_make(store, slot);
	}
}

static void count_demand(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	store->stats.demanded++;
	if (atomic_load_explicit(&entry->state, memory_order_relaxed) == WEIR_SLOT_READY)
		store->stats.hits++;
	else
		store->stats.joined++;
	if (weir_slot_claim_prefetch(store, slot))
		store->stats.prefetch_used++;
	weir_policy_demand(&store->policy, entry->chunk);
}

/* A slot for a chunk that is not resident: the reads that have ended may free one. */
static uint32_t find_slot(weir_store *store, uint32_t chunk, bool *collected)
{
	uint32_t slot = weir_slot_take(store, chunk, WEIR_FOR_DEMAND);

	if (slot != WEIR_NONE || *collected)
		return slot;
	*collected = true;
	return weir_reads_collect(store) > 0 ? weir_slot_take(store, chunk, WEIR_FOR_DEMAND) : WEIR_NONE;
}

static weir_lease *lease_missing(weir_store *store, uint32_t chunk, bool *collected)
{
	uint32_t slot = find_slot(store, chunk, collected);

	if (slot == WEIR_NONE)
		return NULL;
	weir_slot_place(store, slot, chunk, WEIR_FOR_DEMAND);
	store->stats.demanded++;
	store->stats.misses++;
	weir_policy_demand(&store->policy, chunk);
	return lease_make(store, slot);
}

/* Pass 2.  A chunk named twice is resident the second time. */
static uint32_t lease_all(weir_store *store, const uint32_t *chunks, uint32_t count, weir_lease **leases)
{
	bool collected = false;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t slot = store->chunks[chunks[i]].slot;

		if (!leases[i] && slot != WEIR_NONE)
			leases[i] = lease_make(store, slot);
		if (leases[i])
			count_demand(store, leases[i]->slot);
		else
			leases[i] = lease_missing(store, chunks[i], &collected);
		if (!leases[i])
			return i;
	}
	return count;
}

static int check_chunks(const weir_store *store, const uint32_t *chunks, uint32_t count, weir_error *error)
{
	for (uint32_t i = 0; i < count; i++)
		if (chunks[i] >= store->chunks_count)
			return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "chunk %u of %u does not exist",
					 chunks[i], store->chunks_count);
	return 0;
}

int weir_store_acquire(weir_store *store, const uint32_t *chunks, uint32_t count, weir_lease **leases, weir_error *error)
{
	uint32_t made;
	int code;

	if (!store || (count > 0 && (!chunks || !leases)) || count > INT32_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no store, chunks or leases");
	code = check_chunks(store, chunks, count, error);
	if (code < 0)
		return code;
	pthread_mutex_lock(&store->mutex);
	if (count > store->leases_max - store->leases_held)
		count = store->leases_max - store->leases_held;
	pin_resident(store, chunks, count, leases);
	made = lease_all(store, chunks, count, leases);
	for (uint32_t i = made; i < count; i++) {
		if (leases[i])
			lease_drop(store, leases[i]);
		leases[i] = NULL;
	}
	weir_reads_start_demanded(store);
	weir_policy_settle(&store->policy);
	pthread_mutex_unlock(&store->mutex);
	return (int)made;
}

void weir_lease_release(weir_lease *lease)
{
	weir_store *store;

	if (!lease)
		return;
	store = lease->store;
	pthread_mutex_lock(&store->mutex);
	lease_drop(store, lease);
	pthread_mutex_unlock(&store->mutex);
}

/* Half of a class may be on its way for hints: the other half stays free to be evicted for demands. */
static bool may_prefetch(const weir_store_class *owner)
{
	return owner->prefetching < (owner->slots_count > 1 ? owner->slots_count / 2 : 1);
}

static bool prefetch_one(weir_store *store, uint32_t chunk, weir_policy_purpose purpose)
{
	uint32_t slot;

	if (store->chunks[chunk].slot != WEIR_NONE)
		return true;
	if (!may_prefetch(&store->classes[store->chunks[chunk].class_index]))
		return false;
	slot = weir_slot_take(store, chunk, purpose);
	if (slot == WEIR_NONE)
		return false;
	weir_slot_place(store, slot, chunk, purpose);
	store->stats.prefetched++;
	return true;
}

static int prefetch(weir_store *store, const uint32_t *chunks, uint32_t count, weir_policy_purpose purpose)
{
	int there = 0;

	if (!store || !chunks || count > INT32_MAX)
		return 0;
	pthread_mutex_lock(&store->mutex);
	for (uint32_t i = 0; i < count; i++)
		if (chunks[i] < store->chunks_count)
			there += prefetch_one(store, chunks[i], purpose);
	weir_reads_start_prefetches(store);
	pthread_mutex_unlock(&store->mutex);
	return there;
}

int weir_store_prefetch(weir_store *store, const uint32_t *chunks, uint32_t count)
{
	return prefetch(store, chunks, count, WEIR_FOR_PREFETCH);
}

int weir_store_expect(weir_store *store, const uint32_t *chunks, uint32_t count)
{
	return prefetch(store, chunks, count, WEIR_FOR_EXPECTED);
}
