/*
 * hits.c - how often a chunk will be found resident, from the share of chunks that can be.
 *
 * Source: replay of five recorded routings (Qwen3-30B-A3B k=6 of 128, gpt-oss-120b k=2 of 128, OLMoE k=8 of 64, Kimi-Linear
 * k=8 of 256, gemma-4 k=6 of 128) with the policy "lfu" (counts per layer, halved every 32 tokens), the second half of each,
 * so that cold starts do not count; the mean of the five, rounded.  They spread widely (at one eighth: 46 % to 66 %), so this
 * is an expectation for a model nobody has measured; weir_plan_facts.hit_rate_hint is for one that somebody has.
 *
 * What runs of a model have shown bends the curve: at each point the misses are those seen, and between two points the factor
 * between misses seen and misses of the curve changes evenly on a logarithmic scale.
 *
 *   misses  │\                  . curve of the five models
 *           │ \ .               x seen: twice as many at one share, equal at another
 *           │  x  .  .
 *           │     \     x──.
 *           └──────────────────── share
 */
#include <math.h>

#include "plan/plan_internal.h"

struct point {
	double share, hits;
};

static const struct point curve[] = {
	{0.00, 0.00}, {0.03, 0.25}, {0.05, 0.35}, {0.08, 0.48}, {0.125, 0.60}, {0.18, 0.70},
	{0.25, 0.77}, {0.35, 0.85}, {0.50, 0.91}, {0.65, 0.94}, {0.80, 0.96},  {1.00, 1.00},
};

double weir_plan_hit_rate(double share)
{
	const struct point *left = curve, *last = curve + sizeof curve / sizeof *curve - 1;

	if (!(share > 0))
		return 0;
	if (share >= 1)
		return 1;
	while (left + 1 < last && left[1].share <= share)
		left++;
	return left->hits + (left[1].hits - left->hits) * (share - left->share) / (left[1].share - left->share);
}

/* ---- what runs have shown ---- */

#define MISSES_LEAST 1e-3 /* factors of nothing say nothing */

static bool is_share(double share)
{
	return share >= 0 && share <= 1;
}

bool weir_plan_points_are_sound(const weir_plan_facts *facts)
{
	if (facts->points_count > WEIR_PLAN_POINTS_MAX)
		return false;
	for (uint32_t i = 0; i < facts->points_count; i++) {
		const weir_plan_point *point = &facts->points[i];

		if (!is_share(point->slots_share) || !is_share(point->hit_rate) || !(point->read_share >= 0) ||
		    point->read_share > 1e6 || (i && point->slots_share < point[-1].slots_share))
			return false;
	}
	return true;
}

static double expected_misses(double share)
{
	return fmax(1 - weir_plan_hit_rate(share), MISSES_LEAST);
}

static double point_factor(const weir_plan_point *point, bool reads)
{
	double seen = reads ? point->read_share : 1 - point->hit_rate;

	return log(fmax(seen, MISSES_LEAST) / expected_misses(point->slots_share));
}

/* Logarithm of the factor between what this model misses (or reads) and what the curve misses. */
static double factor_at(const weir_plan_facts *facts, double share, bool reads)
{
	const weir_plan_point *points = facts->points, *right = points;
	const weir_plan_point *last = points + facts->points_count - 1;
	double span, part;

	while (right < last && right->slots_share < share)
		right++;
	if (right == points || right->slots_share <= share)
		return point_factor(right, reads);
	span = right->slots_share - right[-1].slots_share;
	part = span > 0 ? (share - right[-1].slots_share) / span : 1;
	return (1 - part) * point_factor(&right[-1], reads) + part * point_factor(right, reads);
}

double weir_plan_own_hit_rate(const weir_plan_facts *facts, double share)
{
	if (!facts->points_count || share >= 1)
		return weir_plan_hit_rate(share);
	return fmax(1 - expected_misses(share) * exp(factor_at(facts, share, false)), 0);
}

double weir_plan_own_read_share(const weir_plan_facts *facts, double share)
{
	if (!facts->points_count || share >= 1)
		return 1 - weir_plan_hit_rate(share);
	return expected_misses(share) * exp(factor_at(facts, share, true));
}
