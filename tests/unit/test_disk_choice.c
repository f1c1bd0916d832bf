/*
 * test_disk_choice.c - which setting of a drive is used, and which ones are measured further, over tables of rates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "io/disk_choice.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static void add(weir_disk *disk, const char *method, uint32_t depth, uint32_t piece_bytes, double rate)
{
	weir_disk_point *point = &disk->points[disk->points_count++];

	*point = (weir_disk_point){.queue_depth = depth, .piece_bytes = piece_bytes, .bytes_per_second = rate};
	memcpy(point->method, method, strlen(method) + 1);
}

static weir_disk_point choose(const weir_disk *disk)
{
	weir_disk_point chosen;

	assert_int_equal(weir_disk_choice_make(disk, NULL, &chosen), 0);
	return chosen;
}

static void test_nothing_to_choose(void **unused)
{
	weir_disk disk = {.points_count = 0};
	weir_disk_point chosen;

	(void)unused;
	assert_int_equal(weir_disk_choice_make(&disk, NULL, &chosen), WEIR_ENOTFOUND);
	add(&disk, "uring", 1, MIB, 1e9);
	assert_int_equal(weir_disk_choice_of_method(&disk, "threads", &chosen), WEIR_ENOTFOUND);
	assert_int_equal(weir_disk_choice_of_method(&disk, "uring", &chosen), 0);
}

/* The worked example of disk_choice.c. */
static void test_least_that_is_fast(void **unused)
{
	weir_disk disk = {.points_count = 0};

	(void)unused;
	add(&disk, "uring", 1, MIB, 0.8e9);
	add(&disk, "uring", 2, MIB, 1.95e9);
	add(&disk, "uring", 4, MIB, 1.98e9);
	add(&disk, "uring", 32, MIB, 2.0e9);
	assert_int_equal(choose(&disk).queue_depth, 4);
	/* A drive so slow that two reads bridge the time. */
	for (uint32_t i = 0; i < disk.points_count; i++)
		disk.points[i].bytes_per_second /= 10;
	assert_int_equal(choose(&disk).queue_depth, 2);
}

/* Where none bridges the time, the one that comes nearest. */
static void test_fast_drive(void **unused)
{
	weir_disk disk = {.points_count = 0};

	(void)unused;
	add(&disk, "uring", 4, 128 * KIB, 9.9e9);
	add(&disk, "uring", 16, 128 * KIB, 9.8e9);
	add(&disk, "uring", 8, 128 * KIB, 10e9);
	assert_int_equal(choose(&disk).queue_depth, 16);
}

static void test_equal_bytes_in_flight(void **unused)
{
	weir_disk disk = {.points_count = 0};

	(void)unused;
	add(&disk, "uring", 4, MIB, 0.98e9);
	add(&disk, "uring", 8, 512 * KIB, 1e9);
	add(&disk, "uring", 16, 256 * KIB, 0.97e9);
	assert_int_equal(choose(&disk).queue_depth, 8);
}

static void test_methods(void **unused)
{
	weir_disk disk = {.points_count = 0};
	weir_disk_point chosen;

	(void)unused;
	add(&disk, "threads", 8, MIB, 1.0e9);
	add(&disk, "uring", 8, MIB, 0.96e9);
	assert_string_equal(choose(&disk).method, "uring");
	disk.points[1].bytes_per_second = 0.9e9;
	assert_string_equal(choose(&disk).method, "threads");
	assert_int_equal(weir_disk_choice_of_method(&disk, "uring", &chosen), 0);
	assert_string_equal(chosen.method, "uring");
}

/* Where slices differ widely, a lighter setting that may be as fast is taken; where they agree, it is not. */
static void test_noise_does_not_decide(void **unused)
{
	static const double noisy[] = {0.5e9, 0.9e9, 1.3e9, 0.6e9, 1.4e9}, steady[] = {0.9e9, 0.91e9, 0.89e9, 0.9e9, 0.9e9};
	weir_disk disk = {.points_count = 0};
	weir_disk_slices slices[2];
	weir_disk_point chosen;

	(void)unused;
	add(&disk, "uring", 4, MIB, 0);
	add(&disk, "uring", 32, MIB, 0);
	for (int quiet = 0; quiet < 2; quiet++) {
		weir_disk_slices_begin(slices, 2);
		for (int i = 0; i < 5; i++) {
			weir_disk_slices_add(&slices[0], &disk.points[0], quiet ? steady[i] : noisy[i]);
			weir_disk_slices_add(&slices[1], &disk.points[1], 1e9);
		}
		assert_int_equal(weir_disk_choice_make(&disk, slices, &chosen), 0);
		assert_int_equal(chosen.queue_depth, quiet ? 32 : 4);
	}
}

static void test_median(void **unused)
{
	weir_disk_slices slices;
	weir_disk_point point = {.queue_depth = 1};

	(void)unused;
	weir_disk_slices_begin(&slices, 1);
	assert_true(slices.running);
	weir_disk_slices_add(&slices, &point, 3);
	assert_true(point.bytes_per_second == 3 && point.slices_count == 1);
	weir_disk_slices_add(&slices, &point, 1);
	assert_true(point.bytes_per_second == 2);
	weir_disk_slices_add(&slices, &point, 1000); /* one lucky slice decides nothing */
	assert_true(point.bytes_per_second == 3);
	weir_disk_slices_add(&slices, &point, 2);
	assert_true(point.bytes_per_second == 2.5);
	for (int i = 0; i < 2 * WEIR_DISK_SLICES_MAX; i++)
		weir_disk_slices_add(&slices, &point, 7);
	assert_int_equal(point.slices_count, WEIR_DISK_SLICES_MAX);
	assert_true(point.bytes_per_second == 7);
}

/* What is far below the fastest stops; the lightest of the others and the fastest go on, and only those may be chosen. */
static void test_narrowing(void **unused)
{
	weir_disk disk = {.points_count = 0};
	weir_disk_slices slices[WEIR_DISK_POINTS_MAX];
	weir_disk_point chosen;
	uint32_t running = 0;

	(void)unused;
	add(&disk, "uring", 1, MIB, 0.5e9);
	for (uint32_t depth = 4; depth <= 32; depth++)
		add(&disk, "uring", depth, MIB, 0.96e9);
	add(&disk, "uring", 64, MIB, 1e9);
	weir_disk_slices_begin(slices, disk.points_count);
	weir_disk_choice_narrow(&disk, slices, 1);
	for (uint32_t i = 0; i < disk.points_count; i++)
		running += slices[i].running;
	assert_int_equal(running, 10);
	assert_false(slices[0].running);
	assert_true(slices[1].running && slices[9].running && slices[disk.points_count - 1].running);
	disk.points[1].bytes_per_second = 0.7e9;
	weir_disk_choice_narrow(&disk, slices, 2);
	assert_false(slices[1].running);
	assert_true(slices[2].running && slices[5].running && !slices[6].running);
	disk.points[20].bytes_per_second = 2e9; /* it stopped: what it said last counts no more */
	assert_int_equal(weir_disk_choice_make(&disk, slices, &chosen), 0);
	assert_int_equal(chosen.queue_depth, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_to_choose),
		cmocka_unit_test(test_least_that_is_fast),
		cmocka_unit_test(test_fast_drive),
		cmocka_unit_test(test_equal_bytes_in_flight),
		cmocka_unit_test(test_methods),
		cmocka_unit_test(test_noise_does_not_decide),
		cmocka_unit_test(test_median),
		cmocka_unit_test(test_narrowing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
