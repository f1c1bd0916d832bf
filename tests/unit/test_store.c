/*
 * test_store.c - a store's behaviour, one test each, over real files.
 */
#include "os/memory.h"
#include "residency/residency_types.h"
#include "store_fixture.h"

static void every_chunk_shows_its_bytes(void **state)
{
	store_fixture *fixture = *state;
	static const char *const methods[] = {"auto", "uring", "threads", "mmap"};

	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		weir_store *store;

		fixture->options.io_method = methods[i];
		if (weir_store_open(&fixture->options, &store, NULL) == WEIR_EUNSUPPORTED)
			continue;
		for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk++)
			touch(fixture, store, chunk);
		assert_int_equal(stats_of(store).misses, FIXTURE_CHUNKS);
		if (i > 0)
			assert_string_equal(weir_store_io_method(store), methods[i]);
		weir_store_close(store);
	}
}

static void chunks_are_moved_where_elements_can_be_read(void **state)
{
	store_fixture *fixture = *state;
	static const char *const methods[] = {"uring", "threads", "mmap"};

	fixture->options.data_alignment = 8;
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		weir_store *store;

		fixture->options.io_method = methods[i];
		if (weir_store_open(&fixture->options, &store, NULL) == WEIR_EUNSUPPORTED)
			continue;
		for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk++) {
			weir_lease *lease = acquire_one(store, chunk);
			weir_lease_position at;
			const void *data;

			assert_int_equal(weir_lease_wait(lease, &data, NULL), 0);
			assert_int_equal((uintptr_t)data % 8, 0);
			assert_true(chunk_is_right(fixture, chunk, data));
			weir_lease_get_position(lease, &at);
			assert_ptr_equal(data, (const char *)at.base + at.index * at.stride_bytes + at.shift_bytes);
			weir_lease_release(lease);
			assert_store_sound(store);
		}
		weir_store_close(store);
	}
}

static void many_leases_in_one_call(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = fixture_open(fixture);
	const uint32_t chunks[] = {1, 17, 33, 5};
	weir_lease *leases[4];
	const void *data[4];

	assert_int_equal(weir_store_acquire(store, chunks, 4, leases, NULL), 4);
	assert_int_equal(weir_store_wait_all(store, leases, 4, data, NULL), 0);
	for (size_t i = 0; i < 4; i++)
		assert_true(chunk_is_right(fixture, chunks[i], data[i]));
	weir_store_release_all(store, leases, 4);
	assert_int_equal(stats_of(store).slots_pinned, 0);
	assert_int_equal(weir_store_wait_all(store, NULL, 1, data, NULL), WEIR_EINVAL);
	assert_int_equal(weir_store_wait_all(store, NULL, 0, NULL, NULL), 0);
	weir_store_release_all(store, NULL, 0);
	weir_store_close(store);
}

static void alignments_that_are_none(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;

	for (uint32_t i = 0; i < 3; i++) {
		fixture->options.data_alignment = (const uint32_t[]){3, 128, 65}[i];
		assert_int_equal(weir_store_open(&fixture->options, &store, NULL), WEIR_EINVAL);
	}
}

static void demands_are_hits_joins_or_misses(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;
	weir_lease *first, *second, *third;
	weir_store_stats stats;
	const void *data;

	fixture->options.io_fault = "latency-us:50000";
	store = fixture_open(fixture);
	first = acquire_one(store, 3);
	second = acquire_one(store, 3);
	assert_int_equal(weir_lease_wait(second, &data, NULL), 0);
	third = acquire_one(store, 3);
	assert_true(weir_lease_ready(third));
	stats = stats_of(store);
	assert_int_equal(stats.demanded, 3);
	assert_int_equal(stats.misses, 1);
	assert_int_equal(stats.joined, 1);
	assert_int_equal(stats.hits, 1);
	assert_int_equal(stats.slots_pinned, 1);
	assert_true(stats.bytes_read >= SMALL_BYTES);
	weir_lease_release(first);
	weir_lease_release(second);
	weir_lease_release(third);
	assert_int_equal(stats_of(store).slots_pinned, 0);
	weir_store_close(store);
}

static void waiting_counts_as_stall_and_hits_do_not(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;
	uint64_t stall_ns, before_ns;

	fixture->options.io_fault = "latency-us:100000";
	before_ns = weir_clock_ns();
	store = fixture_open(fixture);
	touch(fixture, store, 0);
	stall_ns = stats_of(store).stall_ns;
	assert_in_range(stall_ns, 1000000, weir_clock_ns() - before_ns);
	for (int i = 0; i < 100; i++)
		touch(fixture, store, 0);
	assert_int_equal(stats_of(store).stall_ns, stall_ns);
	weir_store_reset_stats(store);
	assert_int_equal(stats_of(store).stall_ns, 0);
	assert_int_equal(stats_of(store).demanded, 0);
	assert_int_equal(stats_of(store).bytes_read, 0);
	assert_int_equal(stats_of(store).slots_ready, 1);
	weir_store_close(store);
}

static void pinned_chunks_stay_when_the_rest_is_evicted(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;
	weir_lease *pinned;
	const void *data;

	fixture_use_small(fixture, 40, 10, 4);
	store = fixture_open(fixture);
	pinned = acquire_one(store, 7);
	assert_int_equal(weir_lease_wait(pinned, &data, NULL), 0);
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t chunk = 0; chunk < 40; chunk++)
			touch(fixture, store, chunk);
	assert_true(chunk_is_right(fixture, 7, data));
	assert_int_equal(stats_of(store).slots_count, 4);
	assert_true(stats_of(store).evictions > 80);
	weir_lease_release(pinned);
	weir_store_close(store);
}

static void more_chunks_than_slots_give_some_leases(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[6] = {0, 1, 2, 3, 4, 5};
	weir_lease *leases[6];
	weir_store *store;
	const void *data;

	fixture_use_small(fixture, 40, 10, 4);
	store = fixture_open(fixture);
	assert_int_equal(weir_store_acquire(store, chunks, 6, leases, NULL), 4);
	assert_store_sound(store);
	assert_null(leases[4]);
	assert_null(leases[5]);
	assert_int_equal(stats_of(store).demanded, 4);
	assert_int_equal(weir_store_acquire(store, chunks + 4, 2, leases + 4, NULL), 0);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(weir_lease_wait(leases[i], &data, NULL), 0);
		assert_true(chunk_is_right(fixture, i, data));
		weir_lease_release(leases[i]);
	}
	assert_int_equal(weir_store_acquire(store, chunks + 4, 2, leases, NULL), 2);
	weir_lease_release(leases[0]);
	weir_lease_release(leases[1]);
	weir_store_close(store);
}

/* The hit at the end is let go again when a miss before it finds no slot. */
static void a_partial_acquire_unpins_later_hits(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[3] = {10, 11, 0};
	weir_lease *held[3], *leases[3];
	weir_store *store;

	fixture_use_small(fixture, 40, 10, 4);
	store = fixture_open(fixture);
	for (uint32_t i = 0; i < 4; i++)
		touch(fixture, store, i);
	held[0] = acquire_one(store, 1);
	held[1] = acquire_one(store, 2);
	assert_int_equal(weir_store_acquire(store, chunks, 3, leases, NULL), 1); /* 10 takes the slot of 3; 0 is pinned */
	assert_store_sound(store);
	assert_null(leases[1]);
	assert_null(leases[2]);
	assert_int_equal(stats_of(store).slots_pinned, 3);
	held[2] = acquire_one(store, 0);
	assert_int_equal(stats_of(store).misses, 5);
	for (int i = 0; i < 3; i++)
		weir_lease_release(held[i]);
	weir_lease_release(leases[0]);
	assert_store_sound(store);
	weir_store_close(store);
}

static void leases_are_limited(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[5] = {0, 0, 0, 1, 2};
	weir_lease *leases[5];
	weir_store *store;

	fixture->options.leases_max = 3;
	store = fixture_open(fixture);
	assert_int_equal(weir_store_acquire(store, chunks, 5, leases, NULL), 3);
	assert_store_sound(store);
	assert_int_equal(weir_store_acquire(store, chunks, 1, leases + 3, NULL), 0);
	for (int i = 0; i < 3; i++)
		weir_lease_release(leases[i]);
	assert_int_equal(weir_store_acquire(store, chunks + 2, 3, leases, NULL), 3);
	for (int i = 0; i < 3; i++)
		weir_lease_release(leases[i]);
	weir_store_close(store);
}

static void the_same_chunk_twice_takes_one_slot(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[4] = {5, 5, 6, 5};
	weir_lease *leases[4];
	weir_store *store = fixture_open(fixture);
	const void *data[4];

	assert_int_equal(weir_store_acquire(store, chunks, 4, leases, NULL), 4);
	assert_store_sound(store);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(weir_lease_chunk(leases[i]), chunks[i]);
		assert_int_equal(weir_lease_wait(leases[i], &data[i], NULL), 0);
	}
	assert_ptr_equal(data[0], data[1]);
	assert_ptr_equal(data[0], data[3]);
	assert_int_equal(stats_of(store).slots_pinned, 2);
	assert_int_equal(stats_of(store).misses, 2);
	for (int i = 0; i < 4; i++)
		weir_lease_release(leases[i]);
	weir_store_close(store);
}

static void a_lease_may_be_released_while_it_loads(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;

	fixture->options.io_fault = "latency-us:50000";
	store = fixture_open(fixture);
	weir_lease_release(acquire_one(store, 9));
	assert_int_equal(stats_of(store).slots_loading, 1);
	assert_int_equal(weir_store_wait_read(store), 0);
	assert_store_sound(store);
	assert_int_equal(stats_of(store).slots_ready, 1);
	touch(fixture, store, 9);
	assert_int_equal(stats_of(store).hits, 1);
	weir_store_close(store);
}

static void a_store_may_be_closed_while_it_loads(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store;

	fixture->options.io_fault = "latency-us:100000";
	store = fixture_open(fixture);
	for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk += 8)
		weir_lease_release(acquire_one(store, chunk));
	assert_int_equal(stats_of(store).slots_loading, FIXTURE_CHUNKS / 8);
	weir_store_close(store);
	weir_store_close(NULL);
}

static void waiting_for_a_read_ends_when_none_is_left(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = fixture_open(fixture);
	int waits = 0;

	assert_int_equal(weir_store_wait_read(store), WEIR_EBUSY);
	for (uint32_t chunk = 0; chunk < 5; chunk++)
		weir_lease_release(acquire_one(store, chunk));
	while (weir_store_wait_read(store) == 0)
		waits++;
	assert_in_range(waits, 0, 5);
	assert_int_equal(stats_of(store).slots_ready, 5);
	assert_int_equal(weir_store_poll(store), 0);
	weir_store_close(store);
}

static void wait_any_gives_the_first_that_is_there(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[4] = {40, 41, 42, 43}, index = 99;
	bool seen[4] = {false};
	weir_lease *leases[4];
	weir_store *store;

	fixture->options.io_fault = "latency-us:200000";
	store = fixture_open(fixture);
	touch(fixture, store, 42);
	assert_int_equal(weir_store_acquire(store, chunks, 4, leases, NULL), 4);
	for (int left = 4; left > 0; left--) {
		weir_lease *open[4];
		uint32_t chunk, count = 0;
		const void *data;

		for (int i = 0; i < 4; i++)
			if (!seen[i])
				open[count++] = leases[i];
		assert_int_equal(weir_store_wait_any(store, open, count, &index, NULL), 0);
		assert_in_range(index, 0, count - 1);
		assert_true(weir_lease_ready(open[index]));
		if (left == 4)
			assert_int_equal(index, 2); /* the only one that was there */
		chunk = weir_lease_chunk(open[index]);
		assert_int_equal(weir_lease_wait(open[index], &data, NULL), 0);
		assert_true(chunk_is_right(fixture, chunk, data));
		seen[chunk - 40] = true;
	}
	for (int i = 0; i < 4; i++)
		weir_lease_release(leases[i]);
	weir_store_close(store);
}

static void a_position_says_where_the_bytes_lie(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[3] = {16, 17, 18};
	weir_lease_position position[3];
	weir_lease *leases[3];
	weir_store *store = fixture_open(fixture);

	assert_int_equal(weir_store_acquire(store, chunks, 3, leases, NULL), 3);
	for (int i = 0; i < 3; i++) {
		const unsigned char *data;
		const void *start;

		weir_lease_get_position(leases[i], &position[i]);
		assert_int_equal(weir_lease_wait(leases[i], &start, NULL), 0);
		data = position[i].base;
		assert_ptr_equal(data + position[i].index * position[i].stride_bytes + position[i].shift_bytes, start);
		assert_ptr_equal(position[i].base, position[0].base);
		assert_int_equal((uintptr_t)start % 64, fixture->chunks[chunks[i]].offset % 64);
		weir_lease_release(leases[i]);
	}
	assert_int_not_equal(position[0].index, position[1].index);
	weir_store_close(store);
}

static void a_prefetched_chunk_is_a_hit(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[4] = {1, 2, 3, 999999};
	weir_store *store = fixture_open(fixture);
	weir_store_stats stats;

	assert_int_equal(weir_store_prefetch(store, chunks, 4), 3);
	assert_store_sound(store);
	while (weir_store_wait_read(store) == 0)
		assert_store_sound(store);
	assert_int_equal(weir_store_prefetch(store, chunks, 2), 2); /* there already */
	touch(fixture, store, 1);
	touch(fixture, store, 1);
	touch(fixture, store, 3);
	stats = stats_of(store);
	assert_int_equal(stats.prefetched, 3);
	assert_int_equal(stats.prefetch_used, 2);
	assert_int_equal(stats.hits, 3);
	assert_int_equal(stats.misses, 0);
	assert_int_equal(weir_store_prefetch(store, NULL, 4), 0);
	weir_store_close(store);
}

static void prefetches_do_not_evict_what_is_wanted_more(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[8] = {20, 21, 22, 23, 24, 25, 26, 27};
	weir_store *store;

	fixture_use_small(fixture, 40, 10, 8);
	store = fixture_open(fixture);
	for (uint32_t group = 0; group < 4; group++) {
		touch(fixture, store, group * 10);
		touch(fixture, store, group * 10 + 1);
	}
	assert_int_equal(weir_store_prefetch(store, chunks + 2, 6), 0); /* none of them was ever demanded */
	assert_int_equal(stats_of(store).evictions, 0);
	assert_store_sound(store);
	weir_store_close(store);
}

static void a_prefetch_that_waits_gives_way_to_a_demand(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[40];
	weir_lease *leases[40];
	weir_store *store;

	for (uint32_t i = 0; i < 40; i++)
		chunks[i] = i;
	fixture_use_small(fixture, 40, 10, 8);
	fixture->options.io_fault = "latency-us:200000";
	fixture->options.queue_depth = 1;
	store = fixture_open(fixture);
	assert_int_equal(weir_store_prefetch(store, chunks, 40), 4); /* half of the slots, one of them in flight */
	assert_store_sound(store);
	assert_int_equal(weir_store_acquire(store, chunks + 20, 8, leases, NULL), 7);
	assert_store_sound(store);
	for (int i = 0; i < 7; i++)
		weir_lease_release(leases[i]);
	assert_store_sound(store);
	weir_store_close(store);
}

static void a_prefetch_that_is_acquired_is_joined(void **state)
{
	store_fixture *fixture = *state;
	uint32_t chunks[4] = {0, 1, 2, 3};
	weir_store *store;
	weir_store_stats stats;

	fixture->options.io_fault = "latency-us:50000";
	fixture->options.queue_depth = 1;
	store = fixture_open(fixture);
	assert_int_equal(weir_store_prefetch(store, chunks, 4), 4);
	touch(fixture, store, 3);
	touch(fixture, store, 0);
	stats = stats_of(store);
	assert_int_equal(stats.demanded, 2);
	assert_int_equal(stats.misses, 0);
	assert_int_equal(stats.prefetch_used, 2);
	weir_store_close(store);
}

static void everything_fits_in_the_budget_for_everything(void **state)
{
	store_fixture *fixture = *state;
	uint64_t least, all;
	weir_store *store;

	assert_int_equal(weir_store_sizes(&fixture->options, 1, &least, &all), 0);
	assert_true(least < all);
	fixture->options.budget_bytes = all;
	store = fixture_open(fixture);
	assert_int_equal(stats_of(store).slots_count, FIXTURE_CHUNKS);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk++)
			touch(fixture, store, chunk);
	assert_int_equal(stats_of(store).evictions, 0);
	assert_int_equal(stats_of(store).hits, FIXTURE_CHUNKS);
	weir_store_close(store);
	fixture->options.budget_bytes = all - SMALL_BYTES;
	store = fixture_open(fixture);
	assert_true(stats_of(store).slots_count < FIXTURE_CHUNKS);
	weir_store_close(store);
}

static void the_least_budget_works_and_one_byte_less_does_not(void **state)
{
	store_fixture *fixture = *state;
	uint64_t least, all;
	weir_store *store;
	weir_error error = {0};

	for (uint32_t slots_least = 1; slots_least <= 6; slots_least++) {
		assert_int_equal(weir_store_sizes(&fixture->options, slots_least, &least, &all), 0);
		fixture->options.budget_bytes = least;
		fixture->options.slots_least = slots_least;
		store = fixture_open(fixture);
		for (uint32_t chunk = 0; chunk < FIXTURE_CHUNKS; chunk += 5)
			touch(fixture, store, chunk);
		assert_true(stats_of(store).slots_count >= 3 * slots_least);
		weir_store_close(store);
		fixture->options.budget_bytes = least - 1;
		assert_int_equal(weir_store_open(&fixture->options, &store, &error), WEIR_EBUDGET);
		assert_int_equal(error.code, WEIR_EBUDGET);
	}
	fixture->options.budget_bytes = 0;
	assert_int_equal(weir_store_open(&fixture->options, &store, &error), WEIR_EBUDGET);
}

static void sizes_can_be_asked_without_files(void **state)
{
	store_fixture *fixture = *state;
	uint64_t least, all, least_without, all_without;

	assert_int_equal(weir_store_sizes(&fixture->options, 2, &least, &all), 0);
	fixture->options.paths = NULL;
	assert_int_equal(weir_store_sizes(&fixture->options, 2, &least_without, &all_without), 0);
	assert_in_range(all_without, all, 2 * all); /* coarser slots */
	assert_in_range(least_without, least, 2 * least);
}

static void policies_are_chosen_by_name(void **state)
{
	static const char *const names[] = {"lfu", "lru", "lfu-global", "lru-global"};
	store_fixture *fixture = *state;
	weir_store *store;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		fixture->options.policy = names[i];
		store = fixture_open(fixture);
		assert_string_equal(weir_store_policy(store), names[i]);
		weir_store_close(store);
	}
	fixture->options.policy = NULL;
	store = fixture_open(fixture);
	assert_string_equal(weir_store_policy(store), "lfu");
	weir_store_close(store);
}

static int open_with(store_fixture *fixture, weir_store_options options)
{
	weir_error error = {0};
	weir_store *store = NULL;
	int code = weir_store_open(&options, &store, &error);

	(void)fixture;
	assert_null(store);
	assert_int_equal(error.code, code);
	return code;
}

static void wrong_options_are_refused(void **state)
{
	store_fixture *fixture = *state;
	const weir_store_options right = fixture->options;
	weir_chunk chunk = fixture->chunks[0];
	weir_store_options wrong;

#define REFUSED(change, expected)                                                                                              \
	do {                                                                                                                   \
		wrong = right;                                                                                                 \
		change;                                                                                                        \
		assert_int_equal(open_with(fixture, wrong), expected);                                                         \
	} while (0)
	REFUSED(wrong.policy = "best", WEIR_EINVAL);
	REFUSED(wrong.io_method = "telepathy", WEIR_EINVAL);
	REFUSED(wrong.io_fault = "nonsense", WEIR_EINVAL);
	REFUSED(wrong.chunks_count = 0, WEIR_EINVAL);
	REFUSED(wrong.chunks = NULL, WEIR_EINVAL);
	REFUSED(wrong.paths = NULL, WEIR_EINVAL);
	REFUSED(wrong.paths_count = 1, WEIR_EINVAL);
	REFUSED(wrong.leases_max = UINT32_MAX, WEIR_EINVAL);
	REFUSED(wrong.queue_depth = UINT32_MAX, WEIR_EINVAL);
	wrong = right;
#undef REFUSED
	wrong.chunks = &chunk;
	wrong.chunks_count = 1;
	chunk.bytes = 0;
	assert_int_equal(open_with(fixture, wrong), WEIR_EINVAL);
	chunk.bytes = fixture->file_bytes[0] + 1;
	assert_int_equal(open_with(fixture, wrong), WEIR_EINVAL);
	chunk = (weir_chunk){.offset = UINT64_MAX, .bytes = 2};
	assert_int_equal(open_with(fixture, wrong), WEIR_EINVAL);
	unlink(fixture->paths[0]);
	assert_true(open_with(fixture, right) < 0);
}

static void wrong_calls_are_refused(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = fixture_open(fixture);
	uint32_t chunk = FIXTURE_CHUNKS, index;
	weir_lease *lease;
	weir_error error = {0};
	const void *data;

	assert_int_equal(weir_store_acquire(store, &chunk, 1, &lease, &error), WEIR_EINVAL);
	assert_int_equal(error.code, WEIR_EINVAL);
	assert_int_equal(weir_store_acquire(store, NULL, 1, &lease, NULL), WEIR_EINVAL);
	assert_int_equal(weir_store_acquire(NULL, &chunk, 1, &lease, NULL), WEIR_EINVAL);
	assert_int_equal(weir_store_acquire(store, NULL, 0, NULL, NULL), 0);
	assert_int_equal(weir_store_wait_any(store, NULL, 0, &index, NULL), WEIR_EINVAL);
	assert_int_equal(weir_lease_wait(NULL, &data, NULL), WEIR_EINVAL);
	assert_int_equal(weir_store_open(NULL, &store, NULL), WEIR_EINVAL);
	weir_lease_release(NULL);
	assert_store_sound(store);
	weir_store_close(store);
}

static void the_walker_finds_what_is_wrong(void **state)
{
	store_fixture *fixture = *state;
	weir_store *store = fixture_open(fixture);

	touch(fixture, store, 0);
	touch(fixture, store, 20);
	assert_int_equal(weir_store_check(store), 0);
#define FOUND(wrong, right)                                                                                                    \
	do {                                                                                                                   \
		wrong;                                                                                                         \
		assert_int_equal(weir_store_check(store), WEIR_EINVAL);                                                        \
		right;                                                                                                         \
		assert_int_equal(weir_store_check(store), 0);                                                                  \
	} while (0)
	FOUND(store->states_count[WEIR_SLOT_FREE]++, store->states_count[WEIR_SLOT_FREE]--);
	FOUND(store->leases_held++, store->leases_held--);
	FOUND(store->slots[store->chunks[0].slot].pins++, store->slots[store->chunks[0].slot].pins--);
	FOUND(store->chunks[5].slot = 0, store->chunks[5].slot = WEIR_NONE);
	FOUND(store->budget_bytes = store->slab_bytes, store->budget_bytes = 1u << 20);
	FOUND(store->classes[0].free.count--, store->classes[0].free.count++);
	FOUND(store->classes[0].prefetching++, store->classes[0].prefetching--);
	FOUND(store->stats.hits++, store->stats.hits--);
	FOUND(store->policy.sets[0].resident++, store->policy.sets[0].resident--);
#undef FOUND
	weir_store_close(store);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(every_chunk_shows_its_bytes),
		STORE_TEST(chunks_are_moved_where_elements_can_be_read),
		STORE_TEST(many_leases_in_one_call),
		STORE_TEST(alignments_that_are_none),
		STORE_TEST(demands_are_hits_joins_or_misses),
		STORE_TEST(waiting_counts_as_stall_and_hits_do_not),
		STORE_TEST(pinned_chunks_stay_when_the_rest_is_evicted),
		STORE_TEST(more_chunks_than_slots_give_some_leases),
		STORE_TEST(a_partial_acquire_unpins_later_hits),
		STORE_TEST(leases_are_limited),
		STORE_TEST(the_same_chunk_twice_takes_one_slot),
		STORE_TEST(a_lease_may_be_released_while_it_loads),
		STORE_TEST(a_store_may_be_closed_while_it_loads),
		STORE_TEST(waiting_for_a_read_ends_when_none_is_left),
		STORE_TEST(wait_any_gives_the_first_that_is_there),
		STORE_TEST(a_position_says_where_the_bytes_lie),
		STORE_TEST(a_prefetched_chunk_is_a_hit),
		STORE_TEST(prefetches_do_not_evict_what_is_wanted_more),
		STORE_TEST(a_prefetch_that_waits_gives_way_to_a_demand),
		STORE_TEST(a_prefetch_that_is_acquired_is_joined),
		STORE_TEST(everything_fits_in_the_budget_for_everything),
		STORE_TEST(the_least_budget_works_and_one_byte_less_does_not),
		STORE_TEST(sizes_can_be_asked_without_files),
		STORE_TEST(policies_are_chosen_by_name),
		STORE_TEST(wrong_options_are_refused),
		STORE_TEST(wrong_calls_are_refused),
		STORE_TEST(the_walker_finds_what_is_wrong),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
