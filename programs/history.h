/*
 * history.h - what earlier runs of a model have shown, so that the next forecast need not guess.
 *
 * One small file for each model and number of threads, ${XDG_CACHE_HOME:-~/.cache}/weir/models/KEY.json, with the last runs,
 * oldest first; KEY is a hash of the model's path, size, time of change, and the threads.  The file is read as untrusted input:
 * what makes no sense counts as absent.
 *
 * Only the main thread calls these functions.  They never fail: what cannot be read is empty, what cannot be written is lost.
 */
#ifndef WEIR_PROGRAMS_HISTORY_H
#define WEIR_PROGRAMS_HISTORY_H

#include <stdint.h>

#include "weir/plan.h"

#define HISTORY_RUNS_MAX 16

/* NAN where a run says nothing. */
typedef struct history_run {
	int64_t at_s; /* since 1970 */
	double slots_share; /* of the experts that had a slot */
	double hit_rate;
	double read_share; /* see weir_plan_point */
	double compute_seconds; /* a token's time without its stall */
	double overlap_share, dense_exposed_share; /* see weir_plan_learn */
	double device_bytes_per_second; /* measured right after it */
} history_run;

typedef struct history {
	uint32_t count;
	history_run runs[HISTORY_RUNS_MAX];
} history;

void history_load(const char *model, uint32_t threads, history *known);
void history_add(const char *model, uint32_t threads, const history_run *run);

/* Seconds of computing for a token: the median of the latest runs, or NAN. */
double history_compute_seconds(const history *known);

/* The drive's rate after the latest run, if that is less than `age_s` seconds old; else NAN. */
double history_device_rate(const history *known, int64_t age_s);

/* Gives a plan's facts the points, the overlap and the exposed share that runs have shown, or typical ones. */
void history_inform(const history *known, weir_plan_facts *facts);

#endif
