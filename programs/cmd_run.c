/*
 * cmd_run.c - `weir run MODEL`: generates text within a budget, streams it, reports what it cost.
 *
 *   options ─► model_check ─► prompt ─► engine open ─► forecast ─► start ─► generate ─► close ─► measure the drive ─► report
 *
 * Ctrl-C ends the run at the next step: what was generated is flushed, the report is written, the exit code is 130; a second
 * Ctrl-C ends the process at once with the same code.  Main thread only.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "cli.h"
#include "commands.h"
#include "crash.h"
#include "engine/engine.h"
#include "history.h"
#include "interrupt.h"
#include "model.h"
#include "os/process.h"
#include "output.h"
#include "prompt.h"
#include "rates.h"
#include "report.h"
#include "textsink.h"
#include "token_times.h"

#define MEASURE_SECONDS 0.6
#define ANY_SEED 0xFFFFFFFF /* libllama takes a seed of its own */

struct run {
	cli_common common;
	prompt_source source;
	weir_size memory;
	weir_engine_options options;
	weir_engine_generate generate;
	double temp, top_p;
	int64_t top_k, seed;
	uint32_t tokens_max; /* 0: until the model ends or the context is full */
	bool raw, use_pack;
	const char *model, *report_path, *token_times_path;

	model_files files;
	weir_engine *engine;
	int32_t *prompt;
	uint32_t prompt_count;
	textsink sink;
	token_times times;
	weir_engine_result result;
	bool ran; /* result is filled */
	weir_plan_facts facts; /* of the forecast */
	weir_plan plan;
	weir_error refusal; /* code 0 while the plan fits */
	weir_report report;
	char hash_text[24];
	char *pack; /* in use, or NULL */
};

/* ---- interruption ---- */

static weir_engine *volatile interruptible;
static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
	(void)number;
	if (interrupted) {
		weir_engine_abandon_outputs();
		_exit(CLI_INTERRUPTED);
	}
	interrupted = 1;
	if (interruptible)
		weir_engine_interrupt(interruptible);
}

static int check_interrupt(weir_error *error)
{
	if (interrupted)
		return weir_fail(error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted");
	return 0;
}

/* ---- callbacks of the engine ---- */

static bool on_load(void *user, double fraction)
{
	cli_progress(&((struct run *)user)->common, "loading", fraction);
	return !interrupted;
}

static void on_prompt(void *user, uint32_t done, uint32_t total)
{
	struct run *run = user;

	if (done < total)
		cli_progress(&run->common, "prompt", (double)done / (double)total);
	else
		cli_progress_clear(&run->common);
}

static int on_text(void *user, const char *piece, uint32_t bytes)
{
	return !textsink_add(&((struct run *)user)->sink, piece, bytes);
}

static void on_token(void *user, double seconds, uint64_t logits_hash)
{
	token_times_add(&((struct run *)user)->times, seconds, logits_hash);
}

/* ---- steps: each returns 0 or a WEIR_E code with the error filled ---- */

static int check_output(const struct run *run, const char *path, weir_error *error)
{
	if (!path)
		return 0;
	if (model_owns(&run->files, path))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0,
				 "is the model itself and is not written over");
	return output_check_path(path, error);
}

/* A report that cannot be written is not tried again at the end. */
static int check_report_path(struct run *run, weir_error *error)
{
	int result = check_output(run, run->report_path, error);

	if (result < 0)
		run->report_path = NULL;
	return result;
}

static int check_run(struct run *run, weir_error *error)
{
	int result = prompt_check(&run->source, error);

	if (!result && run->source.tokens)
		result = prompt_parse_tokens(run->source.tokens, &run->prompt, &run->prompt_count, error);
	if (!result)
		result = model_check_options(&run->options, error);
	if (!result)
		result = model_check(run->model, &run->files, error);
	if (!result && run->options.plain && run->files.holes.code) {
		*error = run->files.holes;
		result = error->code;
	}
	if (!result)
		result = check_report_path(run, error);
	if (!result)
		result = check_output(run, run->options.trace_path, error);
	if (!result)
		result = check_output(run, run->token_times_path, error);
	return result;
}

/* Says what speed the plan expects.  When nothing fits, the line to print if the start finds the same is that of a plan that
 * any start can keep. */
static int forecast(struct run *run, weir_error *error)
{
	model_request request = {.options = &run->options,
				 .files = &run->files,
				 .prompt_tokens = run->prompt_count,
				 .measure = true,
				 .brief = true};
	model_rates rates;
	int result = model_plan(run->engine, &request, &run->plan, &run->facts, &rates, error);

	if (!result && run->plan.tokens_per_second > 0)
		run->report.forecast.tokens_per_second = run->plan.tokens_per_second;
	if (result != WEIR_EBUDGET)
		return result;
	request.promise = true;
	model_plan(run->engine, &request, &run->plan, &run->facts, &rates, &run->refusal);
	return 0;
}

static int give_up(void *user, const weir_error *error);

static int open_engine(struct run *run, weir_error *error)
{
	const crash_watch watch = {.common = &run->common, .file = run->files.path, .give_up = give_up, .user = run};
	weir_limits limits;
	int result;

	run->options.model = run->files.path;
	run->options.pack_path = run->use_pack ? run->files.pack : "";
	if (!run->options.plain)
		run->report.budget_bytes = run->options.budget_bytes = model_budget(&run->common, &run->memory, &limits);
	run->options.verbosity = run->common.verbosity;
	run->options.io_fault = getenv("WEIR_FAULT");
	run->options.progress = on_load;
	run->options.user = run;
	crash_open(&watch);
	result = weir_engine_open(&run->options, &run->engine, error);
	if (result < 0)
		return result;
	crash_loaded();
	interruptible = run->engine;
	model_warn_of_ctx(&run->common, run->engine, &run->options);
	run->report.architecture = weir_engine_architecture(run->engine);
	return run->options.plain ? 0 : forecast(run, error);
}

static int tokenize(struct run *run, const char *text, weir_error *error)
{
	int result = 0;
	uint32_t ctx = weir_engine_ctx(run->engine);

	if (text)
		result = weir_engine_tokenize(run->engine, text, run->raw, &run->prompt, &run->prompt_count, error);
	if (result < 0)
		return result;
	if (run->prompt_count >= ctx)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the prompt is too long: it has %u tokens and the context holds %u (raise --ctx)",
				 run->prompt_count, ctx);
	run->generate.tokens_max = run->tokens_max ? run->tokens_max : ctx - run->prompt_count;
	run->generate.prompt = run->prompt;
	run->generate.prompt_count = run->prompt_count;
	return 0;
}

/* Which pack is used, or why one that is there is not. */
static void say_pack(struct run *run)
{
	weir_error notice;
	const char *path = weir_engine_pack(run->engine, &notice);

	if (path)
		run->report.pack = run->pack = strdup(path);
	if (path && !run->common.json)
		cli_note(&run->common, "reading from the pack %s", path);
	else if (notice.code && !run->common.json)
		cli_note(&run->common, "not using the pack %s: %s", run->files.pack, notice.message);
}

static int generate(struct run *run, weir_error *error)
{
	int result = check_interrupt(error);

	if (!result)
		result = weir_engine_start(run->engine, error);
	cli_progress_clear(&run->common);
	if (!result)
		say_pack(run);
	if (result == WEIR_EBUDGET && run->refusal.code)
		*error = run->refusal;
	if (!result)
		result = check_interrupt(error);
	if (result < 0)
		return result;
	cli_progress_clear(&run->common);
	run->ran = true;
	result = weir_engine_run(run->engine, &run->generate, &run->result, error);
	if (!textsink_finish(&run->sink) && !result)
		result = weir_fail(error, WEIR_EIO, "standard output", WEIR_ERROR_NO_OFFSET, errno, "write failed");
	return result;
}

static int run_model(struct run *run, weir_error *error)
{
	char *text = NULL;
	int result = check_run(run, error);

	if (!result && !run->source.tokens)
		result = prompt_read(&run->common, &run->source, &text, error);
	if (interrupted) /* an empty prompt is no mistake then */
		result = check_interrupt(error);
	if (!result)
		result = open_engine(run, error);
	if (!result)
		result = tokenize(run, text, error);
	free(text);
	if (!result)
		result = generate(run, error);
	return result;
}

/* ---- report ---- */

static double positive(double seconds)
{
	return seconds > 0 ? seconds : NAN;
}

static void fill_memory(weir_report *report, const weir_engine_result *result)
{
	report->memory.dense = result->memory_dense;
	report->memory.experts = result->memory_experts;
	report->memory.kv = result->memory_kv;
	report->memory.compute = result->memory_compute;
	report->memory.other = result->memory_other;
	report->slots.count = result->slots_count;
	report->slots.bytes = result->slots_bytes;
}

static void fill_chunks(weir_report *report, const weir_engine_result *result)
{
	report->bytes_read = result->bytes_read;
	report->demanded = result->demanded;
	report->hits = result->hits;
	report->joined = result->joined;
	report->misses = result->misses;
	report->prefetched = result->prefetched;
	report->prefetch_used = result->prefetch_used;
	report->evictions = result->evictions;
	report->stall_seconds = result->stall_seconds;
	if (!result->demanded)
		return;
	report->lookahead.guessing = result->lookahead;
	report->lookahead.with_seconds = positive(result->lookahead_with_seconds);
	report->lookahead.without_seconds = positive(result->lookahead_without_seconds);
}

static void fill_result(struct run *run)
{
	const weir_engine_result *result = &run->result;
	weir_report *report = &run->report;

	if (!run->options.plain) {
		fill_memory(report, result);
		fill_chunks(report, result);
		report->io.queue_depth = result->queue_depth;
		report->io.page_cache_bytes = result->page_cache_bytes;
		report->io.read_bytes_typical = result->read_bytes_typical;
	}
	report->threads.most = result->threads;
	report->threads.last = result->threads_last;
	report->threads.mean = result->threads_mean;
	report->prompt_tokens = result->prompt_tokens;
	report->prompt_seconds = positive(result->prompt_seconds);
	report->tokens = result->tokens;
	report->seconds = result->seconds;
	report->first_token_seconds = positive(result->first_token_seconds);
	report->load_seconds = positive(result->load_seconds);
	report->io.method = result->io_method[0] ? result->io_method : NULL;
	report->policy = result->policy[0] ? result->policy : NULL;
	if (report->policy)
		report->counts_loaded = result->counts_loaded;
	if (result->has_logits_hash && !report->exit) { /* of a run that was cut short it would compare with nothing */
		snprintf(run->hash_text, sizeof run->hash_text, "%016llx", (unsigned long long)result->logits_hash);
		report->logits_hash = run->hash_text;
	}
}

/* Right after the run, apart from it, with its method, depth and request size; when something was read and nobody waits. */
static void measure_drive(struct run *run)
{
	const weir_engine_result *result = &run->result;
	const rates_reading reading = {.path = run->files.largest,
				       .method = result->io_method,
				       .queue_depth = result->queue_depth,
				       .piece_bytes = result->read_bytes_typical,
				       .room_bytes = model_room(run->options.budget_bytes)};

	if (run->ran && !run->report.exit && result->bytes_read)
		run->report.io.device_bytes_per_second = rates_measure_device(&reading, MEASURE_SECONDS);
}

static int write_report(const struct run *run, json_t *object)
{
	char *text = object ? output_json_text(object) : NULL;
	weir_error error;
	int result;

	if (text)
		result = output_write_file(run->report_path, text, strlen(text), &error);
	else
		result = weir_fail(&error, WEIR_ENOMEM, run->report_path, WEIR_ERROR_NO_OFFSET, 0, "no memory for the report");
	free(text);
	return result < 0 ? cli_fail(&run->common, &error) : CLI_DONE;
}

static int write_token_times(const struct run *run)
{
	weir_error error;

	if (token_times_write(&run->times, run->token_times_path, &error) < 0)
		return cli_fail(&run->common, &error);
	return CLI_DONE;
}

/* Writes the report where it is wanted; the exit code of the whole run. */
static int give_report(struct run *run)
{
	json_t *object = run->common.json || run->report_path ? weir_report_json(&run->report) : NULL;
	int written = CLI_DONE, printed = CLI_DONE;

	if (run->report_path)
		written = write_report(run, object);
	if (run->token_times_path && run->ran && written == CLI_DONE)
		written = write_token_times(run);
	if (run->common.json)
		printed = output_json_print(&run->common, json_incref(object));
	json_decref(object);
	if (!run->common.json && run->ran && (!run->report.exit || run->report.exit == CLI_INTERRUPTED))
		weir_report_summary(&run->common, &run->report);
	if (run->report.exit)
		return run->report.exit;
	return written ? written : printed;
}

static void fill_report(struct run *run)
{
	weir_process_memory memory;
	weir_report *report = &run->report;

	if (run->ran)
		fill_result(run);
	measure_drive(run);
	weir_report_derive(report);
	if (run->ran && !run->options.plain && !report->exit)
		model_remember(&run->files, &run->options, &run->facts, &run->plan, &run->result,
			       report->io.device_bytes_per_second);
	report->text = run->sink.text ? run->sink.text : run->ran ? "" : NULL;
	report->text_bytes = run->sink.text_bytes;
	if (weir_process_memory_read(&memory, NULL) == 0)
		report->peak_memory_bytes = memory.rss_peak_bytes;
}

/* Prints the error's line, if there is one, and gives the exit code. */
static int say_error(const struct run *run, int result, weir_error *error)
{
	if (result >= 0)
		return CLI_DONE;
	if (result == WEIR_EBUDGET && !error->file[0])
		snprintf(error->file, sizeof error->file, "%s", run->model);
	return cli_fail(&run->common, error);
}

/* The engine is in an unknown state, on whichever thread: its figures are left out, what else is known is reported. */
static int give_up(void *user, const weir_error *error)
{
	struct run *run = user;
	int exit_code = cli_fail(&run->common, error);

	run->ran = false;
	run->report.exit = exit_code;
	fill_report(run);
	return give_report(run);
}

static int run_and_report(struct run *run)
{
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	char architecture[64] = "";
	int result, exit_code;

	weir_report_clear(&run->report);
	run->report.model = run->model;
	textsink_open(&run->sink, run->common.json ? NULL : stdout, isatty(STDOUT_FILENO));
	interrupt_install(on_interrupt);
	result = run_model(run, &error);
	if (run->engine && run->report.architecture) {
		snprintf(architecture, sizeof architecture, "%s", run->report.architecture);
		run->report.architecture = architecture;
	}
	interruptible = NULL;
	weir_engine_close(run->engine);
	crash_close();
	run->report.exit = exit_code = say_error(run, result, &error);
	fill_report(run);
	if (exit_code != CLI_USAGE)
		exit_code = give_report(run);
	textsink_close(&run->sink);
	token_times_free(&run->times);
	model_files_free(&run->files);
	free(run->prompt);
	free(run->pack);
	return exit_code;
}

/* ---- options ---- */

static void take_sampling(struct run *run)
{
	run->generate.temp = (float)run->temp;
	run->generate.top_p = (float)run->top_p;
	run->generate.top_k = (int32_t)run->top_k;
	run->generate.seed = run->seed < 0 ? ANY_SEED : (uint32_t)run->seed;
	run->generate.on_text = on_text;
	run->generate.on_prompt = on_prompt;
	run->generate.on_token = run->token_times_path ? on_token : NULL;
	run->generate.user = run;
}

#define RUN_DETAILS                                                                                                            \
	"The prompt comes from standard input when neither --prompt nor --file is given.  The text goes to standard\n"         \
	"output as it comes, what it cost to standard error.  --memory covers the whole process; 'auto' takes what this\n"     \
	"process may use (cgroups, MemAvailable, rlimits) less one sixteenth of it, at least 64 MiB and at most 2 GiB.\n"      \
	"SIZE: K, M, G, T and KiB... are powers of 1024, KB, MB, GB, TB powers of 1000.  --threads auto computes with one\n"   \
	"per processor, and a token with fewer while that is as fast or other processes keep processors busy.\n\n"             \
	"exit codes: 0 done, 1 failed while running, 2 wrong usage, 3 the budget cannot hold, 4 the model is not valid\n"      \
	"or not supported, 130 interrupted (the text so far and the report are still written)"

static int parse(struct run *run, int argc, char **argv)
{
	const cli_option options[] = {
		{'M', "memory", CLI_SIZE, &run->memory, "SIZE", "budget: 4G, 3500M, 1.5GiB, 60%, auto (the default)", NULL, 0,
		 0},
		{'p', "prompt", CLI_TEXT, &run->source.text, "TEXT", "the prompt", NULL, 0, 0},
		{'f', "file", CLI_TEXT, &run->source.path, "FILE", "read the prompt from FILE (-: standard input)", NULL, 0, 0},
		{0, "prompt-tokens", CLI_TEXT, &run->source.tokens, "IDS", "token ids, \"1,2,3\", instead of text", NULL, 0, 0},
		{'n', "tokens", CLI_COUNT, &run->tokens_max, "N", "generate at most N (default: until the end)", NULL, 1,
		 INT32_MAX},
		{'c', "ctx", CLI_COUNT, &run->options.ctx, "N", "context in tokens (default: 4096, or the model's)", NULL, 0,
		 INT32_MAX},
		{'t', "threads", CLI_COUNT, &run->options.threads, "N",
		 "compute threads (default: auto, at most one per processor)", "auto", 0, 512},
		{'b', "batch", CLI_COUNT, &run->options.batch, "N", "prompt tokens worked on together (default: 512)", NULL, 0,
		 65536},
		{0, "temp", CLI_REAL, &run->temp, "T", "0: always the likeliest token (default: 0.8)", NULL, 0, 100},
		{0, "top-k", CLI_LONG, &run->top_k, "K", "of the K likeliest; 0: all (default: 40)", NULL, 0, INT32_MAX},
		{0, "top-p", CLI_REAL, &run->top_p, "P", "of those that sum to P; 1: all (default: 0.95)", NULL, 0, 1},
		{0, "seed", CLI_LONG, &run->seed, "N", "of the random choice; -1: any (the default)", NULL, -1, UINT32_MAX},
		{0, "raw", CLI_FLAG, &run->raw, NULL, "no chat template around the prompt", NULL, 0, 0},
		{0, "ignore-eos", CLI_FLAG, &run->generate.ignore_eos, NULL, "go on when the model ends its text", NULL, 0, 0},
		{0, "io", CLI_TEXT, &run->options.io_method, "METHOD", "auto, uring, threads or mmap",
		 "auto|uring|threads|mmap", 0, 0},
		{0, "policy", CLI_TEXT, &run->options.policy, "NAME", "which expert gives way: auto, lfu, lru...", NULL, 0, 0},
		{0, "no-lookahead", CLI_CLEAR, &run->options.lookahead, NULL, "read nothing before its router has spoken", NULL,
		 0, 0},
		{0, "no-counts", CLI_FLAG, &run->options.no_counts, NULL, "keep no counts between runs, and use none", NULL, 0,
		 0},
		{0, "no-pack", CLI_CLEAR, &run->use_pack, NULL, "read the model itself, even if a pack lies beside it", NULL, 0,
		 0},
		{0, "device", CLI_TEXT, &run->options.device, "NAME", "where compute runs (default: cpu)", NULL, 0, 0},
		{0, "logits-hash", CLI_FLAG, &run->generate.logits_hash, NULL, "report a hash over all logits", NULL, 0, 0},
		{0, "report", CLI_TEXT, &run->report_path, "FILE", "write the JSON report to FILE", NULL, 0, 0},
		{0, "trace", CLI_TEXT, &run->options.trace_path, "FILE", "write the routing trace to FILE", NULL, 0, 0},
		{0, "token-times", CLI_TEXT, &run->token_times_path, "FILE", "write each token's time to FILE (CSV)", NULL, 0,
		 0},
		{0, "plain", CLI_TEXT, &run->options.plain, "HOW", "llama.cpp without weir: mmap or read; no budget",
		 "mmap|read", 0, 0},
	};
	const cli_command command = {
		.name = "run",
		.operands = "MODEL",
		.summary = "generates text within a memory budget and reports what it cost",
		.details = RUN_DETAILS,
		.example = "  weir run model.gguf --memory 4G --prompt \"Once upon a time\"\n"
			   "  weir run model.gguf -M 60% -f question.txt -n 200 --report report.json",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int count, result = cli_parse(&command, &run->common, argc, argv, &operands, &count);

	if (result == CLI_CONTINUE)
		run->model = operands[0];
	return result;
}

int cmd_run(int argc, char **argv)
{
	struct run run = {.temp = 0.8,
			  .top_p = 0.95,
			  .top_k = 40,
			  .seed = -1,
			  .use_pack = true,
			  .options = {.io_method = "auto", .policy = "auto", .device = "cpu", .lookahead = true}};
	int result = parse(&run, argc, argv);

	if (result != CLI_CONTINUE)
		return result;
	take_sampling(&run);
	return run_and_report(&run);
}
