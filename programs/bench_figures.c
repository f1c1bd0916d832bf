/* bench_figures.c - figures of a row over its runs, ratios to other rows, and whether logits are equal.  See bench.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantile.h"
#include "bench.h"

double bench_report_number(const json_t *report, const char *path)
{
	char part[64];
	const char *dot;

	while (report && (dot = strchr(path, '.'))) {
		snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
		report = json_object_get(report, part);
		path = dot + 1;
	}
	report = json_object_get(report, path);
	return json_is_number(report) ? json_number_value(report) : NAN;
}

/* ---- logits ---- */

static const bench_run *good_run_of(const bench *b, bench_kind kind)
{
	for (int i = 0; i < b->rows_count; i++)
		for (uint32_t j = 0; j < b->rows[i].runs_count && b->rows[i].kind == kind; j++)
			if (b->rows[i].runs[j].report)
				return &b->rows[i].runs[j];
	return NULL;
}

/* What the others are compared with: llama.cpp's logits where it ran resident; mapped runs may be short. */
static const bench_run *reference_run(const bench *b)
{
	const bench_run *run = good_run_of(b, BENCH_RESIDENT);

	if (!run)
		run = good_run_of(b, BENCH_STREAMED);
	return run ? run : good_run_of(b, BENCH_MMAP);
}

/* The first token, counted from 1, after which the hashes differ; 0: none, as far as both go. */
static uint32_t first_difference(const token_times *a, const token_times *b)
{
	for (size_t i = 0; i < a->count && i < b->count; i++)
		if (a->rows[i].logits_hash != b->rows[i].logits_hash)
			return (uint32_t)i + 1;
	return 0;
}

void bench_compare(bench *b)
{
	const bench_run *reference = reference_run(b);

	for (int i = 0; i < b->rows_count; i++)
		for (uint32_t j = 0; j < b->rows[i].runs_count; j++)
			if (b->rows[i].runs[j].report)
				b->rows[i].runs[j].differs_at = first_difference(&reference->times, &b->rows[i].runs[j].times);
}

static void compare_row(const bench *b, const bench_row *row, bench_figures *figures)
{
	const bench_run *reference = reference_run(b);

	for (uint32_t i = 0; i < row->runs_count; i++) {
		const bench_run *run = &row->runs[i];

		figures->is_reference = figures->is_reference || (reference && run == reference);
		if (!run->report || run == reference)
			continue;
		if (figures->equal)
			figures->equal = !run->differs_at;
		if (run->differs_at && (!figures->differs_at || run->differs_at < figures->differs_at))
			figures->differs_at = run->differs_at;
	}
}

/* ---- medians ---- */

/* The quantile of one number of the reports; runs without it do not count. */
static double over_runs(const bench_row *row, const char *path, double share)
{
	double *values = calloc(row->runs_count + 1, sizeof *values), value, result;
	size_t count = 0;

	if (!values)
		return NAN;
	for (uint32_t i = 0; i < row->runs_count; i++) {
		value = bench_report_number(row->runs[i].report, path);
		if (isfinite(value))
			values[count++] = value;
	}
	result = weir_quantile(values, count, share);
	free(values);
	return result;
}

/* All tokens of all runs together. */
static void token_figures(const bench_row *row, bench_figures *figures)
{
	size_t count = 0;
	double *values;

	for (uint32_t i = 0; i < row->runs_count; i++)
		count += row->runs[i].times.count;
	values = calloc(count + 1, sizeof *values);
	if (!values)
		return;
	count = 0;
	for (uint32_t i = 0; i < row->runs_count; i++)
		for (size_t j = 1; j < row->runs[i].times.count; j++)
			values[count++] = row->runs[i].times.rows[j].seconds;
	figures->token_seconds_median = weir_quantile(values, count, 0.5);
	figures->token_seconds_p95 = weir_quantile(values, count, 0.95);
	free(values);
}

/* The mean of the rates beside a run. */
static double drive_of(const bench_run *run)
{
	if (isfinite(run->drive_before) && isfinite(run->drive_after))
		return (run->drive_before + run->drive_after) / 2;
	return isfinite(run->drive_before) ? run->drive_before : run->drive_after;
}

static double read_rate(const bench_run *run)
{
	return bench_report_number(run->report, "bytes_per_token") * bench_report_number(run->report, "tokens_per_second");
}

static void drive_figures(const bench_row *row, bench_figures *figures)
{
	double *rates = calloc(2 * ((size_t)row->runs_count + 1), sizeof *rates), *shares;
	size_t rates_count = 0, shares_count = 0;

	if (!rates)
		return;
	shares = rates + row->runs_count + 1;
	for (uint32_t i = 0; i < row->runs_count; i++) {
		double rate = drive_of(&row->runs[i]), reads = read_rate(&row->runs[i]);

		if (isfinite(rate))
			rates[rates_count++] = rate;
		if (isfinite(rate) && reads > 0)
			shares[shares_count++] = reads / rate;
	}
	figures->drive_bytes_per_second = weir_quantile(rates, rates_count, 0.5);
	figures->to_drive = weir_quantile(shares, shares_count, 0.5);
	free(rates);
}

/* ---- memory ---- */

static void take_larger(uint64_t *most, uint64_t value)
{
	if (value != OUTPUT_NONE && (*most == OUTPUT_NONE || value > *most))
		*most = value;
}

static void memory_figures(const bench_row *row, bench_figures *figures)
{
	for (uint32_t i = 0; i < row->runs_count; i++) {
		const bench_run *run = &row->runs[i];
		double peak = bench_report_number(run->report, "peak_memory_bytes");

		if (isfinite(peak))
			take_larger(&figures->peak_memory_bytes, (uint64_t)peak);
		take_larger(&figures->group_peak_bytes, run->group_peak_bytes);
		take_larger(&figures->group_hits_count, run->group_hits_count);
	}
}

/* ---- ratios ---- */

/* The row of llama.cpp to compare with; for BENCH_MMAP the one that is limited to the same bytes. */
static const bench_row *find_row(const bench *b, bench_kind kind, uint64_t bytes)
{
	for (int i = 0; i < b->rows_count; i++)
		if (b->rows[i].kind == kind && (kind == BENCH_RESIDENT || b->rows[i].budget_bytes == bytes))
			return &b->rows[i];
	return NULL;
}

static double times_as_fast(const bench *b, bench_kind kind, const bench_row *row, double speed)
{
	const bench_row *other = find_row(b, kind, row->budget_bytes);
	double others = other ? over_runs(other, "tokens_per_second", 0.5) : NAN;

	return others > 0 ? speed / others : NAN;
}

void bench_figures_of(const bench *b, const bench_row *row, bench_figures *figures)
{
	*figures = (bench_figures){.token_seconds_median = NAN,
				   .token_seconds_p95 = NAN,
				   .drive_bytes_per_second = NAN,
				   .to_drive = NAN,
				   .peak_memory_bytes = OUTPUT_NONE,
				   .group_peak_bytes = OUTPUT_NONE,
				   .group_hits_count = OUTPUT_NONE,
				   .equal = -1};
	for (uint32_t i = 0; i < row->runs_count; i++)
		figures->good_runs += row->runs[i].report != NULL;
	figures->tokens_per_second = over_runs(row, "tokens_per_second", 0.5);
	figures->tokens_per_second_least = over_runs(row, "tokens_per_second", 0);
	figures->first_token_seconds = over_runs(row, "first_token_seconds", 0.5);
	figures->load_seconds = over_runs(row, "load_seconds", 0.5);
	figures->prompt_tokens_per_second = over_runs(row, "prompt_tokens_per_second", 0.5);
	figures->bytes_per_token = over_runs(row, "bytes_per_token", 0.5);
	figures->hit_rate = over_runs(row, "hit_rate", 0.5);
	figures->stall_seconds = over_runs(row, "stall_seconds", 0.5);
	figures->to_bound = over_runs(row, "bound.ratio", 0.5);
	figures->forecast_error = over_runs(row, "forecast.error", 0.5);
	token_figures(row, figures);
	drive_figures(row, figures);
	memory_figures(row, figures);
	figures->to_resident = times_as_fast(b, BENCH_RESIDENT, row, figures->tokens_per_second);
	figures->to_mmap = times_as_fast(b, BENCH_MMAP, row, figures->tokens_per_second);
	compare_row(b, row, figures);
}

bool bench_all_good(const bench *b)
{
	for (int i = 0; i < b->rows_count; i++)
		for (uint32_t j = 0; j < b->rows[i].runs_count; j++) {
			const bench_run *run = &b->rows[i].runs[j];
			bool slow = b->rows[i].kind == BENCH_MMAP && run->timed_out;

			if (run->differs_at || (!run->report && !slow))
				return false;
		}
	return true;
}
