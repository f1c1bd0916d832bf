/*
 * odds.h - how likely each chunk is demanded when its layer comes round again, learned while running.
 *
 * Terms
 *   visit     the demands of one set in one token: they follow one another, so it ends when another set is visited, or with the
 *             token.  What a set is asked for again shortly after, because slots were short, is not another visit.
 *   rate      share of visits that demanded the chunk, of the last few: four rates, the last 1.5, 6, 24, 96 visits by
 * half-life. follow    how often a chunk was demanded in the visit after one that demanded another chunk of its set. features
 * of a chunk, as logarithms against the mean: its four rates, one, and how it follows the set's last visit odds      = 1 ÷ (1 +
 * 2^-z),   z = base + sum of weight × feature
 *
 * The weights are one small vector for all sets, corrected after each visit by what was demanded (logistic regression, with a
 * step for each weight as in AdaGrad: J. Duchi, E. Hazan, Y. Singer, JMLR 12, 2011).  So how fast counts should age, and
 * whether what follows what says anything, is not assumed.
 *
 *   visit of set 7:   demanded 3 9 ──► correct weights ──► count 3 9, and 3 9 after last visit's 9 12 ──► odds of all of set 7
 *
 * A visit of more than half of a set (a prompt) says nothing about single chunks and teaches nothing.
 *
 * In one pool, a chunk whose layer comes soon is worth more than one whose layer has just passed:
 *     nearness = 1 ÷ (0.1 + share of the token until the set's next visit)
 *
 * Owns nothing (carved from the policy's workspace).  Cost: some operations for each chunk of a visited set, no division by
 * memory or token count.
 */
#ifndef WEIR_RESIDENCY_ODDS_H
#define WEIR_RESIDENCY_ODDS_H

#include "residency/policy.h"

#define WEIR_ODDS_RATES 4
#define WEIR_ODDS_FEATURES (WEIR_ODDS_RATES + 2)
#define WEIR_ODDS_PICKS_MAX 32 /* of a visit, that are remembered */
#define WEIR_ODDS_FOLLOW_MAX 512 /* chunks of a set, for which what follows what is counted: a byte for each pair */
#define WEIR_ODDS_APART 8 /* visits of other sets that must lie between two of the same in one token */

typedef struct weir_odds_set {
	uint32_t visits; /* that taught something */
	uint32_t demanded; /* in the open visit */
	uint32_t before_count; /* picks of the last visit; 0 when it was broad */
	uint32_t position; /* among the visits of its token */
	uint64_t follow_first; /* into follow; UINT64_MAX: not counted */
	uint32_t tick; /* of the last visit */
	uint64_t number; /* of the last visit, of all sets; 0: none yet */
} weir_odds_set;

struct weir_odds {
	weir_odds_set *sets; /* [sets] */
	float *rates[WEIR_ODDS_RATES]; /* [members] */
	float *odds; /* [members] */
	float *scratch[WEIR_ODDS_FEATURES]; /* [largest set] features */
	uint8_t *used; /* [members] in the open visit */
	uint8_t *follow; /* [first][then] for each set */
	uint16_t *follow_count; /* [members] visits that `follow` of this chunk counts */
	uint16_t *now, *before; /* [sets][WEIR_ODDS_PICKS_MAX] numbers within the set */
	float weight[WEIR_ODDS_FEATURES], square[WEIR_ODDS_FEATURES];
	double picked, offered; /* mean = picked ÷ offered */
	uint32_t open; /* set whose visit has not ended; WEIR_NONE */
	uint64_t visits; /* of all sets */
	uint32_t position, positions; /* of the last visit of this token; visits of the last token */
};

/* As weir_policy_carve, and weir_policy_init. */
weir_odds *weir_odds_carve(const weir_policy_shape *shape, weir_workspace *workspace);
void weir_odds_init(weir_policy *policy, const weir_policy_shape *shape);
void weir_odds_seed(weir_policy *policy);

/* A demand; the end of a token.  They may end visits, which calls weir_auto_visit and rescores the set. */
void weir_odds_demand(weir_policy *policy, uint32_t chunk);
void weir_odds_tick(weir_policy *policy);

/* A chunk that is expected soon is kept until its set has been visited. */
void weir_odds_expect(weir_policy *policy, uint32_t chunk);

double weir_odds_of(const weir_policy *policy, uint32_t chunk);
double weir_odds_nearness(const weir_policy *policy, uint32_t set);

/* What of the above does not hold, or NULL: odds within 0..1, flags only in the open visit. */
const char *weir_odds_broken(const weir_policy *policy);

#endif
