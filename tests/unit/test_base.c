/*
 * test_base.c - checked arithmetic, text escapes, error lines, arenas, names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "base/arena.h"
#include "base/array.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/names.h"
#include "base/text.h"

#include <stdlib.h>

static void checked_arithmetic_says_when_it_wraps(void **state)
{
	uint64_t result;

	(void)state;
	assert_true(weir_checked_add(UINT64_MAX - 1, 1, &result));
	assert_true(result == UINT64_MAX);
	assert_false(weir_checked_add(UINT64_MAX, 1, &result));
	assert_true(weir_checked_multiply(1ull << 32, (1ull << 32) - 1, &result));
	assert_false(weir_checked_multiply(1ull << 32, 1ull << 32, &result));
	assert_true(weir_checked_align(33, 32, &result));
	assert_int_equal(result, 64);
	assert_true(weir_checked_align(64, 32, &result));
	assert_int_equal(result, 64);
	assert_false(weir_checked_align(UINT64_MAX - 2, 32, &result));
}

static void powers_of_two(void **state)
{
	(void)state;
	assert_false(weir_is_power_of_two(0));
	assert_true(weir_is_power_of_two(1));
	assert_true(weir_is_power_of_two(1ull << 63));
	assert_false(weir_is_power_of_two(48));
}

static void extents_within_a_whole(void **state)
{
	(void)state;
	assert_true(weir_extent_within(0, 10, 10));
	assert_true(weir_extent_within(10, 0, 10));
	assert_false(weir_extent_within(11, 0, 10));
	assert_false(weir_extent_within(1, 10, 10));
	assert_false(weir_extent_within(UINT64_MAX, 2, 10));
	assert_false(weir_extent_within(2, UINT64_MAX, 10));
}

static void expect_escaped(const char *text, size_t bytes, const char *expected)
{
	char out[128];

	assert_int_equal(weir_text_escape(text, bytes, out, sizeof out), strlen(expected));
	assert_string_equal(out, expected);
	assert_int_equal(weir_text_clean(text, bytes), bytes == strlen(expected) && !memcmp(text, expected, bytes));
}

static void controls_and_stray_bytes_are_escaped(void **state)
{
	(void)state;
	expect_escaped("plain \\ text", 12, "plain \\ text");
	expect_escaped("a\nb\tc\rd", 7, "a\\nb\\tc\\rd");
	expect_escaped("\x1b[31m", 5, "\\x1b[31m");
	expect_escaped("\0\x07\x7f", 3, "\\x00\\x07\\x7f");
	expect_escaped("\xc2\x9b"
		       "2J",
		       4, "\\u009b2J");
	expect_escaped("\x9b\xff", 2, "\\x9b\\xff");
}

static void text_in_any_script_stays(void **state)
{
	(void)state;
	expect_escaped("größe 模型 слой 🙂", strlen("größe 模型 слой 🙂"), "größe 模型 слой 🙂");
	expect_escaped("\xc2\xa0", 2, "\xc2\xa0");
}

static void utf8_is_strict(void **state)
{
	static const char *const wrong[] = {
		"\xc0\x80", /* overlong NUL */
		"\xe0\x9f\xbf", /* overlong U+07FF */
		"\xf0\x8f\xbf\xbf", /* overlong U+FFFF */
		"\xed\xa0\x80", /* surrogate */
		"\xf4\x90\x80\x80", /* beyond U+10FFFF */
		"\xf8\x88\x80\x80", /* no such length */
		"\xe4\xb8", /* cut */
		"\x80", /* continuation alone */
	};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		assert_false(weir_utf8_valid(wrong[i], strlen(wrong[i])));
	assert_true(weir_utf8_valid("\xf4\x8f\xbf\xbf\xee\x80\x80", 7));
}

static void escaping_cuts_between_characters(void **state)
{
	char out[8];

	(void)state;
	assert_int_equal(weir_text_escape("abc\x1b", 4, out, 7), 7);
	assert_string_equal(out, "abc");
	assert_int_equal(weir_text_escape("abc\x1b", 4, out, 8), 7);
	assert_string_equal(out, "abc\\x1b");
	assert_int_equal(weir_text_escape("abcdef\xe6\xa8\xa1z", 10, out, 8), 10);
	assert_string_equal(out, "abcdef");
	assert_int_equal(weir_text_escape("abc", 3, NULL, 0), 3);
}

static void error_line_has_file_offset_message_and_errno(void **state)
{
	weir_error error;
	char line[256];

	(void)state;
	assert_int_equal(weir_fail(&error, WEIR_EIO, "a.gguf", 512, EIO, "cannot %s", "read"), WEIR_EIO);
	assert_int_equal(weir_error_format(&error, line, sizeof line), 52);
	assert_string_equal(line, "a.gguf: offset 512: cannot read (Input/output error)");
	weir_fail(&error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "%s", "");
	weir_error_format(&error, line, sizeof line);
	assert_string_equal(line, "invalid argument");
}

static void error_line_is_one_line_whatever_the_file_is_called(void **state)
{
	weir_error error;
	char line[256];

	(void)state;
	weir_fail(&error, WEIR_EFORMAT, "a\n\x1b]0;title\x07", WEIR_ERROR_NO_OFFSET, 0, "tensor '%s'", "\xc2\x85\xfe");
	weir_error_format(&error, line, sizeof line);
	assert_string_equal(line, "a\\n\\x1b]0;title\\x07: tensor '\\u0085\\xfe'");
}

static void error_line_is_cut_at_its_capacity(void **state)
{
	weir_error error;
	char line[16];

	(void)state;
	weir_fail(&error, WEIR_EFORMAT, "model.gguf", 7, 0, "a long rule");
	for (int capacity = 1; capacity <= (int)sizeof line; capacity++) {
		memset(line, 'x', sizeof line);
		assert_true(weir_error_format(&error, line, capacity) < capacity);
		assert_non_null(memchr(line, '\0', (size_t)capacity));
	}
	assert_int_equal(weir_error_format(&error, line, 0), 0);
}

static void every_code_has_a_name_and_a_text(void **state)
{
	(void)state;
	for (int code = 0; code >= -16; code--) {
		assert_string_not_equal(weir_error_name(code), "WEIR_UNKNOWN");
		assert_string_not_equal(weir_error_text(code), "unknown error");
	}
	assert_string_equal(weir_error_name(-17), "WEIR_UNKNOWN");
	assert_int_equal(weir_code_of_errno(ENOENT), WEIR_ENOTFOUND);
	assert_int_equal(weir_code_of_errno(EMFILE), WEIR_ELIMIT);
	assert_int_equal(weir_code_of_errno(EBADF), WEIR_EIO);
}

static void arena_pieces_stay_whole(void **state)
{
	weir_arena arena = {0};
	char *texts[2000];

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		char text[32];

		snprintf(text, sizeof text, "text %u", i);
		texts[i] = weir_arena_text(&arena, text, strlen(text));
		assert_non_null(texts[i]);
		assert_int_equal((uintptr_t)texts[i] % sizeof(void *), 0);
	}
	for (unsigned i = 0; i < 2000; i++)
		assert_int_equal(strtoul(texts[i] + 5, NULL, 10), i);
	assert_non_null(weir_arena_take(&arena, 1 << 20));
	assert_non_null(weir_arena_text(&arena, NULL, 0));
	assert_null(weir_arena_take(&arena, SIZE_MAX));
	assert_null(weir_arena_text(&arena, "", SIZE_MAX));
	weir_arena_free(&arena);
	weir_arena_free(&arena);
}

static void names_are_found_and_occur_once(void **state)
{
	weir_names names = {0};
	static char keys[5000][16];

	(void)state;
	assert_int_equal(weir_names_find(&names, "none"), WEIR_NAMES_NONE);
	for (uint32_t i = 0; i < 5000; i++) {
		snprintf(keys[i], sizeof keys[i], "name %u", i);
		assert_int_equal(weir_names_add(&names, keys[i], i), WEIR_OK);
		assert_true(names.count <= names.capacity / 2);
	}
	for (uint32_t i = 0; i < 5000; i++) {
		assert_int_equal(weir_names_find(&names, keys[i]), i);
		assert_int_equal(weir_names_add(&names, keys[i], 1), WEIR_EINVAL);
	}
	assert_int_equal(weir_names_find(&names, "name 5000"), WEIR_NAMES_NONE);
	weir_names_free(&names);
}

static void arrays_grow_by_doubling_and_know_their_end(void **state)
{
	uint32_t capacity = 0;
	void *items = weir_array_grow(NULL, &capacity, 8);

	(void)state;
	assert_non_null(items);
	assert_int_equal(capacity, 16);
	items = weir_array_grow(items, &capacity, 8);
	assert_int_equal(capacity, 32);
	free(items);
	capacity = 1u << 31;
	assert_null(weir_array_grow(NULL, &capacity, 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(checked_arithmetic_says_when_it_wraps),
		cmocka_unit_test(powers_of_two),
		cmocka_unit_test(extents_within_a_whole),
		cmocka_unit_test(controls_and_stray_bytes_are_escaped),
		cmocka_unit_test(text_in_any_script_stays),
		cmocka_unit_test(utf8_is_strict),
		cmocka_unit_test(escaping_cuts_between_characters),
		cmocka_unit_test(error_line_has_file_offset_message_and_errno),
		cmocka_unit_test(error_line_is_one_line_whatever_the_file_is_called),
		cmocka_unit_test(error_line_is_cut_at_its_capacity),
		cmocka_unit_test(every_code_has_a_name_and_a_text),
		cmocka_unit_test(arena_pieces_stay_whole),
		cmocka_unit_test(names_are_found_and_occur_once),
		cmocka_unit_test(arrays_grow_by_doubling_and_know_their_end),
	};

	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
