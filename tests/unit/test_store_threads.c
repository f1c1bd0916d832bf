/*
 * test_store_threads.c - several threads on one store, each acquiring, waiting and releasing on its own, beside one that
 * prefetches, ticks and looks at the statistics.  Meant to run under ThreadSanitizer too.
 */
#include <pthread.h>
#include <time.h>

#include "residency/residency_types.h"
#include "store_fixture.h"

#define THREADS 4
#define ROUNDS 200

typedef struct worker {
	const store_fixture *fixture;
	weir_store *store;
	uint64_t random;
	uint64_t leases, wrong, failed; /* counted here: cmocka's assertions are for the main thread */
	atomic_bool *stop;
} worker;

/* Every slot may be pinned by the others. */
static void stand_back(weir_store *store)
{
	const struct timespec pause = {.tv_nsec = 50000};

	if (weir_store_wait_read(store) != 0)
		nanosleep(&pause, NULL);
}

static void use_leases(worker *self, weir_lease **leases, uint32_t count)
{
	while (count > 0) {
		const void *data = NULL;
		uint32_t index = 0;

		if (weir_store_wait_any(self->store, leases, count, &index, NULL) != 0)
			self->wrong++;
		if (weir_lease_wait(leases[index], &data, NULL) != 0)
			self->failed++;
		else if (!chunk_is_right(self->fixture, weir_lease_chunk(leases[index]), data))
			self->wrong++;
		self->leases++;
		weir_lease_release(leases[index]);
		leases[index] = leases[--count];
	}
}

static void *work(void *argument)
{
	worker *self = argument;

	for (int round = 0; round < ROUNDS; round++) {
		uint32_t chunks[6], count = 1 + next_random(&self->random) % 6;
		weir_lease *leases[6];
		int made;

		for (uint32_t i = 0; i < 6; i++)
			chunks[i] = next_random(&self->random) % FIXTURE_CHUNKS / (i % 2 + 1);
		made = weir_store_acquire(self->store, chunks, count, leases, NULL);
		if (made < 0 || (uint32_t)made > count)
			self->wrong++;
		else if (made == 0)
			stand_back(self->store);
		else if (round % 7 == 0)
			while (made > 0)
				weir_lease_release(leases[--made]);
		else
			use_leases(self, leases, (uint32_t)made);
	}
	return NULL;
}

static void *look(void *argument)
{
	worker *self = argument;
	const struct timespec pause = {.tv_nsec = 300000};

	while (!atomic_load(self->stop)) {
		uint32_t chunks[4];
		weir_store_stats stats;

		for (int i = 0; i < 4; i++)
			chunks[i] = next_random(&self->random) % FIXTURE_CHUNKS;
		weir_store_prefetch(self->store, chunks, 4);
		weir_store_poll(self->store);
		weir_store_tick(self->store);
		weir_store_get_stats(self->store, &stats);
		if (stats.demanded != stats.hits + stats.joined + stats.misses || weir_store_check(self->store) != 0)
			self->wrong++;
		nanosleep(&pause, NULL);
	}
	return NULL;
}

static void run_threads(store_fixture *fixture, const char *method, const char *fault)
{
	pthread_t threads[THREADS + 1];
	worker workers[THREADS + 1];
	atomic_bool stop = false;
	weir_store *store;
	uint64_t leases = 0, failed = 0;

	fixture->options.io_method = method;
	fixture->options.io_fault = fault;
	if (weir_store_open(&fixture->options, &store, NULL) != 0) {
		assert_string_equal(method, "uring"); /* may be missing on this system */
		return;
	}
	for (uint32_t i = 0; i <= THREADS; i++) {
		workers[i] = (worker){.fixture = fixture, .store = store, .random = 1000 + i, .stop = &stop};
		assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? work : look, &workers[i]), 0);
	}
	for (uint32_t i = 0; i <= THREADS; i++) {
		if (i == THREADS)
			atomic_store(&stop, true);
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(workers[i].wrong, 0);
		leases += workers[i].leases;
		failed += workers[i].failed;
	}
	assert_store_sound(store);
	assert_true(leases > 0);
	assert_int_equal(failed > 0, fault && strstr(fault, "eio"));
	assert_int_equal(stats_of(store).slots_pinned, 0);
	weir_store_close(store);
}

static const char *const METHODS[] = {"uring", "threads", "mmap"};

static void with_room(void **state)
{
	for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
		run_threads(*state, METHODS[i], NULL);
}

static void with_few_slots(void **state)
{
	store_fixture *fixture = *state;
	uint64_t all;

	assert_int_equal(weir_store_sizes(&fixture->options, 2, &fixture->options.budget_bytes, &all), 0);
	for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
		run_threads(fixture, METHODS[i], "latency-us:50,reorder");
}

static void with_reads_that_fail(void **state)
{
	for (size_t i = 0; i < sizeof METHODS / sizeof METHODS[0]; i++)
		run_threads(*state, METHODS[i], "eio-every:20,short:3");
}

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(with_room),
		STORE_TEST(with_few_slots),
		STORE_TEST(with_reads_that_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
