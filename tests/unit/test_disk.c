/*
 * test_disk.c - measuring a drive: the numbers hang together, nothing is left behind, refusals; and the memory of results,
 * which survives anything that its file may hold.
 */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "io_testing.h"
#include "weir/disk.h"

#define MIB ((uint64_t)1 << 20)

static char folder[400];

static int make_folder(void **unused)
{
	const char *above = getenv("WEIR_TEST_DIR");

	(void)unused;
	snprintf(folder, sizeof folder, "%s%s/disk-%d", above && above[0] == '/' ? "" : "./", above ? above : ".",
		 (int)getpid());
	return mkdir(folder, 0700);
}

static uint32_t entries_in(const char *path)
{
	DIR *directory = opendir(path);
	uint32_t count = 0;

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count - 2;
}

static int remove_folder(void **unused)
{
	(void)unused;
	return rmdir(folder);
}

static void check_result(const weir_disk *disk)
{
	uint32_t most = 0, i;

	assert_true(disk->points_count > 0 && disk->points_count <= WEIR_DISK_POINTS_MAX);
	for (i = 0; i < disk->points_count; i++) {
		assert_true(isfinite(disk->points[i].bytes_per_second) && disk->points[i].bytes_per_second > 0);
		assert_true(disk->points[i].slices_count > 0);
		most = disk->points[i].slices_count > most ? disk->points[i].slices_count : most;
	}
	assert_true(disk->bytes_per_second > 0);
	assert_true(strcmp(disk->method, "uring") == 0 || strcmp(disk->method, "threads") == 0);
	assert_true(disk->queue_depth >= 1 && disk->piece_bytes >= 4096);
	assert_int_equal(disk->direct, disk->offset_alignment_bytes > 1);
	assert_true(disk->read_latency_us_p50 > 0);
	assert_true(disk->read_latency_us_p50 <= disk->read_latency_us_p95);
	assert_true(disk->read_latency_us_p95 <= disk->read_latency_us_p99);
	assert_true(disk->measured_at_s > 1500000000);
	for (i = 0; i < disk->points_count; i++) {
		if (disk->points[i].queue_depth == disk->queue_depth && disk->points[i].piece_bytes == disk->piece_bytes &&
		    strcmp(disk->points[i].method, disk->method) == 0)
			break;
	}
	assert_true(i < disk->points_count);
	assert_int_equal(disk->points[i].slices_count, most);
	assert_true(disk->burst_latency_us >= 0);
}

static void test_measure_file(void **unused)
{
	weir_disk_options options = {.seconds = 0.5};
	weir_error error = {.code = 0};
	test_file file;
	weir_disk disk;

	(void)unused;
	test_file_make(&file, "measured", 24 * MIB, 51);
	assert_int_equal(weir_disk_measure(file.path, &options, &disk, &error), 0);
	check_result(&disk);
	assert_int_equal(disk.file_bytes, 24 * MIB);
	test_file_remove(&file);
}

static void test_measure_folder(void **unused)
{
	weir_disk_options options = {.seconds = 0.3, .file_bytes = 64 * MIB};
	weir_error error = {.code = 0};
	weir_disk disk;

	(void)unused;
	assert_int_equal(weir_disk_measure(folder, &options, &disk, &error), 0);
	check_result(&disk);
	assert_int_equal(disk.file_bytes, 64 * MIB);
	assert_int_equal(entries_in(folder), 0);
}

/* A file smaller than any piece, and not a whole number of sectors. */
static void test_tiny_file(void **unused)
{
	weir_disk_options options = {.seconds = 0.05};
	double rate = 0;
	test_file file;
	weir_disk disk;

	(void)unused;
	test_file_make(&file, "tiny", 1001, 52);
	assert_int_equal(weir_disk_measure(file.path, &options, &disk, NULL), 0);
	check_result(&disk);
	assert_int_equal(weir_disk_rate(file.path, NULL, 0, 0, UINT64_MAX, 0.02, &rate, NULL), 0);
	assert_true(rate > 0);
	test_file_remove(&file);
}

static void test_rate(void **unused)
{
	weir_error error = {.code = 0};
	uint64_t before_ns;
	test_file file;
	double rate;
	size_t m;

	(void)unused;
	test_file_make(&file, "rate", 16 * MIB, 53);
	for (m = 0; m < TEST_METHODS_COUNT; m++) {
		rate = 0;
		before_ns = weir_clock_ns();
		if (weir_disk_rate(file.path, TEST_METHODS[m], 4, 256 << 10, 0, 0.1, &rate, &error) == WEIR_EUNSUPPORTED)
			continue;
		assert_true(weir_clock_ns() - before_ns >= 100000000u);
		assert_true(isfinite(rate) && rate > 0);
	}
	assert_int_equal(weir_disk_rate(file.path, "guess", 1, 4096, 0, 0.1, &rate, &error), WEIR_EINVAL);
	assert_int_equal(weir_disk_rate(file.path, "a name longer than any method", 1, 4096, 0, 0.1, &rate, &error),
			 WEIR_EINVAL);
	assert_int_equal(weir_disk_rate(file.path, NULL, 1, 4096, 0, 0, &rate, &error), WEIR_EINVAL);
	assert_int_equal(weir_disk_rate(file.path, NULL, 1, 4096, 0, NAN, &rate, &error), WEIR_EINVAL);
	test_file_remove(&file);
}

static bool stop_at_once(double fraction, void *context)
{
	(void)fraction;
	++*(int *)context;
	return false;
}

static void test_refusals(void **unused)
{
	int calls = 0;
	weir_disk_options options = {.seconds = 0.1, .file_bytes = 64 * MIB, .progress = stop_at_once, .context = &calls};
	weir_error error = {.code = 0};
	weir_disk disk;
	test_file file;

	(void)unused;
	test_file_make(&file, "nothing", 0, 54);
	assert_int_equal(weir_disk_measure(file.path, NULL, &disk, &error), WEIR_EUNSUPPORTED);
	assert_string_equal(error.file, file.path);
	test_file_remove(&file);
	assert_int_equal(weir_disk_measure(file.path, NULL, &disk, &error), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_measure("/dev/zero", NULL, &disk, &error), WEIR_ENOTREGULAR);
	assert_int_equal(weir_disk_measure(folder, &options, &disk, &error), WEIR_EINTERRUPTED);
	assert_int_equal(calls, 1);
	assert_int_equal(entries_in(folder), 0);
	options = (weir_disk_options){.seconds = -1};
	assert_int_equal(weir_disk_measure(folder, &options, &disk, &error), WEIR_EINVAL);
	options.seconds = INFINITY;
	assert_int_equal(weir_disk_measure(folder, &options, &disk, &error), WEIR_EINVAL);
}

static weir_disk sample(void)
{
	weir_disk disk = {.method = "uring",
			  .queue_depth = 16,
			  .piece_bytes = 1 << 20,
			  .bytes_per_second = 2.5e9,
			  .direct = true,
			  .offset_alignment_bytes = 512,
			  .memory_alignment_bytes = 4,
			  .read_latency_us_p50 = 301.5,
			  .read_latency_us_p95 = 400,
			  .read_latency_us_p99 = 512.25,
			  .burst_latency_us = 80.5,
			  .file_bytes = 1 << 30,
			  .measured_at_s = 1700000000,
			  .points_count = 2};

	disk.points[0] = (weir_disk_point){"uring", 1, 128 << 10, 9e8, 2};
	disk.points[1] = (weir_disk_point){"threads", 8, 1 << 20, 2.25e9, 11};
	return disk;
}

/* Numbers come back as they were; the struct has padding, so field by field. */
static void check_same(const weir_disk *a, const weir_disk *b)
{
	uint32_t i;

	assert_string_equal(a->method, b->method);
	assert_int_equal(a->queue_depth, b->queue_depth);
	assert_int_equal(a->piece_bytes, b->piece_bytes);
	assert_true(a->bytes_per_second == b->bytes_per_second);
	assert_int_equal(a->direct, b->direct);
	assert_int_equal(a->offset_alignment_bytes, b->offset_alignment_bytes);
	assert_int_equal(a->memory_alignment_bytes, b->memory_alignment_bytes);
	assert_true(a->read_latency_us_p50 == b->read_latency_us_p50);
	assert_true(a->read_latency_us_p95 == b->read_latency_us_p95);
	assert_true(a->read_latency_us_p99 == b->read_latency_us_p99);
	assert_true(a->burst_latency_us == b->burst_latency_us);
	assert_int_equal(a->file_bytes, b->file_bytes);
	assert_int_equal(a->measured_at_s, b->measured_at_s);
	assert_int_equal(a->points_count, b->points_count);
	for (i = 0; i < a->points_count; i++) {
		assert_string_equal(a->points[i].method, b->points[i].method);
		assert_int_equal(a->points[i].queue_depth, b->points[i].queue_depth);
		assert_int_equal(a->points[i].piece_bytes, b->points[i].piece_bytes);
		assert_true(a->points[i].bytes_per_second == b->points[i].bytes_per_second);
		assert_int_equal(a->points[i].slices_count, b->points[i].slices_count);
	}
}

static void use_cache_folder(char *absolute, size_t capacity)
{
	char *resolved = realpath(folder, NULL);

	assert_non_null(resolved);
	snprintf(absolute, capacity, "%s", resolved);
	free(resolved);
	setenv("XDG_CACHE_HOME", absolute, 1);
}

static void remove_cache(const char *absolute)
{
	char path[500];

	snprintf(path, sizeof path, "%s/weir/disk.json", absolute);
	unlink(path);
	snprintf(path, sizeof path, "%s/weir", absolute);
	rmdir(path);
}

/* The method asked for, else the one found best; nothing where nothing of it is known. */
static void check_tuned(void)
{
	weir_disk_point tuned;

	assert_int_equal(weir_disk_tuned(folder, NULL, &tuned), 0);
	assert_string_equal(tuned.method, "uring");
	assert_int_equal(tuned.queue_depth, 16);
	assert_int_equal(tuned.piece_bytes, 1 << 20);
	assert_int_equal(weir_disk_tuned(folder, "uring", &tuned), 0);
	assert_int_equal(tuned.queue_depth, 16);
	assert_int_equal(weir_disk_tuned(folder, "threads", &tuned), 0);
	assert_string_equal(tuned.method, "threads");
	assert_int_equal(tuned.queue_depth, 8);
	assert_int_equal(weir_disk_tuned(folder, "mmap", &tuned), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_tuned("no-such-path", NULL, &tuned), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_tuned(folder, NULL, NULL), WEIR_EINVAL);
}

static void test_remembered(void **unused)
{
	weir_disk disk = sample(), found;
	char absolute[400], path[500];

	(void)unused;
	use_cache_folder(absolute, sizeof absolute);
	assert_int_equal(weir_disk_cached(folder, &found), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_remember(folder, &disk, NULL), 0);
	assert_int_equal(weir_disk_cached(folder, &found), 0);
	check_same(&disk, &found);
	/* Another drive is another entry, and the first one stays. */
	disk.queue_depth = 4;
	assert_int_equal(weir_disk_remember("/proc/self/status", &disk, NULL), 0);
	assert_int_equal(weir_disk_cached("/proc/self/status", &found), 0);
	check_same(&disk, &found);
	assert_int_equal(weir_disk_cached(folder, &found), 0);
	assert_int_equal(found.queue_depth, 16);
	check_tuned();
	snprintf(path, sizeof path, "%s/weir", absolute);
	assert_int_equal(entries_in(path), 1);
	assert_int_equal(weir_disk_cached("no-such-path", &found), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_remember("no-such-path", &disk, NULL), WEIR_ENOTFOUND);
	remove_cache(absolute);
}

static char *read_cache(const char *path, size_t *bytes)
{
	FILE *file = fopen(path, "r");
	char *text = malloc(65536);

	assert_non_null(file);
	assert_non_null(text);
	*bytes = fread(text, 1, 65535, file);
	text[*bytes] = '\0';
	fclose(file);
	return text;
}

static void write_cache(const char *path, const char *text, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	fclose(file);
}

/* Cut at every byte, and each byte changed: never a crash, never a senseless answer. */
static void test_damaged_cache(void **unused)
{
	weir_disk disk = sample(), found;
	char absolute[400], path[500], *text;
	size_t bytes, i;

	(void)unused;
	use_cache_folder(absolute, sizeof absolute);
	assert_int_equal(weir_disk_remember(folder, &disk, NULL), 0);
	snprintf(path, sizeof path, "%s/weir/disk.json", absolute);
	text = read_cache(path, &bytes);
	for (i = 0; i < bytes; i++) {
		char kept = text[i];

		write_cache(path, text, i);
		assert_int_equal(weir_disk_cached(folder, &found), WEIR_ENOTFOUND);
		text[i] = kept == '9' ? '-' : '9';
		write_cache(path, text, bytes);
		if (weir_disk_cached(folder, &found) == 0) {
			assert_true(found.queue_depth >= 1 && found.queue_depth <= 1024);
			assert_true(found.points_count <= WEIR_DISK_POINTS_MAX);
			assert_true(found.bytes_per_second > 0);
		}
		text[i] = kept;
	}
	write_cache(path, "[1, 2", 5);
	assert_int_equal(weir_disk_remember(folder, &disk, NULL), 0);
	assert_int_equal(weir_disk_cached(folder, &found), 0);
	check_same(&disk, &found);
	free(text);
	remove_cache(absolute);
}

static void test_nowhere_to_remember(void **unused)
{
	weir_disk disk = sample(), found;
	weir_error error = {.code = 0};

	(void)unused;
	setenv("XDG_CACHE_HOME", "relative", 1);
	unsetenv("HOME");
	assert_int_equal(weir_disk_remember(folder, &disk, &error), WEIR_ENOTFOUND);
	assert_true(error.message[0]);
	assert_int_equal(weir_disk_cached(folder, &found), WEIR_ENOTFOUND);
	setenv("XDG_CACHE_HOME", "/proc/self", 1);
	assert_true(weir_disk_remember(folder, &disk, &error) < 0);
}

/* KiB of a line of /proc/self/status. */
static uint64_t status_kib(const char *key)
{
	FILE *status = fopen("/proc/self/status", "r");
	unsigned long long kib = 0;
	char line[256];

	assert_non_null(status);
	while (fgets(line, sizeof line, status))
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), "%llu", &kib);
	fclose(status);
	return kib;
}

static bool is_sanitized(void)
{
	const char *name = getenv("WEIR_SANITIZE");

	return name && *name;
}

static bool begin_new_peak(void)
{
	FILE *references = fopen("/proc/self/clear_refs", "w");

	if (!references)
		return false;
	fputs("5", references);
	return fclose(references) == 0;
}

static void measure_within(const char *path, const char *method, uint32_t depth, uint64_t room)
{
	uint64_t before, bytes = weir_disk_rate_memory_bytes(method, depth, 512 << 10);
	double rate;

	begin_new_peak();
	before = status_kib("VmRSS:");
	if (weir_disk_rate(path, method, depth, 512 << 10, room, 0.02, &rate, NULL) == WEIR_EUNSUPPORTED)
		return;
	assert_true((status_kib("VmHWM:") - before) * 1024 <= (bytes > room ? bytes : room));
	assert_true(bytes >= depth * (uint64_t)(512 << 10));
}

/* A budget is kept by asking first: the answer must be an upper bound. */
static void test_memory_of_a_measurement(void **unused)
{
	test_file file;

	(void)unused;
	if (is_sanitized() || !begin_new_peak()) /* a sanitizer's own memory is in no bound */
		skip();
	test_file_make(&file, "disk-memory", 8 * MIB, 5);
	for (size_t m = 0; m < TEST_METHODS_COUNT; m++)
		for (uint32_t depth = 1; depth <= 16; depth *= 4)
			for (uint64_t room = 0; room <= 40 * MIB; room += 20 * MIB)
				measure_within(file.path, TEST_METHODS[m], depth, room);
	test_file_remove(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_measure_file),
		cmocka_unit_test(test_measure_folder),
		cmocka_unit_test(test_tiny_file),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_remembered),
		cmocka_unit_test(test_damaged_cache),
		cmocka_unit_test(test_nowhere_to_remember),
		cmocka_unit_test(test_memory_of_a_measurement),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
