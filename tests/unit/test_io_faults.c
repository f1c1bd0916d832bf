/*
 * test_io_faults.c - drives that misbehave: short reads, interruptions, delays, other orders and errors, at every read in turn.
 * Bytes are right or the request fails; everything ends, nothing leaks (ASan watches), the invariants hold throughout.
 */
#include <errno.h>
#include <time.h>

#include "io/fault.h"
#include "io_testing.h"

#define FILE_BYTES ((512u << 10) + 777u)
#define REQUEST_BYTES (96u << 10)
#define REQUESTS 6u

typedef struct outcome {
	uint32_t failed_count;
	weir_io_stats stats;
	weir_io_completion failed; /* the last one */
	bool direct;
} outcome;

/* Reads the whole file in six requests of three pieces each, and checks each byte of those that did not fail. */
static bool read_with_fault(const char *method, const char *fault, outcome *result)
{
	weir_io *io = test_open(method, 4, 32 << 10, fault);
	weir_io_request requests[REQUESTS];
	weir_io_completion completions[REQUESTS];
	unsigned char *memory;
	test_file file;
	uint32_t id, i;

	if (!io)
		return false;
	*result = (outcome){.failed_count = 0};
	memory = test_memory(REQUESTS * REQUEST_BYTES);
	test_file_make(&file, "fault", FILE_BYTES, 21);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	result->direct = weir_io_offset_alignment(io) > 1;
	for (i = 0; i < REQUESTS; i++) {
		uint64_t offset = (uint64_t)i * REQUEST_BYTES, left = FILE_BYTES - offset;

		requests[i] = (weir_io_request){.file = id,
						.offset = offset,
						.bytes = REQUEST_BYTES,
						.least = left < REQUEST_BYTES ? left : REQUEST_BYTES,
						.buffer = memory + offset,
						.tag = i};
	}
	assert_int_equal(weir_io_submit(io, requests, REQUESTS), REQUESTS);
	test_reap_all(io, completions, REQUESTS);
	for (i = 0; i < REQUESTS; i++) {
		const weir_io_request *request = &requests[completions[i].tag];

		if (completions[i].code != 0) {
			result->failed_count++;
			result->failed = completions[i];
			continue;
		}
		assert_int_equal(test_first_difference(&file, request->offset, request->buffer, request->least),
				 request->least);
	}
	weir_io_get_stats(io, &result->stats);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, REQUESTS * REQUEST_BYTES);
	return true;
}

static void test_harmless_faults(void **unused)
{
	static const char *const FAULTS[] = {
		"short:1",
		"short:3",
		"short-odd:2,seed:4",
		"short-odd:2,seed:5",
		"eintr:2",
		"eagain:2",
		"short:2,eintr:3,eagain:5",
		"reorder",
		"reorder,seed:9",
		"latency-us:300",
		"latency-us:100,reorder,short-odd:3,eintr:7,seed:3",
	};
	outcome result;
	size_t m, f;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (f = 0; f < sizeof FAULTS / sizeof FAULTS[0]; f++) {
			if (!read_with_fault(TEST_METHODS[m], FAULTS[f], &result))
				continue;
			assert_int_equal(result.failed_count, 0);
			assert_int_equal(result.stats.requests, REQUESTS);
			assert_int_equal(result.stats.bytes, FILE_BYTES);
			if (strchr(FAULTS[f], ':') && strncmp(FAULTS[f], "reorder", 7) != 0 &&
			    strcmp(FAULTS[f], "latency-us:300") != 0)
				assert_true(result.stats.retries > 0);
		}
	}
}

/* Fails the Nth read for every N that occurs, and one more that does not. */
static void fail_each_read(const char *method, const char *kind, int code, int sys_errno)
{
	uint32_t n = 0;
	outcome result;
	char fault[64];

	do {
		n++;
		snprintf(fault, sizeof fault, "%s:%u%s", kind, n, n % 3 ? "" : ",reorder");
		if (!read_with_fault(method, fault, &result))
			return;
		if (result.failed_count) {
			assert_int_equal(result.failed_count, 1);
			assert_int_equal(result.failed.code, code);
			assert_int_equal(result.failed.sys_errno, sys_errno);
			assert_true(result.failed.offset / REQUEST_BYTES == result.failed.tag);
		}
	} while (result.failed_count);
	assert_true(n > 17 && n < 40);
}

static void test_every_read_fails_once(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		fail_each_read(TEST_METHODS[m], "eio", WEIR_EIO, EIO);
		fail_each_read(TEST_METHODS[m], "enomem", WEIR_ENOMEM, ENOMEM);
	}
}

static void test_every_nth_read_fails(void **unused)
{
	outcome result;
	char fault[32];
	uint32_t n;
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (n = 1; n <= 12; n++) {
			snprintf(fault, sizeof fault, "eio-every:%u", n);
			if (!read_with_fault(TEST_METHODS[m], fault, &result))
				break;
			assert_true(result.failed_count > 0);
			assert_true(n > 1 || result.failed_count == REQUESTS);
		}
	}
}

/* A drive that only ever interrupts must not be waited for without end. */
static void test_endless_interruption(void **unused)
{
	outcome result;

	(void)unused;
	assert_true(read_with_fault("threads", "eintr:1", &result));
	assert_int_equal(result.failed_count, REQUESTS);
	assert_int_equal(result.failed.sys_errno, EINTR);
}

/* A file system that takes the flag but refuses the read: buffered reads take over. */
static void test_direct_refused_late(void **unused)
{
	outcome result;
	char fault[32];
	uint32_t n;

	(void)unused;
	for (n = 1; n <= 18; n++) {
		snprintf(fault, sizeof fault, "einval:%u", n);
		assert_true(read_with_fault("threads", fault, &result));
		assert_int_equal(result.failed_count, result.direct ? 0 : 1);
		assert_true(result.direct || result.failed.sys_errno == EINVAL);
	}
}

/* Requests given in one order come back in another. */
static void test_reorder_reorders(void **unused)
{
	weir_io *io = test_open("threads", 16, 4096, "reorder,seed:2");
	weir_io_request requests[64];
	weir_io_completion completions[64];
	unsigned char *memory = test_memory(64 * 4096);
	test_file file;
	uint32_t id, i, out_of_order = 0;

	(void)unused;
	test_file_make(&file, "order", 64 * 4096, 22);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	for (i = 0; i < 64; i++)
		requests[i] = (weir_io_request){
			.file = id, .offset = i * 4096u, .bytes = 4096, .least = 4096, .buffer = memory + i * 4096u, .tag = i};
	assert_int_equal(weir_io_submit(io, requests, 64), 64);
	test_reap_all(io, completions, 64);
	for (i = 1; i < 64; i++)
		out_of_order += completions[i].tag < completions[i - 1].tag;
	assert_true(out_of_order > 8);
	assert_int_equal(test_first_difference(&file, 0, memory, 64 * 4096), 64 * 4096);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 64 * 4096);
}

/* Latency is there, and waiting for it sleeps. */
static void test_latency(void **unused)
{
	weir_io *io = test_open("threads", 4, 4096, "latency-us:20000");
	unsigned char *memory = test_memory(4096);
	uint64_t before_ns;
	test_file file;
	uint32_t id;
	clock_t before_cpu;

	(void)unused;
	test_file_make(&file, "latency", 4096, 23);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	before_ns = weir_clock_ns();
	before_cpu = clock();
	assert_int_equal(test_read(io, id, 0, 4096, 4096, memory).code, 0);
	assert_true(weir_clock_ns() - before_ns >= 20000000u);
	assert_true(clock() - before_cpu < CLOCKS_PER_SEC / 100);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 4096);
}

/* Closing with reads in flight waits for them: the memory is free to go afterwards. */
static void test_close_in_flight(void **unused)
{
	static const char *const FAULTS[] = {"", "latency-us:2000", "reorder", "eio-every:2", "short:1", "eintr:1"};
	unsigned char *memory;
	weir_io_request request;
	test_file file;
	weir_io *io;
	size_t m, f;

	(void)unused;
	test_file_make(&file, "close", FILE_BYTES, 24);
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		for (f = 0; f < sizeof FAULTS / sizeof FAULTS[0]; f++) {
			io = test_open(TEST_METHODS[m], 4, 16 << 10, FAULTS[f]);
			if (!io)
				break;
			memory = test_memory(512 << 10);
			request = (weir_io_request){.bytes = 512 << 10, .least = 512 << 10, .buffer = memory};
			assert_int_equal(weir_io_add_file(io, file.path, &request.file, NULL), 0);
			assert_int_equal(weir_io_submit(io, &request, 1), 1);
			weir_io_close(io);
			weir_memory_unmap(memory, 512 << 10);
		}
	}
	test_file_remove(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_harmless_faults),
		cmocka_unit_test(test_every_read_fails_once),
		cmocka_unit_test(test_every_nth_read_fails),
		cmocka_unit_test(test_endless_interruption),
		cmocka_unit_test(test_direct_refused_late),
		cmocka_unit_test(test_reorder_reorders),
		cmocka_unit_test(test_latency),
		cmocka_unit_test(test_close_in_flight),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
