/*
 * odds.h - how likely each chunk is demanded when its layer comes round again, learned while running.
 *
 * Terms
 *   visit     the demands of one set in one acquire, which may visit a few sets.  It ends when its reads have been begun
 *             (weir_odds_settle).  What a set is asked for again shortly after, because slots were short, is not another visit.
 *   rate      share of visits that demanded the chunk, of the last few: four rates, the last 1.5, 6, 24, 96 visits by half-life
 *   follow    how often a chunk was demanded in the visit after one that demanded another chunk of its set
 *   features  of a chunk, as logarithms against the mean: its four rates, and how it follows the set's last visit
 *   odds      = 1 ÷ (1 + 2^-z),   z = base + bias + sum of weight × feature
 *
 * The weights are one small vector for all sets, corrected after each visit by what was demanded (logistic regression, with a
 * step for each weight as in AdaGrad: J. Duchi, E. Hazan, Y. Singer, JMLR 12, 2011).  So how fast counts should age, and
 * whether what follows what says anything, is not assumed.
 *
 *   visit of set 7:   demanded 3 9 ──► correct weights ──► count 3 9, and 3 9 after last visit's 9 12 ──► odds of all of set 7
 *
 * A broad visit, of more than half of a set or more than WEIR_ODDS_PICKS_MAX (a prompt), says nothing about single chunks and
 * teaches nothing.
 *
 * leader: gate, up and down of a layer are three sets that are asked for the same numbers.  A set that has been, in every visit
 * so far, takes over the odds of the first of them, and only that one learns.  When they part, it goes on from a copy.
 *
 * In one pool, a chunk whose layer comes soon is worth more than one whose layer has just passed:
 *     nearness = 1 ÷ (0.1 + share of the token until the set's next visit)
 *
 * Owns nothing (carved from the policy's workspace).  Cost: some operations for each chunk of a visited set, none that grows
 * with memory or tokens, and while the drive works where a visit had misses.
 */
#ifndef WEIR_RESIDENCY_ODDS_H
#define WEIR_RESIDENCY_ODDS_H

#include "residency/policy.h"

#define WEIR_ODDS_RATES 4
#define WEIR_ODDS_FEATURES (WEIR_ODDS_RATES + 1)
#define WEIR_ODDS_OPEN_MAX 4
#define WEIR_ODDS_PICKS_MAX 32 /* of a visit that is not broad */
#define WEIR_ODDS_FOLLOW_MAX 512 /* chunks of a set, for which what follows what is counted: a byte for each pair */
#define WEIR_ODDS_APART 8 /* visits of other sets that must lie between two of the same in one token */

typedef struct weir_odds_set {
	uint32_t visits; /* that taught something */
	uint32_t ended; /* visits of any kind */
	uint32_t leader; /* or WEIR_NONE */
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
	float *features[WEIR_ODDS_FEATURES]; /* [members] of the last estimate */
	float *odds; /* [members] */
	float *scratch; /* [largest set] */
	uint8_t *used; /* [members] in the open visit */
	uint8_t *follow; /* [first][then] for each set */
	uint16_t *follow_count; /* [members] visits that `follow` of this chunk counts */
	uint16_t *now, *before; /* [sets][WEIR_ODDS_PICKS_MAX] numbers within the set */
	float weight[WEIR_ODDS_FEATURES + 1], square[WEIR_ODDS_FEATURES + 1]; /* the last is the bias */
	double picked, offered; /* mean = picked ÷ offered */
	uint32_t open[WEIR_ODDS_OPEN_MAX], open_count; /* sets whose visits have not ended, oldest first */
	uint32_t ended; /* set whose visit ended last; WEIR_NONE */
	uint64_t visits; /* begun, of all sets */
	uint32_t position, positions; /* of the last visit of this token; visits of the last token */
};

/* As weir_policy_carve, and weir_policy_init. */
weir_odds *weir_odds_carve(const weir_policy_shape *shape, weir_workspace *workspace);
void weir_odds_init(weir_policy *policy, const weir_policy_shape *shape);
void weir_odds_seed(weir_policy *policy);

/* A demand; after an acquire; the end of a token.  They may end visits, which calls weir_auto_visit and rescores the set. */
void weir_odds_demand(weir_policy *policy, uint32_t chunk);
void weir_odds_settle(weir_policy *policy);
void weir_odds_tick(weir_policy *policy);

/* A chunk that is expected soon is kept until its set has been visited. */
void weir_odds_expect(weir_policy *policy, uint32_t chunk);

double weir_odds_of(const weir_policy *policy, uint32_t chunk);
double weir_odds_nearness(const weir_policy *policy, uint32_t set);

/* What of the above does not hold, or NULL: odds within 0..1, flags only in open visits. */
const char *weir_odds_broken(const weir_policy *policy);

#endif
