/*
 * routing.c - opening a routing trace: rows sorted into visits, each checked.
 *
 * The file is read at once and its text let go before the rows are sorted.  Whoever opens a trace owns it until it is closed.
 */
#include "residency/routing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/fail.h"
#include "os/file.h"

#define FILE_BYTES_MAX (UINT64_C(1) << 30)

static int no_memory(const weir_routing *routing, weir_error *error)
{
	return weir_fail(error, WEIR_ENOMEM, routing->path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the trace");
}

static int read_rows(weir_routing *routing, const weir_file *file, weir_error *error)
{
	size_t bytes = (size_t)file->identity.bytes;
	char *text;
	int result;

	if (file->identity.bytes > FILE_BYTES_MAX)
		return weir_fail(error, WEIR_EUNSUPPORTED, routing->path, WEIR_ERROR_NO_OFFSET, 0,
				 "a trace is at most 1 GiB long");
	text = malloc(bytes + 1);
	if (!text)
		return no_memory(routing, error);
	result = weir_file_read(file, 0, text, bytes, error);
	if (!result)
		result = weir_routing_parse(routing, text, bytes, error);
	free(text);
	if (!result && routing->rows_count == 0)
		return weir_fail(error, WEIR_EFORMAT, routing->path, 0, 0, "a trace names at least one expert");
	return result;
}

#define COMPARE(a, b) (((a) > (b)) - ((a) < (b)))

static int by_place(const void *a, const void *b)
{
	const weir_routing_row *x = a, *y = b;
	int order = COMPARE(x->turn, y->turn);

	if (order == 0)
		order = COMPARE(x->step, y->step);
	if (order == 0)
		order = COMPARE(x->layer, y->layer);
	return order ? order : COMPARE(x->slot, y->slot);
}

static bool same_token(const weir_routing_row *a, const weir_routing_row *b)
{
	return a->turn == b->turn && a->step == b->step;
}

/* How many layers have experts; layers[n] becomes the number of the file's layer n among them. */
static uint32_t number_layers(const weir_routing *routing, uint32_t *layers)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < routing->rows_count; i++)
		layers[routing->rows[i].layer] = 1;
	for (uint32_t n = 0; n < WEIR_ROUTING_LAYERS_MAX; n++)
		if (layers[n])
			layers[n] = count++;
	return count;
}

static void build_visits(weir_routing *routing, const uint32_t *layers)
{
	weir_routing_info *info = &routing->info;
	weir_routing_visit *visit = NULL;

	for (uint32_t i = 0; i < routing->rows_count; i++) {
		const weir_routing_row *row = &routing->rows[i];
		bool new_token = i == 0 || !same_token(row, row - 1);

		if (new_token) {
			info->tokens_count++;
			info->prompt_tokens_count += row->phase == 0;
		}
		if (new_token || row->layer != row[-1].layer) {
			visit = &routing->visits[routing->visits_count++];
			*visit = (weir_routing_visit){info->tokens_count - 1, layers[row->layer], i, 0};
		}
		routing->picks[i] = row->expert;
		visit->count++;
		if (visit->count > info->picks_max)
			info->picks_max = visit->count;
		if (row->expert >= info->experts_count)
			info->experts_count = row->expert + 1;
	}
	info->picks_count = routing->rows_count;
}

static int refuse_row(const weir_routing *routing, const weir_routing_row *row, const char *rule, weir_error *error)
{
	return weir_fail(error, WEIR_EFORMAT, routing->path, row->offset, 0,
			 "turn %" PRIu64 ", step %" PRIu64 ", layer %" PRIu32 ": %s", row->turn, row->step, row->layer, rule);
}

/* A layer asks a token's expert for once; seen[] holds, for each expert, the visit that named it last, counted from 1. */
static int check_visits(const weir_routing *routing, uint32_t *seen, weir_error *error)
{
	for (uint32_t v = 0; v < routing->visits_count; v++) {
		const weir_routing_visit *visit = &routing->visits[v];

		for (uint32_t i = visit->first; i < visit->first + visit->count; i++) {
			if (seen[routing->picks[i]] == v + 1)
				return refuse_row(routing, &routing->rows[i], "no expert is named twice", error);
			seen[routing->picks[i]] = v + 1;
			if (routing->rows[i].phase != routing->rows[visit->first].phase)
				return refuse_row(routing, &routing->rows[i], "a token has one phase", error);
		}
	}
	return 0;
}

static int sort_rows(weir_routing *routing, weir_error *error)
{
	uint32_t *layers = calloc(WEIR_ROUTING_LAYERS_MAX, sizeof *layers);
	uint32_t *seen = calloc(WEIR_ROUTING_EXPERTS_MAX, sizeof *seen);
	int result;

	routing->visits = calloc(routing->rows_count, sizeof *routing->visits);
	routing->picks = calloc(routing->rows_count, sizeof *routing->picks);
	if (layers && seen && routing->visits && routing->picks) {
		qsort(routing->rows, routing->rows_count, sizeof *routing->rows, by_place);
		routing->info.layers_count = number_layers(routing, layers);
		build_visits(routing, layers);
		result = check_visits(routing, seen, error);
	} else {
		result = no_memory(routing, error);
	}
	if (!result && routing->experts_stated && routing->experts_stated < routing->info.experts_count)
		result = weir_fail(error, WEIR_EFORMAT, routing->path, WEIR_ERROR_NO_OFFSET, 0,
				   "n_expert is %" PRIu32 ", but expert %" PRIu32 " is named", routing->experts_stated,
				   routing->info.experts_count - 1);
	if (!result && routing->experts_stated)
		routing->info.experts_count = routing->experts_stated;
	free(layers);
	free(seen);
	return result;
}

int weir_routing_open(const char *path, weir_routing **routing, weir_error *error)
{
	weir_routing *opened;
	weir_file file;
	int result;

	if (!path || !routing)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no path, or no place for the trace");
	opened = calloc(1, sizeof *opened);
	if (!opened)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the trace");
	opened->path = path;
	result = weir_file_open(path, &file, error);
	if (!result)
		result = read_rows(opened, &file, error);
	weir_file_close(&file);
	if (!result)
		result = sort_rows(opened, error);
	free(opened->rows);
	opened->rows = NULL;
	opened->path = NULL;
	if (result)
		weir_routing_close(opened);
	else
		*routing = opened;
	return result;
}

void weir_routing_close(weir_routing *routing)
{
	if (!routing)
		return;
	free(routing->rows);
	free(routing->visits);
	free(routing->picks);
	free(routing);
}

void weir_routing_get_info(const weir_routing *routing, weir_routing_info *info)
{
	*info = routing->info;
}
