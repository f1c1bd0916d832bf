/*
 * test_store_layout.c - size classes, sets and the division of a budget: tables of numbers, no file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "residency/layout.h"

#define A 512

static void chunks_of_one_size_form_one_class(void **state)
{
	weir_chunk chunks[6];
	weir_layout layout;

	(void)state;
	for (uint32_t i = 0; i < 6; i++)
		chunks[i] = (weir_chunk){.group = i / 3, .offset = i * 100000, .bytes = 100000}; /* every shift occurs */
	assert_int_equal(weir_layout_make(&layout, chunks, 6, A, NULL), 0);
	assert_int_equal(layout.classes_count, 1);
	assert_int_equal(layout.sets_count, 2);
	assert_int_equal(layout.classes[0].chunks_count, 6);
	assert_int_equal(layout.classes[0].slot_bytes % A, 0);
	for (uint32_t i = 0; i < 6; i++) {
		assert_true(chunks[i].offset % A + chunks[i].bytes <= layout.classes[0].slot_bytes);
		assert_int_equal(layout.chunk_set[i], i / 3);
	}
	weir_layout_free(&layout);
}

static void sizes_within_three_percent_share_a_class(void **state)
{
	const uint64_t sizes[] = {100 * A, 98 * A, 97 * A, 96 * A, 50 * A, 49 * A};
	const uint64_t slots[] = {100 * A, 100 * A, 100 * A, 96 * A, 50 * A, 49 * A};
	weir_chunk chunks[6];
	weir_layout layout;

	(void)state;
	for (uint32_t i = 0; i < 6; i++)
		chunks[i] = (weir_chunk){.group = i, .offset = 0, .bytes = sizes[i]};
	chunks[5].bytes = 48 * A; /* 2 units below 50: apart; one unit would be together */
	assert_int_equal(weir_layout_make(&layout, chunks, 6, A, NULL), 0);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(layout.classes[layout.set_class[layout.chunk_set[i]]].slot_bytes, slots[i]);
	assert_int_equal(layout.classes[layout.set_class[layout.chunk_set[5]]].slot_bytes, 48 * A);
	weir_layout_free(&layout);
}

static void a_group_of_two_sizes_makes_two_sets(void **state)
{
	const weir_chunk chunks[] = {{.group = 0, .bytes = 8 * A},
				     {.group = 0, .bytes = 64 * A},
				     {.group = 1, .bytes = 64 * A},
				     {.group = 0, .bytes = 8 * A}};
	weir_layout layout;

	(void)state;
	assert_int_equal(weir_layout_make(&layout, chunks, 4, A, NULL), 0);
	assert_int_equal(layout.classes_count, 2);
	assert_int_equal(layout.sets_count, 3);
	assert_int_equal(layout.chunk_set[0], layout.chunk_set[3]);
	assert_int_not_equal(layout.chunk_set[0], layout.chunk_set[1]);
	assert_int_not_equal(layout.chunk_set[1], layout.chunk_set[2]);
	for (uint32_t i = 1; i < layout.sets_count; i++)
		assert_true(layout.set_class[i - 1] <= layout.set_class[i]);
	weir_layout_free(&layout);
}

static void impossible_chunks_are_refused(void **state)
{
	static const weir_chunk wrong[] = {
		{.bytes = 0},
		{.offset = UINT64_MAX, .bytes = 1},
		{.offset = UINT64_MAX - 10, .bytes = UINT64_MAX - 10},
		{.offset = 0, .bytes = UINT64_MAX},
		{.offset = INT64_MAX, .bytes = 1},
	};
	weir_layout layout;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_int_equal(weir_layout_make(&layout, &wrong[i], 1, A, NULL), WEIR_EINVAL);
}

static void sums_that_wrap_are_refused(void **state)
{
	weir_chunk chunks[4];
	uint64_t least, all;
	weir_layout layout;

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		chunks[i] = (weir_chunk){.bytes = (uint64_t)1 << 62};
	assert_int_equal(weir_layout_make(&layout, chunks, 4, A, NULL), 0);
	assert_int_equal(weir_layout_cost(&layout, 64, 1, &least, &all), WEIR_EINVAL);
	assert_int_equal(weir_layout_divide(&layout, UINT64_MAX, 64, 1), WEIR_EINVAL);
	weir_layout_free(&layout);
}

typedef struct division {
	uint32_t chunks[3]; /* of 64, 16 and 4 units */
	uint32_t least;
	uint64_t units;
	int code;
	uint32_t slots[3];
} division;

static const uint64_t UNITS[3] = {64, 16, 4};

static uint32_t make_chunks(const division *row, weir_chunk *chunks)
{
	uint32_t count = 0;

	for (uint32_t kind = 0; kind < 3; kind++)
		for (uint32_t i = 0; i < row->chunks[kind]; i++)
			chunks[count++] = (weir_chunk){.group = kind, .bytes = UNITS[kind] * A};
	return count;
}

static void budgets_are_divided_in_proportion(void **state)
{
	static const division rows[] = {
		{{4, 4, 4}, 1, 336, 0, {4, 4, 4}}, /* everything fits exactly */
		{{4, 4, 4}, 1, 1 << 20, 0, {4, 4, 4}}, /* no more slots than chunks */
		{{4, 4, 4}, 1, 168, 0, {2, 2, 2}}, /* half of each */
		{{4, 4, 4}, 1, 84, 0, {1, 1, 1}}, /* the least */
		{{4, 4, 4}, 1, 83, WEIR_EBUDGET, {0}},	{{4, 4, 4}, 0, 84, 0, {1, 1, 1}}, /* 0 takes 1 */
		{{4, 4, 4}, 2, 167, WEIR_EBUDGET, {0}}, {{4, 4, 4}, 2, 168, 0, {2, 2, 2}},
		{{2, 4, 40}, 3, 188, 0, {2, 3, 3}}, /* least of a class is at most its chunks */
		{{4, 4, 4}, 1, 335, 0, {4, 4, 3}}, /* what rounding leaves goes to whom it fits, largest first */
		{{1, 1, 100}, 1, 120, 0, {1, 1, 10}}, /* a share below one slot gets one, the others share the rest */
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		weir_chunk chunks[128];
		weir_layout layout;

		assert_int_equal(weir_layout_make(&layout, chunks, make_chunks(&rows[i], chunks), A, NULL), 0);
		assert_int_equal(layout.classes_count, 3);
		assert_int_equal(weir_layout_divide(&layout, rows[i].units * A, 0, rows[i].least), rows[i].code);
		for (uint32_t kind = 0; kind < 3 && rows[i].code == 0; kind++)
			assert_int_equal(layout.classes[kind].slots_count, rows[i].slots[kind]);
		weir_layout_free(&layout);
	}
}

/* For every budget: within it, at least the least, nothing useful left over, and never fewer slots for more money in all. */
static void every_budget_is_kept_and_used(void **state)
{
	const division row = {.chunks = {5, 9, 31}};
	const uint64_t overhead = 100;
	uint64_t least, all, used_before = 0;
	weir_chunk chunks[128];
	weir_layout layout;

	(void)state;
	assert_int_equal(weir_layout_make(&layout, chunks, make_chunks(&row, chunks), A, NULL), 0);
	assert_int_equal(weir_layout_cost(&layout, overhead, 2, &least, &all), 0);
	assert_int_equal(weir_layout_divide(&layout, least - 1, overhead, 2), WEIR_EBUDGET);
	for (uint64_t bytes = least; bytes <= all + 1000; bytes += 97) {
		uint64_t used = 0, smallest = UINT64_MAX;

		assert_int_equal(weir_layout_divide(&layout, bytes, overhead, 2), 0);
		for (uint32_t i = 0; i < layout.classes_count; i++) {
			const weir_size_class *entry = &layout.classes[i];

			assert_in_range(entry->slots_count, 2, entry->chunks_count);
			used += entry->slots_count * (entry->slot_bytes + overhead);
			if (entry->slots_count < entry->chunks_count && entry->slot_bytes + overhead < smallest)
				smallest = entry->slot_bytes + overhead;
		}
		assert_true(used <= bytes);
		if (bytes >= all)
			assert_int_equal(used, all);
		else
			assert_true(used + 64 * A > used_before);
		used_before = used;
	}
	weir_layout_free(&layout);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_of_one_size_form_one_class),
		cmocka_unit_test(sizes_within_three_percent_share_a_class),
		cmocka_unit_test(a_group_of_two_sizes_makes_two_sets),
		cmocka_unit_test(impossible_chunks_are_refused),
		cmocka_unit_test(sums_that_wrap_are_refused),
		cmocka_unit_test(budgets_are_divided_in_proportion),
		cmocka_unit_test(every_budget_is_kept_and_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
