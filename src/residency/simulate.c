/*
 * simulate.c - a routing trace under a policy (replay.h), or under Belady's rule.
 *
 * Belady: when a slot is needed, the expert goes that is demanded again last.  next_use[] has, for each slot, the number of the
 * visit that wants its expert next; the slots of the visit in progress are left out.
 *
 *   visit       0      1      2      3
 *   picks       a b    c      a      b          two slots: c comes for b (wanted again at 3), not for a (at 2)
 *
 * Owns nothing beyond a call; reads and writes no file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "residency/replay.h"
#include "residency/routing.h"

#define BELADY "belady"

static void count(const weir_routing *routing, const weir_routing_visit *visit, uint32_t hits, weir_simulation *result)
{
	result->demanded += visit->count;
	result->hits += hits;
	if (visit->token < routing->info.tokens_count / 2)
		return;
	result->warm_demanded += visit->count;
	result->warm_hits += hits;
}

/* ---- policies ---- */

static void replay_visits(const weir_routing *routing, weir_replay *replay, uint32_t experts_count, uint32_t *chunks,
			  weir_simulation *result)
{
	for (uint32_t v = 0; v < routing->visits_count; v++) {
		const weir_routing_visit *visit = &routing->visits[v];

		for (uint32_t i = 0; i < visit->count; i++)
			chunks[i] = visit->layer * experts_count + routing->picks[visit->first + i];
		count(routing, visit, weir_replay_demand(replay, chunks, visit->count), result);
		if (v + 1 == routing->visits_count || visit[1].token != visit->token)
			weir_policy_tick(&replay->policy);
	}
}

static int run_policy(const weir_routing *routing, const char *policy, uint32_t experts_count, uint32_t slots_count,
		      weir_simulation *result)
{
	uint32_t layers_count = routing->info.layers_count, chunks_count = layers_count * experts_count;
	uint32_t *chunk_set = calloc(chunks_count, sizeof *chunk_set), *set_class = calloc(layers_count, sizeof *set_class);
	uint32_t *chunks = calloc(routing->info.picks_max, sizeof *chunks);
	const weir_policy_shape shape = {.chunks_count = chunks_count,
					 .sets_count = layers_count,
					 .classes_count = 1,
					 .slots_count = slots_count,
					 .chunk_set = chunk_set,
					 .set_class = set_class,
					 .class_slots = &slots_count};
	weir_replay replay;
	int code = WEIR_ENOMEM;

	if (chunk_set && set_class && chunks) {
		for (uint32_t i = 0; i < chunks_count; i++)
			chunk_set[i] = i / experts_count;
		code = weir_replay_open(&replay, policy, &shape);
	}
	if (!code) {
		replay_visits(routing, &replay, experts_count, chunks, result);
		weir_replay_close(&replay);
	}
	free(chunk_set);
	free(set_class);
	free(chunks);
	return code;
}

/* ---- Belady ---- */

typedef struct belady {
	uint32_t slots_count, used;
	uint32_t experts_count;
	uint32_t *slot_of; /* [chunk]; WEIR_NONE */
	uint32_t *chunk_of; /* [slot] */
	uint32_t *next_use; /* [slot] visit; WEIR_NONE: never again.  0 while pinned: the earliest of all */
	uint32_t *again; /* [pick] the visit that wants the same chunk next */
} belady;

static void find_next_uses(const weir_routing *routing, belady *b)
{
	uint32_t *last = b->slot_of; /* borrowed: [chunk] the visit seen last, going backwards */

	for (uint32_t v = routing->visits_count; v-- > 0;) {
		const weir_routing_visit *visit = &routing->visits[v];

		for (uint32_t i = visit->first; i < visit->first + visit->count; i++) {
			uint32_t chunk = visit->layer * b->experts_count + routing->picks[i];

			b->again[i] = last[chunk];
			last[chunk] = v;
		}
	}
}

static uint32_t latest(const belady *b)
{
	uint32_t slot = WEIR_NONE, use = 0;

	for (uint32_t i = 0; i < b->used; i++)
		if (b->next_use[i] > use) {
			slot = i;
			use = b->next_use[i];
		}
	return slot;
}

static void bring(belady *b, uint32_t chunk)
{
	uint32_t slot = b->used < b->slots_count ? b->used++ : latest(b);

	if (slot == WEIR_NONE)
		return;
	if (b->chunk_of[slot] != WEIR_NONE)
		b->slot_of[b->chunk_of[slot]] = WEIR_NONE;
	b->chunk_of[slot] = chunk;
	b->slot_of[chunk] = slot;
	b->next_use[slot] = 0;
}

static uint32_t visit_belady(const weir_routing *routing, const weir_routing_visit *visit, belady *b)
{
	const uint32_t *picks = routing->picks + visit->first;
	uint32_t base = visit->layer * b->experts_count, hits = 0;

	for (uint32_t i = 0; i < visit->count; i++)
		if (b->slot_of[base + picks[i]] != WEIR_NONE) {
			b->next_use[b->slot_of[base + picks[i]]] = 0;
			hits++;
		}
	for (uint32_t i = 0; i < visit->count; i++)
		if (b->slot_of[base + picks[i]] == WEIR_NONE)
			bring(b, base + picks[i]);
	for (uint32_t i = 0; i < visit->count; i++)
		if (b->slot_of[base + picks[i]] != WEIR_NONE)
			b->next_use[b->slot_of[base + picks[i]]] = b->again[visit->first + i];
	return hits;
}

static int run_belady(const weir_routing *routing, uint32_t experts_count, uint32_t slots_count, weir_simulation *result)
{
	uint32_t chunks_count = routing->info.layers_count * experts_count;
	size_t chunk_bytes = chunks_count * sizeof(uint32_t), slot_bytes = slots_count * sizeof(uint32_t);
	belady b = {.slots_count = slots_count,
		    .experts_count = experts_count,
		    .slot_of = malloc(chunk_bytes),
		    .chunk_of = malloc(slot_bytes),
		    .next_use = calloc(slots_count, sizeof(uint32_t)),
		    .again = calloc(routing->info.picks_count, sizeof(uint32_t))};
	int code = b.slot_of && b.chunk_of && b.next_use && b.again ? 0 : WEIR_ENOMEM;

	if (!code) {
		memset(b.slot_of, 0xff, chunk_bytes);
		memset(b.chunk_of, 0xff, slot_bytes);
		find_next_uses(routing, &b);
		memset(b.slot_of, 0xff, chunk_bytes);
		for (uint32_t v = 0; v < routing->visits_count; v++)
			count(routing, &routing->visits[v], visit_belady(routing, &routing->visits[v], &b), result);
	}
	free(b.slot_of);
	free(b.chunk_of);
	free(b.next_use);
	free(b.again);
	return code;
}

int weir_routing_simulate(const weir_routing *routing, const char *policy, uint32_t experts_count, uint32_t slots_count,
			  weir_simulation *result, weir_error *error)
{
	int code;

	if (!routing || !policy || !result)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no trace, policy or place for the result");
	if (experts_count == 0)
		experts_count = routing->info.experts_count;
	if (experts_count < routing->info.experts_count || experts_count > WEIR_ROUTING_EXPERTS_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the trace names expert %u, so a layer has more than %u", routing->info.experts_count - 1,
				 experts_count);
	if (slots_count == 0 || slots_count > routing->info.layers_count * experts_count)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "slots are between 1 and %u",
				 routing->info.layers_count * experts_count);
	*result = (weir_simulation){0};
	if (strcmp(policy, BELADY) == 0)
		code = run_belady(routing, experts_count, slots_count, result);
	else
		code = run_policy(routing, policy, experts_count, slots_count, result);
	if (code)
		return weir_fail(error, code, NULL, WEIR_ERROR_NO_OFFSET, code == WEIR_ENOMEM ? ENOMEM : 0,
				 code == WEIR_ENOMEM ? "no memory for the simulation" : "unknown policy \"%s\"", policy);
	return 0;
}

const char *weir_policy_name(uint32_t index)
{
	for (const weir_policy_methods *methods = weir_policy_table; methods->name; methods++)
		if (index-- == 0)
			return methods->name;
	return NULL;
}
