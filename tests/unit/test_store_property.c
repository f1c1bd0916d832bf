/*
 * test_store_property.c - random sequences of calls over small slabs, with every policy, every I/O method and with faults: the
 * invariants hold after every call, every pointer shows the right bytes until its release, and every error names its file.
 */
#include "residency/residency_types.h"
#include "store_fixture.h"

#define HELD_MAX 64
#define STEPS 300

typedef struct held_lease {
	weir_lease *lease;
	const void *data; /* NULL: not waited for yet */
} held_lease;

typedef struct store_player {
	const store_fixture *fixture;
	weir_store *store;
	uint64_t random;
	bool faults; /* reads may fail */
	held_lease held[HELD_MAX];
	uint32_t held_count;
	uint64_t checked, failed;
} store_player;

/* Half of the time one of few favourites, so that hits occur. */
static uint32_t some_chunk(store_player *player)
{
	uint32_t chunk = next_random(&player->random) % FIXTURE_CHUNKS;

	return next_random(&player->random) % 2 ? chunk : chunk / 5 * 5;
}

static void do_acquire(store_player *player)
{
	uint32_t chunks[12] = {0}, count = 1 + next_random(&player->random) % 12;
	weir_lease *leases[12];
	int made;

	if (count > HELD_MAX - player->held_count)
		count = HELD_MAX - player->held_count;
	for (uint32_t i = 0; i < count; i++)
		chunks[i] = some_chunk(player);
	made = weir_store_acquire(player->store, chunks, count, leases, NULL);
	assert_in_range(made, 0, count);
	for (int i = 0; i < made; i++) {
		assert_int_equal(weir_lease_chunk(leases[i]), chunks[i]);
		player->held[player->held_count++] = (held_lease){.lease = leases[i]};
	}
	for (uint32_t i = (uint32_t)made; i < count; i++)
		assert_null(leases[i]);
}

static void check_error(const store_player *player, uint32_t chunk, int code, const weir_error *error)
{
	const weir_chunk *extent = &player->fixture->chunks[chunk];

	assert_true(player->faults);
	assert_int_equal(code, WEIR_EIO);
	assert_int_equal(error->code, code);
	assert_string_equal(error->file, player->fixture->paths[extent->file]);
	assert_in_range(error->offset, extent->offset / 4096 * 4096, extent->offset + extent->bytes);
}

static void do_wait(store_player *player)
{
	held_lease *held;
	weir_error error = {0};
	uint32_t chunk;
	int code;

	if (player->held_count == 0)
		return;
	held = &player->held[next_random(&player->random) % player->held_count];
	chunk = weir_lease_chunk(held->lease);
	code = weir_lease_wait(held->lease, &held->data, &error);
	assert_true(weir_lease_ready(held->lease));
	if (code != 0) {
		assert_null(held->data);
		check_error(player, chunk, code, &error);
		player->failed++;
		return;
	}
	assert_true(chunk_is_right(player->fixture, chunk, held->data));
	player->checked++;
}

static void do_wait_any(store_player *player)
{
	weir_lease *leases[HELD_MAX];
	uint32_t index = HELD_MAX;

	for (uint32_t i = 0; i < player->held_count; i++)
		leases[i] = player->held[i].lease;
	if (player->held_count == 0)
		return;
	assert_int_equal(weir_store_wait_any(player->store, leases, player->held_count, &index, NULL), 0);
	assert_true(index < player->held_count);
	assert_true(weir_lease_ready(leases[index]));
}

static void release_at(store_player *player, uint32_t index)
{
	held_lease held = player->held[index];

	if (held.data) /* still what it was when it was waited for */
		assert_true(chunk_is_right(player->fixture, weir_lease_chunk(held.lease), held.data));
	weir_lease_release(held.lease);
	player->held[index] = player->held[--player->held_count];
}

static void do_release(store_player *player)
{
	uint32_t count = 1 + next_random(&player->random) % 12;

	while (count-- > 0 && player->held_count > 0)
		release_at(player, next_random(&player->random) % player->held_count);
}

static void do_prefetch(store_player *player)
{
	uint32_t chunks[8], count = 1 + next_random(&player->random) % 8;
	int there;

	for (uint32_t i = 0; i < count; i++)
		chunks[i] = some_chunk(player);
	there = weir_store_prefetch(player->store, chunks, count);
	assert_in_range(there, 0, count);
}

static void do_poll(store_player *player)
{
	int ended = weir_store_poll(player->store);

	assert_true(ended >= 0);
}

static void do_wait_read(store_player *player)
{
	weir_store_stats stats = stats_of(player->store);
	int code = weir_store_wait_read(player->store);

	assert_int_equal(code, stats.slots_loading > 0 ? 0 : WEIR_EBUSY);
}

static void do_tick(store_player *player)
{
	weir_store_tick(player->store);
}

static void step(store_player *player)
{
	static void (*const actions[])(store_player *) = {do_acquire,	do_acquire, do_acquire, do_wait,     do_wait,
							  do_wait,	do_release, do_release, do_prefetch, do_poll,
							  do_wait_read, do_tick,    do_wait_any};

	actions[next_random(&player->random) % (sizeof actions / sizeof actions[0])](player);
	assert_store_sound(player->store);
}

static void play(const store_fixture *fixture, uint64_t seed, bool faults, uint64_t *failed)
{
	store_player player = {.fixture = fixture, .random = seed, .faults = faults};
	weir_store_stats stats;

	player.store = fixture_open(fixture);
	for (uint32_t i = 0; i < STEPS; i++)
		step(&player);
	while (player.held_count > 0)
		release_at(&player, 0);
	assert_store_sound(player.store);
	while (weir_store_wait_read(player.store) == 0)
		assert_store_sound(player.store);
	stats = stats_of(player.store);
	assert_int_equal(stats.slots_pinned, 0);
	assert_int_equal(stats.slots_free + stats.slots_ready, stats.slots_count);
	assert_true(player.checked > 0 && stats.demanded > 0);
	*failed += player.failed;
	weir_store_close(player.store);
}

static const char *const METHODS[] = {"uring", "threads", "mmap"};
static const char *const POLICIES[] = {"odds", "auto", "lfu", "lru", "lfu-global", "lru-global"};

static bool method_works(store_fixture *fixture, const char *method)
{
	weir_store *store;

	fixture->options.io_method = method;
	fixture->options.io_fault = NULL;
	if (weir_store_open(&fixture->options, &store, NULL) != 0)
		return false;
	weir_store_close(store);
	return true;
}

/* From the least that can work to room for everything. */
static uint64_t some_budget(const store_fixture *fixture, uint64_t *random)
{
	uint64_t least, all;

	assert_int_equal(weir_store_sizes(&fixture->options, 1 + next_random(random) % 3, &least, &all), 0);
	switch (next_random(random) % 4) {
	case 0:
		return least;
	case 1:
		return all;
	default:
		return least + next_random(random) % (all - least) / 2;
	}
}

static void play_all(store_fixture *fixture, const char *fault, bool faults)
{
	uint64_t random = 20260101, failed = 0;

	for (size_t method = 0; method < sizeof METHODS / sizeof METHODS[0]; method++) {
		if (!method_works(fixture, METHODS[method]))
			continue;
		for (size_t policy = 0; policy < sizeof POLICIES / sizeof POLICIES[0]; policy++) {
			fixture->options.policy = POLICIES[policy];
			fixture->options.queue_depth = 1 + next_random(&random) % 8;
			fixture->options.io_fault = NULL;
			fixture->options.budget_bytes = some_budget(fixture, &random);
			fixture->options.io_fault = fault;
			play(fixture, next_random(&random) + 1, faults, &failed);
		}
	}
	assert_int_equal(failed > 0, faults);
}

static void without_faults(void **state)
{
	play_all(*state, NULL, false);
}

static void with_short_and_interrupted_reads(void **state)
{
	play_all(*state, "short:3,short-odd:5,eintr:7,eagain:11", false);
}

static void with_late_completions_in_any_order(void **state)
{
	play_all(*state, "latency-us:300,reorder,seed:5", false);
}

static void with_reads_that_fail(void **state)
{
	play_all(*state, "eio-every:6", true);
}

static void with_everything_at_once(void **state)
{
	play_all(*state, "eio-every:9,short:4,eagain:5,latency-us:100,reorder", true);
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(without_faults),
		STORE_TEST(with_short_and_interrupted_reads),
		STORE_TEST(with_late_completions_in_any_order),
		STORE_TEST(with_reads_that_fail),
		STORE_TEST(with_everything_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
