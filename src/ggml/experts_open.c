/*
 * experts_open.c - the experts of a session: their chunks in the store, and the memory that computing with them takes.
 */
#include "ggml/experts_types.h"

#include <stdlib.h>

#include "base/fail.h"
#include "ggml/counts.h"
#include "ggml/experts.h"
#include "ggml/lookahead.h"
#include "ggml/packed.h"

uint64_t weir_experts_scratch_bytes(const weir_scratch_sizes *scratch)
{
	return scratch->quantized + scratch->gathered + scratch->result + scratch->pairs * (sizeof(pair) + sizeof(int32_t)) +
	       scratch->experts * 64;
}

static int alloc_scratch(weir_experts *experts, const weir_scratch_sizes *scratch)
{
	experts->quantized = malloc(scratch->quantized + 64);
	experts->gathered = malloc(scratch->gathered + 64);
	experts->result = malloc(scratch->result + 64);
	experts->zero_ids = calloc(scratch->pairs + 1, sizeof *experts->zero_ids);
	experts->route.pairs = calloc(scratch->pairs + 1, sizeof *experts->route.pairs);
	experts->route.count = calloc(scratch->experts + 1, sizeof *experts->route.count);
	experts->route.start = calloc(scratch->experts + 1, sizeof *experts->route.start);
	experts->route.active = calloc(scratch->experts + 1, sizeof *experts->route.active);
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++)
		experts->logits[d] = calloc(scratch->experts + 1, sizeof *experts->logits[d]);
	experts->wait_leases = calloc(2 * scratch->experts + 1, sizeof *experts->wait_leases);
	experts->wait_places = calloc(2 * scratch->experts + 1, sizeof *experts->wait_places);
	if (!experts->quantized || !experts->gathered || !experts->result || !experts->zero_ids || !experts->route.pairs ||
	    !experts->route.count || !experts->route.start || !experts->route.active || !experts->logits[0] ||
	    !experts->logits[WEIR_LOOKAHEAD_LAYERS - 1] || !experts->wait_leases || !experts->wait_places)
		return WEIR_ENOMEM;
	return 0;
}

static uint32_t number_chunks(weir_session *session, uint32_t *groups)
{
	uint32_t chunks = 0;

	*groups = 0;
	for (uint32_t i = 0; i < session->weights_count; i++) {
		weir_weight *weight = &session->weights[i];

		if (weight->place != PLACE_SLOTS)
			continue;
		weight->group = (*groups)++;
		weight->chunk_first = chunks;
		chunks += (uint32_t)weight->tensor->ne[2];
	}
	return chunks;
}

static void describe_chunks(const weir_session *session, weir_chunk *chunks)
{
	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];

		if (weight->place != PLACE_SLOTS)
			continue;
		for (uint32_t e = 0; e < (uint32_t)weight->tensor->ne[2]; e++)
			chunks[weight->chunk_first + e] = (weir_chunk){.file = weight->file,
								       .group = weight->group,
								       .offset = weight->offset + e * weight->stride,
								       .bytes = weight->tensor->nb[2]};
	}
}

static int open_store(weir_session *session, uint32_t chunks_count, uint32_t leases_max, weir_error *error)
{
	weir_chunk *chunks = calloc(chunks_count, sizeof *chunks);
	const char **paths = calloc(session->files_count, sizeof *paths);
	weir_store_options options = {.paths_count = session->files_count,
				      .chunks_count = chunks_count,
				      .budget_bytes = session->plan.memory_experts_bytes,
				      .leases_max = leases_max,
				      .policy = session->options.policy,
				      .io_method = session->options.io_method,
				      .io_fault = session->options.io_fault,
				      .queue_depth = session->options.queue_depth,
				      .piece_bytes = session->options.piece_bytes,
				      .in_flight_bytes = session->in_flight_bytes,
				      .page_cache = session->page_cache};
	int result;

	if (!chunks || !paths) {
		free(chunks);
		free(paths);
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the table of experts");
	}
	for (uint32_t i = 0; i < session->files_count; i++)
		paths[i] = session->files[i].path;
	describe_chunks(session, chunks);
	options.chunks = chunks;
	options.paths = paths;
	result = weir_store_open(&options, &session->store, error);
	if (!result)
		result = weir_packed_check_store(session, error);
	if (!result)
		weir_counts_load(session);
	free(chunks);
	free(paths);
	return result;
}

int weir_experts_open(weir_session *session, weir_error *error)
{
	uint32_t groups, chunks = number_chunks(session, &groups);

	if (!chunks)
		return 0;
	session->experts = calloc(1, sizeof *session->experts);
	if (!session->experts)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for experts");
	session->experts->session = session;
	weir_lookahead_init(session->experts);
	if (alloc_scratch(session->experts, &session->scratch))
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for experts");
	return open_store(session, chunks, chunks + 1, error);
}

void weir_experts_close(weir_experts *experts)
{
	if (!experts)
		return;
	free(experts->quantized);
	free(experts->gathered);
	free(experts->result);
	free(experts->zero_ids);
	free(experts->route.pairs);
	free(experts->route.count);
	free(experts->route.start);
	free(experts->route.active);
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++)
		free(experts->logits[d]);
	free(experts->wait_leases);
	free(experts->wait_places);
	free(experts);
}

void weir_experts_add_stats(const weir_experts *experts, weir_session_stats *stats)
{
	stats->lookahead = experts->judge.guessing;
	stats->lookahead_with_ns = experts->judge.with_ns;
	stats->lookahead_without_ns = experts->judge.without_ns;
}
