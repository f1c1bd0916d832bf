/*
 * reads.c - between the store and its I/O method: starting reads, collecting them, sleeping until one ends.
 *
 * Demanded reads are handed over at once, as far as the method has room.  Prefetches are handed over only while the method has
 * fewer requests than its queue is deep, so that a demanded read never queues behind many hints.
 *
 * Sleeping: one thread sleeps in weir_io_wait, without the mutex; others sleep on store.changed until it comes back.
 *
 *   thread 1   lock ─ collect ─ io_waiting ─ unlock ═══ weir_io_wait ═══ lock ─ collect ─ broadcast ─ ...
 *   thread 2             lock ─ sleepers++ ─────────── cond_wait ──────────────────────── woken ─ ...
 *
 * Every function is called with the store's mutex held.
 */
#include <assert.h>
#include <errno.h>

#include <xxhash.h>

#include "os/memory.h"
#include "residency/residency_types.h"
#include "residency/store_checks.h"

static weir_io_request request_of(const weir_store *store, uint32_t slot)
{
	const weir_slot *entry = &store->slots[slot];
	const weir_store_chunk *chunk = &store->chunks[entry->chunk];
	uint64_t shift = chunk->offset & (store->alignment - 1);
	uint64_t least = shift + chunk->bytes;

	return (weir_io_request){
		.file = store->files[chunk->file],
		.offset = chunk->offset - shift,
		.bytes = (least + store->alignment - 1) & ~((uint64_t)store->alignment - 1),
		.least = least,
		.buffer = weir_slot_base(store, slot),
		.tag = (uint64_t)entry->generation << 32 | slot,
	};
}

static void fail_head(weir_store *store, weir_slot_list *queue, int code)
{
	uint32_t slot = queue->head;
	weir_io_completion completion = {.code = code, .offset = store->chunks[store->slots[slot].chunk].offset};

	weir_slot_list_remove(store, queue, slot);
	store->slots[slot].list = WEIR_IN_IO;
	weir_slot_finish(store, slot, &completion);
}

/* Hands over the first reads of a queue, at most `limit`.  Returns how many were taken. */
static uint32_t start_some(weir_store *store, weir_slot_list *queue, uint32_t limit)
{
	uint32_t count = 0;
	int taken;

	for (uint32_t slot = queue->head; slot != WEIR_NONE && count < limit; slot = store->slots[slot].next)
		store->requests[count++] = request_of(store, slot);
	if (count == 0)
		return 0;
	taken = weir_io_submit(store->io, store->requests, count);
	if (taken < 0) {
		fail_head(store, queue, taken);
		return 1;
	}
	for (int i = 0; i < taken; i++) {
		uint32_t slot = queue->head;

		weir_slot_list_remove(store, queue, slot);
		store->slots[slot].list = WEIR_IN_IO;
	}
	return (uint32_t)taken;
}

void weir_reads_start_demanded(weir_store *store)
{
	while (store->demand.count > 0 && start_some(store, &store->demand, WEIR_STORE_BATCH) > 0)
		;
}

void weir_reads_start_prefetches(weir_store *store)
{
	while (store->demand.count == 0 && !weir_io_is_full(store->io) && start_some(store, &store->prefetch, 1) > 0)
		;
}

void weir_store_check_reads(weir_store *store, const uint64_t *sums)
{
	store->sums = sums;
}

/* Bytes that arrived but are not those that were written fail the read like any other error of the drive. */
static void check_sum(const weir_store *store, uint32_t slot, weir_io_completion *completion)
{
	const weir_slot *entry = &store->slots[slot];
	const weir_store_chunk *chunk = &store->chunks[entry->chunk];
	const unsigned char *data = weir_slot_base(store, slot) + (chunk->offset & (store->alignment - 1));

	if (completion->code || XXH3_64bits(data, chunk->bytes) == store->sums[entry->chunk])
		return;
	completion->code = WEIR_ECHECKSUM;
	completion->offset = chunk->offset;
}

/* A completion whose slot has gone on to another chunk is none of that chunk's business. */
static void take_completion(weir_store *store, weir_io_completion *completion)
{
	uint32_t slot = (uint32_t)completion->tag;
	uint32_t generation = (uint32_t)(completion->tag >> 32);

	if (slot >= store->slots_count || store->slots[slot].generation != generation || store->slots[slot].list != WEIR_IN_IO)
		return;
	if (store->sums)
		check_sum(store, slot, completion);
	weir_slot_finish(store, slot, completion);
}

int weir_reads_collect(weir_store *store)
{
	int ended = 0;
	int count;

	do {
		count = weir_io_reap(store->io, store->completions, WEIR_STORE_BATCH);
		for (int i = 0; i < count; i++)
			take_completion(store, &store->completions[i]);
		ended += count > 0 ? count : 0;
	} while (count == WEIR_STORE_BATCH);
	store->reads_ended += (uint64_t)ended;
	weir_reads_start_demanded(store);
	weir_reads_start_prefetches(store);
	if (ended > 0 && store->sleepers > 0)
		pthread_cond_broadcast(&store->changed);
	return count < 0 ? count : ended;
}

static int sleep_beside_another(weir_store *store)
{
	store->sleepers++;
	pthread_cond_wait(&store->changed, &store->mutex);
	store->sleepers--;
	return 0;
}

static int sleep_in_io(weir_store *store)
{
	int code, ended;

	store->io_waiting = true;
	pthread_mutex_unlock(&store->mutex);
	code = weir_io_wait(store->io, UINT64_MAX);
	pthread_mutex_lock(&store->mutex);
	store->io_waiting = false;
	ended = weir_reads_collect(store);
	if (store->sleepers > 0) /* one of them goes on waiting in our place */
		pthread_cond_broadcast(&store->changed);
	if (code == WEIR_EINVAL) /* another thread collected the last read meanwhile */
		code = 0;
	return ended < 0 ? ended : code;
}

int weir_reads_sleep(weir_store *store)
{
	int ended;

	if (store->io_waiting)
		return sleep_beside_another(store);
	ended = weir_reads_collect(store);
	if (ended != 0)
		return ended < 0 ? ended : 0;
	if (weir_io_pending(store->io) == 0)
		return WEIR_EBUSY;
	return sleep_in_io(store);
}

void weir_reads_begin_stall(weir_store *store)
{
	if (store->waiters++ == 0)
		store->stall_start_ns = weir_clock_ns();
}

void weir_reads_end_stall(weir_store *store)
{
	if (--store->waiters == 0)
		store->stats.stall_ns += weir_clock_ns() - store->stall_start_ns;
}
