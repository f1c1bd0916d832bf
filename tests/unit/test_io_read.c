/*
 * test_io_read.c - what is read is what the file holds: every method, aligned extents, the end of the file, several files, many
 * more requests than the queue is deep, and random extents compared with plain pread.
 */
#include "io_testing.h"

#define MIB ((uint64_t)1 << 20)

static void read_whole_file(const char *method, uint64_t file_bytes)
{
	weir_io *io = test_open(method, 4, 64 << 10, NULL);
	test_file file;
	uint64_t wanted = test_round_up(file_bytes, 4096);
	unsigned char *memory;
	uint32_t id;

	if (!io)
		return;
	memory = test_memory(wanted + 4096);
	test_file_make(&file, "whole", file_bytes, 11);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(weir_io_add_buffer(io, memory, wanted), 0);
	assert_int_equal(weir_io_file_bytes(io, id), file_bytes);
	assert_string_equal(weir_io_file_path(io, id), file.path);
	assert_int_equal(test_read(io, id, 0, wanted, file_bytes, memory).code, 0);
	assert_int_equal(test_first_difference(&file, 0, memory, file_bytes), file_bytes);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, wanted + 4096);
}

static void test_whole_files(void **unused)
{
	static const uint64_t SIZES[] = {1, 511, 512, 4095, 4096, 4097, 65536, MIB, 3 * MIB + 777};
	size_t m, s;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (s = 0; s < sizeof SIZES / sizeof SIZES[0]; s++)
			read_whole_file(TEST_METHODS[m], SIZES[s]);
	}
}

/* An extent may reach past the end of the file; only `least` bytes have to be there. */
static void check_end_of_file(const char *method)
{
	const uint64_t file_bytes = 100000;
	weir_io *io = test_open(method, 4, 32 << 10, NULL);
	weir_io_completion completion;
	unsigned char *memory;
	test_file file;
	uint32_t id;

	if (!io)
		return;
	memory = test_memory(MIB);
	test_file_make(&file, "end", file_bytes, 5);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(test_read(io, id, 65536, MIB - 65536, file_bytes - 65536, memory).code, 0);
	assert_int_equal(test_first_difference(&file, 65536, memory, file_bytes - 65536), file_bytes - 65536);
	completion = test_read(io, id, 65536, MIB - 65536, file_bytes - 65536 + 1, memory);
	assert_int_equal(completion.code, WEIR_EIO);
	assert_int_equal(completion.sys_errno, 0);
	assert_int_equal(completion.offset, file_bytes);
	assert_int_equal(test_read(io, id, MIB, 4096, 0, memory).code, 0);
	assert_int_equal(test_read(io, id, MIB, 4096, 1, memory).code, WEIR_EIO);
	assert_int_equal(test_read(io, id, 0, 0, 0, memory).code, 0);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, MIB);
}

static void test_end_of_file(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_end_of_file(TEST_METHODS[m]);
}

/* 200 requests of different sizes over three files, queue depth 3, reaped a few at a time. */
#define MANY 200
#define SLOT (192u << 10)

static void check_many(const char *method)
{
	weir_io *io = test_open(method, 3, 64 << 10, NULL);
	weir_io_request requests[MANY];
	weir_io_completion completions[MANY];
	bool seen[MANY] = {false};
	unsigned char *memory;
	test_file files[3];
	uint32_t ids[3], i;
	uint64_t random = 3;
	weir_io_stats stats;

	if (!io)
		return;
	memory = test_memory((uint64_t)MANY * SLOT);
	for (i = 0; i < 3; i++) {
		char name[16];

		snprintf(name, sizeof name, "many%u", i);
		test_file_make(&files[i], name, 2 * MIB, 100 + i);
		assert_int_equal(weir_io_add_file(io, files[i].path, &ids[i], NULL), 0);
	}
	assert_int_equal(weir_io_add_buffer(io, memory, (uint64_t)MANY / 2 * SLOT), 0);
	for (i = 0; i < MANY; i++) {
		uint64_t bytes = 4096 * (1 + test_random(&random) % (SLOT / 4096));
		uint64_t offset = 4096 * (test_random(&random) % ((2 * MIB - bytes) / 4096 + 1));

		requests[i] = (weir_io_request){.file = ids[i % 3],
						.offset = offset,
						.bytes = bytes,
						.least = bytes,
						.buffer = memory + (uint64_t)i * SLOT,
						.tag = i};
	}
	assert_int_equal(weir_io_submit(io, requests, MANY), MANY);
	assert_int_equal(weir_io_pending(io), MANY);
	assert_true(weir_io_in_flight(io) <= 3);
	test_reap_all(io, completions, MANY);
	for (i = 0; i < MANY; i++) {
		const weir_io_request *request = &requests[completions[i].tag];

		assert_int_equal(completions[i].code, 0);
		assert_false(seen[completions[i].tag]);
		seen[completions[i].tag] = true;
		assert_int_equal(test_first_difference(&files[request->file], request->offset, request->buffer, request->bytes),
				 request->bytes);
	}
	weir_io_get_stats(io, &stats);
	assert_int_equal(stats.requests, MANY);
	assert_true(stats.pieces >= MANY);
	assert_int_equal(weir_io_wait(io, 0), WEIR_EINVAL);
	weir_io_close(io);
	for (i = 0; i < 3; i++)
		test_file_remove(&files[i]);
	weir_memory_unmap(memory, (uint64_t)MANY * SLOT);
}

static void test_many_requests(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_many(TEST_METHODS[m]);
}

/* submit takes what fits and says how much; nothing is lost. */
static void test_requests_max(void **unused)
{
	weir_io_options options = {.method = "threads", .queue_depth = 2, .requests_max = 5};
	weir_io_request requests[8];
	weir_io_completion completions[8];
	unsigned char *memory = test_memory(8 * 4096);
	test_file file;
	weir_io *io;
	uint32_t id, i;

	(void)unused;
	test_file_make(&file, "max", MIB, 9);
	assert_int_equal(weir_io_open(&options, &io, NULL), 0);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	for (i = 0; i < 8; i++)
		requests[i] = (weir_io_request){
			.file = id, .offset = i * 8192u, .bytes = 4096, .least = 4096, .buffer = memory + i * 4096u, .tag = i};
	assert_int_equal(weir_io_submit(io, requests, 8), 5);
	assert_int_equal(weir_io_submit(io, requests + 5, 3), 0);
	test_reap_all(io, completions, 5);
	assert_int_equal(weir_io_submit(io, requests + 5, 3), 3);
	test_reap_all(io, completions, 3);
	for (i = 0; i < 8; i++)
		assert_int_equal(test_first_difference(&file, i * 8192u, memory + i * 4096u, 4096), 4096);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 8 * 4096);
}

/* Bytes equal to plain pread for random extents, depths and piece sizes. */
static void compare_with_pread(const char *method, uint64_t seed)
{
	const uint64_t file_bytes = 3 * MIB + 12345;
	uint64_t random = seed;
	weir_io *io = test_open(method, 1 + (uint32_t)(test_random(&random) % 33), 4096u << test_random(&random) % 9, NULL);
	unsigned char *memory, *expected;
	test_file file;
	uint32_t id, i;
	int fd;

	if (!io)
		return;
	memory = test_memory(4 * MIB);
	expected = test_memory(4 * MIB);
	test_file_make(&file, "random", file_bytes, seed);
	fd = open(file.path, O_RDONLY);
	assert_true(fd >= 0);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	for (i = 0; i < 12; i++) {
		uint64_t unit = weir_io_offset_alignment(io);
		uint64_t offset = test_random(&random) % file_bytes / unit * unit;
		uint64_t bytes = test_round_up(1 + test_random(&random) % (4 * MIB - 4096), unit);
		ssize_t count = pread(fd, expected, bytes, (off_t)offset);

		assert_true(count > 0);
		memset(memory, 0, 4 * MIB);
		assert_int_equal(test_read(io, id, offset, bytes, (uint64_t)count, memory).code, 0);
		assert_memory_equal(memory, expected, (size_t)count);
	}
	close(fd);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 4 * MIB);
	weir_memory_unmap(expected, 4 * MIB);
}

static void test_random_extents(void **unused)
{
	uint64_t seed;
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (seed = 1; seed <= 5; seed++)
			compare_with_pread(TEST_METHODS[m], seed);
	}
}

/* Pieces of half a MiB, and no further one while a whole MiB is under way: never more than two, whatever the depth. */
static void limit_bytes(const char *method)
{
	weir_io_options options = {
		.method = method, .queue_depth = 16, .piece_bytes = MIB / 2, .in_flight_bytes = MIB, .requests_max = 64};
	test_file file;
	unsigned char *memory = test_memory(4 * MIB);
	weir_io_request requests[4];
	weir_io_completion completions[4];
	weir_io *io = NULL;
	uint32_t number, most = 0, have = 0;

	if (weir_io_open(&options, &io, NULL) != 0) {
		print_message("%s is not available here: skipped\n", method);
		weir_memory_unmap(memory, 4 * MIB);
		return;
	}
	test_file_make(&file, "limited", 4 * MIB, 11);
	assert_int_equal(weir_io_add_file(io, file.path, &number, NULL), 0);
	assert_false(weir_io_is_full(io));
	for (uint64_t i = 0; i < 4; i++)
		requests[i] = (weir_io_request){
			.file = number, .offset = i * MIB, .bytes = MIB, .least = MIB, .buffer = memory + i * MIB, .tag = i};
	assert_int_equal(weir_io_submit(io, requests, 4), 4);
	while (have < 4) {
		int got = weir_io_reap(io, completions, 4);

		assert_true(got >= 0);
		assert_true(weir_io_is_sound(io));
		most = weir_io_in_flight(io) > most ? weir_io_in_flight(io) : most;
		have += (uint32_t)got;
		if (have < 4)
			assert_int_equal(weir_io_wait(io, UINT64_MAX), 0);
	}
	assert_true(most >= 1 && most <= 2);
	assert_false(weir_io_is_full(io));
	assert_int_equal(test_first_difference(&file, 0, memory, 4 * MIB), 4 * MIB);
	weir_io_close(io);
	weir_memory_unmap(memory, 4 * MIB);
	test_file_remove(&file);
}

static void test_bytes_in_flight_are_limited(void **unused)
{
	(void)unused;
	for (size_t m = 0; m < TEST_METHODS_COUNT; m++)
		limit_bytes(TEST_METHODS[m]);
}

static void test_auto_chooses(void **unused)
{
	weir_io *io = test_open("auto", 0, 0, NULL);

	(void)unused;
	assert_true(strcmp(weir_io_method(io), "uring") == 0 || strcmp(weir_io_method(io), "threads") == 0);
	assert_int_equal(weir_io_queue_depth(io), 32);
	assert_int_equal(weir_io_piece_bytes(io), MIB);
	weir_io_close(io);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_files),
		cmocka_unit_test(test_end_of_file),
		cmocka_unit_test(test_many_requests),
		cmocka_unit_test(test_requests_max),
		cmocka_unit_test(test_random_extents),
		cmocka_unit_test(test_auto_chooses),
		cmocka_unit_test(test_bytes_in_flight_are_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
