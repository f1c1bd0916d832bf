/*
 * odds.c - see odds.h.  Logarithms and powers are straight lines between powers of two: the same for features that the weights
 * were learned from and those that they are applied to, so their error does not matter, and their cost does.
 */
#include "residency/odds.h"

#include <math.h>
#include <string.h>

#include "residency/auto.h"

#define STEP 0.1f /* of a weight, at first */
#define SQUARE_LEAST 1e-6f
#define UNSEEN 0.1f /* share of the mean that a chunk never demanded is credited with */
#define FOLLOW_PRIOR 2.0f /* visits that the slowest rate counts for, where little has followed yet */
#define EXPECTED 0.9f
#define SEED_MEAN 0.0625f /* share of a set that a visit demands, until one has been seen */
#define SEED_VISITS 8
#define Z_MOST 30.0f
#define NEAREST 0.1
#define NO_FOLLOW UINT64_MAX

static const float half_lives[WEIR_ODDS_RATES] = {1.5f, 6, 24, 96};

static float log2_about(float value)
{
	int32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return (float)bits * (1.0f / 8388608.0f) - 127.0f;
}

static float exp2_about(float value)
{
	int32_t bits = (int32_t)((value + 127.0f) * 8388608.0f);
	float result;

	memcpy(&result, &bits, sizeof result);
	return result;
}

/* --- tables -------------------------------------------------------------------------------------------------------------- */

static bool follows(uint32_t chunks_count)
{
	return chunks_count > 1 && chunks_count <= WEIR_ODDS_FOLLOW_MAX;
}

static uint64_t follow_bytes(const weir_policy_shape *shape, uint32_t *largest)
{
	uint64_t bytes = 0;

	*largest = 0;
	for (uint32_t i = 0; i < shape->sets_count; i++) {
		uint64_t count = shape->set_chunks[i];

		if (count > *largest)
			*largest = (uint32_t)count;
		bytes += follows((uint32_t)count) ? count * count : 0;
	}
	return bytes;
}

weir_odds *weir_odds_carve(const weir_policy_shape *shape, weir_workspace *workspace)
{
	weir_odds unused, *odds = weir_workspace_take(workspace, 1, sizeof *odds), *to = odds ? odds : &unused;
	size_t picks = (size_t)shape->sets_count * WEIR_ODDS_PICKS_MAX;
	uint32_t largest;
	uint64_t bytes = follow_bytes(shape, &largest);

	to->sets = weir_workspace_take(workspace, shape->sets_count, sizeof *to->sets);
	for (int k = 0; k < WEIR_ODDS_RATES; k++)
		to->rates[k] = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->rates[k]);
	to->odds = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->odds);
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		to->scratch[k] = weir_workspace_take(workspace, largest, sizeof *to->scratch[k]);
	to->used = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->used);
	to->follow = weir_workspace_take(workspace, bytes, sizeof *to->follow);
	to->follow_count = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->follow_count);
	to->now = weir_workspace_take(workspace, picks, sizeof *to->now);
	to->before = weir_workspace_take(workspace, picks, sizeof *to->before);
	return odds;
}

void weir_odds_init(weir_policy *policy, const weir_policy_shape *shape)
{
	weir_odds *odds = policy->odds;
	uint32_t largest;
	uint64_t follow = 0;

	for (uint32_t i = 0; i < policy->sets_count; i++) {
		uint64_t count = policy->sets[i].chunks_count;

		odds->sets[i] = (weir_odds_set){.follow_first = follows((uint32_t)count) ? follow : NO_FOLLOW, .position = i};
		follow += follows((uint32_t)count) ? count * count : 0;
	}
	memset(odds->follow, 0, follow_bytes(shape, &largest));
	memset(odds->used, 0, policy->chunks_count);
	memset(odds->follow_count, 0, policy->chunks_count * sizeof *odds->follow_count);
	for (uint32_t i = 0; i < policy->chunks_count; i++) {
		for (int k = 0; k < WEIR_ODDS_RATES; k++)
			odds->rates[k][i] = 0;
		odds->odds[i] = 0;
	}
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++) {
		odds->weight[k] = k < WEIR_ODDS_RATES ? 1.0f / WEIR_ODDS_RATES : 0;
		odds->square[k] = SQUARE_LEAST;
	}
	odds->picked = odds->offered = 0;
	odds->open = WEIR_NONE;
	odds->visits = 0;
	odds->position = 0;
	odds->positions = policy->sets_count;
}

/* --- features and odds --------------------------------------------------------------------------------------------------- */

static float mean_of(const weir_odds *odds)
{
	return odds->offered > 0 ? (float)(odds->picked / odds->offered) : SEED_MEAN;
}

/* sum[i] = how often i followed what the last visit demanded, per visit. */
static void add_followers(const weir_policy *policy, uint32_t set, float *sum)
{
	const weir_odds *odds = policy->odds;
	const weir_odds_set *entry = &odds->sets[set];
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;
	const float *slow = odds->rates[WEIR_ODDS_RATES - 1] + first;

	memset(sum, 0, count * sizeof *sum);
	for (uint32_t p = 0; p < entry->before_count; p++) {
		uint32_t pick = odds->before[(size_t)set * WEIR_ODDS_PICKS_MAX + p];
		const uint8_t *row = odds->follow + entry->follow_first + (uint64_t)pick * count;
		float scale = 1.0f / (((float)odds->follow_count[first + pick] + FOLLOW_PRIOR) * (float)entry->before_count);

		for (uint32_t i = 0; i < count; i++)
			sum[i] += ((float)row[i] + FOLLOW_PRIOR * slow[i]) * scale;
	}
}

static void fill_features(const weir_policy *policy, uint32_t set)
{
	const weir_odds *odds = policy->odds;
	const weir_odds_set *entry = &odds->sets[set];
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;
	float mean = mean_of(odds), least = UNSEEN * mean, base = log2_about(mean);
	float *follow = odds->scratch[WEIR_ODDS_RATES + 1];

	for (int k = 0; k < WEIR_ODDS_RATES; k++)
		for (uint32_t i = 0; i < count; i++)
			odds->scratch[k][i] = log2_about(odds->rates[k][first + i] + least) - base;
	for (uint32_t i = 0; i < count; i++)
		odds->scratch[WEIR_ODDS_RATES][i] = 1;
	if (entry->before_count == 0 || entry->follow_first == NO_FOLLOW) {
		memset(follow, 0, count * sizeof *follow);
		return;
	}
	add_followers(policy, set, follow);
	for (uint32_t i = 0; i < count; i++)
		follow[i] = log2_about(follow[i] + least) - base;
}

static float odds_at(const weir_odds *odds, uint32_t i, float base)
{
	float z = base;

	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		z += odds->weight[k] * odds->scratch[k][i];
	if (!(z > -Z_MOST)) /* also what is no number */
		z = -Z_MOST;
	if (z > Z_MOST)
		z = Z_MOST;
	return 1.0f / (1.0f + exp2_about(-z));
}

static float base_of(const weir_odds *odds)
{
	float mean = mean_of(odds);

	return log2_about(mean / (1 - mean));
}

static void estimate(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	uint32_t first = policy->sets[set].first;
	float base = base_of(odds);

	fill_features(policy, set);
	for (uint32_t i = 0; i < policy->sets[set].chunks_count; i++)
		odds->odds[first + i] = odds_at(odds, i, base);
	weir_policy_rescored(policy, set);
}

/* --- learning ------------------------------------------------------------------------------------------------------------ */

static void correct_weights(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	uint32_t first = policy->sets[set].first;
	float gradient[WEIR_ODDS_FEATURES] = {0}, base = base_of(odds);

	fill_features(policy, set);
	for (uint32_t i = 0; i < policy->sets[set].chunks_count; i++) {
		float missed = (float)odds->used[first + i] - odds_at(odds, i, base);

		for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
			gradient[k] += missed * odds->scratch[k][i];
	}
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++) {
		odds->square[k] += gradient[k] * gradient[k];
		odds->weight[k] += STEP * gradient[k] / sqrtf(odds->square[k]);
	}
}

static void halve_row(uint8_t *row, uint16_t *visits, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		row[i] /= 2;
	*visits /= 2;
}

static void count_followers(weir_policy *policy, uint32_t set, uint32_t now_count)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;
	const uint16_t *now = odds->now + (size_t)set * WEIR_ODDS_PICKS_MAX;

	if (entry->follow_first == NO_FOLLOW)
		return;
	for (uint32_t p = 0; p < entry->before_count; p++) {
		uint32_t pick = odds->before[(size_t)set * WEIR_ODDS_PICKS_MAX + p];
		uint8_t *row = odds->follow + entry->follow_first + (uint64_t)pick * count;

		if (odds->follow_count[first + pick] == UINT8_MAX) /* no byte of the row is larger */
			halve_row(row, &odds->follow_count[first + pick], count);
		odds->follow_count[first + pick]++;
		for (uint32_t i = 0; i < now_count; i++)
			row[now[i]]++;
	}
}

static void count_rates(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;

	for (int k = 0; k < WEIR_ODDS_RATES; k++) {
		float part = 1 - exp2f(-1 / half_lives[k]), mean = 1.0f / (float)(odds->sets[set].visits + 1);
		float *rates = odds->rates[k] + first;

		if (part < mean)
			part = mean;
		for (uint32_t i = 0; i < count; i++)
			rates[i] += part * ((float)odds->used[first + i] - rates[i]);
	}
}

static void learn(weir_policy *policy, uint32_t set, uint32_t now_count)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	size_t list = (size_t)set * WEIR_ODDS_PICKS_MAX;

	if (entry->visits > 0)
		correct_weights(policy, set);
	count_followers(policy, set, now_count);
	count_rates(policy, set);
	memcpy(odds->before + list, odds->now + list, now_count * sizeof *odds->now);
	entry->before_count = now_count;
	if (entry->visits < UINT32_MAX - 1)
		entry->visits++;
	odds->picked += entry->demanded;
	odds->offered += policy->sets[set].chunks_count;
}

static void end_visit(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	uint32_t now_count = entry->demanded < WEIR_ODDS_PICKS_MAX ? entry->demanded : WEIR_ODDS_PICKS_MAX;
	bool broad = entry->demanded > policy->sets[set].chunks_count / 2;

	if (broad)
		entry->before_count = 0;
	else
		learn(policy, set, now_count);
	memset(odds->used + policy->sets[set].first, 0, policy->sets[set].chunks_count);
	odds->open = WEIR_NONE;
	entry->demanded = 0;
	estimate(policy, set);
	if (!broad && policy->chooser)
		weir_auto_visit(policy, set, odds->now + (size_t)set * WEIR_ODDS_PICKS_MAX, now_count);
}

/* False when it is none, but what is left of one. */
static bool begin_visit(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];

	if (entry->number > 0 && entry->tick == policy->tick && odds->visits - entry->number < WEIR_ODDS_APART)
		return false;
	if (odds->open != WEIR_NONE)
		end_visit(policy, odds->open);
	odds->open = set;
	entry->tick = policy->tick;
	entry->number = ++odds->visits;
	entry->position = odds->position++;
	return true;
}

void weir_odds_demand(weir_policy *policy, uint32_t chunk)
{
	weir_odds *odds = policy->odds;
	uint32_t set = policy->chunks[chunk].set, member = policy->chunks[chunk].member;
	weir_odds_set *entry = &odds->sets[set];

	if ((odds->open != set && !begin_visit(policy, set)) || odds->used[member])
		return;
	odds->used[member] = 1;
	if (entry->demanded < WEIR_ODDS_PICKS_MAX)
		odds->now[(size_t)set * WEIR_ODDS_PICKS_MAX + entry->demanded] = (uint16_t)(member - policy->sets[set].first);
	entry->demanded++;
	odds->odds[member] = 1;
	weir_policy_rescored(policy, set);
}

void weir_odds_tick(weir_policy *policy)
{
	weir_odds *odds = policy->odds;

	if (odds->open != WEIR_NONE)
		end_visit(policy, odds->open);
	if (odds->position > 0)
		odds->positions = odds->position;
	odds->position = 0;
}

void weir_odds_expect(weir_policy *policy, uint32_t chunk)
{
	float *odds = &policy->odds->odds[policy->chunks[chunk].member];

	if (*odds < EXPECTED)
		*odds = EXPECTED;
	weir_policy_rescored(policy, policy->chunks[chunk].set);
}

/* Rates in proportion to the totals, so that a set's mean is what a first visit will show it to be, about. */
void weir_odds_seed(weir_policy *policy)
{
	weir_odds *odds = policy->odds;

	for (uint32_t set = 0; set < policy->sets_count; set++)
		odds->sets[set].visits = SEED_VISITS;
	for (uint32_t chunk = 0; chunk < policy->chunks_count; chunk++) {
		const weir_policy_chunk *entry = &policy->chunks[chunk];
		const weir_policy_set *set = &policy->sets[entry->set];
		float share = set->seeded > 0 ? (float)((double)entry->total / (double)set->seeded) : 0;
		float rate = share * (float)set->chunks_count * SEED_MEAN;

		for (int k = 0; k < WEIR_ODDS_RATES; k++)
			odds->rates[k][entry->member] = rate < 1 ? rate : 1;
	}
	for (uint32_t set = 0; set < policy->sets_count; set++)
		estimate(policy, set);
}

double weir_odds_of(const weir_policy *policy, uint32_t chunk)
{
	return policy->odds->odds[policy->chunks[chunk].member];
}

double weir_odds_nearness(const weir_policy *policy, uint32_t set)
{
	const weir_odds *odds = policy->odds;
	int64_t around = odds->positions, now = (int64_t)odds->position - 1;
	int64_t ahead = (int64_t)odds->sets[set].position - now;

	if (around < 1)
		around = 1;
	if (ahead <= 0)
		ahead += around;
	if (ahead < 0)
		ahead = 0;
	return 1 / (NEAREST + (ahead < around ? (double)ahead / (double)around : 1));
}

const char *weir_odds_broken(const weir_policy *policy)
{
	const weir_odds *odds = policy->odds;

	for (uint32_t set = 0; set < policy->sets_count; set++) {
		uint32_t used = 0, first = policy->sets[set].first;

		for (uint32_t i = first; i < first + policy->sets[set].chunks_count; i++) {
			used += odds->used[i];
			if (!(odds->odds[i] >= 0 && odds->odds[i] <= 1))
				return "odds: between 0 and 1";
		}
		if (used != odds->sets[set].demanded || (used > 0 && odds->open != set))
			return "odds: demanded = flags of the open visit";
	}
	return NULL;
}
