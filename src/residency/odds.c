/*
 * odds.c - see odds.h.  Logarithms and powers are straight lines between powers of two: the same for features that the weights
 * were learned from and those that they are applied to, so their error does not matter, and their cost does.
 */
#include "residency/odds.h"

#include <math.h>
#include <string.h>

#include "residency/auto.h"

#define STEP 0.1f /* of a weight, at first */
#define SQUARE_FIRST 30.0f /* so that the first corrections do not throw over the first weights */
#define UNSEEN 0.1f /* share of the mean that a chunk never demanded is credited with */
#define FOLLOW_PRIOR 2.0f /* visits that the slowest rate counts for, where little has followed yet */
#define EXPECTED 0.9f
#define SEED_MEAN 0.0625f /* share of a set that a visit demands, until one has been seen */
#define SEED_VISITS 24 /* that counts of earlier runs stand for */
#define Z_MOST 30.0f
#define NEAREST 0.1
#define NO_FOLLOW UINT64_MAX
#define LANES 8

/* About where public routing traces of five models end, which agree; the last is the bias. */
static const float first_weights[WEIR_ODDS_FEATURES + 1] = {0.3f, 0.1f, 0.05f, -0.1f, 0.7f, 0.1f};
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

/* ---- tables ---- */

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
		to->features[k] = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->features[k]);
	to->scratch = weir_workspace_take(workspace, largest, sizeof *to->scratch);
	to->used = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->used);
	to->follow = weir_workspace_take(workspace, bytes, sizeof *to->follow);
	to->follow_count = weir_workspace_take(workspace, shape->chunks_count, sizeof *to->follow_count);
	to->now = weir_workspace_take(workspace, picks, sizeof *to->now);
	to->before = weir_workspace_take(workspace, picks, sizeof *to->before);
	return odds;
}

static void init_weights(weir_odds *odds)
{
	for (int k = 0; k <= WEIR_ODDS_FEATURES; k++) {
		odds->weight[k] = first_weights[k];
		odds->square[k] = SQUARE_FIRST;
	}
	odds->picked = odds->offered = 0;
}

static void clear(float *values, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		values[i] = 0;
}

void weir_odds_init(weir_policy *policy, const weir_policy_shape *shape)
{
	weir_odds *odds = policy->odds;
	uint32_t largest;
	uint64_t follow = 0;

	for (uint32_t i = 0; i < policy->sets_count; i++) {
		uint64_t count = policy->sets[i].chunks_count;

		odds->sets[i] = (weir_odds_set){
			.follow_first = follows((uint32_t)count) ? follow : NO_FOLLOW, .leader = WEIR_NONE, .position = i};
		follow += follows((uint32_t)count) ? count * count : 0;
	}
	memset(odds->follow, 0, follow_bytes(shape, &largest));
	memset(odds->used, 0, policy->chunks_count);
	memset(odds->follow_count, 0, policy->chunks_count * sizeof *odds->follow_count);
	for (int k = 0; k < WEIR_ODDS_RATES; k++)
		clear(odds->rates[k], policy->chunks_count);
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		clear(odds->features[k], policy->chunks_count);
	clear(odds->odds, policy->chunks_count);
	init_weights(odds);
	odds->open_count = 0;
	odds->ended = WEIR_NONE;
	odds->visits = 0;
	odds->position = 0;
	odds->positions = policy->sets_count;
}

/* ---- features and odds ---- */

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
	float *follow = odds->features[WEIR_ODDS_RATES] + first;

	for (int k = 0; k < WEIR_ODDS_RATES; k++) {
		const float *rates = odds->rates[k] + first;
		float *features = odds->features[k] + first;

		for (uint32_t i = 0; i < count; i++)
			features[i] = log2_about(rates[i] + least) - base;
	}
	if (entry->before_count == 0 || entry->follow_first == NO_FOLLOW) {
		clear(follow, count);
		return;
	}
	add_followers(policy, set, follow);
	for (uint32_t i = 0; i < count; i++)
		follow[i] = log2_about(follow[i] + least) - base;
}

/* The odds of all chunks of a set by its features, with the weights of now. */
static void apply_weights(const weir_policy *policy, uint32_t set, float *result)
{
	const weir_odds *odds = policy->odds;
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;
	float mean = mean_of(odds), base = log2_about(mean / (1 - mean)) + odds->weight[WEIR_ODDS_FEATURES];

	for (uint32_t i = 0; i < count; i++)
		result[i] = base;
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++) {
		const float *features = odds->features[k] + first;
		float weight = odds->weight[k];

		for (uint32_t i = 0; i < count; i++)
			result[i] += weight * features[i];
	}
	for (uint32_t i = 0; i < count; i++) {
		float z = result[i] > -Z_MOST ? result[i] : -Z_MOST; /* also what is no number */

		result[i] = 1.0f / (1.0f + exp2_about(z < Z_MOST ? -z : -Z_MOST));
	}
}

static void estimate(weir_policy *policy, uint32_t set)
{
	fill_features(policy, set);
	apply_weights(policy, set, policy->odds->odds + policy->sets[set].first);
	weir_policy_rescored(policy, set);
}

/* ---- learning ---- */

/* sum of a × b; in lanes, which a processor does at once. */
static float dot(const float *a, const float *b, uint32_t count)
{
	float sums[LANES] = {0}, sum = 0;
	uint32_t i = 0;

	for (; i + LANES <= count; i += LANES)
		for (uint32_t lane = 0; lane < LANES; lane++)
			sums[lane] += a[i + lane] * b[i + lane];
	for (; i < count; i++)
		sum += a[i] * b[i];
	for (uint32_t lane = 0; lane < LANES; lane++)
		sum += sums[lane];
	return sum;
}

static void correct_weight(weir_odds *odds, int k, float gradient)
{
	odds->square[k] += gradient * gradient;
	odds->weight[k] += STEP * gradient / sqrtf(odds->square[k]);
}

static void correct_weights(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	uint32_t first = policy->sets[set].first, count = policy->sets[set].chunks_count;
	float *missed = odds->scratch, gradient[WEIR_ODDS_FEATURES], sum = 0;

	apply_weights(policy, set, missed);
	for (uint32_t i = 0; i < count; i++)
		missed[i] = (float)odds->used[first + i] - missed[i];
	for (uint32_t i = 0; i < count; i++)
		sum += missed[i];
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		gradient[k] = dot(missed, odds->features[k] + first, count);
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		correct_weight(odds, k, gradient[k]);
	correct_weight(odds, WEIR_ODDS_FEATURES, sum);
}

static void halve_row(uint8_t *row, uint16_t *visits, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		row[i] /= 2;
	*visits /= 2;
}

static void count_followers(weir_policy *policy, uint32_t set)
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
		for (uint32_t i = 0; i < entry->demanded; i++)
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

static void learn(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	size_t list = (size_t)set * WEIR_ODDS_PICKS_MAX;

	if (entry->visits > 0)
		correct_weights(policy, set);
	count_followers(policy, set);
	count_rates(policy, set);
	memcpy(odds->before + list, odds->now + list, entry->demanded * sizeof *odds->now);
	entry->before_count = entry->demanded;
	if (entry->visits < UINT32_MAX - 1)
		entry->visits++;
	odds->picked += entry->demanded;
	odds->offered += policy->sets[set].chunks_count;
}

/* ---- leaders ---- */

static bool is_broad(const weir_policy *policy, uint32_t set, uint32_t demanded)
{
	return demanded > policy->sets[set].chunks_count / 2 || demanded > WEIR_ODDS_PICKS_MAX;
}

/* Whether the visit that ends demanded the same numbers as the last visit of `leader`, in any order. */
static bool same_picks(const weir_odds *odds, uint32_t leader, uint32_t set, bool broad)
{
	const uint16_t *now = odds->now + (size_t)set * WEIR_ODDS_PICKS_MAX;
	const uint16_t *theirs = odds->before + (size_t)leader * WEIR_ODDS_PICKS_MAX;
	uint32_t count = odds->sets[leader].before_count, found = 0;

	if (broad)
		return count == 0; /* theirs was broad as well */
	if (count != odds->sets[set].demanded)
		return false;
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < count; k++)
			found += now[i] == theirs[k];
	return found == count;
}

static uint32_t find_leader(const weir_policy *policy, uint32_t set)
{
	const weir_odds *odds = policy->odds;
	uint32_t before = odds->ended;

	if (odds->sets[set].ended > 0)
		return odds->sets[set].leader;
	if (before != WEIR_NONE && odds->sets[before].leader != WEIR_NONE)
		before = odds->sets[before].leader;
	if (before == WEIR_NONE || policy->sets[before].chunks_count != policy->sets[set].chunks_count)
		return WEIR_NONE;
	return before;
}

static void copy_state(weir_policy *policy, uint32_t from, uint32_t to)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *theirs = &odds->sets[from], *ours = &odds->sets[to];
	uint32_t source = policy->sets[from].first, first = policy->sets[to].first, count = policy->sets[to].chunks_count;
	size_t picks = WEIR_ODDS_PICKS_MAX;

	for (int k = 0; k < WEIR_ODDS_RATES; k++)
		memcpy(odds->rates[k] + first, odds->rates[k] + source, count * sizeof *odds->rates[k]);
	for (int k = 0; k < WEIR_ODDS_FEATURES; k++)
		memcpy(odds->features[k] + first, odds->features[k] + source, count * sizeof *odds->features[k]);
	memcpy(odds->follow_count + first, odds->follow_count + source, count * sizeof *odds->follow_count);
	if (ours->follow_first != NO_FOLLOW)
		memcpy(odds->follow + ours->follow_first, odds->follow + theirs->follow_first, (size_t)count * count);
	memcpy(odds->before + to * picks, odds->before + from * picks, picks * sizeof *odds->before);
	ours->before_count = theirs->before_count;
	ours->visits = theirs->visits;
}

/* True: the set's odds are its leader's, which has learned from this visit already. */
static bool follow_leader(weir_policy *policy, uint32_t set, bool broad)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	uint32_t leader = find_leader(policy, set), count = policy->sets[set].chunks_count;

	if (leader != WEIR_NONE && odds->sets[leader].ended == entry->ended + 1 && same_picks(odds, leader, set, broad)) {
		entry->leader = leader;
		memcpy(odds->odds + policy->sets[set].first, odds->odds + policy->sets[leader].first,
		       count * sizeof *odds->odds);
		weir_policy_rescored(policy, set);
		return true;
	}
	if (entry->leader != WEIR_NONE)
		copy_state(policy, entry->leader, set);
	entry->leader = WEIR_NONE;
	return false;
}

/* ---- visits ---- */

static void end_visit(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];
	bool broad = is_broad(policy, set, entry->demanded);

	if (!follow_leader(policy, set, broad)) {
		if (broad)
			entry->before_count = 0;
		else
			learn(policy, set);
		estimate(policy, set);
	}
	if (!broad && policy->chooser)
		weir_auto_visit(policy, set, odds->now + (size_t)set * WEIR_ODDS_PICKS_MAX, entry->demanded);
	memset(odds->used + policy->sets[set].first, 0, policy->sets[set].chunks_count);
	entry->demanded = 0;
	entry->ended++;
	odds->ended = set;
}

/* Ends the oldest visits until `left` are open. */
static void end_visits(weir_policy *policy, uint32_t left)
{
	weir_odds *odds = policy->odds;
	uint32_t ended = 0;

	while (odds->open_count - ended > left)
		end_visit(policy, odds->open[ended++]);
	odds->open_count -= ended;
	memmove(odds->open, odds->open + ended, odds->open_count * sizeof *odds->open);
}

static bool is_open(const weir_odds *odds, uint32_t set)
{
	for (uint32_t i = odds->open_count; i-- > 0;)
		if (odds->open[i] == set)
			return true;
	return false;
}

/* False when it is none, but what is left of one. */
static bool begin_visit(weir_policy *policy, uint32_t set)
{
	weir_odds *odds = policy->odds;
	weir_odds_set *entry = &odds->sets[set];

	if (entry->number > 0 && entry->tick == policy->tick && odds->visits - entry->number < WEIR_ODDS_APART)
		return false;
	if (odds->open_count == WEIR_ODDS_OPEN_MAX)
		end_visits(policy, WEIR_ODDS_OPEN_MAX - 1);
	odds->open[odds->open_count++] = set;
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

	if ((!is_open(odds, set) && !begin_visit(policy, set)) || odds->used[member])
		return;
	odds->used[member] = 1;
	if (entry->demanded < WEIR_ODDS_PICKS_MAX)
		odds->now[(size_t)set * WEIR_ODDS_PICKS_MAX + entry->demanded] = (uint16_t)(member - policy->sets[set].first);
	entry->demanded++;
}

void weir_odds_settle(weir_policy *policy)
{
	end_visits(policy, 0);
}

void weir_odds_tick(weir_policy *policy)
{
	weir_odds *odds = policy->odds;

	end_visits(policy, 0);
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
	int32_t around = (int32_t)odds->positions, now = (int32_t)odds->position - 1;
	int32_t ahead = (int32_t)odds->sets[set].position - now;

	if (around < 1)
		around = 1;
	if (ahead <= 0)
		ahead += around;
	if (ahead < 0)
		ahead = 0;
	if (ahead > around)
		ahead = around;
	return around / (NEAREST * around + ahead);
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
		if (used != odds->sets[set].demanded || (used > 0 && !is_open(odds, set)))
			return "odds: demanded = flags of an open visit";
	}
	return NULL;
}
