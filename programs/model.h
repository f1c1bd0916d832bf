/*
 * model.h - what `run` and `plan` do alike before and around the engine: validating the model, the budget, the forecast.
 *
 * Only the main thread calls these functions.
 */
#ifndef WEIR_PROGRAMS_MODEL_H
#define WEIR_PROGRAMS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"
#include "cli.h"
#include "engine/engine.h"
#include "os/limits.h"

/* A model that passed every rule of its format. */
typedef struct model_files {
	char *path; /* what the engine opens: the first shard */
	char *largest; /* the file that the drive is measured on: the largest shard, or the pack */
	char *pack; /* where its pack lies, if it has one */
	weir_error holes; /* code 0, or what is missing in the model itself: only a pack can have it */
} model_files;

/* Opens the checkpoint strictly and closes it again.  WEIR_EUNSUPPORTED for formats that the engine does not run. */
int model_check(const char *path, model_files *files, weir_error *error);
void model_files_free(model_files *files);

/* Opens the pack that lies beside the model and compares it: 1 it will be used, 0 there is none, or the code of why it will not
 * be used.  When there is nothing else to read weights from, that is an error: WEIR_EUNSUPPORTED with what is missing. */
int model_check_pack(const model_files *files, weir_error *notice);

/* Whether `path` is one of the model's files: nothing may be written over those. */
bool model_owns(const model_files *files, const char *path);

/* What --memory comes to here; says so when it is more than the process may use. */
uint64_t model_budget(const cli_common *common, const weir_size *memory, weir_limits *limits);

/* The context that the model was trained for, when more than that was asked for; else 0. */
uint32_t model_ctx_exceeded(const weir_engine *engine, const weir_engine_options *options);

/* Warns of such a context, which is no error: what the model was not trained for may be what its user extends it to. */
void model_warn_of_ctx(const cli_common *common, const weir_engine *engine, const weir_engine_options *options);

/* Rates that a plan was made with; NAN where unknown. */
typedef struct model_rates {
	double device_bytes_per_second;
	double compute_tokens_per_second;
	uint32_t runs_count; /* of the model, which the forecast draws on */
} model_rates;

typedef struct model_request {
	const weir_engine_options *options; /* the engine's own */
	const model_files *files;
	uint64_t prompt_tokens;
	bool measure; /* the drive */
	bool brief; /* ... but only when nothing is known of it, and shortly: somebody waits for text */
	bool promise; /* the plan must hold for any later start, not only for this process as it is */
} model_request;

/* Plans for the engine's budget with the rates of this machine and what runs of the model have shown; gives the facts that the
 * plan was made from too.  WEIR_EBUDGET with plan->least_budget_bytes set. */
int model_plan(weir_engine *engine, const model_request *request, weir_plan *plan, weir_plan_facts *facts, model_rates *rates,
	       weir_error *error);

/* Keeps what a run has shown for later forecasts: a whole one, of the plan made from those facts, with the drive's rate
 * measured right after it (NAN: not known).  Runs of a few tokens say too little and are not kept. */
void model_remember(const model_files *files, const weir_engine_options *options, const weir_plan_facts *facts,
		    const weir_plan *plan, const weir_engine_result *result, double device_bytes_per_second);

/* Bytes of the budget that are not resident yet. */
uint64_t model_room(uint64_t budget_bytes);

/* 0, or WEIR_EINVAL for a device that is not there. */
int model_check_options(const weir_engine_options *options, weir_error *error);

#endif
