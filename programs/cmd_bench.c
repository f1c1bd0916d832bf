/*
 * cmd_bench.c - `weir bench MODEL`: the same prompt by weir at several budgets and by llama.cpp resident and mapped, in turns.
 *
 *   options ─► model ─► rows (bench_rows.c) ─► for each repetition, for each row: one child (bench_run.c) ─► compare ─► print
 *
 * Each run is a child, `weir run --json`, so that its peak memory is its own and its limit can be enforced.  Ctrl-C ends the
 * child that runs and removes its memory group; what was measured until then is printed all the same, and the exit code is 130.
 * Main thread only.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "bench.h"
#include "commands.h"
#include "output.h"
#include "prompt.h"
#include "weir/checkpoint.h"

#define TOKENS_DEFAULT 64
#define PROMPT_DEFAULT "Explain in a few sentences how a river shapes the land that it flows through."
#define TOKENS_PROMPT_DEFAULT "3,5,7,11,13,17,19,23" /* for models without a vocabulary: ids that any of them has */

/* ---- the model ---- */

static bool has_vocabulary(const weir_checkpoint *checkpoint)
{
	const weir_metadata *kind = weir_checkpoint_metadata_find(checkpoint, "tokenizer.ggml.model");

	return kind && kind->kept && kind->values[0].text && strcmp(kind->values[0].text, "none") &&
	       strcmp(kind->values[0].text, "no_vocab");
}

static int take_shards(bench *b, const weir_checkpoint *checkpoint, weir_error *error)
{
	b->shards_count = weir_checkpoint_shards_count(checkpoint);
	b->shards = calloc(b->shards_count, sizeof *b->shards);
	for (uint32_t i = 0; b->shards && i < b->shards_count; i++) {
		b->model_bytes += weir_checkpoint_shard_bytes(checkpoint, i);
		b->shards[i] = strdup(weir_checkpoint_shard_path(checkpoint, i));
	}
	b->has_text = has_vocabulary(checkpoint);
	if (b->shards && b->shards[b->shards_count - 1])
		return 0;
	return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for a path");
}

static int open_model(bench *b, weir_error *error)
{
	weir_checkpoint *checkpoint;
	int result = model_check(b->model, &b->files, error);

	if (!result)
		result = weir_checkpoint_open(b->model, NULL, &checkpoint, error);
	if (result < 0)
		return result;
	result = take_shards(b, checkpoint, error);
	weir_checkpoint_close(checkpoint);
	return result;
}

static int check_prompt(bench *b, weir_error *error)
{
	const prompt_source source = {.text = b->prompt, .path = b->prompt_file, .tokens = b->prompt_tokens};

	if (!b->prompt && !b->prompt_file && !b->prompt_tokens) {
		b->prompt = b->has_text ? PROMPT_DEFAULT : NULL;
		b->prompt_tokens = b->has_text ? NULL : TOKENS_PROMPT_DEFAULT;
	}
	if (b->prompt_file && !strcmp(b->prompt_file, "-"))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "--file -: standard input can be read once only, and every run needs the prompt");
	return prompt_check(&source, error);
}

static int check_csv(const bench *b, weir_error *error)
{
	if (!b->csv_path)
		return 0;
	if (model_owns(&b->files, b->csv_path))
		return weir_fail(error, WEIR_EINVAL, b->csv_path, WEIR_ERROR_NO_OFFSET, 0,
				 "is the model itself and is not written over");
	return output_check_path(b->csv_path, error);
}

/* ---- runs ---- */

static uint32_t runs_wanted(const bench *b)
{
	uint32_t count = 0;

	for (int i = 0; i < b->rows_count; i++)
		count += b->rows[i].runs_wanted;
	return count;
}

static void tell_run(const bench *b, const bench_row *row)
{
	const bench_run *run = &row->runs[row->runs_count - 1];

	if (run->why[0])
		cli_note(&b->common, "%s, run %u: %s", row->name, row->runs_count, run->why);
	else if (b->common.verbosity)
		cli_note(&b->common, "%s, run %u: %.3f tokens/s", row->name, row->runs_count,
			 bench_report_number(run->report, "tokens_per_second"));
}

/* Rows take turns, so that a drive or a machine that changes its pace does not favour one of them. */
static int run_all(bench *b, weir_error *error)
{
	uint32_t done = 0, all = runs_wanted(b), most = b->repeats > b->mmap_runs ? b->repeats : b->mmap_runs;
	int result = 0;

	for (uint32_t turn = 0; turn < most && !result; turn++)
		for (int i = 0; i < b->rows_count && !result; i++) {
			bench_row *row = &b->rows[i];

			if (turn >= row->runs_wanted)
				continue;
			cli_progress(&b->common, row->name, (double)done / (double)all);
			result = bench_run_once(b, row, error);
			cli_progress_clear(&b->common);
			if (!result)
				tell_run(b, row);
			done++;
		}
	return result;
}

/* ---- results ---- */

static int print_results(const bench *b, int exit_code)
{
	int printed;

	if (b->common.json)
		return output_json_print(&b->common, bench_json(b, exit_code));
	bench_print_table(b);
	printed = cli_flush(&b->common);
	return printed;
}

static int give_results(bench *b, int exit_code)
{
	weir_error error;
	int printed;

	bench_compare(b);
	if (!exit_code && !bench_all_good(b))
		exit_code = CLI_FAILED;
	printed = print_results(b, exit_code);
	if (b->csv_path && bench_write_csv(b, &error) < 0)
		printed = cli_fail(&b->common, &error);
	return exit_code ? exit_code : printed;
}

static void free_bench(bench *b)
{
	for (int i = 0; i < b->rows_count; i++) {
		for (uint32_t j = 0; j < b->rows[i].runs_count; j++) {
			json_decref(b->rows[i].runs[j].report);
			token_times_free(&b->rows[i].runs[j].times);
		}
		free(b->rows[i].runs);
	}
	for (uint32_t i = 0; b->shards && i < b->shards_count; i++)
		free(b->shards[i]);
	free(b->shards);
	model_files_free(&b->files);
}

static void note_start(bench *b)
{
	time_t now = time(NULL);
	struct tm utc;

	machine_read(&b->machine);
	machine_drive_read(b->files.path, &b->drive);
	memory_group_find(&b->method);
	if (gmtime_r(&now, &utc))
		strftime(b->started_at, sizeof b->started_at, "%Y-%m-%dT%H:%M:%SZ", &utc);
	snprintf(b->io_method, sizeof b->io_method, "auto");
	b->reading = (rates_reading){.path = b->files.largest, .method = b->io_method, .room_bytes = UINT64_MAX};
}

static int run_bench(bench *b)
{
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	int result, exit_code;

	child_catch_interrupt();
	result = open_model(b, &error);
	if (!result)
		result = check_prompt(b, &error);
	if (!result)
		result = check_csv(b, &error);
	if (!result) {
		note_start(b);
		result = bench_make_rows(b, &error);
	}
	if (result < 0) {
		exit_code = cli_fail(&b->common, &error);
	} else {
		result = run_all(b, &error);
		exit_code = result < 0 ? cli_fail(&b->common, &error) : CLI_DONE;
		if (exit_code != CLI_USAGE)
			exit_code = give_results(b, exit_code);
	}
	free_bench(b);
	return exit_code;
}

/* ---- options ---- */

#define BENCH_DETAILS                                                                                                          \
	"Each run is a child process of its own that knows nothing of earlier ones (--no-counts); runs of all kinds\n"         \
	"take turns.  Without --memory the budgets are the least, a quarter and half of what the whole model takes, and\n"     \
	"all of it where it fits.  llama.cpp is run by itself, with every weight in memory where that fits, and on the\n"      \
	"mapped file in the same limit as weir.\n"                                                                             \
	"Limits are enforced by a memory cgroup (as root) or a systemd scope; the output says when they are not.\n"            \
	"The drive is measured before and after each run.  The logits of every token are compared: when they differ,\n"        \
	"the line says NOT EQUAL and the exit code is 1.  --variants adds lines for further options of weir run, such\n"       \
	"as \"--no-lookahead; --policy lru\"."

static int parse(bench *b, int argc, char **argv)
{
	const cli_option options[] = {
		{'M', "memory", CLI_TEXT, &b->memory, "LIST", "budgets: 2G,4G,60% (default: four, chosen)", NULL, 0, 0},
		{'p', "prompt", CLI_TEXT, &b->prompt, "TEXT", "the prompt (default: one of about 20 tokens)", NULL, 0, 0},
		{'f', "file", CLI_TEXT, &b->prompt_file, "FILE", "read the prompt from FILE", NULL, 0, 0},
		{0, "prompt-tokens", CLI_TEXT, &b->prompt_tokens, "IDS", "token ids, \"1,2,3\", instead of text", NULL, 0, 0},
		{'n', "tokens", CLI_COUNT, &b->tokens, "N", "generate N (default: 64)", NULL, 2, INT32_MAX},
		{'c', "ctx", CLI_COUNT, &b->ctx, "N", "context in tokens (default: 4096, or the model's)", NULL, 0, INT32_MAX},
		{'t', "threads", CLI_TEXT, &b->threads, "N", "compute threads, as for weir run", NULL, 0, 0},
		{'b', "batch", CLI_COUNT, &b->batch, "N", "prompt tokens worked on together (default: 512)", NULL, 0, 65536},
		{0, "raw", CLI_FLAG, &b->raw, NULL, "no chat template around the prompt", NULL, 0, 0},
		{0, "temp", CLI_REAL, &b->temp, "T", "0: always the likeliest token (the default)", NULL, 0, 100},
		{0, "seed", CLI_COUNT, &b->seed, "N", "of the random choice, the same in every run (default: 1)", NULL, 0,
		 UINT32_MAX},
		{'r', "repeat", CLI_COUNT, &b->repeats, "N", "runs of each kind (default: 3)", NULL, 1, 1000},
		{0, "variants", CLI_TEXT, &b->variants, "LIST", "further options for weir run, sets apart by ';'", NULL, 0, 0},
		{0, "no-resident", CLI_CLEAR, &b->resident, NULL, "leave out llama.cpp with everything in memory", NULL, 0, 0},
		{0, "no-mmap", CLI_CLEAR, &b->mmap, NULL, "leave out llama.cpp on the mapped file", NULL, 0, 0},
		{0, "mmap-tokens", CLI_COUNT, &b->mmap_tokens, "N", "tokens of the mapped runs, which are slow (default: 4)",
		 NULL, 2, INT32_MAX},
		{0, "mmap-runs", CLI_COUNT, &b->mmap_runs, "N", "mapped runs at each budget (default: 1)", NULL, 1, 1000},
		{0, "timeout", CLI_REAL, &b->timeout_seconds, "S", "end a run after S seconds (default: 1800; 0: never)", NULL,
		 0, 1e9},
		{0, "keep-cache", CLI_CLEAR, &b->drop_cache, NULL, "leave the model's pages in the page cache", NULL, 0, 0},
		{0, "csv", CLI_TEXT, &b->csv_path, "FILE", "write one line a run to FILE", NULL, 0, 0},
	};
	const cli_command command = {
		.name = "bench",
		.operands = "MODEL",
		.summary = "runs a prompt streamed, fully resident and with plain mmap, and compares",
		.details = BENCH_DETAILS,
		.example = "  weir bench model.gguf -M 2G,4G,8G -r 5\n"
			   "  weir bench model.gguf -M 4G --no-mmap --variants \"--no-lookahead\" --csv figures.csv",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int count, result = cli_parse(&command, &b->common, argc, argv, &operands, &count);

	if (result == CLI_CONTINUE)
		b->model = operands[0];
	return result;
}

int cmd_bench(int argc, char **argv)
{
	bench b = {.tokens = TOKENS_DEFAULT,
		   .seed = 1,
		   .repeats = 3,
		   .mmap_tokens = 4,
		   .mmap_runs = 1,
		   .timeout_seconds = 1800,
		   .resident = true,
		   .mmap = true,
		   .drop_cache = true};
	int result = parse(&b, argc, argv);

	return result == CLI_CONTINUE ? run_bench(&b) : result;
}
