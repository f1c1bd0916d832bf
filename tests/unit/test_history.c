/*
 * test_history.c - what runs of a model have shown is kept, bounded, and believed only where it makes sense.
 *
 * The program's files are no library: those under test are compiled into this one.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../programs/cli.c"
#include "../../programs/history.c"
#include "../../programs/output.c"

static char folder[PATH_MAX], model[PATH_MAX + 16];

static void write_text(const char *path, const char *text, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

static int make_folder(void **unused)
{
	char here[PATH_MAX / 2];

	(void)unused;
	if (!getcwd(here, sizeof here))
		return -1;
	snprintf(folder, sizeof folder, "%s/history-%d", here, (int)getpid());
	snprintf(model, sizeof model, "%s/model", folder);
	if (mkdir(folder, 0700) != 0)
		return -1;
	setenv("XDG_CACHE_HOME", folder, 1);
	write_text(model, "weights", 7);
	return 0;
}

static int remove_folder(void **unused)
{
	char command[PATH_MAX + 32];

	(void)unused;
	snprintf(command, sizeof command, "rm -r '%s'", folder);
	return system(command);
}

/* Each test begins with a model of its own. */
static int renew_model(void **unused)
{
	static char text[64] = "weights";

	(void)unused;
	strcat(text, "!");
	write_text(model, text, strlen(text));
	return 0;
}

static history_run run_at(double share, double hits, double compute)
{
	return (history_run){.at_s = (int64_t)time(NULL),
			     .slots_share = share,
			     .hit_rate = hits,
			     .read_share = 1 - hits,
			     .compute_seconds = compute,
			     .overlap_share = 0.5,
			     .dense_exposed_share = NAN,
			     .device_bytes_per_second = 2e9};
}

static void test_kept_and_bounded(void **unused)
{
	history_run run = run_at(0.25, 0.8, 0.1);
	history known;

	(void)unused;
	history_load(model, 2, &known);
	assert_int_equal(known.count, 0);
	assert_true(isnan(history_compute_seconds(&known)) && isnan(history_device_rate(&known, 600)));
	for (uint32_t i = 0; i < HISTORY_RUNS_MAX + 5; i++) {
		run.compute_seconds = 0.1 + i;
		history_add(model, 2, &run);
	}
	history_load(model, 2, &known);
	assert_int_equal(known.count, HISTORY_RUNS_MAX);
	assert_true(known.runs[0].compute_seconds > 5 && known.runs[HISTORY_RUNS_MAX - 1].compute_seconds > 20);
	assert_true(isnan(known.runs[0].dense_exposed_share) && known.runs[0].overlap_share >= 0.5);
	assert_true(history_device_rate(&known, 600) >= 2e9);
	known.runs[known.count - 1].at_s -= 700;
	assert_true(isnan(history_device_rate(&known, 600)));
	known.runs[known.count - 1].at_s += 70000; /* a clock that was set back */
	assert_true(isnan(history_device_rate(&known, 600)));
	history_load(model, 3, &known); /* another number of threads */
	assert_int_equal(known.count, 0);
	renew_model(NULL); /* another file in its place */
	history_load(model, 2, &known);
	assert_int_equal(known.count, 0);
	history_load("no-such-file", 2, &known);
	assert_int_equal(known.count, 0);
}

static void test_medians(void **unused)
{
	static const double seconds[] = {0.5, 0.1, 0.11, 9, 0.12, 0.13};
	weir_plan_facts facts = {.budget_bytes = 0};
	history known = {.count = 0};

	(void)unused;
	history_inform(&known, &facts);
	assert_int_equal(facts.points_count, 0);
	assert_true(facts.overlap_share >= WEIR_PLAN_OVERLAP_TYPICAL && facts.dense_exposed_share <= 0);
	for (int i = 0; i < 6; i++)
		known.runs[known.count++] = run_at(i % 2 ? 0.5 : 0.25, i % 2 ? 0.9 : 0.7 + 0.01 * i, seconds[i]);
	known.runs[5].overlap_share = NAN;
	known.runs[4].overlap_share = -1;
	assert_true(history_compute_seconds(&known) >= 0.12 && history_compute_seconds(&known) < 0.121);
	history_inform(&known, &facts);
	assert_int_equal(facts.points_count, 2);
	assert_true(facts.points[0].slots_share <= 0.25 && facts.points[1].slots_share >= 0.5);
	assert_true(facts.points[0].hit_rate > 0.719 && facts.points[0].hit_rate < 0.721);
	assert_true(facts.overlap_share >= 0.5);
	known.runs[3].slots_share = 1; /* everything had a slot: no point of the curve */
	known.runs[5].hit_rate = NAN;
	known.runs[1].read_share = NAN;
	history_inform(&known, &facts);
	assert_int_equal(facts.points_count, 1);
}

/* Cut at every byte and each byte changed: never a crash, never a number that a plan refuses. */
static void test_damaged(void **unused)
{
	history_run run = run_at(0.25, 0.8, 0.1);
	char path[PATH_MAX], *text;
	weir_plan_facts facts = {.budget_bytes = 1 << 20, .hit_rate_hint = -1};
	weir_plan plan;
	history known;
	json_t *file;
	size_t bytes;

	(void)unused;
	history_add(model, 2, &run);
	assert_true(file_path(model, 2, path));
	file = json_load_file(path, 0, NULL);
	assert_non_null(file);
	text = json_dumps(file, 0);
	json_decref(file);
	assert_non_null(text);
	bytes = strlen(text);
	for (size_t i = 0; i < bytes; i++) {
		char kept = text[i];

		write_text(path, text, i);
		history_load(model, 2, &known);
		assert_int_equal(known.count, 0);
		text[i] = kept == '9' ? '-' : '9';
		write_text(path, text, bytes);
		history_load(model, 2, &known);
		assert_true(known.count <= 1);
		history_inform(&known, &facts);
		assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
		text[i] = kept;
	}
	history_add(model, 2, &run);
	history_load(model, 2, &known);
	assert_true(known.count >= 1);
	free(text);
}

static void test_nowhere(void **unused)
{
	history_run run = run_at(0.25, 0.8, 0.1);
	history known;

	(void)unused;
	setenv("XDG_CACHE_HOME", "relative", 1);
	unsetenv("HOME");
	history_add(model, 2, &run);
	history_load(model, 2, &known);
	assert_int_equal(known.count, 0);
	setenv("XDG_CACHE_HOME", "/proc/self", 1);
	history_add(model, 2, &run);
	setenv("XDG_CACHE_HOME", folder, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_kept_and_bounded, renew_model),
		cmocka_unit_test_setup(test_medians, renew_model),
		cmocka_unit_test_setup(test_damaged, renew_model),
		cmocka_unit_test_setup(test_nowhere, renew_model),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
