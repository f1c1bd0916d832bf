/*
 * test_io_uring.c - what only io_uring does: a kernel that refuses submissions, buffers and files that cannot be registered,
 * buffers that end inside a read.  The source is included, so that its system calls can be made to fail.
 */
#ifdef WEIR_HAVE_URING
#include <liburing.h>

static int submit_failures; /* how many of the next submissions fail; -1: all */
static int submit_failure; /* with which error */
static int registration_failure; /* 0, or what registering gives */

static int test_submit(struct io_uring *ring)
{
	if (submit_failures == 0)
		return io_uring_submit(ring);
	if (submit_failures > 0)
		submit_failures--;
	return submit_failure;
}

static int test_register_files(struct io_uring *ring, const int *files, unsigned count)
{
	return registration_failure ? registration_failure : io_uring_register_files(ring, files, count);
}

static int test_register_buffers(struct io_uring *ring, unsigned count)
{
	return registration_failure ? registration_failure : io_uring_register_buffers_sparse(ring, count);
}

#define io_uring_submit test_submit
#define io_uring_register_files test_register_files
#define io_uring_register_buffers_sparse test_register_buffers
#define weir_io_uring tested_uring
#include "../../src/io/uring.c"
#undef weir_io_uring

#include "io_testing.h"
#include "os/proctext.h"

#define DEPTH 4u
#define BYTES 4096u

typedef struct fixture {
	void *state;
	weir_direct direct;
	intptr_t handle;
	unsigned char *memory;
	test_file file;
	int fd;
} fixture;

static bool set_up(fixture *all)
{
	weir_error error;

	if (tested_uring.open(DEPTH, &all->state, &error) != 0) {
		print_message("io_uring is not available here: skipped\n");
		return false;
	}
	all->memory = test_memory(DEPTH * BYTES);
	test_file_make(&all->file, "uring", DEPTH * BYTES, 41);
	all->fd = open(all->file.path, O_RDONLY);
	assert_true(all->fd >= 0);
	weir_direct_enable(all->fd, &all->direct);
	assert_int_equal(tested_uring.add_file(all->state, all->fd, all->file.path, DEPTH * BYTES, &all->handle, NULL), 0);
	return true;
}

static void tear_down(fixture *all)
{
	tested_uring.remove_file(all->state, all->handle);
	tested_uring.close(all->state);
	close(all->fd);
	test_file_remove(&all->file);
	weir_memory_unmap(all->memory, DEPTH * BYTES);
}

static void start_all(fixture *all)
{
	uint32_t i;

	for (i = 0; i < DEPTH; i++) {
		weir_io_piece piece = {.index = i,
				       .offset = i * BYTES,
				       .bytes = BYTES,
				       .buffer = all->memory + i * BYTES,
				       .fd = all->fd,
				       .handle = all->handle};

		assert_int_equal(tested_uring.start(all->state, &piece), 0);
	}
	tested_uring.flush(all->state);
}

/* Collects DEPTH results, each piece once, all with this count. */
static void expect_results(fixture *all, int32_t count)
{
	weir_io_result results[DEPTH + 1];
	bool seen[DEPTH] = {false};
	uint32_t have = 0, got, i;

	while (have < DEPTH) {
		tested_uring.wait(all->state, UINT64_MAX);
		got = tested_uring.collect(all->state, results, 3);
		for (i = 0; i < got; i++) {
			assert_true(results[i].piece < DEPTH);
			assert_false(seen[results[i].piece]);
			seen[results[i].piece] = true;
			assert_int_equal(results[i].count, count);
		}
		have += got;
	}
	assert_int_equal(tested_uring.collect(all->state, results, DEPTH), 0);
}

/* Short of memory for a moment: it tries again. */
static void test_submit_refused_once(void **unused)
{
	fixture all;

	(void)unused;
	if (!set_up(&all))
		return;
	submit_failures = 3;
	submit_failure = -EAGAIN;
	start_all(&all);
	assert_int_equal(submit_failures, 0);
	expect_results(&all, BYTES);
	assert_int_equal(test_first_difference(&all.file, 0, all.memory, DEPTH * BYTES), DEPTH * BYTES);
	tear_down(&all);
}

/* Short of memory for long: every piece comes back, and later ones work. */
static void test_submit_refused_for_long(void **unused)
{
	fixture all;

	(void)unused;
	if (!set_up(&all))
		return;
	submit_failures = -1;
	submit_failure = -ENOMEM;
	start_all(&all);
	submit_failures = 0;
	expect_results(&all, -EAGAIN);
	start_all(&all);
	expect_results(&all, BYTES);
	assert_int_equal(test_first_difference(&all.file, 0, all.memory, DEPTH * BYTES), DEPTH * BYTES);
	tear_down(&all);
}

/* A wake ends a wait, is given once, and one more can follow. */
static void test_wake(void **unused)
{
	weir_io_result results[DEPTH + 1];
	fixture all;
	int round;

	(void)unused;
	if (!set_up(&all))
		return;
	for (round = 0; round < 3; round++) {
		tested_uring.wake(all.state);
		tested_uring.wake(all.state);
		tested_uring.flush(all.state);
		tested_uring.wait(all.state, UINT64_MAX);
		assert_int_equal(tested_uring.collect(all.state, results, DEPTH + 1), 1);
		assert_int_equal(results[0].piece, WEIR_IO_WAKE_RESULT);
	}
	tear_down(&all);
}

static void test_nothing_registered(void **unused)
{
	fixture all;

	(void)unused;
	registration_failure = -ENOMEM;
	if (set_up(&all)) {
		assert_int_equal(all.handle, -1);
		tested_uring.add_buffer(all.state, all.memory, DEPTH * BYTES);
		start_all(&all);
		expect_results(&all, BYTES);
		assert_int_equal(test_first_difference(&all.file, 0, all.memory, DEPTH * BYTES), DEPTH * BYTES);
		tear_down(&all);
	}
	registration_failure = 0;
}

/* Fixed for some, across an end for others, outside for the rest. */
static void test_buffer_edges(void **unused)
{
	fixture all;
	uring *state;

	(void)unused;
	if (!set_up(&all))
		return;
	state = all.state;
	tested_uring.add_buffer(state, all.memory, BYTES + BYTES / 2);
	tested_uring.add_buffer(state, all.memory + 2 * BYTES, BYTES);
	if (state->buffers_count == 2) {
		assert_int_equal(find_buffer(state, all.memory, BYTES), 0);
		assert_int_equal(find_buffer(state, all.memory + BYTES / 2, BYTES), 0);
		assert_int_equal(find_buffer(state, all.memory + BYTES, BYTES), -1);
		assert_int_equal(find_buffer(state, all.memory + 2 * BYTES, BYTES), 1);
		assert_int_equal(find_buffer(state, all.memory + 3 * BYTES, 1), -1);
		assert_int_equal(find_buffer(state, all.memory - 1, 1), -1);
	}
	start_all(&all);
	expect_results(&all, BYTES);
	assert_int_equal(test_first_difference(&all.file, 0, all.memory, DEPTH * BYTES), DEPTH * BYTES);
	tear_down(&all);
}

static uint64_t pinned_kib(void)
{
	char *text = weir_proctext_read("/proc/self/status");
	uint64_t kib = 0;

	assert_non_null(text);
	weir_proctext_number(text, "VmPin:", &kib);
	free(text);
	return kib;
}

/* Memory that is freed after the ring must be free at once: the next slab is filled while the budget has no room for both. */
static void test_close_lets_go_of_memory(void **unused)
{
	const uint64_t before = pinned_kib();
	fixture all;

	(void)unused;
	for (int i = 0; i < 20 && set_up(&all); i++) {
		tested_uring.add_buffer(all.state, all.memory, DEPTH * BYTES);
		if (((uring *)all.state)->buffers_count)
			assert_int_equal(pinned_kib(), before + DEPTH * BYTES / 1024);
		tear_down(&all);
		assert_int_equal(pinned_kib(), before);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_submit_refused_once),
		cmocka_unit_test(test_submit_refused_for_long),
		cmocka_unit_test(test_wake),
		cmocka_unit_test(test_nothing_registered),
		cmocka_unit_test(test_buffer_edges),
		cmocka_unit_test(test_close_lets_go_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	return 0;
}
#endif
