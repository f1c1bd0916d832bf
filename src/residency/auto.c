/*
 * auto.c - see auto.h.
 */
#include "residency/auto.h"

#include <string.h>

#include "residency/odds.h"

#define DEMANDED_LEAST 256 /* below that, hit rates say nothing */
#define KEPT 0.75

static const char *const names[WEIR_AUTO_CANDIDATES] = {"odds", "lfu", "lru"};

/* The sets that are watched, and the shape of their replay.  Lives on the stack while tables are carved and filled. */
typedef struct auto_sample {
	uint32_t sets[WEIR_AUTO_SETS_MAX], set_chunks[WEIR_AUTO_SETS_MAX], set_class[WEIR_AUTO_SETS_MAX];
	uint32_t class_index, class_chunks;
	weir_policy_shape shape;
} auto_sample;

/* The class with the most chunks: its sets are [first, end). */
static uint32_t largest_class(const weir_policy_shape *shape, uint32_t *first, uint32_t *end)
{
	uint32_t most = 0, chunks = 0, start = 0;

	*first = *end = 0;
	for (uint32_t set = 0; set < shape->sets_count; set++) {
		if (set == 0 || shape->set_class[set] != shape->set_class[set - 1]) {
			start = set;
			chunks = 0;
		}
		chunks += shape->set_chunks[set];
		if (chunks > most) {
			most = chunks;
			*first = start;
			*end = set + 1;
		}
	}
	return most;
}

static void take_sample(const weir_policy_shape *shape, auto_sample *sample)
{
	uint32_t first, end, count;

	memset(sample, 0, sizeof *sample);
	sample->class_chunks = largest_class(shape, &first, &end);
	sample->class_index = shape->sets_count ? shape->set_class[first] : 0;
	count = end - first < WEIR_AUTO_SETS_MAX ? end - first : WEIR_AUTO_SETS_MAX;
	for (uint32_t i = 0; i < count; i++) {
		sample->sets[i] = first + (uint32_t)((uint64_t)i * (end - first) / count);
		sample->set_chunks[i] = shape->set_chunks[sample->sets[i]];
		sample->shape.chunks_count += sample->set_chunks[i];
	}
	sample->shape.sets_count = count;
	sample->shape.classes_count = 1;
	sample->shape.slots_count = sample->shape.chunks_count; /* room for as many as there can be */
	sample->shape.set_chunks = sample->set_chunks;
	sample->shape.set_class = sample->set_class;
}

weir_auto *weir_auto_carve(const weir_policy_shape *shape, weir_workspace *workspace)
{
	weir_auto unused, *chooser = weir_workspace_take(workspace, 1, sizeof *chooser), *to = chooser ? chooser : &unused;
	auto_sample sample;

	take_sample(shape, &sample);
	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++)
		weir_replay_carve(&to->replays[i], weir_policy_find(names[i]), &sample.shape, workspace);
	to->watched = weir_workspace_take(workspace, shape->sets_count, sizeof *to->watched);
	to->chunk_set = weir_workspace_take(workspace, sample.shape.chunks_count, sizeof *to->chunk_set);
	to->totals = weir_workspace_take(workspace, sample.shape.chunks_count, sizeof *to->totals);
	return chooser;
}

static void number_chunks(weir_auto *chooser, auto_sample *sample)
{
	uint32_t chunk = 0;

	for (uint32_t i = 0; i < sample->shape.sets_count; i++) {
		chooser->watched[sample->sets[i]] = i;
		chooser->first[i] = chunk;
		for (uint32_t end = chunk + sample->set_chunks[i]; chunk < end; chunk++)
			chooser->chunk_set[chunk] = i;
	}
	sample->shape.chunk_set = chooser->chunk_set;
}

void weir_auto_init(weir_policy *policy, const weir_policy_shape *shape)
{
	weir_auto *chooser = policy->chooser;
	auto_sample sample;
	uint64_t slots;

	take_sample(shape, &sample);
	memset(chooser->watched, 0xff, shape->sets_count * sizeof *chooser->watched);
	number_chunks(chooser, &sample);
	slots = (uint64_t)shape->class_slots[sample.class_index] * sample.shape.chunks_count / sample.class_chunks;
	if (slots > sample.shape.chunks_count)
		slots = sample.shape.chunks_count;
	sample.shape.slots_count = slots > 0 ? (uint32_t)slots : 1;
	sample.shape.class_slots = &sample.shape.slots_count;
	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++) {
		weir_replay_init(&chooser->replays[i], weir_policy_find(names[i]), &sample.shape);
		chooser->hits[i] = 0;
	}
	chooser->demanded = 0;
	chooser->active = chooser->rival = chooser->rival_windows = 0;
	weir_policy_use(policy, weir_policy_find(names[0]));
}

void weir_auto_visit(weir_policy *policy, uint32_t set, const uint16_t *picks, uint32_t count)
{
	weir_auto *chooser = policy->chooser;
	uint32_t watched = chooser->watched[set], chunks[WEIR_ODDS_PICKS_MAX];

	if (watched == WEIR_NONE)
		return;
	for (uint32_t i = 0; i < count; i++)
		chunks[i] = chooser->first[watched] + picks[i];
	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++)
		weir_replay_demand(&chooser->replays[i], chunks, count);
}

static void end_window(weir_auto *chooser)
{
	chooser->demanded = KEPT * chooser->demanded + (double)chooser->replays[0].demanded;
	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++) {
		chooser->hits[i] = KEPT * chooser->hits[i] + (double)chooser->replays[i].hits;
		chooser->replays[i].hits = chooser->replays[i].demanded = 0;
	}
}

/* The candidate with the most hits, if it is better than the one in force by the margin; else that one. */
static uint32_t find_rival(const weir_auto *chooser)
{
	uint32_t best = chooser->active;

	for (uint32_t i = 0; i < WEIR_AUTO_CANDIDATES; i++)
		if (chooser->hits[i] > chooser->hits[best])
			best = i;
	if (chooser->hits[best] - chooser->hits[chooser->active] < WEIR_AUTO_MARGIN * chooser->demanded)
		return chooser->active;
	return best;
}

void weir_auto_tick(weir_policy *policy)
{
	weir_auto *chooser = policy->chooser;
	uint32_t rival;

	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++)
		weir_policy_tick(&chooser->replays[i].policy);
	if (policy->tick % WEIR_AUTO_WINDOW_TICKS != 0)
		return;
	end_window(chooser);
	rival = chooser->demanded < DEMANDED_LEAST ? chooser->active : find_rival(chooser);
	chooser->rival_windows = rival != chooser->rival || rival == chooser->active ? 1 : chooser->rival_windows + 1;
	chooser->rival = rival;
	if (rival == chooser->active || chooser->rival_windows < 2)
		return;
	chooser->active = rival;
	weir_policy_use(policy, weir_policy_find(names[rival]));
}

void weir_auto_seed(weir_policy *policy)
{
	weir_auto *chooser = policy->chooser;

	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		const weir_policy_chunk *chunk = &policy->chunks[i];
		uint32_t watched = chooser->watched[chunk->set];

		if (watched != WEIR_NONE)
			chooser->totals[chooser->first[watched] + chunk->member - policy->sets[chunk->set].first] =
				chunk->total;
	}
	for (int i = 0; i < WEIR_AUTO_CANDIDATES; i++)
		weir_policy_seed(&chooser->replays[i].policy, chooser->totals);
}
