/*
 * test_threads.c - how many threads compute a token: a processor that others keep busy is left to them, fewer threads are kept
 * where they are as fast, and all are where computing sets the pace.
 *
 * The backend's files are no library without the engine: the one under test, which needs none, is compiled into this program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../../src/ggml/threads.c"
#include "os/others.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MS UINT64_C(1000000)

/* Computes tokens of a machine on which n threads take times[n] ms, of which `stall` is a wait. */
static void compute(weir_threads *threads, uint32_t tokens, const uint64_t *times, double stall)
{
	for (uint32_t i = 0; i < tokens; i++) {
		uint64_t token_ns = times[threads->now] * MS;

		weir_threads_note(threads, token_ns, (uint64_t)(stall * (double)token_ns));
		assert_true(threads->now >= 1 && threads->now <= threads->free && threads->free <= threads->most);
	}
}

static void fewer_where_the_drive_sets_the_pace(void **unused)
{
	static const uint64_t times[] = {0, 150, 100, 100, 100, 100, 100, 100, 100};
	weir_threads threads;

	(void)unused;
	weir_threads_begin(&threads, 8);
	compute(&threads, 200, times, 0.9);
	assert_int_equal(threads.trying ? threads.before : threads.now, 2);
	compute(&threads, 5000, times, 0.8);
	assert_int_equal(threads.trying ? threads.before : threads.now, 2);
	assert_true(threads.threads_sum < threads.tokens * 5 / 2); /* trials are rare */
}

static void all_where_computing_does(void **unused)
{
	static const uint64_t times[] = {0, 400, 200, 133, 100};
	weir_threads threads;

	(void)unused;
	weir_threads_begin(&threads, 4);
	compute(&threads, 5000, times, 0.3);
	assert_int_equal(threads.threads_sum, 4 * threads.tokens); /* never tried */
	compute(&threads, 5000, times, 0.7);
	assert_int_equal(threads.trying ? threads.before : threads.now, 4);
	assert_true(threads.threads_sum > threads.tokens * 39 / 10);
}

static void more_again_when_the_drive_gets_faster(void **unused)
{
	static const uint64_t slow[] = {0, 200, 200, 200, 200}, fast[] = {0, 110, 60, 50, 40};
	weir_threads threads;

	(void)unused;
	weir_threads_begin(&threads, 4);
	compute(&threads, 300, slow, 0.85);
	assert_int_equal(threads.trying ? threads.before : threads.now, 1);
	compute(&threads, 100, fast, 0.2);
	assert_int_equal(threads.trying ? threads.before : threads.now, 4);
}

static void others_have_their_processors(void **unused)
{
	static const uint64_t times[] = {0, 100, 100, 100, 100};
	weir_threads threads;

	(void)unused;
	weir_threads_begin(&threads, 4);
	weir_threads_heed_others(&threads, 0.3);
	assert_int_equal(threads.now, 4);
	weir_threads_heed_others(&threads, 0.5);
	assert_int_equal(threads.now, 3);
	weir_threads_heed_others(&threads, 2.1);
	assert_int_equal(threads.now, 2);
	weir_threads_heed_others(&threads, 64);
	assert_int_equal(threads.now, 1);
	compute(&threads, 1000, times, 0.7);
	assert_int_equal(threads.now, 1); /* and no trial */
	weir_threads_heed_others(&threads, 0);
	assert_int_equal(threads.now, 4);
	compute(&threads, 16, times, 0.7);
	assert_true(threads.trying);
	weir_threads_heed_others(&threads, 1);
	assert_true(threads.now == 3 && !threads.trying);
}

static void nothing_to_judge(void **unused)
{
	static const uint64_t times[] = {100, 100};
	weir_threads threads;

	(void)unused;
	for (uint32_t most = 0; most < 2; most++) {
		weir_threads_begin(&threads, most);
		for (int i = 0; i < 100; i++) {
			weir_threads_heed_others(&threads, 5);
			weir_threads_note(&threads, times[most] * MS, 90 * MS);
			assert_int_equal(threads.now, most);
		}
	}
}

/* ---- os/others.h ---- */

static atomic_bool spinning;

static void *spin(void *unused)
{
	while (atomic_load(&spinning))
		;
	return unused;
}

static double others_for_a_second(void)
{
	const struct timespec pause = {.tv_nsec = 600000000};
	weir_others others = {0};
	double processors = -1;

	assert_false(weir_others_sample(&others, &processors));
	assert_false(weir_others_sample(&others, &processors)); /* too soon */
	nanosleep(&pause, NULL);
	if (!weir_others_sample(&others, &processors))
		skip(); /* no /proc/stat */
	return processors;
}

static double others_while_spinning(void)
{
	pthread_t thread;
	double processors;

	atomic_store(&spinning, true);
	assert_int_equal(pthread_create(&thread, NULL, spin, NULL), 0);
	processors = others_for_a_second();
	atomic_store(&spinning, false);
	pthread_join(thread, NULL);
	return processors;
}

/* Other processes come and go: one pair of samples of three may be off. */
static void own_work_is_not_others(void **unused)
{
	bool right = false;

	(void)unused;
	for (int i = 0; i < 3 && !right; i++) {
		double without = others_for_a_second(), with = others_while_spinning();

		assert_true(without >= 0 && with >= 0);
		right = with < without + 0.5;
	}
	assert_true(right);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fewer_where_the_drive_sets_the_pace),
		cmocka_unit_test(all_where_computing_does),
		cmocka_unit_test(more_again_when_the_drive_gets_faster),
		cmocka_unit_test(others_have_their_processors),
		cmocka_unit_test(nothing_to_judge),
		cmocka_unit_test(own_work_is_not_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
