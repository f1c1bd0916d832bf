/*
 * simulate_plot.c - hit rates as an SVG: small panels side by side, one for each trace.
 *
 *   ┌──────────┐ ┌──────────┐
 *   │   ____·  │ │     __·  │   up: hits of the second half, 0 to 100 %
 *   │ _/_/     │ │  __/     │   right: budget in % of all experts, on a logarithmic scale
 *   └──────────┘ └──────────┘
 *   ── auto  ── lru  -- belady
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"

#define PANEL_WIDTH 300
#define PANEL_HEIGHT 220
#define LEFT 44
#define TOP 34
#define GAP 26
#define COLUMNS 3
#define BELOW 42
#define LEGEND_STEP 112
#define LEGEND_ROW 18

static const char *const COLOURS[] = {"#4477aa", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#997700", "#44aa99"};

typedef struct plot_scale {
	double least, most; /* of log(budget) */
} plot_scale;

static bool is_bound(const char *policy)
{
	return !strcmp(policy, "belady");
}

/* Auto stands out; the bound is dashed. */
static void print_style(FILE *svg, const simulate_table *table, int policy)
{
	const char *name = table->policies[policy];

	if (!strcmp(name, "auto"))
		fprintf(svg, "stroke=\"#cc3311\" stroke-width=\"2.5\"");
	else if (is_bound(name))
		fprintf(svg, "stroke=\"#000000\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"");
	else
		fprintf(svg, "stroke=\"%s\" stroke-width=\"1.3\"",
			COLOURS[(size_t)policy % (sizeof COLOURS / sizeof *COLOURS)]);
}

static double across(const plot_scale *scale, double percent)
{
	if (scale->most <= scale->least)
		return PANEL_WIDTH / 2.0;
	return (log(percent) - scale->least) / (scale->most - scale->least) * PANEL_WIDTH;
}

static double down(double rate)
{
	return (1 - rate) * PANEL_HEIGHT;
}

static plot_scale scale_of(const simulate_table *table)
{
	plot_scale scale = {INFINITY, -INFINITY};

	for (int b = 0; b < table->budgets_count; b++) {
		scale.least = fmin(scale.least, log(table->budgets_percent[b]));
		scale.most = fmax(scale.most, log(table->budgets_percent[b]));
	}
	return scale;
}

/* What follows the last slash; only what XML and a reader take without harm. */
static void print_name(FILE *svg, const char *path)
{
	const char *slash = strrchr(path, '/');

	for (const char *c = slash ? slash + 1 : path; *c; c++)
		fputc((*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || strchr(" ._-+", *c)
			      ? *c
			      : '?',
		      svg);
}

static void print_axes(FILE *svg, const simulate_table *table, const plot_scale *scale, const char *path)
{
	fprintf(svg, "<text x=\"0\" y=\"-12\" font-weight=\"bold\">");
	print_name(svg, path);
	fprintf(svg, "</text>\n");
	for (int percent = 0; percent <= 100; percent += 25)
		fprintf(svg,
			"<path d=\"M0 %.1fH%d\" stroke=\"#dddddd\"/><text x=\"-6\" y=\"%.1f\" "
			"text-anchor=\"end\">%d%s</text>\n",
			down(percent / 100.0), PANEL_WIDTH, down(percent / 100.0) + 4, percent, percent == 100 ? " %" : "");
	for (int b = 0; b < table->budgets_count; b++)
		fprintf(svg, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.4g %%</text>\n",
			across(scale, table->budgets_percent[b]), PANEL_HEIGHT + 16, table->budgets_percent[b]);
}

static int by_budget(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (x[0] > y[0]) - (x[0] < y[0]);
}

static void print_line(FILE *svg, const simulate_table *table, const simulate_trace *trace, int policy, const plot_scale *scale)
{
	double points[SIMULATE_BUDGETS_MAX][2];

	for (int b = 0; b < table->budgets_count; b++) {
		points[b][0] = across(scale, table->budgets_percent[b]);
		points[b][1] = down(trace->rates[policy][b].warm);
	}
	qsort(points, (size_t)table->budgets_count, sizeof points[0], by_budget);
	fprintf(svg, "<polyline fill=\"none\" ");
	print_style(svg, table, policy);
	fprintf(svg, " points=\"");
	for (int b = 0; b < table->budgets_count; b++)
		fprintf(svg, "%s%.1f,%.1f", b ? " " : "", points[b][0], points[b][1]);
	fprintf(svg, "\"/>\n");
}

static void print_panel(FILE *svg, const simulate_table *table, int index)
{
	const simulate_trace *trace = &table->traces[index];
	plot_scale scale = scale_of(table);

	fprintf(svg, "<g transform=\"translate(%d %d)\">\n", LEFT + index % COLUMNS * (PANEL_WIDTH + LEFT + GAP),
		TOP + index / COLUMNS * (PANEL_HEIGHT + TOP + BELOW));
	print_axes(svg, table, &scale, trace->path);
	for (int p = table->policies_count - 1; p >= 0; p--)
		print_line(svg, table, trace, p, &scale);
	fprintf(svg, "</g>\n");
}

static void print_legend(FILE *svg, const simulate_table *table, int per_row, int top)
{
	for (int p = 0; p < table->policies_count; p++) {
		int x = LEFT + p % per_row * LEGEND_STEP, y = top + p / per_row * LEGEND_ROW;

		fprintf(svg, "<path d=\"M%d %dh22\" ", x, y);
		print_style(svg, table, p);
		fprintf(svg, "/><text x=\"%d\" y=\"%d\">%s</text>\n", x + 28, y + 4, table->policies[p]);
	}
}

char *simulate_plot(const simulate_table *table)
{
	int columns = table->traces_count < COLUMNS ? table->traces_count : COLUMNS;
	int rows = (table->traces_count + COLUMNS - 1) / COLUMNS;
	int width = columns * (PANEL_WIDTH + LEFT + GAP) + GAP, panels = rows * (PANEL_HEIGHT + TOP + BELOW) + TOP;
	int per_row = (width - LEFT) / LEGEND_STEP, legend_rows = (table->policies_count + per_row - 1) / per_row;
	int height = panels + legend_rows * LEGEND_ROW + LEGEND_ROW;
	char *text = NULL;
	size_t bytes = 0;
	FILE *svg = open_memstream(&text, &bytes);

	if (!svg)
		return NULL;
	fprintf(svg,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
		"font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
		width, height, width, height);
	for (int i = 0; i < table->traces_count; i++)
		print_panel(svg, table, i);
	fprintf(svg, "<text x=\"%d\" y=\"%d\">hits in the second half of the trace, over slots in %% of all experts</text>\n",
		LEFT, panels - 20);
	print_legend(svg, table, per_row, panels);
	fprintf(svg, "</svg>\n");
	if (fclose(svg) != 0) {
		free(text);
		return NULL;
	}
	return text;
}
