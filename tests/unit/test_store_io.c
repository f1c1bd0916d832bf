/*
 * test_store_io.c - the store over an I/O method of its own, defined here in place of src/io/: what is handed over and when,
 * and what the store makes of answers that a real method should not give.
 */
#include "io/io.h"
#include "residency/residency_types.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define REQUESTS_MAX 1024
#define QUEUE_DEPTH 2
#define ALIGNMENT 512
#define FILE_BYTES (1u << 20)
#define CHUNKS 600
#define CHUNK_BYTES 1000

struct weir_io {
	weir_io_request requests[REQUESTS_MAX]; /* taken, oldest first */
	uint32_t count;
	weir_io_completion done[REQUESTS_MAX];
	uint32_t done_count;
	uint32_t submits;
	uint32_t room; /* requests it takes at most at one time */
	int submit_code, reap_code, wait_code;
	uint32_t waits;
};

static struct weir_io fake;

/* The oldest request, or the one at `index`, ends.  Its bytes say which chunk it was. */
static void finish(uint32_t index, int code)
{
	weir_io_request *request = &fake.requests[index];

	memset(request->buffer, (int)(request->offset / ALIGNMENT / 2), request->bytes);
	fake.done[fake.done_count++] = (weir_io_completion){.tag = request->tag, .code = code, .offset = request->offset};
	memmove(request, request + 1, (--fake.count - index) * sizeof *request);
}

int weir_io_open(const weir_io_options *options, weir_io **io, weir_error *error)
{
	(void)options;
	(void)error;
	*io = &fake;
	return 0;
}

void weir_io_close(weir_io *io)
{
	(void)io;
}

int weir_io_add_file(weir_io *io, const char *path, uint32_t *file, weir_error *error)
{
	(void)io;
	(void)path;
	(void)error;
	*file = 7;
	return 0;
}

int weir_io_check_file(weir_io *io, uint32_t file, weir_error *error)
{
	(void)io;
	(void)error;
	assert_int_equal(file, 7);
	return 0;
}

uint64_t weir_io_file_bytes(const weir_io *io, uint32_t file)
{
	(void)io;
	(void)file;
	return FILE_BYTES;
}

const char *weir_io_file_path(const weir_io *io, uint32_t file)
{
	(void)io;
	(void)file;
	return "weights";
}

int weir_io_add_buffer(weir_io *io, void *base, uint64_t bytes)
{
	(void)io;
	(void)base;
	(void)bytes;
	return WEIR_ELIMIT; /* is no error for the store */
}

uint32_t weir_io_offset_alignment(const weir_io *io)
{
	(void)io;
	return ALIGNMENT;
}

uint32_t weir_io_memory_alignment(const weir_io *io)
{
	(void)io;
	return 4;
}

int weir_io_submit(weir_io *io, const weir_io_request *requests, uint32_t count)
{
	uint32_t taken = 0;

	io->submits++;
	if (io->submit_code < 0)
		return io->submit_code;
	for (; taken < count && io->count < io->room; taken++) {
		assert_int_equal(requests[taken].file, 7);
		assert_int_equal(requests[taken].offset % ALIGNMENT, 0);
		assert_int_equal(requests[taken].bytes % ALIGNMENT, 0);
		assert_true(requests[taken].least <= requests[taken].bytes);
		assert_int_equal((uintptr_t)requests[taken].buffer % ALIGNMENT, 0);
		io->requests[io->count++] = requests[taken];
	}
	return (int)taken;
}

int weir_io_reap(weir_io *io, weir_io_completion *completions, uint32_t capacity)
{
	uint32_t count = io->done_count < capacity ? io->done_count : capacity;

	if (io->reap_code < 0)
		return io->reap_code;
	memcpy(completions, io->done, count * sizeof *completions);
	memmove(io->done, io->done + count, (io->done_count - count) * sizeof *completions);
	io->done_count -= count;
	return (int)count;
}

int weir_io_wait(weir_io *io, uint64_t timeout_us)
{
	(void)timeout_us;
	io->waits++;
	if (io->wait_code < 0)
		return io->wait_code;
	assert_true(io->count > 0);
	finish(0, 0);
	return 0;
}

uint32_t weir_io_pending(const weir_io *io)
{
	return io->count + io->done_count;
}

uint32_t weir_io_in_flight(const weir_io *io)
{
	return io->count < QUEUE_DEPTH ? io->count : QUEUE_DEPTH;
}

uint32_t weir_io_queue_depth(const weir_io *io)
{
	(void)io;
	return QUEUE_DEPTH;
}

bool weir_io_is_full(const weir_io *io)
{
	return weir_io_pending(io) >= QUEUE_DEPTH;
}

const char *weir_io_method(const weir_io *io)
{
	(void)io;
	return "fake";
}

void weir_io_get_stats(const weir_io *io, weir_io_stats *stats)
{
	(void)io;
	*stats = (weir_io_stats){0};
}

static weir_chunk chunks[CHUNKS];
static uint32_t ids[CHUNKS];

static weir_store *open_store(uint32_t slots)
{
	const char *const paths[] = {"weights"};
	weir_store_options options = {.paths = paths, .paths_count = 1, .chunks = chunks, .chunks_count = CHUNKS};
	weir_store *store = NULL;
	uint64_t all;

	fake = (struct weir_io){.room = REQUESTS_MAX};
	for (uint32_t i = 0; i < CHUNKS; i++) {
		chunks[i] = (weir_chunk){.group = i / 10, .offset = i * 2 * ALIGNMENT + 8, .bytes = CHUNK_BYTES};
		ids[i] = i;
	}
	assert_int_equal(weir_store_sizes(&options, slots, &options.budget_bytes, &all), 0);
	options.leases_max = CHUNKS;
	assert_int_equal(weir_store_sizes(&options, slots, &options.budget_bytes, &all), 0);
	assert_int_equal(weir_store_open(&options, &store, NULL), 0);
	return store;
}

static void assert_sound(const weir_store *store)
{
	const char *broken = weir_store_broken(store);

	if (broken)
		fail_msg("invariant does not hold: %s", broken);
}

static weir_store_stats stats_of(weir_store *store)
{
	weir_store_stats stats;

	weir_store_get_stats(store, &stats);
	return stats;
}

static void release_all(weir_store *store, weir_lease **leases, int count)
{
	for (int i = 0; i < count; i++)
		weir_lease_release(leases[i]);
	assert_sound(store);
}

static void one_acquire_is_one_submit(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[16];
	uint32_t expected[3] = {0, 0, 0};

	(void)state;
	assert_int_equal(weir_store_acquire(store, ids, 12, leases, NULL), 12);
	assert_int_equal(fake.submits, 1);
	assert_int_equal(fake.count, 12);
	assert_int_equal(fake.requests[3].least, 8 + CHUNK_BYTES);
	assert_int_equal(fake.requests[3].offset, 3 * 2 * ALIGNMENT);
	release_all(store, leases, 12);
	assert_int_equal(weir_store_acquire(store, ids, 12, leases, NULL), 12); /* all joined: nothing to hand over */
	assert_int_equal(fake.submits, 1);
	assert_int_equal(weir_store_acquire(store, expected, 0, leases, NULL), 0);
	release_all(store, leases, 12);
	weir_store_close(store);
}

static void hits_do_not_touch_the_method(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[8];
	const void *data;

	(void)state;
	assert_int_equal(weir_store_acquire(store, ids, 8, leases, NULL), 8);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(weir_lease_wait(leases[i], &data, NULL), 0);
		assert_int_equal(((const unsigned char *)data)[CHUNK_BYTES - 1], i);
	}
	release_all(store, leases, 8);
	fake.submits = fake.waits = 0;
	fake.reap_code = WEIR_EIO; /* would be noticed */
	assert_int_equal(weir_store_acquire(store, ids, 8, leases, NULL), 8);
	for (int i = 0; i < 8; i++)
		assert_int_equal(weir_lease_wait(leases[i], &data, NULL), 0);
	release_all(store, leases, 8);
	assert_int_equal(fake.submits + fake.waits, 0);
	weir_store_close(store);
}

static void a_method_with_little_room_gets_the_rest_later(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[10];
	const void *data;

	(void)state;
	fake.room = 3;
	assert_int_equal(weir_store_acquire(store, ids, 10, leases, NULL), 10);
	assert_sound(store);
	assert_int_equal(fake.count, 3);
	assert_int_equal(store->demand.count, 7);
	assert_int_equal(weir_lease_wait(leases[9], &data, NULL), 0); /* the last one: all others come first */
	assert_int_equal(((const unsigned char *)data)[0], 9);
	assert_int_equal(store->demand.count, 0);
	release_all(store, leases, 10);
	weir_store_close(store);
}

static void a_method_that_takes_nothing_fails_the_reads(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[4];
	weir_error error;
	const void *data;

	(void)state;
	fake.submit_code = WEIR_ENOMEM;
	assert_int_equal(weir_store_acquire(store, ids, 4, leases, NULL), 4);
	assert_sound(store);
	for (int i = 0; i < 4; i++) {
		assert_true(weir_lease_ready(leases[i]));
		assert_int_equal(weir_lease_wait(leases[i], &data, &error), WEIR_ENOMEM);
		assert_string_equal(error.file, "weights");
		assert_int_equal(error.offset, chunks[i].offset);
	}
	release_all(store, leases, 4);
	assert_int_equal(stats_of(store).slots_free, 16);
	weir_store_close(store);
}

static void a_method_that_breaks_while_waiting_is_an_error(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[2];
	weir_error error = {0};
	const void *data;

	(void)state;
	assert_int_equal(weir_store_acquire(store, ids, 2, leases, NULL), 2);
	fake.wait_code = WEIR_EIO;
	assert_int_equal(weir_lease_wait(leases[0], &data, &error), WEIR_EIO);
	assert_int_equal(error.code, WEIR_EIO);
	fake.wait_code = 0;
	fake.reap_code = WEIR_ELIMIT;
	assert_int_equal(weir_lease_wait(leases[0], &data, &error), WEIR_ELIMIT);
	assert_int_equal(weir_store_poll(store), WEIR_ELIMIT);
	fake.reap_code = 0;
	assert_int_equal(weir_lease_wait(leases[0], &data, NULL), 0); /* and it may recover */
	assert_int_equal(weir_lease_wait(leases[1], &data, NULL), 0);
	release_all(store, leases, 2);
	weir_store_close(store);
}

static void what_is_under_way_and_what_is_there_can_be_asked(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *lease;

	(void)state;
	assert_int_equal(weir_store_reads_under_way(store), 0);
	assert_false(weir_store_has(store, ids[0]));
	assert_int_equal(weir_store_acquire(store, &ids[0], 1, &lease, NULL), 1);
	assert_int_equal(weir_store_expect(store, &ids[1], 3), 3);
	assert_int_equal(weir_store_reads_under_way(store), 4); /* two taken by the method, two queued behind them */
	assert_true(weir_store_has(store, ids[0]));
	assert_true(weir_store_has(store, ids[3]));
	assert_false(weir_store_has(store, ids[4]));
	assert_false(weir_store_has(store, CHUNKS));
	finish(0, 0);
	assert_int_equal(weir_store_reads_under_way(store), 4); /* not looked at yet */
	weir_store_poll(store);
	assert_int_equal(weir_store_reads_under_way(store), 3);
	weir_lease_release(lease);
	weir_store_close(store);
	assert_int_equal(weir_store_reads_under_way(NULL), 0);
	assert_false(weir_store_has(NULL, 0));
}

/* The same completion again, after its slot went on to another chunk, and one with a tag that never was. */
static void late_completions_do_not_hit_a_reused_slot(void **state)
{
	weir_store *store = open_store(1);
	weir_io_completion late, never = {.tag = UINT64_MAX, .code = WEIR_EIO};
	weir_lease *lease;
	const void *data;

	(void)state;
	assert_int_equal(weir_store_acquire(store, &ids[0], 1, &lease, NULL), 1);
	late = (weir_io_completion){.tag = fake.requests[0].tag, .code = WEIR_EIO};
	assert_int_equal(weir_lease_wait(lease, &data, NULL), 0);
	weir_lease_release(lease);
	fake.done[fake.done_count++] = late; /* while READY */
	weir_store_poll(store);
	assert_int_equal(stats_of(store).slots_ready, 1);
	assert_int_equal(weir_store_acquire(store, &ids[1], 1, &lease, NULL), 1);
	assert_sound(store);
	fake.done[0] = late; /* while LOADING for another chunk */
	fake.done[1] = never;
	fake.done_count = 2;
	weir_store_poll(store);
	assert_int_equal(stats_of(store).slots_loading, 1);
	assert_int_equal(weir_lease_wait(lease, &data, NULL), 0);
	assert_int_equal(((const unsigned char *)data)[0], 1);
	weir_lease_release(lease);
	assert_sound(store);
	weir_store_close(store);
}

static void prefetches_fill_the_queue_and_no_more(void **state)
{
	weir_store *store = open_store(16);
	weir_lease *leases[3];
	const void *data;

	(void)state;
	assert_int_equal(weir_store_prefetch(store, ids, 6), 6);
	assert_int_equal(fake.count, QUEUE_DEPTH);
	assert_int_equal(weir_store_prefetch(store, ids, 6), 6);
	assert_int_equal(weir_store_poll(store), 0);
	assert_int_equal(fake.count, QUEUE_DEPTH);
	assert_int_equal(weir_store_acquire(store, ids + 20, 2, leases, NULL), 2); /* demanded reads do not wait for them */
	assert_int_equal(fake.count, QUEUE_DEPTH + 2);
	assert_int_equal(weir_store_acquire(store, ids + 5, 1, leases + 2, NULL), 1); /* nor does a prefetch once demanded */
	assert_int_equal(fake.count, QUEUE_DEPTH + 3);
	assert_int_equal(stats_of(store).joined, 1);
	assert_sound(store);
	assert_int_equal(weir_lease_wait(leases[2], &data, NULL), 0);
	assert_int_equal(((const unsigned char *)data)[0], 5);
	release_all(store, leases, 3);
	while (weir_store_wait_read(store) == 0)
		assert_sound(store);
	assert_int_equal(stats_of(store).slots_ready, 8);
	weir_store_close(store);
}

static void prefetches_take_half_of_the_slots_at_one_time(void **state)
{
	weir_store *store = open_store(8);

	(void)state;
	assert_int_equal(weir_store_prefetch(store, ids, 20), 4);
	assert_int_equal(stats_of(store).slots_loading, 4);
	while (weir_store_wait_read(store) == 0)
		assert_sound(store);
	assert_int_equal(weir_store_prefetch(store, ids, 20), 8);
	while (weir_store_wait_read(store) == 0)
		assert_sound(store);
	assert_int_equal(weir_store_prefetch(store, ids, 20), 8); /* fresh prefetches do not evict each other */
	assert_int_equal(stats_of(store).prefetched, 8);
	assert_int_equal(stats_of(store).evictions, 0);
	weir_store_close(store);
}

static void slots_whose_read_ended_are_found_by_acquire(void **state)
{
	weir_store *store = open_store(2);
	weir_lease *leases[2];

	(void)state;
	assert_int_equal(weir_store_acquire(store, ids, 2, leases, NULL), 2);
	release_all(store, leases, 2);
	assert_int_equal(weir_store_acquire(store, ids + 5, 2, leases, NULL), 0); /* both on their way for others */
	finish(1, 0);
	finish(0, WEIR_EIO);
	assert_int_equal(weir_store_acquire(store, ids + 5, 2, leases, NULL), 2);
	assert_int_equal(stats_of(store).evictions, 1);
	release_all(store, leases, 2);
	weir_store_close(store);
}

static void more_reads_than_a_batch_are_all_started(void **state)
{
	static weir_lease *leases[CHUNKS];
	weir_store *store = open_store(CHUNKS);
	const void *data;

	(void)state;
	assert_true(CHUNKS > 2 * WEIR_STORE_BATCH);
	assert_int_equal(weir_store_acquire(store, ids, CHUNKS, leases, NULL), CHUNKS);
	assert_int_equal(fake.submits, 3);
	assert_int_equal(fake.count, CHUNKS);
	for (uint32_t i = 0; i < WEIR_STORE_BATCH + 9; i++)
		finish(0, 0);
	assert_int_equal(weir_store_poll(store), WEIR_STORE_BATCH + 9); /* more than one call collects */
	for (int i = CHUNKS - 1; i >= 0; i--) {
		assert_int_equal(weir_lease_wait(leases[i], &data, NULL), 0);
		assert_int_equal(((const unsigned char *)data)[0], i % 256);
	}
	release_all(store, leases, CHUNKS);
	weir_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_acquire_is_one_submit),
		cmocka_unit_test(hits_do_not_touch_the_method),
		cmocka_unit_test(a_method_with_little_room_gets_the_rest_later),
		cmocka_unit_test(a_method_that_takes_nothing_fails_the_reads),
		cmocka_unit_test(a_method_that_breaks_while_waiting_is_an_error),
		cmocka_unit_test(what_is_under_way_and_what_is_there_can_be_asked),
		cmocka_unit_test(late_completions_do_not_hit_a_reused_slot),
		cmocka_unit_test(prefetches_fill_the_queue_and_no_more),
		cmocka_unit_test(prefetches_take_half_of_the_slots_at_one_time),
		cmocka_unit_test(slots_whose_read_ended_are_found_by_acquire),
		cmocka_unit_test(more_reads_than_a_batch_are_all_started),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
