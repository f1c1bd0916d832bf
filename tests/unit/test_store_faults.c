/*
 * test_store_faults.c - reads that fail: the Nth for every N, with what the caller sees and that everything ends clean.
 */
#include <errno.h>

#include "residency/residency_types.h"
#include "store_fixture.h"

#define CHUNKS_USED 12

static const char *const METHODS[] = {"uring", "threads", "mmap"};

static weir_store *open_with_fault(store_fixture *fixture, const char *method, const char *fault)
{
	weir_store *store = NULL;

	fixture->options.io_method = method;
	fixture->options.io_fault = fault;
	if (weir_store_open(&fixture->options, &store, NULL) == 0)
		return store;
	assert_string_equal(method, "uring"); /* may be missing on this system */
	return NULL;
}

/* Acquires all, waits for all, and acquires again what failed.  Returns how many failed. */
static uint32_t read_all_with_retry(const store_fixture *fixture, weir_store *store)
{
	uint32_t failed = 0;

	for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk += FIXTURE_CHUNKS / CHUNKS_USED) {
		weir_lease *lease = acquire_one(store, chunk);
		weir_error error = {0};
		const void *data = NULL;
		int code = weir_lease_wait(lease, &data, &error);

		assert_store_sound(store);
		if (code != 0) {
			assert_int_equal(code, WEIR_EIO);
			assert_int_equal(error.sys_errno, EIO);
			assert_string_equal(error.file, fixture->paths[fixture->chunks[chunk].file]);
			assert_null(data);
			assert_int_equal(weir_lease_wait(lease, &data, NULL), WEIR_EIO); /* and again the same */
			assert_int_equal(stats_of(store).slots_failed, 1);
			failed++;
		} else {
			assert_true(chunk_is_right(fixture, chunk, data));
		}
		weir_lease_release(lease);
		assert_int_equal(stats_of(store).slots_failed, 0);
		if (code != 0)
			touch(fixture, store, chunk);
	}
	return failed;
}

static void the_nth_read_fails_for_every_n(void **state)
{
	store_fixture *fixture = *state;

	for (size_t method = 0; method < sizeof METHODS / sizeof METHODS[0]; method++) {
		uint32_t failed = 1;

		for (uint32_t nth = 1; failed > 0; nth++) {
			char fault[32];
			weir_store *store;

			snprintf(fault, sizeof fault, "eio:%u", nth);
			store = open_with_fault(fixture, METHODS[method], fault);
			if (!store)
				break;
			failed = read_all_with_retry(fixture, store);
			assert_in_range(failed, 0, 1);
			assert_true(failed == 1 || nth > CHUNKS_USED); /* every early read belongs to a chunk */
			assert_int_equal(stats_of(store).slots_ready, CHUNKS_USED);
			weir_store_close(store);
		}
	}
}

static void all_who_wait_for_a_chunk_see_its_failure(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[3] = {2, 2, 2};
	weir_lease *leases[3];
	weir_store *store = open_with_fault(fixture, "threads", "eio:1,latency-us:50000");
	const void *data;

	assert_int_equal(weir_store_acquire(store, chunks, 3, leases, NULL), 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(weir_lease_wait(leases[i], &data, NULL), WEIR_EIO);
	touch(fixture, store, 2); /* in another slot, while the failed one is still held */
	assert_int_equal(stats_of(store).slots_failed, 1);
	for (int i = 0; i < 3; i++) {
		assert_store_sound(store);
		weir_lease_release(leases[i]);
	}
	assert_store_sound(store);
	assert_int_equal(stats_of(store).slots_failed, 0);
	weir_store_close(store);
}

static void a_failure_nobody_waits_for_frees_the_slot(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunk = 40;
	weir_store *store = open_with_fault(fixture, "threads", "eio:1,eio:2,latency-us:50000");

	weir_lease_release(acquire_one(store, chunk));
	assert_int_equal(weir_store_wait_read(store), 0);
	assert_store_sound(store);
	assert_int_equal(stats_of(store).slots_free, stats_of(store).slots_count);
	touch(fixture, store, chunk);
	weir_store_close(store);
}

static void a_prefetch_that_fails_costs_nothing(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunk = 5;
	weir_store *store = open_with_fault(fixture, "threads", "eio:1");

	assert_int_equal(weir_store_prefetch(store, &chunk, 1), 1);
	while (weir_store_wait_read(store) == 0)
		assert_store_sound(store);
	assert_int_equal(stats_of(store).slots_free, stats_of(store).slots_count);
	touch(fixture, store, chunk);
	assert_int_equal(stats_of(store).prefetch_used, 0);
	assert_int_equal(stats_of(store).misses, 1);
	weir_store_close(store);
}

static void every_read_fails(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = open_with_fault(fixture, "threads", "eio-every:1");
	const void *data;

	for (int round = 0; round < 3; round++) {
		for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk++) {
			weir_lease *lease = acquire_one(store, chunk);

			assert_int_equal(weir_lease_wait(lease, &data, NULL), WEIR_EIO);
			weir_lease_release(lease);
		}
	}
	assert_store_sound(store);
	assert_int_equal(stats_of(store).slots_free, stats_of(store).slots_count);
	weir_store_close(store);
}

static void memory_that_runs_out_is_told_as_such(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = open_with_fault(fixture, "threads", "enomem:1");
	weir_lease *lease = acquire_one(store, 0);
	weir_error error;
	const void *data;

	assert_int_equal(weir_lease_wait(lease, &data, &error), WEIR_ENOMEM);
	assert_int_equal(error.sys_errno, ENOMEM);
	weir_lease_release(lease);
	weir_store_close(store);
}

/* The file loses its tail while the store is open: an error, not a signal and not wrong bytes. */
static void a_file_cut_short_is_an_error(void **state)
{
	store_fixture *fixture = *state;
	uint32_t last = FIXTURE_CHUNKS / FIXTURE_FILES - 1;

	for (size_t method = 0; method < sizeof METHODS / sizeof METHODS[0]; method++) {
		weir_store *store = open_with_fault(fixture, METHODS[method], NULL);
		weir_error error = {0};
		weir_lease *lease;
		const void *data;
		FILE *stream;

		if (!store)
			continue;
		touch(fixture, store, 0);
		assert_int_equal(truncate(fixture->paths[0], (off_t)fixture->chunks[last].offset + 1000), 0);
		lease = acquire_one(store, last);
		assert_int_equal(weir_lease_wait(lease, &data, &error), WEIR_ECHANGED);
		assert_string_equal(error.file, fixture->paths[0]);
		weir_lease_release(lease);
		assert_store_sound(store);
		weir_store_close(store);
		stream = fopen(fixture->paths[0], "wb");
		assert_non_null(stream);
		assert_int_equal(fwrite(fixture->contents[0], 1, fixture->file_bytes[0], stream), fixture->file_bytes[0]);
		assert_int_equal(fclose(stream), 0);
	}
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(the_nth_read_fails_for_every_n),
		STORE_TEST(all_who_wait_for_a_chunk_see_its_failure),
		STORE_TEST(a_failure_nobody_waits_for_frees_the_slot),
		STORE_TEST(a_prefetch_that_fails_costs_nothing),
		STORE_TEST(every_read_fails),
		STORE_TEST(memory_that_runs_out_is_told_as_such),
		STORE_TEST(a_file_cut_short_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
