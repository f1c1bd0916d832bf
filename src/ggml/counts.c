/*
 * counts.c - see counts.h.
 */
#include "ggml/counts.h"

#include <stdlib.h>

/* A session's expert weights, streamed or not, as the store keeps counts of them. */
typedef struct counted_list {
	weir_counted_weight *weights;
	uint32_t *numbers; /* 0, 1, 2...: chunks are numbered weight by weight */
	uint32_t count;
	const char *model; /* file that the first of them lies in */
} counted_list;

static void list_free(counted_list *list)
{
	free(list->weights);
	free(list->numbers);
}

static void list_add(counted_list *list, const weir_session *session, const weir_weight *weight)
{
	if (!list->model)
		list->model = session->files[weight->mapped_file].path;
	list->weights[list->count++] = (weir_counted_weight){
		.name = weight->tensor->name,
		.bytes = weight->bytes,
		.experts = (uint32_t)weight->tensor->ne[2],
		.chunks = weight->place == PLACE_SLOTS ? list->numbers + weight->chunk_first : NULL,
	};
}

static uint32_t chunks_end(const weir_session *session)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < session->weights_count; i++)
		if (session->weights[i].place == PLACE_SLOTS)
			end = session->weights[i].chunk_first + (uint32_t)session->weights[i].tensor->ne[2];
	return end;
}

/* False without memory, or without experts. */
static bool list_make(counted_list *list, const weir_session *session)
{
	uint32_t end = chunks_end(session);

	*list = (counted_list){.weights = calloc(session->weights_count, sizeof *list->weights),
			       .numbers = calloc(end, sizeof *list->numbers)};
	if (!list->weights || !list->numbers) {
		list_free(list);
		return false;
	}
	for (uint32_t i = 0; i < end; i++)
		list->numbers[i] = i;
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (weir_weights_is_expert(&session->weights[i]))
			list_add(list, session, &session->weights[i]);
	return true;
}

void weir_counts_load(weir_session *session)
{
	counted_list list;

	session->counts_loaded = 0;
	session->counts_demanded = 0;
	if (session->options.no_counts || !session->store || !list_make(&list, session))
		return;
	if (list.model)
		session->counts_loaded = weir_store_load_counts(session->store, list.model, list.weights, list.count);
	list_free(&list);
}

void weir_counts_save(weir_session *session)
{
	weir_store_stats stats;
	counted_list list;

	if (session->options.no_counts || !session->store)
		return;
	weir_store_get_stats(session->store, &stats);
	if (stats.demanded == session->counts_demanded || !list_make(&list, session))
		return;
	session->counts_demanded = stats.demanded;
	if (list.model)
		weir_store_save_counts(session->store, list.model, list.weights, list.count);
	list_free(&list);
}
