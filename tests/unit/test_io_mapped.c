/*
 * test_io_mapped.c - reading through a mapping must not make the process grow by the file.
 */
#include "io_testing.h"

#define FILE_BYTES ((uint64_t)48 << 20)
#define PIECE_BYTES (256u << 10)

/* Resident bytes of mapped files (RssFile), or 0. */
static uint64_t resident_file_bytes(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long long kib = 0;
	char line[256];

	assert_non_null(status);
	while (fgets(line, sizeof line, status)) {
		if (sscanf(line, "RssFile: %llu kB", &kib) == 1)
			break;
	}
	fclose(status);
	return kib * 1024u;
}

static void test_resident_memory(void **unused)
{
	weir_io *io = test_open("mmap", 4, PIECE_BYTES, NULL);
	unsigned char *memory = test_memory(2 << 20);
	uint64_t offset, before, now, most = 0;
	test_file file;
	uint32_t id;

	(void)unused;
	test_file_make(&file, "resident", FILE_BYTES, 31);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(weir_io_offset_alignment(io), 1);
	assert_int_equal(weir_io_memory_alignment(io), 1);
	assert_int_equal(test_read(io, id, 0, 4096, 4096, memory).code, 0);
	before = resident_file_bytes();
	for (offset = 0; offset < FILE_BYTES; offset += 2 << 20) {
		assert_int_equal(test_read(io, id, offset, 2 << 20, 2 << 20, memory).code, 0);
		assert_int_equal(test_first_difference(&file, offset, memory, 4096), 4096);
		now = resident_file_bytes();
		most = now > most ? now : most;
	}
	assert_true(most < before + ((uint64_t)4 << 20));
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 2 << 20);
}

/* No alignment is asked for, so none may be needed. */
static void test_odd_extents(void **unused)
{
	weir_io *io = test_open("mmap", 3, 10000, NULL);
	unsigned char *memory = test_memory(100000);
	test_file file;
	uint32_t id;

	(void)unused;
	test_file_make(&file, "odd", 77777, 32);
	assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
	assert_int_equal(test_read(io, id, 1, 77776, 77776, memory + 3).code, 0);
	assert_int_equal(test_first_difference(&file, 1, memory + 3, 77776), 77776);
	assert_int_equal(test_read(io, id, 77776, 99, 1, memory + 1).code, 0);
	assert_int_equal(test_first_difference(&file, 77776, memory + 1, 1), 1);
	weir_io_close(io);
	test_file_remove(&file);
	weir_memory_unmap(memory, 100000);
}

static void test_empty_file(void **unused)
{
	weir_io *io;
	unsigned char *memory = test_memory(4096);
	test_file file;
	uint32_t id;
	size_t m;

	(void)unused;
	test_file_make(&file, "empty", 0, 33);
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		io = test_open(TEST_METHODS[m], 3, 0, NULL);
		if (!io)
			continue;
		assert_int_equal(weir_io_add_file(io, file.path, &id, NULL), 0);
		assert_int_equal(test_read(io, id, 0, 4096, 0, memory).code, 0);
		assert_int_equal(test_read(io, id, 0, 4096, 1, memory).code, WEIR_EIO);
		weir_io_close(io);
	}
	test_file_remove(&file);
	weir_memory_unmap(memory, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resident_memory),
		cmocka_unit_test(test_odd_extents),
		cmocka_unit_test(test_empty_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
