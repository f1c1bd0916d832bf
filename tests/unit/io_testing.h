/*
 * io_testing.h - what the tests of src/io/ share: files with known bytes, and reads checked against them.
 *
 * The byte at a position follows from a file's seed and the position, so that every read can be checked without a second read.
 * Files lie in $WEIR_TEST_DIR, else the working folder (a real file system, unlike many a /tmp), and are removed.
 */
#ifndef IO_TESTING_H
#define IO_TESTING_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/io.h"
#include "io/io_types.h"
#include "os/memory.h"

typedef struct test_file {
	char path[512];
	uint64_t bytes;
	uint64_t seed;
} test_file;

static const char *const TEST_METHODS[] = {"uring", "threads", "mmap"};
#define TEST_METHODS_COUNT (sizeof TEST_METHODS / sizeof TEST_METHODS[0])

static inline uint64_t test_mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
	return value ^ (value >> 31);
}

static inline unsigned char test_byte(uint64_t seed, uint64_t position)
{
	return (unsigned char)(test_mix(seed + position / 8) >> (position % 8 * 8));
}

static inline uint64_t test_random(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15u;
	return test_mix(*state);
}

static inline void test_file_make(test_file *file, const char *name, uint64_t bytes, uint64_t seed)
{
	const char *folder = getenv("WEIR_TEST_DIR");
	unsigned char *content = malloc(bytes + 1);
	uint64_t i;
	int fd;

	assert_non_null(content);
	snprintf(file->path, sizeof file->path, "%s/io-%d-%s", folder ? folder : ".", (int)getpid(), name);
	file->bytes = bytes;
	file->seed = seed;
	for (i = 0; i < bytes; i++)
		content[i] = test_byte(seed, i);
	fd = open(file->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, bytes), (ssize_t)bytes);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	free(content);
}

static inline void test_file_remove(test_file *file)
{
	unlink(file->path);
}

/* Gives the first position at which memory differs from the file, or `bytes`. */
static inline uint64_t test_first_difference(const test_file *file, uint64_t offset, const unsigned char *memory,
					     uint64_t bytes)
{
	uint64_t i;

	for (i = 0; i < bytes; i++) {
		if (memory[i] != test_byte(file->seed, offset + i))
			return i;
	}
	return bytes;
}

/* io_uring can be forbidden where the tests run; every other method must open. */
static inline weir_io *test_open(const char *method, uint32_t queue_depth, uint32_t piece_bytes, const char *fault)
{
	weir_io_options options = {
		.method = method, .queue_depth = queue_depth, .piece_bytes = piece_bytes, .requests_max = 256, .fault = fault};
	weir_error error = {.code = 0};
	weir_io *io = NULL;
	int code = weir_io_open(&options, &io, &error);

	if (code == WEIR_EUNSUPPORTED && strcmp(method, "uring") == 0) {
		print_message("io_uring is not available here: skipped\n");
		return NULL;
	}
	if (code != 0)
		print_error("%s\n", error.message);
	assert_int_equal(code, 0);
	return io;
}

static inline unsigned char *test_memory(uint64_t bytes)
{
	void *memory = NULL;

	assert_int_equal(weir_memory_map(bytes, false, &memory, NULL), 0);
	return memory;
}

static inline uint64_t test_round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

/* Reaps until `count` completions came; checks the bounds and the invariants on the way. */
static inline void test_reap_all(weir_io *io, weir_io_completion *completions, uint32_t count)
{
	uint32_t have = 0;

	while (have < count) {
		int got = weir_io_reap(io, completions + have, count - have);

		assert_true(got >= 0);
		assert_true(weir_io_in_flight(io) <= weir_io_queue_depth(io));
		assert_true(weir_io_is_sound(io));
		have += (uint32_t)got;
		if (have < count)
			assert_int_equal(weir_io_wait(io, UINT64_MAX), 0);
	}
}

/* Reads one extent and gives its completion. */
static inline weir_io_completion test_read(weir_io *io, uint32_t file, uint64_t offset, uint64_t bytes, uint64_t least,
					   void *buffer)
{
	weir_io_request request = {
		.file = file, .offset = offset, .bytes = bytes, .least = least, .buffer = buffer, .tag = offset + 7};
	weir_io_completion completion = {.tag = 0};

	assert_int_equal(weir_io_submit(io, &request, 1), 1);
	test_reap_all(io, &completion, 1);
	assert_int_equal(completion.tag, offset + 7);
	assert_int_equal(weir_io_pending(io), 0);
	assert_int_equal(weir_io_in_flight(io), 0);
	return completion;
}

#endif
