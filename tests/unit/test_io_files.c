/*
 * test_io_files.c - what may be opened and what is refused, at once and with the right code; files that change while open; what
 * submit refuses.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "io_testing.h"
#include "os/direct.h"

static void name_in_folder(char *path, size_t capacity, const char *name)
{
	const char *folder = getenv("WEIR_TEST_DIR");

	snprintf(path, capacity, "%s/io-%d-%s", folder ? folder : ".", (int)getpid(), name);
}

static void expect_refused(weir_io *io, const char *path, int code)
{
	weir_error error = {.code = 0};
	uint64_t before_ns = weir_clock_ns();
	uint32_t id;

	assert_int_equal(weir_io_add_file(io, path, &id, &error), code);
	assert_int_equal(error.code, code);
	assert_string_equal(error.file, path);
	assert_true(error.message[0]);
	assert_true(weir_clock_ns() - before_ns < 1000000000u);
}

static void bind_socket(const char *path, int *fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	*fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_true(*fd >= 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	assert_int_equal(bind(*fd, (struct sockaddr *)&address, sizeof address), 0);
}

static void check_refusals(const char *method)
{
	weir_io *io = test_open(method, 2, 0, NULL);
	char fifo[256], folder[256], node[100];
	int fd;

	if (!io)
		return;
	name_in_folder(fifo, sizeof fifo, "fifo");
	name_in_folder(folder, sizeof folder, "folder");
	name_in_folder(node, sizeof node, "socket");
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(mkdir(folder, 0700), 0);
	bind_socket(node, &fd);
	expect_refused(io, fifo, WEIR_ENOTREGULAR);
	expect_refused(io, folder, WEIR_ENOTREGULAR);
	expect_refused(io, node, WEIR_ENOTREGULAR);
	expect_refused(io, "/dev/zero", WEIR_ENOTREGULAR);
	expect_refused(io, "/dev/tty", WEIR_ENOTREGULAR);
	expect_refused(io, "no-such-file", WEIR_ENOTFOUND);
	weir_io_close(io);
	close(fd);
	unlink(fifo);
	rmdir(folder);
	unlink(node);
}

static void test_refusals(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_refusals(TEST_METHODS[m]);
}

/* No descriptor is left: the file is named, and nothing leaks when adding fails. */
static void test_no_descriptors_left(void **unused)
{
	weir_io *io = test_open("threads", 2, 0, NULL);
	struct rlimit before, none;
	weir_error error = {.code = 0};
	test_file file;
	uint32_t id;

	(void)unused;
	test_file_make(&file, "descriptors", 4096, 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(weir_io_add_file(io, file.path, &id, &error), WEIR_ELIMIT);
	assert_int_equal(error.sys_errno, EMFILE);
	assert_string_equal(error.file, file.path);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(weir_io_add_file(io, file.path, &id, &error), 0);
	weir_io_close(io);
	test_file_remove(&file);
}

static void check_shrinking(const char *method)
{
	const uint64_t bytes = 1 << 20;
	weir_io *io = test_open(method, 4, 64 << 10, NULL);
	weir_io_completion completion;
	weir_error error = {.code = 0};
	unsigned char *memory;
	test_file file;
	uint32_t id;

	if (!io)
		return;
	memory = test_memory(bytes);
	test_file_make(&file, "shrinks", bytes, 2);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(weir_io_check_file(io, id, &error), 0);
	assert_int_equal(test_read(io, id, 0, bytes, bytes, memory).code, 0);
	assert_int_equal(truncate(file.path, 300000), 0);
	completion = test_read(io, id, 0, bytes, bytes, memory);
	assert_int_equal(completion.code, WEIR_EIO);
	assert_int_equal(completion.offset, 300000);
	assert_int_equal(test_first_difference(&file, 0, memory, 300000), 300000);
	assert_int_equal(test_read(io, id, 512 << 10, 4096, 4096, memory).code, WEIR_EIO);
	assert_int_equal(test_read(io, id, 0, 4096, 4096, memory).code, 0);
	assert_int_equal(weir_io_check_file(io, id, &error), WEIR_ECHANGED);
	assert_string_equal(error.file, file.path);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, bytes);
}

static void test_file_that_shrinks(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_shrinking(TEST_METHODS[m]);
}

/* Truncated again and again while it is read: each read gives the bytes or an error, and the process lives. */
static void check_truncation_race(const char *method)
{
	const uint64_t bytes = 2 << 20;
	weir_io *io = test_open(method, 4, 64 << 10, NULL);
	weir_io_request request = {.bytes = bytes, .least = bytes};
	weir_io_completion completion;
	unsigned char *memory;
	test_file file;
	int round;

	if (!io)
		return;
	memory = test_memory(bytes);
	test_file_make(&file, "race", bytes, 3);
	assert_int_equal(weir_io_add_file(io, file.path, &request.file, NULL), 0);
	request.buffer = memory;
	for (round = 0; round < 40; round++) {
		assert_int_equal(weir_io_submit(io, &request, 1), 1);
		assert_int_equal(truncate(file.path, round % 2 ? (off_t)bytes : 4096 * (round + 1)), 0);
		test_reap_all(io, &completion, 1);
		assert_true(completion.code == 0 || completion.code == WEIR_EIO);
	}
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, bytes);
}

static void test_truncation_race(void **unused)
{
	size_t m;

	(void)unused;
	for (m = 0; m < TEST_METHODS_COUNT; m++)
		check_truncation_race(TEST_METHODS[m]);
}

/* The name now means another file: what is open is still whole. */
static void test_replaced_file(void **unused)
{
	weir_io *io = test_open("threads", 2, 0, NULL);
	unsigned char *memory = test_memory(8192);
	test_file file, other;
	uint32_t id;

	(void)unused;
	test_file_make(&file, "old", 8192, 4);
	test_file_make(&other, "new", 4096, 5);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(rename(other.path, file.path), 0);
	assert_int_equal(test_read(io, id, 0, 8192, 8192, memory).code, 0);
	assert_int_equal(test_first_difference(&file, 0, memory, 8192), 8192);
	assert_int_equal(weir_io_check_file(io, id, NULL), 0);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 8192);
}

static int submit_changed(weir_io *io, weir_io_request request)
{
	return weir_io_submit(io, &request, 1);
}

/* One wrong request, and none of the batch is taken. */
static void test_invalid_requests(void **unused)
{
	weir_io *io = test_open("threads", 2, 0, NULL);
	unsigned char *memory = test_memory(16384);
	weir_io_request good = {.bytes = 4096, .least = 4096, .buffer = memory}, bad, both[2];
	test_file file;

	(void)unused;
	test_file_make(&file, "invalid", 16384, 6);
	assert_int_equal(weir_io_add_file(io, file.path, &good.file, NULL), 0);
	bad = good, bad.file = 1;
	assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	bad = good, bad.buffer = NULL;
	assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	bad = good, bad.least = 4097;
	assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	bad = good, bad.offset = UINT64_MAX - 4095;
	assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	bad = good, bad.bytes = UINT64_MAX - 4095;
	assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	if (weir_io_offset_alignment(io) > 1) {
		bad = good, bad.offset = 1;
		assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
		bad = good, bad.bytes = 4095, bad.least = 1;
		assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
		bad = good, bad.buffer = memory + 1;
		assert_int_equal(submit_changed(io, bad), WEIR_EINVAL);
	}
	both[0] = good;
	both[1] = good;
	both[1].file = 9;
	assert_int_equal(weir_io_submit(io, both, 2), WEIR_EINVAL);
	assert_int_equal(weir_io_pending(io), 0);
	assert_int_equal(weir_io_wait(io, 0), WEIR_EINVAL);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 16384);
}

static void expect_open_fails(weir_io_options options, int code)
{
	weir_error error = {.code = 0};
	weir_io *io = NULL;

	assert_int_equal(weir_io_open(&options, &io, &error), code);
	assert_int_equal(error.code, code);
	assert_null(io);
}

static void test_invalid_options(void **unused)
{
	(void)unused;
	expect_open_fails((weir_io_options){.method = "telepathy"}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.queue_depth = WEIR_IO_QUEUE_DEPTH_MAX + 1}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.piece_bytes = WEIR_IO_PIECE_BYTES_MAX + 1}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.requests_max = WEIR_IO_REQUESTS_MAX + 1}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.fault = "eio"}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.fault = "eio:0"}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.fault = "reorder:3"}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.fault = "short:2,,reorder"}, WEIR_EINVAL);
	expect_open_fails((weir_io_options){.fault = "short:99999999999999999999"}, WEIR_EINVAL);
	weir_io_close(NULL);
}

/* What the probe says must hold for a read at exactly that alignment; with the flag off, any read works. */
static void test_direct_alignment(void **unused)
{
	unsigned char *memory = test_memory(256 << 10);
	weir_direct direct;
	test_file file;
	int fd;

	(void)unused;
	test_file_make(&file, "direct", 200000, 8);
	fd = open(file.path, O_RDONLY);
	assert_true(fd >= 0);
	weir_direct_enable(fd, &direct);
	assert_true(direct.offset_bytes && !(direct.offset_bytes & (direct.offset_bytes - 1)));
	assert_true(direct.memory_bytes && !(direct.memory_bytes & (direct.memory_bytes - 1)));
	assert_int_equal((fcntl(fd, F_GETFL) & O_DIRECT) != 0, direct.works);
	assert_int_equal(pread(fd, memory + direct.memory_bytes, direct.offset_bytes, direct.offset_bytes),
			 direct.offset_bytes);
	assert_int_equal(test_first_difference(&file, direct.offset_bytes, memory + direct.memory_bytes, direct.offset_bytes),
			 direct.offset_bytes);
	weir_direct_disable(fd);
	assert_int_equal(fcntl(fd, F_GETFL) & O_DIRECT, 0);
	assert_int_equal(pread(fd, memory + 1, 77, 33), 77);
	close(fd);
	test_file_remove(&file);
	weir_memory_unmap(memory, 256 << 10);
}

static void test_memory_ranges(void **unused)
{
	const uint64_t bytes = (5 << 20) + 1;
	weir_error error = {.code = 0};
	void *base = NULL;
	unsigned char *memory;

	(void)unused;
	assert_int_equal(weir_memory_map(0, false, &base, &error), WEIR_EINVAL);
	assert_int_equal(weir_memory_map(UINT64_MAX, true, &base, &error), WEIR_ENOMEM);
	assert_int_equal(weir_memory_map((uint64_t)1 << 62, false, &base, &error), WEIR_ENOMEM);
	assert_int_equal(weir_memory_map(bytes, true, &base, &error), 0);
	assert_int_equal((uintptr_t)base % (2 << 20), 0);
	memory = base;
	memory[0] = 1;
	memory[bytes - 1] = 2;
	assert_int_equal(weir_memory_advise(memory + 1, 4096, WEIR_ADVICE_DISCARD), 0);
	assert_int_equal(memory[0], 1);
	assert_int_equal(weir_memory_advise(memory, bytes, WEIR_ADVICE_DISCARD), 0);
	assert_int_equal(memory[0], 0);
	assert_int_equal(memory[bytes - 1], 2);
	weir_memory_unmap(base, bytes);
	weir_memory_unmap(NULL, 1);
}

/* Shares of several threads: all pages come, and keep what was in them. */
static void test_memory_populate(void **unused)
{
	const uint64_t bytes = ((uint64_t)192 << 20) + 4096, page = weir_page_bytes();
	unsigned char *memory, there = 0;
	void *base = NULL;

	(void)unused;
	assert_int_equal(weir_memory_map(bytes, false, &base, NULL), 0);
	memory = base;
	memory[(100 << 20) + 1] = 7;
	if (weir_memory_populate(base, bytes) != WEIR_EUNSUPPORTED)
		for (uint64_t at = 0; at < bytes; at += page) {
			assert_int_equal(mincore(memory + at, page, &there), 0);
			assert_int_equal(there & 1, 1);
		}
	assert_int_equal(memory[(100 << 20) + 1], 7);
	assert_int_equal(memory[bytes - 1], 0);
	weir_memory_unmap(base, bytes);
	assert_int_equal(weir_memory_populate(base, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),	  cmocka_unit_test(test_no_descriptors_left),
		cmocka_unit_test(test_file_that_shrinks), cmocka_unit_test(test_truncation_race),
		cmocka_unit_test(test_replaced_file),	  cmocka_unit_test(test_invalid_requests),
		cmocka_unit_test(test_invalid_options),	  cmocka_unit_test(test_direct_alignment),
		cmocka_unit_test(test_memory_ranges),	  cmocka_unit_test(test_memory_populate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
