/*
 * test_io_cached.c - reading from the page cache what it holds: the bytes are right whatever is cached, nothing is brought into
 * the cache, and asking stops where it finds nothing or does not pay.
 */
#include "io_testing.h"

#include "io/cached.h"
#include "os/pagecache.h"

#define MIB ((uint64_t)1 << 20)
#define WINDOW (128 * MIB)

/* Notes bytes in steps of a MiB, each of which takes so long. */
static void note(weir_io_judge *judge, uint64_t bytes, uint64_t *now_ns, uint64_t step_ns, bool hit)
{
	for (uint64_t done = 0; done < bytes; done += MIB) {
		*now_ns += step_ns;
		weir_io_judge_note(judge, MIB, hit && judge->asking ? MIB : 0, *now_ns);
	}
}

/* A whole trial; asking takes with_ns for each MiB, not asking without_ns. */
static void try_both(weir_io_judge *judge, uint64_t *now_ns, uint64_t with_ns, uint64_t without_ns)
{
	for (int window = 0; window < WEIR_IO_TRIAL_WINDOWS; window++)
		note(judge, WINDOW, now_ns, judge->asking ? with_ns : without_ns, true);
	assert_int_equal(judge->window, WEIR_IO_TRIAL_WINDOWS);
}

static void test_the_faster_way_is_kept(void **unused)
{
	uint64_t now_ns = 1000;
	weir_io_judge judge;

	(void)unused;
	weir_io_judge_begin(&judge, now_ns);
	assert_true(judge.asking);
	try_both(&judge, &now_ns, 100, 300);
	assert_true(judge.asking);
	note(&judge, 8192 * MIB, &now_ns, 100, true);
	assert_true(judge.asking && judge.window == 0); /* both are tried again */
	try_both(&judge, &now_ns, 300, 299); /* copying is no faster */
	assert_false(judge.asking);
	note(&judge, 8191 * MIB, &now_ns, 100, true);
	assert_false(judge.asking);
	note(&judge, MIB, &now_ns, 100, true);
	assert_true(judge.asking);
}

static void test_nothing_found_ends_a_trial(void **unused)
{
	uint64_t now_ns = 1000;
	weir_io_judge judge;

	(void)unused;
	weir_io_judge_begin(&judge, now_ns);
	note(&judge, 15 * MIB, &now_ns, 100, false);
	assert_true(judge.asking);
	note(&judge, MIB, &now_ns, 100, false);
	assert_false(judge.asking);
	note(&judge, WINDOW, &now_ns, 100, false);
	assert_true(judge.asking && judge.window == 0);
}

static weir_io *open_cached(const test_file *file, void *memory, uint64_t bytes, const char *fault)
{
	weir_io_options options = {.queue_depth = 4, .piece_bytes = 64 << 10, .page_cache = true, .fault = fault};
	weir_io *io;
	uint32_t index;

	assert_int_equal(weir_io_open(&options, &io, NULL), 0);
	assert_int_equal(weir_io_add_file(io, file->path, &index, NULL), 0);
	assert_int_equal(weir_io_add_buffer(io, memory, bytes), 0);
	return io;
}

/* Reads the whole file as requests of 256 KiB, and compares every byte. */
static void read_all(weir_io *io, const test_file *file, unsigned char *memory)
{
	uint32_t count = (uint32_t)(file->bytes >> 18), done = 0;
	weir_io_completion completions[8];

	for (uint32_t i = 0; i < count; i++) {
		weir_io_request request = {.offset = (uint64_t)i << 18, .bytes = 1 << 18, .least = 1 << 18, .tag = i};

		request.buffer = memory + request.offset;
		assert_int_equal(weir_io_submit(io, &request, 1), 1);
		assert_true(weir_io_is_sound(io));
	}
	while (done < count) {
		int got = weir_io_reap(io, completions, 8);

		for (int i = 0; i < got; i++)
			assert_int_equal(completions[i].code, 0);
		done += (uint32_t)got;
		if (!got)
			weir_io_wait(io, UINT64_MAX);
	}
	assert_true(weir_io_is_sound(io));
	for (uint64_t at = 0; at < file->bytes; at++)
		if (memory[at] != test_byte(file->seed, at))
			fail_msg("byte %llu is not the file's", (unsigned long long)at);
}

/* Drops what the cache holds of a part, or brings it in. */
static void make_cached(const test_file *file, uint64_t offset, uint64_t bytes, bool cached)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC);
	char page[4096];

	assert_true(fd >= 0);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	if (!cached)
		posix_fadvise(fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
	for (uint64_t at = offset; cached && at < offset + bytes; at += sizeof page)
		assert_int_equal(pread(fd, page, sizeof page, (off_t)at), sizeof page);
	close(fd);
}

static uint64_t read_once(const test_file *file, unsigned char *memory, const char *fault)
{
	weir_io *io = open_cached(file, memory, file->bytes, fault);
	weir_io_stats stats;

	memset(memory, 0, file->bytes);
	read_all(io, file, memory);
	weir_io_get_stats(io, &stats);
	assert_int_equal(stats.bytes, file->bytes);
	weir_io_close(io);
	return stats.page_cache_bytes;
}

/* Where the kernel tells what it has cached, and files can be read past the cache. */
static bool can_ask(void)
{
	unsigned char *memory;
	test_file file;
	bool can;
	weir_io *io;

	if (!weir_page_cache_tells())
		return false;
	assert_int_equal(weir_memory_map(MIB, false, (void **)&memory, NULL), 0);
	test_file_make(&file, "cached-direct", MIB, 60);
	io = open_cached(&file, memory, MIB, NULL);
	can = weir_io_offset_alignment(io) > 1;
	weir_io_close(io);
	weir_memory_unmap(memory, MIB);
	test_file_remove(&file);
	return can;
}

static void test_bytes_are_right(void **unused)
{
	static const char *const faults[] = {NULL, "short:2,reorder,seed:3", "eintr:2,latency-us:100", "short-odd:3"};
	unsigned char *memory;
	test_file file;

	(void)unused;
	if (!can_ask())
		skip();
	test_file_make(&file, "cached", 8 * MIB, 61);
	assert_int_equal(weir_memory_map(file.bytes, true, (void **)&memory, NULL), 0);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		make_cached(&file, 0, file.bytes, false);
		assert_int_equal(read_once(&file, memory, faults[i]), 0);
		assert_int_equal(read_once(&file, memory, faults[i]), 0); /* reading has not filled the cache */
		make_cached(&file, 3 * MIB, 2 * MIB, true);
		assert_true(read_once(&file, memory, faults[i]) <= 2 * MIB + MIB);
		make_cached(&file, 0, file.bytes, true);
		assert_true(read_once(&file, memory, faults[i]) >= file.bytes / 2);
	}
	weir_memory_unmap(memory, file.bytes);
	test_file_remove(&file);
}

static uint64_t read_with(const test_file *file, unsigned char *memory, const char *method, bool page_cache)
{
	weir_io_options options = {.method = method, .queue_depth = 4, .page_cache = page_cache};
	weir_io_stats stats;
	uint32_t index;
	weir_io *io;

	if (weir_io_open(&options, &io, NULL) != 0)
		return UINT64_MAX;
	assert_int_equal(weir_io_add_file(io, file->path, &index, NULL), 0);
	read_all(io, file, memory);
	weir_io_get_stats(io, &stats);
	weir_io_close(io);
	return stats.page_cache_bytes;
}

static void test_asked_when_wanted(void **unused)
{
	static const char *const direct[] = {"uring", "threads"};
	unsigned char *memory;
	test_file file;

	(void)unused;
	if (!can_ask())
		skip();
	test_file_make(&file, "cached-not", MIB, 62);
	make_cached(&file, 0, file.bytes, true);
	assert_int_equal(weir_memory_map(file.bytes, true, (void **)&memory, NULL), 0);
	for (size_t i = 0; i < sizeof direct / sizeof *direct; i++) {
		uint64_t without = read_with(&file, memory, direct[i], false), with = read_with(&file, memory, direct[i], true);

		assert_true(without == UINT64_MAX || (without == 0 && with == file.bytes));
	}
	assert_int_equal(read_with(&file, memory, "mmap", true), 0); /* which reads from there anyway */
	weir_memory_unmap(memory, file.bytes);
	test_file_remove(&file);
}

/* A request for the whole file; what the drive no longer has is an error, cached or not. */
static void test_a_file_that_shrank(void **unused)
{
	weir_io_completion completion;
	unsigned char *memory;
	test_file file;
	weir_io *io;

	(void)unused;
	if (!can_ask())
		skip();
	test_file_make(&file, "cached-short", MIB, 63);
	make_cached(&file, 0, file.bytes, true);
	assert_int_equal(weir_memory_map(file.bytes, true, (void **)&memory, NULL), 0);
	io = open_cached(&file, memory, file.bytes, NULL);
	assert_int_equal(truncate(file.path, (off_t)(file.bytes / 2 + 100)), 0);
	assert_int_equal(
		weir_io_submit(io, &(weir_io_request){.bytes = file.bytes, .least = file.bytes, .buffer = memory, .tag = 1}, 1),
		1);
	while (weir_io_reap(io, &completion, 1) == 0)
		weir_io_wait(io, UINT64_MAX);
	assert_int_equal(completion.code, WEIR_EIO);
	assert_int_equal(completion.offset, file.bytes / 2 + 100);
	for (uint64_t at = 0; at < file.bytes / 2; at++)
		assert_int_equal(memory[at], test_byte(file.seed, at));
	weir_io_close(io);
	weir_memory_unmap(memory, file.bytes);
	test_file_remove(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_faster_way_is_kept), cmocka_unit_test(test_nothing_found_ends_a_trial),
		cmocka_unit_test(test_bytes_are_right),	       cmocka_unit_test(test_asked_when_wanted),
		cmocka_unit_test(test_a_file_that_shrank),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
