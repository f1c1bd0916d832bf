/* bench_rows.c - which rows a bench has: budgets given or chosen, variants, llama.cpp resident and mapped.  See bench.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "bench.h"

#define MIB (UINT64_C(1) << 20)
#define PLAN_OF_ALL "1048576G" /* more than any model takes: the plan of a budget that holds everything */
#define START_VARIES_BYTES (4 * MIB) /* the least differs a little from one start to the next */
#define CLOSE_SHARE 0.1 /* chosen budgets that differ by less are one */

struct budgets {
	uint64_t bytes[BENCH_BUDGETS_MAX];
	int count;
};

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + MIB - 1) / MIB * MIB;
}

/* ---- budgets ---- */

/* What the model needs here: the least budget, and the one with which every weight stays in memory. */
static int read_needs(bench *b, weir_error *error)
{
	static const char *const parts[] = {"dense", "experts", "kv", "compute", "other"};
	json_t *plan, *memory;
	int result = bench_run_plan(b, PLAN_OF_ALL, &plan, error);

	if (result < 0)
		return result;
	memory = json_object_get(plan, "memory");
	b->least_bytes =
		round_up((uint64_t)json_integer_value(json_object_get(plan, "least_budget_bytes")) + START_VARIES_BYTES);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		b->whole_bytes += (uint64_t)json_integer_value(json_object_get(memory, parts[i]));
	b->whole_bytes = round_up(b->whole_bytes + START_VARIES_BYTES);
	json_decref(plan);
	return 0;
}

/* Keeps a chosen budget unless it is beyond what there is, or hardly differs from one that is kept. */
static void choose(const bench *b, struct budgets *budgets, uint64_t bytes)
{
	if (bytes < b->least_bytes)
		bytes = b->least_bytes;
	if (bytes > b->usable_bytes)
		return;
	for (int i = 0; i < budgets->count; i++)
		if (fabs((double)bytes / (double)budgets->bytes[i] - 1) < CLOSE_SHARE)
			return;
	budgets->bytes[budgets->count++] = bytes;
}

static void choose_budgets(const bench *b, struct budgets *budgets)
{
	choose(b, budgets, b->least_bytes);
	choose(b, budgets, round_up(b->whole_bytes / 4));
	choose(b, budgets, round_up(b->whole_bytes / 2));
	choose(b, budgets, b->whole_bytes);
}

/* One of "2G,4G,60%". */
static int parse_budget(const char *text, const weir_limits *limits, struct budgets *budgets, weir_error *error)
{
	weir_size size;
	int result = weir_size_parse(text, &size, error);

	if (result < 0)
		return result;
	if (budgets->count == BENCH_BUDGETS_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "--memory: more than %d budgets",
				 BENCH_BUDGETS_MAX);
	budgets->bytes[budgets->count++] = weir_limits_resolve(limits, &size);
	return 0;
}

static int parse_budgets(const bench *b, const weir_limits *limits, struct budgets *budgets, weir_error *error)
{
	char *list = strdup(b->memory), *at = list, *part;
	int result = list ? 0 : WEIR_ENOMEM;

	while (!result && (part = strsep(&at, ",")))
		result = parse_budget(part, limits, budgets, error);
	free(list);
	return result;
}

/* A budget that cannot hold is refused before anything is run. */
static int check_budgets(bench *b, const struct budgets *budgets, weir_error *error)
{
	char text[24];
	json_t *plan;
	int result;

	for (int i = 0; i < budgets->count; i++) {
		snprintf(text, sizeof text, "%llu", (unsigned long long)budgets->bytes[i]);
		result = bench_run_plan(b, text, &plan, error);
		json_decref(plan);
		if (result < 0)
			return result;
	}
	return 0;
}

/* ---- rows ---- */

static int add_row(bench *b, bench_row row, weir_error *error)
{
	if (b->rows_count == BENCH_ROWS_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "more than %d rows", BENCH_ROWS_MAX);
	row.runs = calloc(row.runs_wanted, sizeof *row.runs);
	if (!row.runs)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the runs");
	b->rows[b->rows_count++] = row;
	return 0;
}

static int add_streamed(bench *b, uint64_t bytes, const char *options, weir_error *error)
{
	bench_row row = {.kind = BENCH_STREAMED, .budget_bytes = bytes, .tokens = b->tokens, .runs_wanted = b->repeats};
	char text[CLI_BYTES_TEXT];

	while (*options == ' ')
		options++;
	snprintf(row.options, sizeof row.options, "%s", options);
	snprintf(row.name, sizeof row.name, "weir %s%s%.70s%s", cli_bytes(bytes, text), *options ? " " : "", options,
		 bytes >= b->whole_bytes ? " (all fits)" : "");
	return add_row(b, row, error);
}

/* The budget as it is, and with each of the further options. */
static int add_budget(bench *b, uint64_t bytes, weir_error *error)
{
	char *list = strdup(b->variants ? b->variants : ""), *at = list, *part;
	int result = list ? add_streamed(b, bytes, "", error) : WEIR_ENOMEM;

	while (!result && b->variants && (part = strsep(&at, ";"))) {
		if (strlen(part) >= BENCH_NAME_BYTES)
			result = weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
					   "--variants: '%.40s...' is too long", part);
		else
			result = add_streamed(b, bytes, part, error);
	}
	free(list);
	return result;
}

static int add_resident(bench *b, weir_error *error)
{
	const bench_row row = {
		.kind = BENCH_RESIDENT, .name = "llama.cpp resident", .tokens = b->tokens, .runs_wanted = b->repeats};
	char need[CLI_BYTES_TEXT], have[CLI_BYTES_TEXT];

	if (!b->resident) {
		snprintf(b->not_resident, sizeof b->not_resident, "not asked for");
		return 0;
	}
	if (b->files.holes.code) {
		snprintf(b->not_resident, sizeof b->not_resident,
			 "the model itself lacks what its pack has, which llama.cpp cannot "
			 "read");
		return 0;
	}
	if (b->whole_bytes > b->usable_bytes) {
		snprintf(b->not_resident, sizeof b->not_resident, "it takes %s and %s are there",
			 cli_bytes(b->whole_bytes, need), cli_bytes(b->usable_bytes, have));
		return 0;
	}
	return add_row(b, row, error);
}

static int add_mmap(bench *b, uint64_t bytes, weir_error *error)
{
	bench_row row = {.kind = BENCH_MMAP, .budget_bytes = bytes, .runs_wanted = b->mmap_runs};
	char text[CLI_BYTES_TEXT];

	row.tokens = b->mmap_tokens < b->tokens ? b->mmap_tokens : b->tokens;
	snprintf(row.name, sizeof row.name, "llama.cpp mmap %s", cli_bytes(bytes, text));
	return add_row(b, row, error);
}

static int add_rows(bench *b, const struct budgets *budgets, weir_error *error)
{
	int result = 0;

	for (int i = 0; i < budgets->count && !result; i++)
		result = add_budget(b, budgets->bytes[i], error);
	if (!result)
		result = add_resident(b, error);
	for (int i = 0; i < budgets->count && !result && b->mmap && !b->files.holes.code; i++)
		if (budgets->bytes[i] < b->whole_bytes)
			result = add_mmap(b, budgets->bytes[i], error);
	return result;
}

int bench_make_rows(bench *b, weir_error *error)
{
	struct budgets budgets = {.count = 0};
	weir_limits limits;
	int result = 0;

	weir_limits_read(&limits);
	b->usable_bytes = limits.auto_bytes;
	if (b->memory)
		result = parse_budgets(b, &limits, &budgets, error);
	if (!result)
		result = read_needs(b, error);
	if (!result && b->memory)
		result = check_budgets(b, &budgets, error);
	if (!result && !b->memory)
		choose_budgets(b, &budgets);
	if (!result && !budgets.count)
		result = weir_fail(error, WEIR_EBUDGET, b->files.path, WEIR_ERROR_NO_OFFSET, 0,
				   "the least budget is %llu bytes, and this process may use %llu",
				   (unsigned long long)b->least_bytes, (unsigned long long)b->usable_bytes);
	return result ? result : add_rows(b, &budgets, error);
}
