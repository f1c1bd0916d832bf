/*
 * test_quantile.c - quantiles by table: order does not matter, neighbours are interpolated, no values give no number.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/quantile.h"

static void assert_near(double value, double expected)
{
	assert_true(fabs(value - expected) < 1e-9);
}

static void test_none_has_no_quantile(void **state)
{
	(void)state;
	assert_true(isnan(weir_quantile(NULL, 0, 0.5)));
}

static void test_one_value_is_every_quantile(void **state)
{
	double value = 7;

	(void)state;
	for (int share = 0; share <= 10; share++)
		assert_near(weir_quantile(&value, 1, share / 10.0), 7);
}

static void test_medians(void **state)
{
	double odd[] = {9, 1, 5}, even[] = {4, 1, 3, 2};

	(void)state;
	assert_near(weir_quantile(odd, 3, 0.5), 5);
	assert_near(weir_quantile(even, 4, 0.5), 2.5);
}

static void test_ends_and_between(void **state)
{
	double values[21];

	(void)state;
	for (int i = 0; i < 21; i++)
		values[i] = (i * 8) % 21; /* 0..20 in another order */
	assert_near(weir_quantile(values, 21, 0), 0);
	assert_near(weir_quantile(values, 21, 1), 20);
	assert_near(weir_quantile(values, 21, 0.95), 19);
	assert_near(weir_quantile(values, 21, 0.975), 19.5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none_has_no_quantile),
		cmocka_unit_test(test_one_value_is_every_quantile),
		cmocka_unit_test(test_medians),
		cmocka_unit_test(test_ends_and_between),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
