/*
 * test_report.c - the report of a run and how the program writes it: every field, its order, null where it does not apply, the
 * arithmetic, text that is safe to show, files that are whole or not there.
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../../programs/cli.c"
#include "../../programs/output.c"
#include "../../programs/prompt.c"
#include "../../programs/report.c"
#include "../../programs/textsink.c"

static const char *const fields[] = {
	"weir_version",
	"model",
	"architecture",
	"budget_bytes",
	"peak_memory_bytes",
	"memory",
	"slots",
	"prompt_tokens",
	"prompt_seconds",
	"prompt_tokens_per_second",
	"tokens",
	"seconds",
	"tokens_per_second",
	"first_token_seconds",
	"load_seconds",
	"bytes_read",
	"bytes_per_token",
	"demanded",
	"hits",
	"joined",
	"misses",
	"hit_rate",
	"prefetched",
	"prefetch_used",
	"evictions",
	"stall_seconds",
	"lookahead",
	"threads",
	"io",
	"bound",
	"forecast",
	"policy",
	"counts_loaded",
	"pack",
	"logits_hash",
	"text",
	"exit",
};

static const struct {
	const char *name;
	const char *members[8];
} nested[] = {
	{"memory", {"dense", "experts", "kv", "compute", "other"}},
	{"slots", {"count", "bytes"}},
	{"lookahead", {"guessing", "with_seconds", "without_seconds"}},
	{"threads", {"most", "last", "mean"}},
	{"io", {"method", "queue_depth", "read_bytes_typical", "device_bytes_per_second", "page_cache_bytes"}},
	{"bound", {"compute_seconds", "io_seconds", "tokens_per_second", "ratio"}},
	{"forecast", {"tokens_per_second", "error"}},
};

/* Ten tokens, nine after the first: two seconds of which one was waiting; 90 bytes a token. */
static weir_report sample(void)
{
	weir_report report;

	weir_report_clear(&report);
	report.model = "m.gguf";
	report.tokens = 10;
	report.seconds = 1.8;
	report.stall_seconds = 0.9;
	report.prompt_tokens = 30;
	report.prompt_seconds = 1.5;
	report.bytes_read = 810;
	report.demanded = 200;
	report.hits = 150;
	report.joined = 20;
	report.misses = 30;
	report.io.device_bytes_per_second = 600;
	report.forecast.tokens_per_second = 6;
	return report;
}

static void near(double a, double b)
{
	if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b))))
		fail_msg("%.12g is not %.12g", a, b);
}

/* ---- fields ---- */

static void expect_members(const json_t *object, const char *const *names, size_t count)
{
	json_t *copy = json_deep_copy(object);
	void *at = json_object_iter(copy);

	assert_int_equal(json_object_size(object), count);
	for (size_t i = 0; i < count; i++, at = json_object_iter_next(copy, at))
		assert_string_equal(json_object_iter_key(at), names[i]);
	json_decref(copy);
}

static void every_field_is_there_in_order(const weir_report *report)
{
	json_t *object = weir_report_json(report);

	expect_members(object, fields, sizeof fields / sizeof *fields);
	for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
		size_t count = 0;

		while (nested[i].members[count])
			count++;
		expect_members(json_object_get(object, nested[i].name), nested[i].members, count);
	}
	json_decref(object);
}

static void fields_are_always_present(void **state)
{
	weir_report report = sample(), empty;

	(void)state;
	weir_report_clear(&empty);
	every_field_is_there_in_order(&empty);
	weir_report_derive(&report);
	every_field_is_there_in_order(&report);
}

static void what_does_not_apply_is_null(void **state)
{
	weir_report report;
	json_t *object;

	(void)state;
	weir_report_clear(&report);
	weir_report_derive(&report);
	object = weir_report_json(&report);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		json_t *value = json_object_get(object, fields[i]);

		if (json_is_object(value) || !strcmp(fields[i], "weir_version") || !strcmp(fields[i], "exit"))
			continue;
		assert_true(json_is_null(value));
	}
	assert_true(json_is_null(json_object_get(json_object_get(object, "memory"), "kv")));
	assert_true(json_is_null(json_object_get(json_object_get(object, "bound"), "ratio")));
	assert_int_equal(json_integer_value(json_object_get(object, "exit")), 0);
	json_decref(object);
}

/* ---- arithmetic ---- */

static void rates_follow_from_counts(void **state)
{
	weir_report report = sample();

	(void)state;
	weir_report_derive(&report);
	near(report.tokens_per_second, 5);
	near(report.prompt_tokens_per_second, 20);
	near(report.bytes_per_token, 90);
	near(report.hit_rate, 0.75);
	near(report.bound.compute_seconds, 0.1);
	near(report.bound.io_seconds, 0.15);
	near(report.bound.tokens_per_second, 1 / 0.15);
	near(report.bound.ratio, 0.75);
	near(report.forecast.error, 0.2);
}

static void compute_can_be_the_bound(void **state)
{
	weir_report report = sample();

	(void)state;
	report.io.device_bytes_per_second = 9000;
	weir_report_derive(&report);
	near(report.bound.tokens_per_second, 10);
	near(report.bound.ratio, 0.5);
}

static void the_page_cache_is_not_the_drive(void **state)
{
	weir_report report = sample();

	(void)state;
	report.io.page_cache_bytes = 540;
	weir_report_derive(&report);
	near(report.bytes_per_token, 90);
	near(report.bound.io_seconds, 0.05);
	near(report.bound.tokens_per_second, 10);
	near(report.bound.ratio, 0.5);
	report.io.page_cache_bytes = 810;
	weir_report_derive(&report);
	near(report.bound.io_seconds, 0);
	near(report.bound.tokens_per_second, 10);
}

static void without_reading_the_drive_does_not_matter(void **state)
{
	weir_report report = sample();

	(void)state;
	report.bytes_read = 0;
	report.stall_seconds = 0;
	report.demanded = report.hits = 0;
	report.io.device_bytes_per_second = NAN;
	weir_report_derive(&report);
	assert_true(isnan(report.hit_rate));
	near(report.bound.io_seconds, 0);
	near(report.bound.tokens_per_second, 5);
	near(report.bound.ratio, 1);
}

static void one_token_has_no_rate(void **state)
{
	weir_report report = sample();

	(void)state;
	report.tokens = 1;
	report.seconds = 0;
	weir_report_derive(&report);
	assert_true(isnan(report.tokens_per_second) && isnan(report.bytes_per_token) && isnan(report.bound.tokens_per_second));
	assert_true(isnan(report.bound.ratio) && isnan(report.forecast.error));
	report.tokens = 0;
	weir_report_derive(&report);
	assert_true(isnan(report.tokens_per_second));
}

static void an_unknown_drive_gives_no_bound(void **state)
{
	weir_report report = sample();

	(void)state;
	report.io.device_bytes_per_second = NAN;
	weir_report_derive(&report);
	near(report.bound.compute_seconds, 0.1);
	assert_true(isnan(report.bound.io_seconds) && isnan(report.bound.tokens_per_second) && isnan(report.bound.ratio));
}

/* ---- JSON text ---- */

static char *text_of(const char *bytes, size_t length)
{
	weir_report report = sample();
	json_t *object;
	char *text;

	report.text = bytes;
	report.text_bytes = length;
	object = weir_report_json(&report);
	text = output_json_text(object);
	json_decref(object);
	assert_non_null(text);
	return text;
}

static void controls_are_escaped_in_json(void **state)
{
	const char hostile[] = "a\x1b[31m\x7f\xc2\x80\xc2\x9b\r\n\tz";
	char *text = text_of(hostile, sizeof hostile - 1);
	json_t *back = json_loads(text, 0, NULL);

	(void)state;
	assert_non_null(strstr(text, "a\\u001B[31m\\u007f\\u0080\\u009b\\r\\n\\tz"));
	for (const char *at = text; *at; at++) {
		assert_true((unsigned char)*at >= 0x20 || *at == '\n');
		assert_true((unsigned char)*at != 0x7f);
	}
	assert_string_equal(json_string_value(json_object_get(back, "text")), hostile);
	json_decref(back);
	free(text);
}

static void text_of_any_bytes_is_valid_json(void **state)
{
	const char broken[] = "x\xff\xc3(\xe2\x82 \xf0\x9f\x98\x80\0y";
	char *text = text_of(broken, sizeof broken - 1);
	json_t *back = json_loads(text, JSON_ALLOW_NUL, NULL);

	(void)state;
	assert_non_null(back);
	assert_memory_equal(json_string_value(json_object_get(back, "text")),
			    "x\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x98\x80\0y", 20);
	json_decref(back);
	free(text);
}

static void large_counts_do_not_turn_negative(void **state)
{
	json_t *most = output_json_count(INT64_MAX), *beyond = output_json_count((uint64_t)INT64_MAX + 1);

	(void)state;
	assert_true(json_integer_value(most) == INT64_MAX);
	assert_true(json_is_null(beyond));
	json_decref(most);
	json_decref(beyond);
}

/* ---- text as it comes ---- */

static size_t read_back(FILE *stream, char *out, size_t capacity)
{
	size_t length;

	rewind(stream);
	length = fread(out, 1, capacity - 1, stream);
	out[length] = '\0';
	return length;
}

static size_t written(FILE *stream)
{
	long at = ftell(stream);

	return at < 0 ? 0 : (size_t)at;
}

static void characters_are_never_cut(void **state)
{
	const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
	static const size_t after[] = {1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11}; /* bytes out after each byte in */
	FILE *stream = tmpfile();
	textsink sink;
	char back[64];

	(void)state;
	assert_non_null(stream);
	textsink_open(&sink, stream, false);
	for (size_t i = 0; i < sizeof text - 1; i++) {
		assert_true(textsink_add(&sink, text + i, 1));
		assert_int_equal(written(stream), after[i]);
	}
	assert_true(textsink_finish(&sink));
	assert_int_equal(read_back(stream, back, sizeof back), sizeof text);
	assert_string_equal(back, "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z\n");
	assert_string_equal(sink.text, text);
	textsink_close(&sink);
	fclose(stream);
}

static void every_byte_reaches_a_pipe(void **state)
{
	const char text[] = "\x1b[2J\xff\xc3\xe2\x82\n";
	FILE *stream = tmpfile();
	textsink sink;
	char back[64];

	(void)state;
	textsink_open(&sink, stream, false);
	for (size_t i = 0; i < sizeof text - 1; i++)
		assert_true(textsink_add(&sink, text + i, 1));
	assert_true(textsink_finish(&sink));
	assert_int_equal(read_back(stream, back, sizeof back), sizeof text - 1);
	assert_string_equal(back, text);
	textsink_close(&sink);
	fclose(stream);
}

static void a_terminal_sees_no_raw_control(void **state)
{
	FILE *stream = tmpfile();
	textsink sink;
	char back[128];

	(void)state;
	textsink_open(&sink, stream, true);
	assert_true(textsink_add(&sink, "a\x1b]0;x\x07\tb\r\n\xc2", 12));
	assert_true(textsink_add(&sink, "\x9b\x7f\xc3\xa9\xff", 5));
	assert_true(textsink_add(&sink, "\xe2\x82", 2));
	assert_true(textsink_finish(&sink));
	read_back(stream, back, sizeof back);
	assert_string_equal(back, "a\\x1b]0;x\\x07\tb\\r\n\\u009b\\x7f\xc3\xa9\\xff\\xe2\\x82\n");
	textsink_close(&sink);
	fclose(stream);
}

static void long_text_is_whole(void **state)
{
	FILE *stream = tmpfile();
	char *back = malloc(200001), *text = malloc(100000);
	textsink sink;

	(void)state;
	assert_true(back && text);
	for (size_t i = 0; i < 100000; i += 2)
		memcpy(text + i, "\xc3\xa9", 2);
	textsink_open(&sink, stream, true);
	assert_true(textsink_add(&sink, text, 99999));
	assert_true(textsink_add(&sink, text + 99999, 1));
	assert_true(textsink_finish(&sink));
	assert_int_equal(read_back(stream, back, 200001), 100001);
	assert_memory_equal(back, text, 100000);
	textsink_close(&sink);
	fclose(stream);
	free(back);
	free(text);
}

static void a_full_drive_is_noticed(void **state)
{
	FILE *stream = fopen("/dev/full", "w");
	textsink sink;

	(void)state;
	if (!stream)
		skip();
	textsink_open(&sink, stream, false);
	assert_false(textsink_add(&sink, "hello", 5));
	assert_false(textsink_add(&sink, "more", 4));
	assert_false(textsink_finish(&sink));
	textsink_close(&sink);
	fclose(stream);
}

/* ---- files ---- */

static char folder[64];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/weir-report-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof command, "rm -r '%s'", folder);
	return system(command);
}

static void in_folder(char path[128], const char *name)
{
	snprintf(path, 128, "%s/%s", folder, name);
}

static void expect_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "r");
	char back[64];

	assert_non_null(file);
	read_back(file, back, sizeof back);
	fclose(file);
	assert_string_equal(back, text);
}

static size_t files_in_folder(void)
{
	char command[128], line[256];
	size_t count = 0;
	FILE *pipe;

	snprintf(command, sizeof command, "ls -A '%s'", folder);
	pipe = popen(command, "r");
	while (fgets(line, sizeof line, pipe))
		count++;
	pclose(pipe);
	return count;
}

static void files_are_replaced_whole(void **state)
{
	char path[128];
	struct stat before, after;

	(void)state;
	in_folder(path, "out");
	assert_int_equal(output_write_file(path, "one", 3, NULL), 0);
	expect_file(path, "one");
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(output_write_file(path, "second", 6, NULL), 0);
	expect_file(path, "second");
	assert_int_equal(stat(path, &after), 0);
	assert_true(before.st_ino != after.st_ino);
	assert_int_equal(files_in_folder(), 1);
}

static void a_link_is_kept(void **state)
{
	char path[128], link[128];
	struct stat status;

	(void)state;
	in_folder(path, "out");
	in_folder(link, "link");
	assert_int_equal(output_write_file(path, "one", 3, NULL), 0);
	assert_int_equal(symlink("out", link), 0);
	assert_int_equal(output_write_file(link, "two", 3, NULL), 0);
	assert_int_equal(lstat(link, &status), 0);
	assert_true(S_ISLNK(status.st_mode));
	expect_file(path, "two");
}

static void failure_leaves_nothing(void **state)
{
	char path[128];
	weir_error error;

	(void)state;
	in_folder(path, "none/out");
	assert_true(output_check_path(path, &error) < 0);
	assert_true(output_write_file(path, "x", 1, &error) < 0);
	assert_string_equal(error.file, path);
	assert_true(output_check_path(folder, &error) < 0);
	assert_true(output_write_file(folder, "x", 1, &error) < 0);
	assert_true(output_check_path("", &error) < 0);
	assert_true(output_write_file("/dev/full", "x", 1, &error) < 0);
	assert_int_equal(error.code, WEIR_ENOSPACE);
	in_folder(path, "fine");
	assert_int_equal(output_check_path(path, &error), 0);
	assert_int_equal(output_check_path("beside", &error), 0);
	assert_int_equal(files_in_folder(), 0);
}

/* The file beside is there already when writing to it fails. */
static void failure_in_the_middle_leaves_the_old_file(void **state)
{
	const struct rlimit short_files = {4, RLIM_INFINITY}, any = {RLIM_INFINITY, RLIM_INFINITY};
	char path[128];
	weir_error error;
	int result;

	(void)state;
	in_folder(path, "out");
	assert_int_equal(output_write_file(path, "old", 3, NULL), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &short_files), 0);
	result = output_write_file(path, "much too long", 13, &error);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &any), 0);
	assert_int_equal(result, WEIR_EIO);
	assert_string_equal(error.file, path);
	expect_file(path, "old");
	assert_int_equal(files_in_folder(), 1);
}

static void devices_are_written_directly(void **state)
{
	(void)state;
	assert_int_equal(output_check_path("/dev/null", NULL), 0);
	assert_int_equal(output_write_file("/dev/null", "x", 1, NULL), 0);
}

/* ---- prompts ---- */

static void token_ids_are_read(void **state)
{
	static const struct {
		const char *text;
		uint32_t count; /* 0: refused */
	} rows[] = {
		{"1", 1},	   {"1,2,3", 3},
		{" 1 , 2", 2},	   {"0,2147483647", 2},
		{"", 0},	   {",", 0},
		{"1,", 0},	   {"1,,2", 0},
		{"1, ", 0},	   {"-1", 0},
		{"2147483648", 0}, {"1 2", 0},
		{"1,2x", 0},	   {"99999999999999999999", 0},
	};
	weir_error error;
	int32_t *tokens;
	uint32_t count;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		int result = prompt_parse_tokens(rows[i].text, &tokens, &count, &error);

		if (result != (rows[i].count ? 0 : WEIR_EINVAL))
			fail_msg("'%s' gave %d", rows[i].text, result);
		if (result < 0)
			continue;
		assert_int_equal(count, rows[i].count);
		free(tokens);
	}
	assert_int_equal(prompt_parse_tokens("7,8,9", &tokens, &count, &error), 0);
	assert_int_equal(tokens[0], 7);
	assert_int_equal(tokens[2], 9);
	free(tokens);
}

static int read_prompt_of(const char *bytes, size_t length, char **text, weir_error *error)
{
	const cli_common common = {.quiet = true};
	char path[128];
	prompt_source source = {.path = path};

	in_folder(path, "prompt");
	assert_int_equal(output_write_file(path, bytes, length, NULL), 0);
	return prompt_read(&common, &source, text, error);
}

static void prompt_files_are_read_whole(void **state)
{
	const cli_common common = {.quiet = true};
	const prompt_source nowhere = {.path = "/none/such"}, nothing = {.text = ""}, both = {.text = "a", .path = "b"};
	char *text, *long_text = calloc(1, 50001);
	weir_error error;

	(void)state;
	assert_non_null(long_text);
	memset(long_text, 'p', 50000);
	assert_int_equal(read_prompt_of(long_text, 50000, &text, &error), 0);
	assert_string_equal(text, long_text);
	free(text);
	free(long_text);
	assert_int_equal(read_prompt_of("", 0, &text, &error), WEIR_EINVAL);
	assert_int_equal(read_prompt_of("a\0b", 3, &text, &error), WEIR_EINVAL);
	assert_int_equal(error.offset, 1);
	assert_int_equal(prompt_read(&common, &nowhere, &text, &error), WEIR_ENOTFOUND);
	assert_string_equal(error.file, "/none/such");
	assert_int_equal(prompt_read(&common, &nothing, &text, &error), WEIR_EINVAL);
	assert_int_equal(prompt_check(&both, &error), WEIR_EINVAL);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_always_present),
		cmocka_unit_test(what_does_not_apply_is_null),
		cmocka_unit_test(rates_follow_from_counts),
		cmocka_unit_test(compute_can_be_the_bound),
		cmocka_unit_test(the_page_cache_is_not_the_drive),
		cmocka_unit_test(without_reading_the_drive_does_not_matter),
		cmocka_unit_test(one_token_has_no_rate),
		cmocka_unit_test(an_unknown_drive_gives_no_bound),
		cmocka_unit_test(controls_are_escaped_in_json),
		cmocka_unit_test(text_of_any_bytes_is_valid_json),
		cmocka_unit_test(large_counts_do_not_turn_negative),
		cmocka_unit_test(characters_are_never_cut),
		cmocka_unit_test(every_byte_reaches_a_pipe),
		cmocka_unit_test(a_terminal_sees_no_raw_control),
		cmocka_unit_test(long_text_is_whole),
		cmocka_unit_test(a_full_drive_is_noticed),
		IN_FOLDER(files_are_replaced_whole),
		IN_FOLDER(a_link_is_kept),
		IN_FOLDER(failure_leaves_nothing),
		IN_FOLDER(failure_in_the_middle_leaves_the_old_file),
		IN_FOLDER(devices_are_written_directly),
		cmocka_unit_test(token_ids_are_read),
		IN_FOLDER(prompt_files_are_read_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
