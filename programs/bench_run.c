/* bench_run.c - one child of `weir bench`: what it is told, what is done before it, what is kept of it.  See bench.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "bench.h"
#include "os/pagecache.h"

#define MEASURE_SECONDS 0.5
#define NUMBER_BYTES 24

/* One command in the making. */
struct command {
	const char *words[CHILD_WORDS_MAX];
	int count;
	char numbers[8][NUMBER_BYTES];
	int numbers_count;
	char temp[NUMBER_BYTES];
	char variant[BENCH_NAME_BYTES]; /* cut into words */
};

static void add(struct command *command, const char *word)
{
	if (command->count < CHILD_WORDS_MAX - 1)
		command->words[command->count++] = word;
}

static void add_number(struct command *command, const char *option, uint64_t value)
{
	char *text = command->numbers[command->numbers_count++];

	snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
	add(command, option);
	add(command, text);
}

static void add_text(struct command *command, const char *option, const char *value)
{
	if (!value)
		return;
	add(command, option);
	add(command, value);
}

static void add_shape(struct command *command, const bench *b)
{
	if (b->ctx)
		add_number(command, "--ctx", b->ctx);
	if (b->batch)
		add_number(command, "--batch", b->batch);
	add_text(command, "--threads", b->threads);
}

static void add_variant(struct command *command, const char *options)
{
	char *rest;

	snprintf(command->variant, sizeof command->variant, "%s", options);
	for (char *word = strtok_r(command->variant, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
		add(command, word);
}

static void build_run(struct command *command, const bench *b, const bench_row *row)
{
	*command = (struct command){0};
	add(command, "run");
	add(command, b->files.path);
	add(command, "--json");
	add(command, "--logits-hash");
	add_text(command, "--token-times", CHILD_EXTRA_PATH);
	add(command, "--ignore-eos");
	snprintf(command->temp, sizeof command->temp, "%g", b->temp);
	add_text(command, "--temp", command->temp);
	add_number(command, "--seed", b->seed);
	add_number(command, "--tokens", row->tokens);
	add_text(command, "--prompt", b->prompt);
	add_text(command, "--file", b->prompt_file);
	add_text(command, "--prompt-tokens", b->prompt_tokens);
	if (b->raw)
		add(command, "--raw");
	add_shape(command, b);
	if (row->kind == BENCH_STREAMED) {
		add_number(command, "--memory", row->budget_bytes);
		add(command, "--no-counts"); /* else each run would begin with more knowledge than the one before */
	} else {
		add_text(command, "--plain", row->kind == BENCH_MMAP ? "mmap" : "read");
	}
	add_variant(command, row->options);
}

/* ---- the page cache ---- */

/* Clean pages go without any privilege. */
static void drop_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	fsync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	close(fd);
}

static void prepare_cache(const bench *b, bench_run *run)
{
	uint64_t bytes;

	run->cached_bytes = 0;
	if (b->drop_cache)
		drop_file(b->files.pack); /* if there is one */
	for (uint32_t i = 0; i < b->shards_count; i++) {
		if (b->drop_cache)
			drop_file(b->shards[i]);
		if (run->cached_bytes == OUTPUT_NONE || !weir_page_cache_file_bytes(b->shards[i], &bytes))
			run->cached_bytes = OUTPUT_NONE;
		else
			run->cached_bytes += bytes;
	}
}

/* ---- what comes back ---- */

/* Remembers how the model was read, so that the drive is measured in just that way from now on. */
static void note_reading(bench *b, const json_t *report)
{
	const json_t *io = json_object_get(report, "io");
	const char *method = json_string_value(json_object_get(io, "method"));

	if (!method || json_integer_value(json_object_get(report, "bytes_read")) <= 0)
		return;
	snprintf(b->io_method, sizeof b->io_method, "%s", method);
	b->reading.queue_depth = (uint32_t)json_integer_value(json_object_get(io, "queue_depth"));
	b->reading.piece_bytes = (uint64_t)json_integer_value(json_object_get(io, "read_bytes_typical"));
}

/* A run that ended well and gave what it should. */
static bool take_output(const child *ended, bench_run *run)
{
	const char *out = ended->streams[CHILD_OUT].text, *extra = ended->streams[CHILD_EXTRA].text;

	if (ended->exit_code != CLI_DONE || !out || !extra)
		return false;
	run->report = json_loads(out, 0, NULL);
	return json_is_object(run->report) && token_times_parse(&run->times, extra);
}

/* Wrong usage would be wrong in every run, so it ends the bench; any other failure is a result. */
static int take_child(bench *b, const child *ended, bench_run *run, weir_error *error)
{
	if (take_output(ended, run)) {
		note_reading(b, run->report);
		run->drive_after = bench_report_number(run->report, "io.device_bytes_per_second");
		return 0;
	}
	json_decref(run->report);
	run->report = NULL;
	run->timed_out = ended->timed_out;
	child_why(ended, run->why);
	if (ended->exit_code == CLI_USAGE)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "%s", run->why);
	if (ended->signal && run->group_hits_count != OUTPUT_NONE && run->group_hits_count) {
		size_t used = strlen(run->why);

		snprintf(run->why + used, sizeof run->why - used, "; it met its memory limit %" PRIu64 " times",
			 run->group_hits_count);
	}
	return 0;
}

static bench_run *next_run(bench_row *row)
{
	bench_run *run = &row->runs[row->runs_count++];

	*run = (bench_run){.drive_before = NAN,
			   .drive_after = NAN,
			   .cached_bytes = OUTPUT_NONE,
			   .group_peak_bytes = OUTPUT_NONE,
			   .group_hits_count = OUTPUT_NONE};
	return run;
}

int bench_run_once(bench *b, bench_row *row, weir_error *error)
{
	bench_run *run = next_run(row);
	struct command command;
	memory_group group;
	child ended;
	int result;

	build_run(&command, b, row);
	prepare_cache(b, run);
	run->drive_before = rates_measure_device(&b->reading, MEASURE_SECONDS);
	if (b->drop_cache) /* where there are no direct reads, measuring fills the page cache */
		prepare_cache(b, run);
	result = memory_group_open(&b->method, row->budget_bytes, &group, error);
	if (result < 0)
		return result;
	result = child_run(command.words, &group, b->timeout_seconds, &ended, error);
	memory_group_close(&group);
	run->enforced = group.enforced;
	run->group_peak_bytes = group.peak_bytes;
	run->group_hits_count = group.hits_count;
	if (!result)
		result = take_child(b, &ended, run, error);
	child_free(&ended);
	return result;
}

/* ---- plan ---- */

int bench_run_plan(bench *b, const char *memory, json_t **plan, weir_error *error)
{
	struct command command = {0};
	const memory_group_method none = {.kind = MEMORY_GROUP_NONE};
	memory_group group;
	child ended;
	char why[CHILD_WHY_BYTES];
	int result;

	*plan = NULL;
	add(&command, "plan");
	add(&command, b->files.path);
	add(&command, "--json");
	add(&command, "--no-measure");
	add_text(&command, "--memory", memory);
	add_shape(&command, b);
	memory_group_open(&none, 0, &group, NULL);
	result = child_run(command.words, &group, b->timeout_seconds, &ended, error);
	if (!result && ended.streams[CHILD_OUT].text)
		*plan = json_loads(ended.streams[CHILD_OUT].text, 0, NULL);
	if (!result && (ended.exit_code != CLI_DONE || !*plan)) {
		child_why(&ended, why);
		result = weir_fail(error,
				   ended.exit_code == CLI_USAGE	   ? WEIR_EINVAL
				   : ended.exit_code == CLI_BUDGET ? WEIR_EBUDGET
								   : WEIR_EENGINE,
				   NULL, WEIR_ERROR_NO_OFFSET, 0, "%s", why);
	}
	if (result < 0) {
		json_decref(*plan);
		*plan = NULL;
	}
	child_free(&ended);
	return result;
}
