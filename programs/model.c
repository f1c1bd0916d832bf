/*
 * model.c - see model.h.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "engine/engine.h"
#include "os/process.h"
#include "rates.h"
#include "weir/checkpoint.h"
#include "weir/pack.h"

/* The program's own size differs a little from one start to the next; a plan promises what any start can keep. */
#define START_VARIES_BYTES (UINT64_C(2) << 20)

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

/* ---- plan ---- */

static uint64_t touched_bytes(const weir_plan_facts *facts, const weir_plan *plan)
{
	return facts->dense_fixed_bytes + facts->dense_stream_bytes + facts->rows_per_token_bytes + plan->token_cycle_bytes;
}

static double known(double rate)
{
	return isfinite(rate) ? rate : 0;
}

/* Facts of the engine; that its own plan may refuse the budget does not matter here. */
static int read_facts(weir_engine *engine, uint64_t prompt_tokens, weir_plan_facts *facts, weir_plan *plan, weir_error *error)
{
	int result = weir_engine_plan(engine, 0, 0, prompt_tokens, plan, facts, error);

	return result == WEIR_EBUDGET ? 0 : result;
}

int model_plan(weir_engine *engine, const model_request *request, weir_plan *plan, model_rates *rates, weir_error *error)
{
	const weir_engine_options *options = request->options;
	const model_files *files = request->files;
	const rates_reading reading = {.path = files->largest,
				       .method = options->io_method,
				       .queue_depth = options->queue_depth,
				       .piece_bytes = options->piece_bytes,
				       .room_bytes = model_room(options->budget_bytes)};
	weir_plan_facts facts;
	int result;

	*rates = (model_rates){NAN, NAN};
	result = read_facts(engine, request->prompt_tokens, &facts, plan, error);
	if (result < 0)
		return result;
	if (request->promise)
		facts.margin_bytes += START_VARIES_BYTES;
	result = weir_plan_make(&facts, plan, error);
	if (result < 0)
		return result;
	rates->compute_tokens_per_second = rates_compute(files->path, options->threads, touched_bytes(&facts, plan));
	if (plan->bytes_per_token > 0)
		rates->device_bytes_per_second = rates_device(&reading, request->measure);
	facts.compute_tokens_per_second = known(rates->compute_tokens_per_second);
	facts.device_bytes_per_second = known(rates->device_bytes_per_second);
	return weir_plan_make(&facts, plan, error);
}

int model_check_options(const weir_engine_options *options, weir_error *error)
{
	if (options->device && strcmp(options->device, "cpu"))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "--device '%.60s': only cpu computes so far", options->device);
	return 0;
}
