/*
 * hits.c - how often a chunk will be found resident, from the share of chunks that can be.
 *
 * Source: replay of five recorded routings (Qwen3-30B-A3B k=6 of 128, gpt-oss-120b k=2 of 128, OLMoE k=8 of 64, Kimi-Linear
 * k=8 of 256, gemma-4 k=6 of 128) with the policy "lfu" (counts per layer, halved every 32 tokens), the second half of each,
 * so that cold starts do not count; the mean of the five, rounded.  They spread widely (at one eighth: 46 % to 66 %), so this
 * is an expectation for a model nobody has measured; weir_plan_facts.hit_rate_hint is for one that somebody has.
 */
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
