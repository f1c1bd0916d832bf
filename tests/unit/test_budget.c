/* test_budget.c - texts of budgets, through the public header. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "weir/budget.h"

static uint64_t bytes_of(const char *text)
{
	uint64_t bytes = 0;

	assert_int_equal(weir_budget_resolve(text, &bytes, NULL), 0);
	return bytes;
}

static void sizes_are_bytes(void **state)
{
	(void)state;
	assert_int_equal(bytes_of("4G"), UINT64_C(4) << 30);
	assert_int_equal(bytes_of("1.5GiB"), UINT64_C(3) << 29);
	assert_int_equal(bytes_of("3MB"), 3000000);
}

static void shares_are_of_what_may_be_used(void **state)
{
	(void)state;
	assert_true(bytes_of("30%") < bytes_of("60%"));
	assert_true(bytes_of("auto") < bytes_of("100%") + (UINT64_C(1) << 30));
}

static void what_is_no_size_is_refused(void **state)
{
	weir_error error;
	uint64_t bytes;

	(void)state;
	assert_int_equal(weir_budget_resolve("much", &bytes, &error), WEIR_EINVAL);
	assert_int_equal(weir_budget_resolve("-1", &bytes, NULL), WEIR_EINVAL);
	assert_int_equal(weir_budget_resolve(NULL, &bytes, NULL), WEIR_EINVAL);
	assert_int_equal(weir_budget_resolve("1G", NULL, NULL), WEIR_EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_bytes),
		cmocka_unit_test(shares_are_of_what_may_be_used),
		cmocka_unit_test(what_is_no_size_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
