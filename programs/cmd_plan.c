/*
 * cmd_plan.c - `weir plan MODEL`: how the budget would be divided, the least that works, and the speed to expect.
 *
 * Headers and the vocabulary are read, no weight; the drive is measured for a moment unless its rate is known or --no-measure
 * is given.  Main thread only; writes nothing but standard output.
 */
#include <math.h>

#include "cli.h"
#include "commands.h"
#include "crash.h"
#include "engine/engine.h"
#include "model.h"
#include "output.h"

#define PROMPT_TOKENS_DEFAULT 64

struct plan_run {
	cli_common common;
	weir_size memory;
	weir_engine_options options;
	bool measure;
	uint32_t prompt_tokens;
	uint32_t ctx_trained; /* when --ctx is more; else 0 */
	model_files files;
	model_rates rates;
	weir_plan_facts facts;
	weir_plan plan;
};

/* ---- output ---- */

static json_t *memory_json(const weir_plan *plan)
{
	json_t *memory = json_object();

	output_put_count(memory, "dense", plan->memory_dense_bytes);
	output_put_count(memory, "experts", plan->memory_experts_bytes);
	output_put_count(memory, "kv", plan->memory_kv_bytes);
	output_put_count(memory, "compute", plan->memory_compute_bytes);
	output_put_count(memory, "other", plan->memory_other_bytes);
	return memory;
}

static json_t *slots_json(const weir_plan *plan)
{
	json_t *slots = json_object();

	output_put_count(slots, "count", plan->slots_count);
	output_put_count(slots, "bytes", plan->slots_bytes);
	return slots;
}

/* A plan that does not fit has its least budget and nothing else. */
static json_t *plan_json(const struct plan_run *run)
{
	const weir_plan *plan = &run->plan;
	bool fits = plan->fits, timed = fits && plan->tokens_per_second > 0;
	json_t *object = json_object();

	output_put_count(object, "budget_bytes", run->options.budget_bytes);
	output_put_count(object, "least_budget_bytes", plan->least_budget_bytes);
	json_object_set_new(object, "memory", fits ? memory_json(plan) : json_null());
	json_object_set_new(object, "slots", fits ? slots_json(plan) : json_null());
	json_object_set_new(object, "token_cycle_bytes", fits ? output_json_count(plan->token_cycle_bytes) : json_null());
	output_put_real(object, "expected_hit_rate", fits ? plan->expected_hit_rate : NAN);
	output_put_real(object, "bytes_per_token", fits ? plan->bytes_per_token : NAN);
	output_put_real(object, "device_bytes_per_second", run->rates.device_bytes_per_second);
	output_put_real(object, "compute_tokens_per_second", run->rates.compute_tokens_per_second);
	output_put_real(object, "tokens_per_second", timed ? plan->tokens_per_second : NAN);
	output_put_real(object, "first_token_seconds", timed ? plan->first_token_seconds : NAN);
	json_object_set_new(object, "limits", fits ? json_string(weir_plan_limit_name(plan->limits)) : json_null());
	return object;
}

static void print_bytes(const char *name, uint64_t bytes, const char *remark)
{
	char text[CLI_BYTES_TEXT];

	printf("  %-22s %12s%s%s\n", name, cli_bytes(bytes, text), *remark ? "  " : "", remark);
}

static void print_memory(const struct plan_run *run)
{
	const weir_plan *plan = &run->plan;
	char remark[96], ring[CLI_BYTES_TEXT];

	remark[0] = '\0';
	if (plan->ring_bytes)
		snprintf(remark, sizeof remark, "the rest streams through a ring of %s", cli_bytes(plan->ring_bytes, ring));
	print_bytes("dense weights", plan->memory_dense_bytes, remark);
	remark[0] = '\0';
	if (plan->slots_count)
		snprintf(remark, sizeof remark, "%llu slots, %.1f %% of all experts", (unsigned long long)plan->slots_count,
			 100 * (double)plan->slots_bytes / (double)plan->experts_bytes);
	print_bytes("expert slots", plan->memory_experts_bytes, remark);
	remark[0] = '\0';
	if (run->ctx_trained)
		snprintf(remark, sizeof remark, "%u tokens; the model was trained for %u", run->options.ctx, run->ctx_trained);
	print_bytes("KV cache", plan->memory_kv_bytes, remark);
	print_bytes("compute buffers", plan->memory_compute_bytes, "");
	print_bytes("program and margin", plan->memory_other_bytes, "");
}

static void print_speed(const struct plan_run *run)
{
	const weir_plan *plan = &run->plan;

	if (plan->slots_count && !plan->all_resident)
		printf("  %-22s %10.0f %%  (routing without favourites: %.0f %%)\n", "expected hits",
		       100 * plan->expected_hit_rate, 100 * (double)plan->slots_bytes / (double)plan->experts_bytes);
	print_bytes("read per token", (uint64_t)plan->bytes_per_token, "");
	if (isfinite(run->rates.device_bytes_per_second))
		print_bytes("drive, per second", (uint64_t)run->rates.device_bytes_per_second, "");
	if (isfinite(run->rates.compute_tokens_per_second))
		printf("  %-22s %10.2f tokens/s, everything resident\n", "compute", run->rates.compute_tokens_per_second);
	if (plan->tokens_per_second > 0)
		printf("  %-22s %10.2f tokens/s, first token after %.1f s\n", "expected", plan->tokens_per_second,
		       plan->first_token_seconds);
	printf("  %-22s %12s\n", "limited by", weir_plan_limit_name(plan->limits));
	if (run->rates.runs_count)
		printf("  %-22s %12u  of this model, with as many threads\n", "from earlier runs", run->rates.runs_count);
}

static int print_plan(const struct plan_run *run)
{
	char text[CLI_BYTES_TEXT];

	if (run->common.json)
		return output_json_print(&run->common, plan_json(run));
	if (!run->plan.fits)
		return CLI_DONE;
	printf("budget %s", cli_bytes(run->options.budget_bytes, text));
	printf(", of at least %s%s\n", cli_bytes(run->plan.least_budget_bytes, text),
	       run->plan.all_resident ? "; every weight stays in memory" : "");
	print_memory(run);
	print_speed(run);
	return cli_flush(&run->common);
}

/* ---- work ---- */

static int make_plan(struct plan_run *run, weir_error *error)
{
	const model_request request = {.options = &run->options,
				       .files = &run->files,
				       .prompt_tokens = run->prompt_tokens,
				       .measure = run->measure,
				       .promise = true};
	const crash_watch watch = {.common = &run->common, .file = run->files.path};
	weir_engine *engine = NULL;
	int result;

	crash_open(&watch);
	result = weir_engine_open(&run->options, &engine, error);
	if (!result) {
		run->ctx_trained = model_ctx_exceeded(engine, &run->options);
		model_warn_of_ctx(&run->common, engine, &run->options);
	}
	if (!result)
		result = model_plan(engine, &request, &run->plan, &run->facts, &run->rates, error);
	weir_engine_close(engine);
	crash_close();
	return result;
}

/* Which weights a run would read; an error only when they are nowhere. */
static int check_pack(const struct plan_run *run, weir_error *error)
{
	weir_error notice;
	int found = model_check_pack(&run->files, &notice);

	if (found == WEIR_EUNSUPPORTED && run->files.holes.code) {
		*error = notice;
		return found;
	}
	if (found == 1 && !run->common.json)
		cli_note(&run->common, "a run reads from the pack %s", run->files.pack);
	else if (found < 0 && !run->common.json)
		cli_note(&run->common, "a run does not use the pack %s: %s", run->files.pack, notice.message);
	return 0;
}

static int plan_model(struct plan_run *run, const char *path)
{
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	weir_limits limits;
	int result, printed;

	result = model_check_options(&run->options, &error);
	if (!result)
		result = model_check(path, &run->files, &error);
	if (!result)
		result = check_pack(run, &error);
	if (result < 0)
		return cli_fail(&run->common, &error);
	run->options.model = run->files.path;
	run->options.budget_bytes = model_budget(&run->common, &run->memory, &limits);
	run->options.verbosity = run->common.verbosity;
	result = make_plan(run, &error);
	if (result < 0 && !error.file[0])
		snprintf(error.file, sizeof error.file, "%s", path);
	if (result < 0)
		cli_fail(&run->common, &error);
	printed = result == 0 || result == WEIR_EBUDGET ? print_plan(run) : CLI_DONE;
	model_files_free(&run->files);
	return result < 0 ? cli_exit_code(result) : printed;
}

/* ---- command ---- */

#define PLAN_DETAILS                                                                                                           \
	"No weight is loaded.  The drive is measured for a moment, or with --no-measure the rate is the one that\n"            \
	"'weir disk' found.  Hits, computing and how much of it runs beside reading come from earlier runs of\n"               \
	"the model with as many threads; before the first they are what is typical.\n"                                         \
	"'auto' takes what this process may use (cgroups, MemAvailable, rlimits) less one sixteenth."

int cmd_plan(int argc, char **argv)
{
	struct plan_run run = {.measure = true,
			       .prompt_tokens = PROMPT_TOKENS_DEFAULT,
			       .rates = {NAN, NAN, 0},
			       .options = {.io_method = "auto", .policy = "auto", .lookahead = true}};
	const cli_option options[] = {
		{'M', "memory", CLI_SIZE, &run.memory, "SIZE", "budget: 4G, 3500M, 1.5GiB, 60%, auto (the default)", NULL, 0,
		 0},
		{'c', "ctx", CLI_COUNT, &run.options.ctx, "N", "context in tokens (default: 4096, or the model's)", NULL, 0,
		 INT32_MAX},
		{'t', "threads", CLI_COUNT, &run.options.threads, "N",
		 "compute threads (default: auto, at most one per processor)", "auto", 0, 512},
		{'b', "batch", CLI_COUNT, &run.options.batch, "N", "prompt tokens worked on together (default: 512)", NULL, 0,
		 65536},
		{0, "prompt-length", CLI_COUNT, &run.prompt_tokens, "N", "tokens of the prompt (default: 64)", NULL, 1,
		 INT32_MAX},
		{0, "io", CLI_TEXT, &run.options.io_method, "METHOD", "auto, uring, threads or mmap", "auto|uring|threads|mmap",
		 0, 0},
		{0, "policy", CLI_TEXT, &run.options.policy, "NAME", "which expert gives way: auto, lfu, lru...", NULL, 0, 0},
		{0, "no-measure", CLI_CLEAR, &run.measure, NULL, "do not measure the drive", NULL, 0, 0},
	};
	const cli_command command = {
		.name = "plan",
		.operands = "MODEL",
		.summary = "says how a budget would be divided and the speed to expect",
		.details = PLAN_DETAILS,
		.example = "  weir plan model.gguf --memory 4G\n  weir plan model.gguf --memory 60% --json",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int count, result;

	result = cli_parse(&command, &run.common, argc, argv, &operands, &count);
	return result == CLI_CONTINUE ? plan_model(&run, operands[0]) : result;
}
