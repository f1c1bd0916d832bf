/* test_size.c - sizes as people write them: what each means, to the byte, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/size.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

static void bytes_are_exact(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{"1", 1},
		{"4096", 4096},
		{"100B", 100},
		{"4K", 4 * KIB},
		{"4KiB", 4 * KIB},
		{"4KB", 4000},
		{"3500M", 3500 * MIB},
		{"3500MiB", 3500 * MIB},
		{"3500MB", UINT64_C(3500000000)},
		{"4G", 4 * GIB},
		{"4g", 4 * GIB},
		{"4GiB", 4 * GIB},
		{"4GB", UINT64_C(4000000000)},
		{"2T", 2 * TIB},
		{"2TiB", 2 * TIB},
		{"2TB", UINT64_C(2000000000000)},
		{"1.5GiB", 3 * GIB / 2},
		{"0.5K", 512},
		{"1.1K", 1126},
		{"1.1KB", 1100},
		{"0.001KB", 1},
		{"2.50000000000000000000000000000001K", 2560},
		{"007", 7},
		{"18446744073709551615", UINT64_MAX},
		{"16777215T", UINT64_C(16777215) * TIB},
	};
	weir_size size;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(weir_size_parse(rows[i].text, &size, NULL), 0);
		assert_int_equal(size.kind, WEIR_SIZE_BYTES);
		assert_true(size.bytes == rows[i].bytes);
	}
}

static void shares_are_exact(void **state)
{
	static const struct {
		const char *text;
		uint32_t ppm;
	} rows[] = {{"60%", 600000}, {"100%", 1000000}, {"62.5%", 625000}, {"0.0001%", 1}, {"33.33%", 333300}};
	weir_size size;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(weir_size_parse(rows[i].text, &size, NULL), 0);
		assert_int_equal(size.kind, WEIR_SIZE_SHARE);
		assert_int_equal(size.share_ppm, rows[i].ppm);
	}
}

static void auto_is_a_size(void **state)
{
	weir_size size;

	(void)state;
	assert_int_equal(weir_size_parse("auto", &size, NULL), 0);
	assert_int_equal(size.kind, WEIR_SIZE_AUTO);
}

static void all_else_is_refused(void **state)
{
	static const char *const rows[] = {
		"",
		" ",
		"G",
		"-1",
		"-4G",
		"+4G",
		"4 G",
		" 4G",
		"4G ",
		"4GG",
		"4X",
		"4Ki",
		"4iB",
		"1e9",
		"0x10",
		"nan",
		"NaN",
		"inf",
		".5G",
		"1.G",
		"1..5G",
		"1,5G",
		"1.5.5G",
		"%",
		"0",
		"0G",
		"0%",
		"101%",
		"100.0001%",
		"-5%",
		"60%%",
		"60 %",
		"auto ",
		"automatic",
		"4G\n",
		"٤G",
		"18446744073709551616",
		"16777216T",
		"99999999999999999999999999",
		"0.0001K",
		"0.00001%",
	};
	weir_size size;
	weir_error error;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		memset(&error, 0, sizeof error);
		if (weir_size_parse(rows[i], &size, &error) != WEIR_EINVAL)
			fail_msg("'%s' was taken", rows[i]);
		assert_int_equal(error.code, WEIR_EINVAL);
		assert_true(strlen(error.message) > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_are_exact),
		cmocka_unit_test(shares_are_exact),
		cmocka_unit_test(auto_is_a_size),
		cmocka_unit_test(all_else_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
