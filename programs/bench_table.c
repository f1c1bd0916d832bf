/* bench_table.c - a bench as a person reads it: where, what, one line a row, what went wrong.  See bench.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "weir/version.h"

#define CELL_BYTES 40

struct column {
	const char *above, *below;
	int width;
};

static const struct column COLUMNS[] = {
	{"tokens/s", "", 9},	     {"token time", "median", 11}, {"", "p95", 9},
	{"first", "token", 9},	     {"read", "a token", 10},	   {"", "hits", 8},
	{"drive", "per second", 11}, {"of the", "drive", 8},	   {"of the", "bound", 8},
	{"times", "resident", 10},   {"times", "mmap", 9},	   {"memory", "peak", 10},
	{"limit", "met", 10},	     {"", "logits", 11},
};

/* ---- cells: "-" for what is not known ---- */

static void print_cell(const struct column *column, const char *text)
{
	printf("%*s", column->width, text);
}

static void real_cell(char cell[CELL_BYTES], const char *format, double value)
{
	if (isfinite(value))
		snprintf(cell, CELL_BYTES, strcmp(format, "%") ? "%.3g%s" : "%.0f %s",
			 strcmp(format, "%") ? value : 100 * value, format);
	else
		snprintf(cell, CELL_BYTES, "-");
}

static void count_cell(char cell[CELL_BYTES], uint64_t count)
{
	if (count == OUTPUT_NONE)
		snprintf(cell, CELL_BYTES, "-");
	else
		snprintf(cell, CELL_BYTES, "%" PRIu64, count);
}

static void seconds_cell(char cell[CELL_BYTES], double seconds)
{
	if (!isfinite(seconds))
		snprintf(cell, CELL_BYTES, "-");
	else if (seconds < 1)
		snprintf(cell, CELL_BYTES, "%.3g ms", 1000 * seconds);
	else
		snprintf(cell, CELL_BYTES, "%.2f s", seconds);
}

static void bytes_cell(char cell[CELL_BYTES], double bytes)
{
	if (isfinite(bytes))
		cli_bytes((uint64_t)bytes, cell);
	else
		snprintf(cell, CELL_BYTES, "-");
}

static double known(uint64_t count)
{
	return count == OUTPUT_NONE ? NAN : (double)count;
}

static void logits_cell(char cell[CELL_BYTES], const bench_figures *figures)
{
	const char *texts[] = {"-", "NOT EQUAL", "equal"};

	snprintf(cell, CELL_BYTES, "%s", figures->equal && figures->is_reference ? "reference" : texts[figures->equal + 1]);
}

/* ---- lines ---- */

static int name_width(const bench *b)
{
	size_t width = 10;

	for (int i = 0; i < b->rows_count; i++)
		if (strlen(b->rows[i].name) > width)
			width = strlen(b->rows[i].name);
	return (int)width;
}

static const char *head_of(size_t column, int line)
{
	return line ? COLUMNS[column].below : COLUMNS[column].above;
}

static void print_header(int width)
{
	for (int line = 0; line < 2; line++) {
		size_t count = sizeof COLUMNS / sizeof *COLUMNS;

		while (count && !*head_of(count - 1, line)) /* no blanks at the end */
			count--;
		printf("%-*s", width, "");
		for (size_t i = 0; i < count; i++)
			print_cell(&COLUMNS[i], head_of(i, line));
		printf("\n");
	}
}

static void print_row(const bench *b, const bench_row *row, int width)
{
	char cells[sizeof COLUMNS / sizeof *COLUMNS][CELL_BYTES];
	bench_figures figures;

	bench_figures_of(b, row, &figures);
	real_cell(cells[0], "", figures.tokens_per_second);
	seconds_cell(cells[1], figures.token_seconds_median);
	seconds_cell(cells[2], figures.token_seconds_p95);
	seconds_cell(cells[3], figures.first_token_seconds);
	bytes_cell(cells[4], figures.bytes_per_token);
	real_cell(cells[5], "%", figures.hit_rate);
	bytes_cell(cells[6], figures.drive_bytes_per_second);
	real_cell(cells[7], "%", figures.to_drive);
	real_cell(cells[8], "%", figures.to_bound);
	real_cell(cells[9], "", row->kind == BENCH_RESIDENT ? NAN : figures.to_resident);
	real_cell(cells[10], "", row->kind == BENCH_MMAP ? NAN : figures.to_mmap);
	bytes_cell(cells[11], known(figures.peak_memory_bytes));
	count_cell(cells[12], figures.group_hits_count);
	logits_cell(cells[13], &figures);
	printf("%-*s", width, row->name);
	for (size_t i = 0; i < sizeof COLUMNS / sizeof *COLUMNS; i++)
		print_cell(&COLUMNS[i], cells[i]);
	printf("\n");
}

/* Each failure, and where logits begin to differ. */
static void print_problems(const bench *b)
{
	for (int i = 0; i < b->rows_count; i++)
		for (uint32_t j = 0; j < b->rows[i].runs_count; j++) {
			const bench_run *run = &b->rows[i].runs[j];

			if (run->why[0])
				printf("%s, run %" PRIu32 ": FAILED: %s\n", b->rows[i].name, j + 1, run->why);
			if (run->differs_at)
				printf("%s, run %" PRIu32 ": NOT EQUAL from token %" PRIu32 " on\n", b->rows[i].name, j + 1,
				       run->differs_at);
		}
}

/* ---- conditions ---- */

static void print_machine(const bench *b)
{
	char memory[CLI_BYTES_TEXT];

	printf("weir %s, %s, %s\n", weir_version(), b->machine.system, b->started_at);
	printf("%s, %" PRIu32 " processors%s, %s of memory\n",
	       b->machine.processor[0] ? b->machine.processor : b->machine.architecture, b->machine.processors,
	       b->machine.virtual_machine ? " of a virtual machine" : "", cli_bytes(b->machine.memory_bytes, memory));
	printf("%s on %s%s%s%s\n", b->drive.filesystem, b->drive.device, b->drive.model[0] ? " (" : "", b->drive.model,
	       b->drive.model[0] ? ")" : "");
}

static bool enforced_everywhere(const bench *b)
{
	for (int i = 0; i < b->rows_count; i++)
		for (uint32_t j = 0; j < b->rows[i].runs_count; j++)
			if (b->rows[i].budget_bytes && !b->rows[i].runs[j].enforced)
				return false;
	return true;
}

static void print_conditions(const bench *b)
{
	char model[CLI_BYTES_TEXT];

	printf("%s, %s; %" PRIu32 " tokens, %s; %" PRIu32
	       " run%s of each, taking turns; page cache %s; no counts of earlier runs\n",
	       b->model, cli_bytes(b->model_bytes, model), b->tokens,
	       b->temp > 0 ? "drawn with one seed" : "the likeliest each time", b->repeats, b->repeats == 1 ? "" : "s",
	       b->drop_cache ? "without the model before each" : "as it is found");
	if (b->method.kind == MEMORY_GROUP_NONE)
		printf("memory limits are NOT enforced: %s\n", b->method.reason);
	else if (!enforced_everywhere(b))
		printf("memory limits are NOT enforced in every run: a %s did not take them\n",
		       memory_group_name(b->method.kind));
	else
		printf("memory limits are enforced by a %s for each run\n", memory_group_name(b->method.kind));
	if (b->not_resident[0] && b->resident)
		printf("llama.cpp is not run resident: %s\n", b->not_resident);
	printf("\n");
}

void bench_print_table(const bench *b)
{
	int width = name_width(b);

	print_machine(b);
	print_conditions(b);
	print_header(width);
	for (int i = 0; i < b->rows_count; i++)
		print_row(b, &b->rows[i], width);
	print_problems(b);
}
