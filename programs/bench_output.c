/* bench_output.c - a bench as JSON (medians, every run, every token) and as CSV (one line a run).  See bench.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/quantile.h"
#include "bench.h"
#include "output.h"
#include "weir/version.h"

static const char *kind_name(bench_kind kind)
{
	static const char *const names[] = {"weir", "resident", "mmap"};

	return names[kind];
}

static void put_equal(json_t *object, int equal)
{
	json_object_set_new(object, "logits_equal", equal < 0 ? json_null() : json_boolean(equal));
}

/* ---- JSON ---- */

static json_t *run_json(const bench_run *run)
{
	json_t *object = json_object(), *seconds = json_array();

	for (size_t i = 0; i < run->times.count; i++)
		json_array_append_new(seconds, output_json_real(run->times.rows[i].seconds));
	json_object_set(object, "report", run->report ? run->report : json_null());
	json_object_set_new(object, "token_seconds", seconds);
	output_put_real(object, "drive_before_bytes_per_second", run->drive_before);
	output_put_real(object, "drive_after_bytes_per_second", run->drive_after);
	output_put_count(object, "cached_bytes", run->cached_bytes);
	json_object_set_new(object, "limit_enforced", json_boolean(run->enforced));
	output_put_count(object, "limit_peak_bytes", run->group_peak_bytes);
	output_put_count(object, "limit_hits", run->group_hits_count);
	output_put_count(object, "differs_at_token", run->differs_at ? run->differs_at : OUTPUT_NONE);
	json_object_set_new(object, "timed_out", json_boolean(run->timed_out));
	output_put_text(object, "error", run->why);
	return object;
}

static void put_figures(json_t *object, const bench_figures *figures)
{
	output_put_count(object, "runs_good", figures->good_runs);
	output_put_real(object, "tokens_per_second", figures->tokens_per_second);
	output_put_real(object, "tokens_per_second_least", figures->tokens_per_second_least);
	output_put_real(object, "token_seconds_median", figures->token_seconds_median);
	output_put_real(object, "token_seconds_p95", figures->token_seconds_p95);
	output_put_real(object, "first_token_seconds", figures->first_token_seconds);
	output_put_real(object, "load_seconds", figures->load_seconds);
	output_put_real(object, "prompt_tokens_per_second", figures->prompt_tokens_per_second);
	output_put_real(object, "bytes_per_token", figures->bytes_per_token);
	output_put_real(object, "hit_rate", figures->hit_rate);
	output_put_real(object, "stall_seconds", figures->stall_seconds);
	output_put_real(object, "drive_bytes_per_second", figures->drive_bytes_per_second);
	output_put_real(object, "to_drive", figures->to_drive);
	output_put_real(object, "to_bound", figures->to_bound);
	output_put_real(object, "to_resident", figures->to_resident);
	output_put_real(object, "to_mmap", figures->to_mmap);
	output_put_real(object, "forecast_error", figures->forecast_error);
	output_put_count(object, "peak_memory_bytes", figures->peak_memory_bytes);
	output_put_count(object, "limit_peak_bytes", figures->group_peak_bytes);
	output_put_count(object, "limit_hits", figures->group_hits_count);
	put_equal(object, figures->equal);
}

static json_t *row_json(const bench *b, const bench_row *row)
{
	json_t *object = json_object(), *runs = json_array();
	bench_figures figures;

	bench_figures_of(b, row, &figures);
	output_put_text(object, "name", row->name);
	output_put_text(object, "kind", kind_name(row->kind));
	output_put_count(object, "memory_bytes", row->budget_bytes ? row->budget_bytes : OUTPUT_NONE);
	output_put_text(object, "options", row->options);
	output_put_count(object, "tokens", row->tokens);
	put_figures(object, &figures);
	for (uint32_t i = 0; i < row->runs_count; i++)
		json_array_append_new(runs, run_json(&row->runs[i]));
	json_object_set_new(object, "runs", runs);
	return object;
}

static const char *cache_state(const bench *b)
{
	return b->drop_cache ? "cold" : "as found";
}

/* 1 when all rows are equal, 0 when one is not, -1 when none was compared. */
static int all_equal(const bench *b)
{
	bench_figures figures;
	int equal = -1;

	for (int i = 0; i < b->rows_count; i++) {
		bench_figures_of(b, &b->rows[i], &figures);
		if (figures.equal >= 0 && equal)
			equal = figures.equal;
	}
	return equal;
}

json_t *bench_json(const bench *b, int exit_code)
{
	json_t *object = json_object(), *rows = json_array(), *limit = json_object();

	output_put_text(object, "weir_version", weir_version());
	output_put_text(object, "time", b->started_at);
	json_object_set_new(object, "machine", machine_json(&b->machine, &b->drive));
	output_put_text(object, "model", b->model);
	output_put_count(object, "model_bytes", b->model_bytes);
	output_put_count(object, "least_budget_bytes", b->least_bytes);
	output_put_count(object, "whole_budget_bytes", b->whole_bytes);
	output_put_count(object, "tokens", b->tokens);
	output_put_real(object, "temp", b->temp);
	output_put_count(object, "seed", b->seed);
	output_put_count(object, "repeats", b->repeats);
	output_put_text(object, "page_cache", cache_state(b));
	output_put_text(limit, "method", b->method.kind ? memory_group_name(b->method.kind) : NULL);
	output_put_text(limit, "reason", b->method.reason);
	json_object_set_new(object, "limit", limit);
	output_put_text(object, "not_resident", b->not_resident);
	for (int i = 0; i < b->rows_count; i++)
		json_array_append_new(rows, row_json(b, &b->rows[i]));
	json_object_set_new(object, "rows", rows);
	put_equal(object, all_equal(b));
	json_object_set_new(object, "exit", json_integer(exit_code));
	return object;
}

/* ---- CSV ---- */

#define CSV_HEADER                                                                                                             \
	"name,kind,options,memory_bytes,run,tokens,tokens_per_second,token_seconds_median,token_seconds_p95,"                  \
	"first_token_seconds,load_seconds,bytes_per_token,hit_rate,bound_ratio,drive_before_bytes_per_second,"                 \
	"drive_after_bytes_per_second,peak_memory_bytes,limit_method,limit_enforced,limit_peak_bytes,limit_hits,"              \
	"logits_hash,differs_at_token,error,model,model_bytes,page_cache,cached_bytes,system,processor,processors,"            \
	"machine_memory_bytes,filesystem,drive,drive_model,weir_version,time\n"

/* Text that quotes and commas may be in; control characters become spaces. */
static void csv_text(FILE *out, const char *text)
{
	putc('"', out);
	for (; text && *text; text++) {
		if (*text == '"')
			putc('"', out);
		putc((unsigned char)*text < ' ' ? ' ' : *text, out);
	}
	fputs("\",", out);
}

static void csv_real(FILE *out, double value)
{
	if (isfinite(value))
		fprintf(out, "%.9g", value);
	putc(',', out);
}

static void csv_count(FILE *out, uint64_t value)
{
	if (value != OUTPUT_NONE)
		fprintf(out, "%" PRIu64, value);
	putc(',', out);
}

/* A quantile of one run's tokens after the first. */
static double token_quantile(const bench_run *run, double share)
{
	size_t count = run->times.count > 1 ? run->times.count - 1 : 0;
	double *values = calloc(count + 1, sizeof *values), result;

	if (!values)
		return NAN;
	for (size_t i = 0; i < count; i++)
		values[i] = run->times.rows[i + 1].seconds;
	result = weir_quantile(values, count, share);
	free(values);
	return result;
}

static void csv_run(FILE *out, const bench *b, const bench_row *row, uint32_t number)
{
	static const char *const reals[] = {"first_token_seconds", "load_seconds", "bytes_per_token", "hit_rate",
					    "bound.ratio"};
	const bench_run *run = &row->runs[number];

	csv_text(out, row->name);
	csv_text(out, kind_name(row->kind));
	csv_text(out, row->options);
	csv_count(out, row->budget_bytes ? row->budget_bytes : OUTPUT_NONE);
	csv_count(out, number + 1);
	csv_count(out, run->times.count);
	csv_real(out, bench_report_number(run->report, "tokens_per_second"));
	csv_real(out, token_quantile(run, 0.5));
	csv_real(out, token_quantile(run, 0.95));
	for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
		csv_real(out, bench_report_number(run->report, reals[i]));
	csv_real(out, run->drive_before);
	csv_real(out, run->drive_after);
	csv_real(out, bench_report_number(run->report, "peak_memory_bytes"));
	csv_text(out, memory_group_name(b->method.kind));
	csv_count(out, run->enforced);
	csv_count(out, run->group_peak_bytes);
	csv_count(out, run->group_hits_count);
	csv_text(out, json_string_value(json_object_get(run->report, "logits_hash")));
	csv_count(out, run->differs_at ? run->differs_at : OUTPUT_NONE);
	csv_text(out, run->why);
	csv_text(out, b->model);
	csv_count(out, b->model_bytes);
	csv_text(out, cache_state(b));
	csv_count(out, run->cached_bytes);
}

static void csv_machine(FILE *out, const bench *b)
{
	csv_text(out, b->machine.system);
	csv_text(out, b->machine.processor);
	csv_count(out, b->machine.processors);
	csv_count(out, b->machine.memory_bytes);
	csv_text(out, b->drive.filesystem);
	csv_text(out, b->drive.device);
	csv_text(out, b->drive.model);
	csv_text(out, weir_version());
	fprintf(out, "%s\n", b->started_at);
}

int bench_write_csv(const bench *b, weir_error *error)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	int result;

	if (out) {
		fputs(CSV_HEADER, out);
		for (int i = 0; i < b->rows_count; i++)
			for (uint32_t j = 0; j < b->rows[i].runs_count; j++) {
				csv_run(out, b, &b->rows[i], j);
				csv_machine(out, b);
			}
	}
	if (!out || fclose(out) != 0)
		result = weir_fail(error, WEIR_ENOMEM, b->csv_path, WEIR_ERROR_NO_OFFSET, 0, "no memory for the table");
	else
		result = output_write_file(b->csv_path, text, bytes, error);
	free(text);
	return result;
}
