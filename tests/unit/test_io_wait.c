/*
 * test_io_wait.c - waiting: it sleeps, it ends in time, and it may run in one thread beside submit and reap in another, also
 * when that other thread takes every completion away.  Meant to run under ThreadSanitizer too.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "io_testing.h"

#define TOTAL 600u
#define SLOTS 24u
#define BYTES 8192u
#define LOST_NS 4000000000u /* a wait this long was not woken */

typedef struct shared {
	weir_io *io;
	pthread_mutex_t lock; /* what the owner of a weir_io must have */
	weir_io_request requests[SLOTS];
	bool busy[SLOTS];
	uint32_t submitted, completed, failed;
	uint64_t longest_wait_ns;
} shared;

/* With the lock held. */
static void reap_some(shared *all)
{
	weir_io_completion completions[SLOTS];
	int count = weir_io_reap(all->io, completions, SLOTS), i;

	for (i = 0; i < count; i++) {
		all->busy[completions[i].tag] = false;
		all->failed += completions[i].code != 0;
	}
	all->completed += (uint32_t)count;
}

static bool all_completed(shared *all)
{
	bool done;

	pthread_mutex_lock(&all->lock);
	done = all->completed == TOTAL;
	pthread_mutex_unlock(&all->lock);
	return done;
}

static void *wait_and_reap(void *argument)
{
	shared *all = argument;

	while (!all_completed(all)) {
		uint64_t before_ns = weir_clock_ns(), took_ns;

		if (weir_io_wait(all->io, 5000000) != 0)
			sched_yield();
		took_ns = weir_clock_ns() - before_ns;
		if (took_ns > all->longest_wait_ns)
			all->longest_wait_ns = took_ns;
		pthread_mutex_lock(&all->lock);
		reap_some(all);
		pthread_mutex_unlock(&all->lock);
	}
	return NULL;
}

/* Submits one at a time, and takes completions from under the waiter as often as not. */
static void submit_and_steal(shared *all, uint64_t seed)
{
	uint64_t random = seed;

	while (!all_completed(all)) {
		uint32_t slot;

		pthread_mutex_lock(&all->lock);
		slot = all->submitted % SLOTS;
		if (!all->busy[slot] && all->submitted < TOTAL) {
			all->busy[slot] = true;
			all->submitted += (uint32_t)weir_io_submit(all->io, &all->requests[slot], 1);
		}
		if (test_random(&random) % 2)
			reap_some(all);
		pthread_mutex_unlock(&all->lock);
		if (test_random(&random) % 4 == 0)
			sched_yield();
	}
}

static void run_two_threads(const char *method, const char *fault, uint64_t seed)
{
	shared all = {.io = test_open(method, 4, 4096, fault), .lock = PTHREAD_MUTEX_INITIALIZER};
	unsigned char *memory;
	test_file file;
	pthread_t waiter;
	uint32_t id, i;

	if (!all.io)
		return;
	memory = test_memory(SLOTS * BYTES);
	test_file_make(&file, "wait", SLOTS * BYTES, seed);
	assert_int_equal(weir_io_add_file(all.io, file.path, &id, NULL), 0);
	for (i = 0; i < SLOTS; i++)
		all.requests[i] = (weir_io_request){.file = id,
						    .offset = i * BYTES,
						    .bytes = BYTES,
						    .least = BYTES,
						    .buffer = memory + i * BYTES,
						    .tag = i};
	assert_int_equal(pthread_create(&waiter, NULL, wait_and_reap, &all), 0);
	submit_and_steal(&all, seed);
	pthread_join(waiter, NULL);
	assert_int_equal(all.submitted, TOTAL);
	assert_int_equal(all.failed, 0);
	assert_true(all.longest_wait_ns < LOST_NS);
	assert_int_equal(test_first_difference(&file, 0, memory, SLOTS * BYTES), SLOTS * BYTES);
	assert_true(weir_io_is_sound(all.io));
	weir_io_close(all.io);
	pthread_mutex_destroy(&all.lock);
	test_file_remove(&file);
	weir_memory_unmap(memory, SLOTS * BYTES);
}

static void test_wait_beside_submit(void **unused)
{
	static const char *const FAULTS[] = {"", "latency-us:100", "reorder", "short:2,eintr:3,reorder"};
	size_t m, f;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (f = 0; f < sizeof FAULTS / sizeof FAULTS[0]; f++)
			run_two_threads(TEST_METHODS[m], FAULTS[f], f + 1);
	}
}

/* The time limit holds, and the wait costs no processor time. */
static void check_timeout(const char *method)
{
	weir_io *io = test_open(method, 4, 4096, "latency-us:500000");
	weir_io_request request = {.bytes = 4096, .least = 4096};
	weir_io_completion completion;
	uint64_t before_ns, took_ns;
	clock_t before_cpu;
	test_file file;

	if (!io)
		return;
	request.buffer = test_memory(4096);
	test_file_make(&file, "timeout", 4096, 3);
	assert_int_equal(weir_io_add_file(io, file.path, &request.file, NULL), 0);
	assert_int_equal(weir_io_submit(io, &request, 1), 1);
	before_ns = weir_clock_ns();
	before_cpu = clock();
	while (weir_clock_ns() - before_ns < 50000000u) {
		assert_int_equal(weir_io_wait(io, 60000), 0);
		assert_int_equal(weir_io_reap(io, &completion, 1), 0);
	}
	took_ns = weir_clock_ns() - before_ns;
	assert_true(took_ns < 400000000u);
	assert_true(clock() - before_cpu < CLOCKS_PER_SEC / 50);
	test_reap_all(io, &completion, 1);
	assert_int_equal(completion.code, 0);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(request.buffer, 4096);
}

static void test_wait_ends_in_time(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_timeout(TEST_METHODS[m]);
}

/* A thread that waits is woken when another one takes the last completion. */
typedef struct sleeper {
	weir_io *io;
	uint64_t slept_ns;
} sleeper;

static void *sleep_once(void *argument)
{
	sleeper *one = argument;
	uint64_t before_ns = weir_clock_ns();

	(void)weir_io_wait(one->io, 5000000);
	one->slept_ns = weir_clock_ns() - before_ns;
	return NULL;
}

static void test_stolen_completion(void **unused)
{
	weir_io_request request = {.bytes = 4096, .least = 4096, .buffer = test_memory(4096)};
	weir_io_completion completion;
	sleeper one;
	test_file file;
	pthread_t thread;
	size_t m;
	int round;

	(void)unused;
	test_file_make(&file, "stolen", 4096, 4);
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		one.io = test_open(TEST_METHODS[m], 4, 4096, NULL);
		if (!one.io)
			continue;
		assert_int_equal(weir_io_add_file(one.io, file.path, &request.file, NULL), 0);
		for (round = 0; round < 100; round++) {
			assert_int_equal(weir_io_submit(one.io, &request, 1), 1);
			assert_int_equal(pthread_create(&thread, NULL, sleep_once, &one), 0);
			while (weir_io_reap(one.io, &completion, 1) == 0)
				sched_yield();
			pthread_join(thread, NULL);
			assert_true(one.slept_ns < LOST_NS);
		}
		weir_io_close(one.io);
	}
	test_file_remove(&file);
	weir_memory_unmap(request.buffer, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wait_beside_submit),
		cmocka_unit_test(test_wait_ends_in_time),
		cmocka_unit_test(test_stolen_completion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
