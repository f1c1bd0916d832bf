/*
 * test_guard.c - the allocation guard of debug builds fires, on the thread that holds it and on no other.
 */
#include "base/guard.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "os/memory.h"

typedef void (*action)(void);

#ifdef WEIR_ALLOCATION_GUARD
#define GUARDED true
#else
#define GUARDED false
#endif

/* The signal that ends a process of its own in which `act` runs; 0 when it ends by itself. */
static int signal_of(action act)
{
	const struct rlimit no_core = {0, 0};
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		setrlimit(RLIMIT_CORE, &no_core);
		signal(SIGABRT, SIG_DFL);
		if (!freopen("/dev/null", "w", stderr))
			_exit(1);
		act();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) ? -1 : 0;
}

static void take_arena(void)
{
	weir_arena arena = {0};

	weir_guard_hold();
	weir_arena_take(&arena, 100);
	weir_guard_drop();
}

static void map_memory(void)
{
	void *base;

	weir_guard_hold();
	weir_memory_map(4096, false, &base, NULL);
	weir_guard_drop();
}

static void take_after_drop(void)
{
	weir_arena arena = {0};

	weir_guard_hold();
	weir_guard_drop();
	weir_arena_take(&arena, 100);
	weir_arena_free(&arena);
}

static void *take_and_free(void *unused)
{
	weir_arena arena = {0};

	weir_arena_take(&arena, 100);
	weir_arena_free(&arena);
	return unused;
}

static void *hold_for_good(void *unused)
{
	weir_guard_hold();
	return unused;
}

static void take_beside_a_holder(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, hold_for_good, NULL))
		_exit(1);
	pthread_join(thread, NULL);
	take_and_free(NULL);
}

static void test_fires(void **unused)
{
	(void)unused;
	if (!GUARDED)
		skip();
	assert_int_equal(signal_of(take_arena), SIGABRT);
	assert_int_equal(signal_of(map_memory), SIGABRT);
}

static void test_lets_pass(void **unused)
{
	(void)unused;
	assert_int_equal(signal_of(take_after_drop), 0);
	assert_int_equal(signal_of(take_beside_a_holder), 0);
	if (!GUARDED)
		assert_int_equal(signal_of(take_arena), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fires),
		cmocka_unit_test(test_lets_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
