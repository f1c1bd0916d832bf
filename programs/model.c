/*
 * model.c - see model.h.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/fail.h"
#include "engine/engine.h"
#include "history.h"
#include "os/process.h"
#include "rates.h"
#include "weir/checkpoint.h"
#include "weir/pack.h"

/* The program's own size differs a little from one start to the next; a plan promises what any start can keep. */
#define START_VARIES_BYTES (UINT64_C(2) << 20)
#define TOKENS_LEAST 8 /* after the first: runs of fewer tokens say little */
#define MEASURE_SECONDS 0.6
#define BRIEF_SECONDS 0.25
#define RECENT_SECONDS 600 /* so long a rate that was just measured is believed */

/* ---- files ---- */

static const char *largest_shard(const weir_checkpoint *checkpoint)
{
	uint32_t largest = 0;

	for (uint32_t i = 1; i < weir_checkpoint_shards_count(checkpoint); i++)
		if (weir_checkpoint_shard_bytes(checkpoint, i) > weir_checkpoint_shard_bytes(checkpoint, largest))
			largest = i;
	return weir_checkpoint_shard_path(checkpoint, largest);
}

static int keep_paths(const weir_checkpoint *checkpoint, const char *path, model_files *files, weir_error *error)
{
	struct stat status;
	bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);

	files->path = strdup(weir_checkpoint_shard_path(checkpoint, 0));
	files->pack = weir_pack_path_beside(folder ? weir_checkpoint_shard_path(checkpoint, 0) : path);
	if (files->pack)
		files->largest = strdup(weir_pack_recognize(files->pack) ? files->pack : largest_shard(checkpoint));
	if (weir_checkpoint_check_holes(checkpoint, &files->holes) == 0)
		files->holes.code = 0;
	if (files->path && files->largest && files->pack)
		return 0;
	return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for a path");
}

int model_check(const char *path, model_files *files, weir_error *error)
{
	weir_checkpoint *checkpoint;
	int result = weir_checkpoint_open(path, NULL, &checkpoint, error);

	*files = (model_files){0};
	if (result < 0)
		return result;
	if (weir_checkpoint_format(checkpoint) != WEIR_FORMAT_GGUF)
		result = weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0,
				   "the engine runs GGUF models; this one is %s",
				   weir_format_name(weir_checkpoint_format(checkpoint)));
	else if (!weir_checkpoint_tensors_count(checkpoint))
		result = weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0, "there is no tensor in it");
	else
		result = keep_paths(checkpoint, path, files, error);
	weir_checkpoint_close(checkpoint);
	return result;
}

static int compare_pack(const model_files *files, weir_error *notice)
{
	weir_checkpoint *checkpoint;
	weir_pack *pack;
	int code = weir_pack_open(files->pack, &pack, notice);

	if (code)
		return code;
	code = weir_checkpoint_open(files->path, NULL, &checkpoint, notice);
	if (!code) {
		code = weir_pack_matches(pack, checkpoint, notice);
		weir_checkpoint_close(checkpoint);
	}
	weir_pack_close(pack);
	return code ? code : 1;
}

int model_check_pack(const model_files *files, weir_error *notice)
{
	struct stat status;
	int code = stat(files->pack, &status) == 0 ? compare_pack(files, notice) : 0;

	if (code != 1 && files->holes.code) {
		*notice = files->holes;
		return WEIR_EUNSUPPORTED;
	}
	return code;
}

void model_files_free(model_files *files)
{
	free(files->path);
	free(files->largest);
	free(files->pack);
	*files = (model_files){0};
}

static bool same_file(const char *a, const char *b)
{
	struct stat first, second;

	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

bool model_owns(const model_files *files, const char *path)
{
	return same_file(files->path, path) || same_file(files->largest, path) || same_file(files->pack, path);
}

/* ---- budget ---- */

uint64_t model_budget(const cli_common *common, const weir_size *memory, weir_limits *limits)
{
	char wanted[CLI_BYTES_TEXT], usable[CLI_BYTES_TEXT];
	uint64_t budget;

	weir_limits_read(limits);
	budget = weir_limits_resolve(limits, memory);
	if (budget > limits->usable_bytes && !common->json)
		cli_note(common, "--memory of %s is more than the %s that this process may use (%s)", cli_bytes(budget, wanted),
			 cli_bytes(limits->usable_bytes, usable), weir_limits_source_name(limits->source));
	return budget;
}

uint64_t model_room(uint64_t budget_bytes)
{
	weir_process_memory memory;

	if (weir_process_memory_read(&memory, NULL) < 0 || memory.rss_bytes >= budget_bytes)
		return 0;
	return budget_bytes - memory.rss_bytes;
}

/* ---- context ---- */

uint32_t model_ctx_exceeded(const weir_engine *engine, const weir_engine_options *options)
{
	uint32_t trained = weir_engine_ctx_trained(engine);

	return trained && options->ctx > trained ? trained : 0;
}

void model_warn_of_ctx(const cli_common *common, const weir_engine *engine, const weir_engine_options *options)
{
	uint32_t trained = model_ctx_exceeded(engine, options);

	if (trained)
		cli_note(common,
			 "warning: --ctx of %u tokens is more than the %u that this model was trained for: text may "
			 "make no sense beyond those",
			 options->ctx, trained);
}

/* ---- plan ---- */

static double known_or_0(double rate)
{
	return isfinite(rate) ? rate : 0;
}

/* Facts of the engine; that its own plan may refuse the budget does not matter here. */
static int read_facts(weir_engine *engine, uint64_t prompt_tokens, weir_plan_facts *facts, weir_plan *plan, weir_error *error)
{
	int result = weir_engine_plan(engine, 0, 0, prompt_tokens, plan, facts, error);

	return result == WEIR_EBUDGET ? 0 : result;
}

/* The drive's rate as this request may find it out.  A drive that others use differs from minute to minute: what was seen a
 * moment ago, and what a moment's measurement says now, are each better than what was remembered long ago, and both together
 * better than either. */
static double find_device_rate(const model_request *request, rates_reading *reading, const history *known)
{
	double recent = history_device_rate(known, RECENT_SECONDS), now = NAN;

	if (!request->measure || (request->brief && isfinite(recent)))
		return isfinite(recent) ? recent : rates_remembered_device(reading);
	if (request->brief && isfinite(rates_remembered_device(reading)))
		return rates_remembered_device(reading);
	now = rates_measure_device(reading, request->brief ? BRIEF_SECONDS : MEASURE_SECONDS);
	if (!isfinite(now))
		return isfinite(recent) ? recent : rates_remembered_device(reading);
	return isfinite(recent) ? sqrt(now * recent) : now;
}

static void find_rates(weir_engine *engine, const model_request *request, const weir_plan *plan, weir_plan_facts *facts,
		       model_rates *rates)
{
	const weir_engine_options *options = request->options;
	rates_reading reading = {.path = request->files->largest,
				 .method = options->io_method,
				 .queue_depth = options->queue_depth,
				 .piece_bytes = options->piece_bytes,
				 .room_bytes = model_room(options->budget_bytes)};
	history known;

	rates_tune(&reading);
	history_load(request->files->path, options->threads, &known);
	history_inform(&known, facts);
	rates->runs_count = known.count;
	rates->compute_tokens_per_second = 1 / history_compute_seconds(&known);
	if (!isfinite(rates->compute_tokens_per_second))
		rates->compute_tokens_per_second = 1 / weir_engine_estimate_token_seconds(engine);
	if (plan->bytes_per_token > 0)
		rates->device_bytes_per_second = find_device_rate(request, &reading, &known);
	facts->compute_tokens_per_second = known_or_0(rates->compute_tokens_per_second);
	facts->device_bytes_per_second = known_or_0(rates->device_bytes_per_second);
	facts->device_latency_seconds = rates_latency(&reading);
}

int model_plan(weir_engine *engine, const model_request *request, weir_plan *plan, weir_plan_facts *facts, model_rates *rates,
	       weir_error *error)
{
	int result;

	*rates = (model_rates){NAN, NAN, 0};
	result = read_facts(engine, request->prompt_tokens, facts, plan, error);
	if (result < 0)
		return result;
	if (request->promise)
		facts->margin_bytes += START_VARIES_BYTES;
	result = weir_plan_make(facts, plan, error);
	if (result < 0)
		return result;
	find_rates(engine, request, plan, facts, rates);
	return weir_plan_make(facts, plan, error);
}

/* ---- what a run has shown ---- */

/* How much of its computing ran beside its reading.  A run that read faster than the drive gave afterwards shows that the drive
 * can do that: shared ones save up while nobody reads. */
static void learn_overlap(const weir_plan_facts *facts, const weir_plan *plan, const weir_plan_seen *seen, history_run *run)
{
	double least = seen->bytes_per_token / (seen->compute_seconds + seen->stall_seconds);
	weir_plan_facts own = *facts;

	run->overlap_share = run->dense_exposed_share = NAN;
	if (run->device_bytes_per_second < least)
		run->device_bytes_per_second = least;
	own.device_bytes_per_second = known_or_0(run->device_bytes_per_second);
	weir_plan_learn(&own, plan, seen, &run->overlap_share, &run->dense_exposed_share);
}

/* Shares of the chunks; only of experts that did not all stay. */
static void learn_hits(const weir_plan_facts *facts, const weir_plan *plan, const weir_engine_result *result,
		       double bytes_per_token, history_run *run)
{
	double dense = (double)(facts->dense_stream_bytes - plan->dense_resident_bytes), chunks = 0, read;

	run->slots_share = run->hit_rate = run->read_share = NAN;
	for (uint32_t i = 0; i < facts->classes_count; i++)
		chunks += (double)facts->classes[i].chunks_count;
	if (!result->demanded || !plan->token_cycle_bytes || chunks <= (double)result->slots_count)
		return;
	read = bytes_per_token - dense - (double)facts->rows_per_token_bytes;
	run->slots_share = (double)result->slots_count / chunks;
	run->hit_rate = (double)result->hits / (double)result->demanded;
	run->read_share = read > 0 ? read / (double)plan->token_cycle_bytes : 0;
}

void model_remember(const model_files *files, const weir_engine_options *options, const weir_plan_facts *facts,
		    const weir_plan *plan, const weir_engine_result *result, double device_bytes_per_second)
{
	double tokens = result->tokens > 1 ? (double)(result->tokens - 1) : 0;
	history_run run = {.at_s = (int64_t)time(NULL), .device_bytes_per_second = device_bytes_per_second};
	weir_plan_seen seen;

	if (tokens < TOKENS_LEAST || !plan->fits || result->page_cache_bytes > result->bytes_read / 16)
		return; /* what the page cache gave says nothing about the drive */
	seen = (weir_plan_seen){.compute_seconds = (result->seconds - result->stall_seconds) / tokens,
				.stall_seconds = result->stall_seconds / tokens,
				.bytes_per_token = (double)result->bytes_read / tokens};
	if (!(seen.compute_seconds > 0))
		return;
	run.compute_seconds = seen.compute_seconds;
	learn_overlap(facts, plan, &seen, &run);
	learn_hits(facts, plan, result, seen.bytes_per_token, &run);
	history_add(files->path, options->threads, &run);
}

int model_check_options(const weir_engine_options *options, weir_error *error)
{
	if (options->device && strcmp(options->device, "cpu"))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "--device '%.60s': only cpu computes so far", options->device);
	return 0;
}
