/*
 * slots.c - the state changes of slots, and nothing else: see the picture in residency_types.h.
 *
 * Every function is called with the store's mutex held.  Nothing here reads, waits or allocates.
 */
#include <assert.h>
#include <string.h>

#include "residency/residency_types.h"

void weir_slot_list_push(weir_store *store, weir_slot_list *list, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	assert(entry->list == WEIR_IN_NONE);
	entry->list = list->name;
	entry->next = WEIR_NONE;
	entry->prev = list->tail;
	if (list->tail == WEIR_NONE)
		list->head = slot;
	else
		store->slots[list->tail].next = slot;
	list->tail = slot;
	list->count++;
}

void weir_slot_list_remove(weir_store *store, weir_slot_list *list, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	assert(entry->list == list->name);
	if (entry->prev == WEIR_NONE)
		list->head = entry->next;
	else
		store->slots[entry->prev].next = entry->next;
	if (entry->next == WEIR_NONE)
		list->tail = entry->prev;
	else
		store->slots[entry->next].prev = entry->prev;
	entry->list = WEIR_IN_NONE;
	list->count--;
}

unsigned char *weir_slot_base(const weir_store *store, uint32_t slot)
{
	const weir_store_class *owner = &store->classes[store->slots[slot].class_index];

	return store->slab + owner->slab_offset + (slot - owner->slots_first) * owner->slot_bytes;
}

/* Release order: whoever sees READY sees the bytes. */
static void set_state(weir_store *store, weir_slot *slot, weir_slot_state state)
{
	store->states_count[atomic_load_explicit(&slot->state, memory_order_relaxed)]--;
	store->states_count[state]++;
	atomic_store_explicit(&slot->state, state, memory_order_release);
}

static weir_slot_state state_of(const weir_slot *slot)
{
	return atomic_load_explicit(&slot->state, memory_order_relaxed);
}

static void forget_chunk(weir_store *store, uint32_t slot)
{
	store->chunks[store->slots[slot].chunk].slot = WEIR_NONE;
	weir_policy_remove(&store->policy, slot);
}

/* The prefetch is over: acquired, ended or given up. */
static void end_prefetching(weir_store *store, const weir_slot *slot)
{
	if (slot->prefetched && state_of(slot) == WEIR_SLOT_LOADING)
		store->classes[slot->class_index].prefetching--;
}

bool weir_slot_claim_prefetch(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	if (!entry->prefetched)
		return false;
	end_prefetching(store, entry);
	entry->prefetched = false;
	return true;
}

/* → FREE, and off every list, for weir_slot_take. */
static void vacate(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	assert(entry->pins == 0);
	end_prefetching(store, entry);
	forget_chunk(store, slot);
	entry->prefetched = false;
	set_state(store, entry, WEIR_SLOT_FREE);
}

static void put_free(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	set_state(store, entry, WEIR_SLOT_FREE);
	weir_slot_list_push(store, &store->classes[entry->class_index].free, slot);
}

/* The newest prefetch of the class that the I/O method has not taken and nobody waits for. */
static uint32_t cancel_prefetch(weir_store *store, uint32_t class_index)
{
	for (uint32_t slot = store->prefetch.tail; slot != WEIR_NONE; slot = store->slots[slot].prev) {
		if (store->slots[slot].class_index != class_index)
			continue;
		weir_slot_list_remove(store, &store->prefetch, slot);
		vacate(store, slot);
		return slot;
	}
	return WEIR_NONE;
}

uint32_t weir_slot_take(weir_store *store, uint32_t chunk, weir_policy_purpose purpose)
{
	weir_store_class *owner = &store->classes[store->chunks[chunk].class_index];
	uint32_t slot = owner->free.head;

	if (slot != WEIR_NONE) {
		weir_slot_list_remove(store, &owner->free, slot);
		return slot;
	}
	slot = weir_policy_victim(&store->policy, chunk, purpose);
	if (slot != WEIR_NONE) {
		assert(state_of(&store->slots[slot]) == WEIR_SLOT_READY);
		vacate(store, slot);
		store->stats.evictions++;
		return slot;
	}
	return purpose == WEIR_FOR_DEMAND ? cancel_prefetch(store, store->chunks[chunk].class_index) : WEIR_NONE;
}

void weir_slot_place(weir_store *store, uint32_t slot, uint32_t chunk, weir_policy_purpose purpose)
{
	weir_slot *entry = &store->slots[slot];

	assert(state_of(entry) == WEIR_SLOT_FREE && store->chunks[chunk].slot == WEIR_NONE);
	entry->chunk = chunk;
	entry->generation++;
	entry->prefetched = purpose != WEIR_FOR_DEMAND;
	store->chunks[chunk].slot = slot;
	weir_policy_insert(&store->policy, chunk, slot, purpose);
	set_state(store, entry, WEIR_SLOT_LOADING);
	if (entry->prefetched)
		store->classes[entry->class_index].prefetching++;
	weir_slot_list_push(store, entry->prefetched ? &store->prefetch : &store->demand, slot);
}

uint32_t weir_chunk_shift(const weir_store *store, uint32_t chunk)
{
	return (uint32_t)(store->chunks[chunk].offset & (store->alignment - store->data_alignment));
}

/* From where the chunk was read to, to where it is used. */
static void move_into_place(weir_store *store, uint32_t slot)
{
	const weir_store_chunk *chunk = &store->chunks[store->slots[slot].chunk];
	uint64_t shift = chunk->offset & (store->alignment - 1);
	unsigned char *base = weir_slot_base(store, slot);

	if (shift % store->data_alignment != 0)
		memmove(base + weir_chunk_shift(store, store->slots[slot].chunk), base + shift, chunk->bytes);
}

static void finish_failed(weir_store *store, uint32_t slot, const weir_io_completion *completion)
{
	weir_slot *entry = &store->slots[slot];

	forget_chunk(store, slot);
	entry->prefetched = false;
	entry->code = completion->code;
	entry->sys_errno = completion->sys_errno;
	entry->failed_offset = completion->offset;
	if (entry->pins > 0)
		set_state(store, entry, WEIR_SLOT_FAILED);
	else
		put_free(store, slot);
}

void weir_slot_finish(weir_store *store, uint32_t slot, const weir_io_completion *completion)
{
	weir_slot *entry = &store->slots[slot];

	assert(state_of(entry) == WEIR_SLOT_LOADING && entry->list == WEIR_IN_IO);
	entry->list = WEIR_IN_NONE;
	end_prefetching(store, entry);
	if (completion->code != 0) {
		finish_failed(store, slot, completion);
		return;
	}
	move_into_place(store, slot);
	set_state(store, entry, WEIR_SLOT_READY);
	if (entry->pins == 0)
		weir_policy_set_evictable(&store->policy, slot, true);
}

void weir_slot_pin(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	if (entry->pins++ == 0 && state_of(entry) == WEIR_SLOT_READY)
		weir_policy_set_evictable(&store->policy, slot, false);
	if (entry->list == WEIR_IN_PREFETCH) { /* somebody waits now */
		weir_slot_list_remove(store, &store->prefetch, slot);
		weir_slot_list_push(store, &store->demand, slot);
	}
}

void weir_slot_unpin(weir_store *store, uint32_t slot)
{
	weir_slot *entry = &store->slots[slot];

	assert(entry->pins > 0);
	if (--entry->pins > 0)
		return;
	if (state_of(entry) == WEIR_SLOT_READY)
		weir_policy_set_evictable(&store->policy, slot, true);
	else if (state_of(entry) == WEIR_SLOT_FAILED)
		put_free(store, slot);
}
