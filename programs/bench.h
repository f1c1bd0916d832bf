/*
 * bench.h - what the files of `weir bench` share.
 *
 *   row     one way to run the model: weir at a budget (and with further options), llama.cpp resident, llama.cpp mapped
 *   run     one repetition of a row: a child process, its report, the times of its tokens, the drive's rate beside it
 *
 *   cmd_bench.c      options, order, exit code          bench_rows.c     which rows there are
 *   bench_run.c      one run                            bench_figures.c  medians, ratios, whether logits are equal
 *   bench_table.c    what a person reads                bench_output.c   JSON and CSV
 *
 * `struct bench` owns everything in it; main thread only.
 */
#ifndef WEIR_PROGRAMS_BENCH_H
#define WEIR_PROGRAMS_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "child.h"
#include "cli.h"
#include "machine.h"
#include "memory_group.h"
#include "model.h"
#include "output.h"
#include "rates.h"
#include "token_times.h"

#define BENCH_ROWS_MAX 64
#define BENCH_BUDGETS_MAX 16
#define BENCH_NAME_BYTES 96

typedef enum bench_kind { BENCH_STREAMED, BENCH_RESIDENT, BENCH_MMAP } bench_kind;

typedef struct bench_run {
	json_t *report; /* the child's own; NULL when it failed */
	token_times times;
	double drive_before, drive_after; /* bytes per second; NAN: not measured */
	uint64_t cached_bytes; /* of the model, in the page cache before the run; OUTPUT_NONE: not known */
	uint64_t group_peak_bytes, group_hits_count; /* OUTPUT_NONE without a group */
	bool enforced;
	bool timed_out;
	uint32_t differs_at; /* the first token whose logits are not the reference's, counted from 1; 0: none */
	char why[CHILD_WHY_BYTES]; /* it failed; "" for a run that did not */
} bench_run;

typedef struct bench_row {
	bench_kind kind;
	char name[BENCH_NAME_BYTES];
	uint64_t budget_bytes; /* of the process; what mmap is limited to; 0: not limited */
	char options[BENCH_NAME_BYTES]; /* further ones, of a variant; "" for none */
	uint32_t tokens;
	uint32_t runs_wanted, runs_count;
	bench_run *runs;
} bench_row;

/* A row's figures over its good runs; NAN and OUTPUT_NONE where there is nothing to tell. */
typedef struct bench_figures {
	uint32_t good_runs;
	double tokens_per_second, tokens_per_second_least; /* median; the slowest run's */
	double token_seconds_median, token_seconds_p95; /* over the tokens of all runs, the first of each left out */
	double first_token_seconds, load_seconds, prompt_tokens_per_second;
	double bytes_per_token, hit_rate, stall_seconds;
	double drive_bytes_per_second; /* measured beside the runs */
	double to_drive; /* bytes per second that the runs read, to that */
	double to_bound; /* median of the reports' bound.ratio */
	double to_resident, to_mmap; /* times as fast as llama.cpp resident; mapped, limited to the same bytes */
	double forecast_error;
	uint64_t peak_memory_bytes, group_peak_bytes, group_hits_count; /* the largest of the runs' */
	bool is_reference; /* one of its runs is what all others are compared with */
	int equal; /* 1: the logits are the reference's as far as both go; 0: they are not; -1: nothing to compare */
	uint32_t differs_at;
} bench_figures;

typedef struct bench {
	cli_common common;
	const char *model, *memory, *prompt, *prompt_file, *prompt_tokens, *threads, *variants, *csv_path;
	uint32_t tokens, ctx, batch, repeats, mmap_tokens, mmap_runs, seed;
	double timeout_seconds, temp;
	bool raw, resident, mmap, drop_cache;

	model_files files;
	char **shards; /* every file of the model itself */
	uint32_t shards_count;
	uint64_t model_bytes;
	bool has_text; /* there is a vocabulary */
	machine machine;
	machine_drive drive;
	memory_group_method method;
	uint64_t least_bytes, whole_bytes; /* of budgets: the least, and with which every weight stays */
	uint64_t usable_bytes; /* that processes may use here */
	char not_resident[128]; /* why llama.cpp is not run resident; "" when it is */
	char started_at[32];
	rates_reading reading; /* how the drive was read last; its texts live in io_method */
	char io_method[16];
	bench_row rows[BENCH_ROWS_MAX];
	int rows_count;
} bench;

/* bench_rows.c: fills whole_bytes and least_bytes by `weir plan`, then the rows. */
int bench_make_rows(bench *b, weir_error *error);

/* bench_run.c */
int bench_run_plan(bench *b, const char *memory, json_t **plan, weir_error *error); /* WEIR_EBUDGET with the child's line */
int bench_run_once(bench *b, bench_row *row, weir_error *error);

/* bench_figures.c */
double bench_report_number(const json_t *report, const char *path); /* "bound.ratio"; NAN for null and nothing */
void bench_compare(bench *b); /* sets differs_at of every run */
void bench_figures_of(const bench *b, const bench_row *row, bench_figures *figures);
bool bench_all_good(const bench *b); /* no run failed (mmap may be too slow), no logits differ */

/* bench_table.c, bench_output.c */
void bench_print_table(const bench *b);
json_t *bench_json(const bench *b, int exit_code);
int bench_write_csv(const bench *b, weir_error *error);

#endif
