/*
 * test_policy_learning.c - the policies that learn, and rules that every policy keeps: invariants after each operation,
 * whatever comes; what repeats is learned; "auto" leaves a candidate that does worse; earlier runs' counts are taken over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "residency/auto.h"
#include "residency/odds.h"

#define SETS 6
#define PER_SET 24
#define CHUNKS (SETS * PER_SET)
#define PICKS 3

typedef struct test_world {
	uint32_t chunk_set[CHUNKS], set_class[SETS], class_slots[2];
	weir_replay replay;
} test_world;

static uint32_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

/* `classes` of 1 or 2; half of the sets in each, chunks of all sets mixed. */
static weir_policy *open_world(test_world *world, const char *policy, uint32_t classes, uint32_t slots)
{
	weir_policy_shape shape = {.chunks_count = CHUNKS,
				   .sets_count = SETS,
				   .classes_count = classes,
				   .slots_count = slots,
				   .chunk_set = world->chunk_set,
				   .set_class = world->set_class,
				   .class_slots = world->class_slots};

	memset(world, 0, sizeof *world);
	for (uint32_t i = 0; i < CHUNKS; i++)
		world->chunk_set[i] = i % SETS;
	for (uint32_t i = 0; i < SETS; i++)
		world->set_class[i] = i * classes / SETS;
	world->class_slots[0] = classes == 1 ? slots : slots / 2;
	world->class_slots[1] = slots - slots / 2;
	assert_int_equal(weir_replay_open(&world->replay, policy, &shape), 0);
	return &world->replay.policy;
}

static uint32_t chunk_of(uint32_t set, uint32_t number)
{
	return number * SETS + set;
}

static void assert_sound(const weir_policy *policy)
{
	const char *broken = weir_policy_broken(policy);

	if (broken)
		fail_msg("%s: %s", policy->methods->name, broken);
}

/* A hint as the store gives it: the slot of a victim, if there is one, becomes the chunk's. */
static void hint(weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	uint32_t slot = policy->chunks[chunk].slot == WEIR_NONE ? weir_policy_victim(policy, chunk, purpose) : WEIR_NONE;

	assert_sound(policy);
	if (slot == WEIR_NONE)
		return;
	assert_true(policy->slots[slot].evictable);
	assert_int_equal(policy->sets[policy->chunks[policy->slots[slot].chunk].set].class_index,
			 policy->sets[policy->chunks[chunk].set].class_index);
	weir_policy_remove(policy, slot);
	assert_sound(policy);
	weir_policy_insert(policy, chunk, slot, purpose);
	assert_sound(policy);
	weir_policy_set_evictable(policy, slot, true);
	assert_sound(policy);
}

static void random_operation(test_world *world, uint64_t *random)
{
	weir_policy *policy = &world->replay.policy;
	uint32_t kind = next_random(random) % 16, set = next_random(random) % SETS, chunks[PER_SET], count;

	if (kind == 0)
		weir_policy_tick(policy);
	else if (kind < 4)
		hint(policy, next_random(random) % CHUNKS, kind == 1 ? WEIR_FOR_PREFETCH : WEIR_FOR_EXPECTED);
	else {
		count = kind == 4 ? PER_SET : 1 + next_random(random) % PICKS; /* a prompt wants nearly all */
		for (uint32_t i = 0; i < count; i++) /* of one set, or of several */
			chunks[i] = chunk_of(kind < 8 ? set : (set + i) % SETS, (next_random(random) % 4 + i * 5) % PER_SET);
		weir_replay_demand(&world->replay, chunks, count);
	}
	assert_sound(policy);
}

static void every_policy_keeps_its_invariants(void **state)
{
	static const uint32_t slots[] = {2, 7, 20, 60, CHUNKS};

	(void)state;
	for (const weir_policy_methods *methods = weir_policy_table; methods->name; methods++)
		for (uint32_t i = 0; i < 2 * sizeof slots / sizeof slots[0]; i++) {
			uint64_t random = 77 + i;
			test_world world;

			open_world(&world, methods->name, 1 + i % 2, slots[i / 2]);
			for (int step = 0; step < 1500; step++)
				random_operation(&world, &random);
			weir_replay_close(&world.replay);
		}
}

/* Tokens of two kinds in turn, each with experts of its own: recency and counts see all alike, what follows what does not. */
static uint64_t hits_on_alternation(const char *policy)
{
	uint64_t hits;
	test_world world;

	open_world(&world, policy, 1, SETS * 8);
	for (uint32_t token = 0; token < 400; token++) {
		for (uint32_t set = 0; set < SETS; set++) {
			uint32_t chunks[PICKS];

			for (uint32_t i = 0; i < PICKS; i++)
				chunks[i] = chunk_of(set, token % 4 * PICKS + i);
			if (token == 200)
				world.replay.hits = 0;
			weir_replay_demand(&world.replay, chunks, PICKS);
		}
		weir_policy_tick(&world.replay.policy);
	}
	hits = world.replay.hits;
	weir_replay_close(&world.replay);
	return hits;
}

static void what_follows_what_is_learned(void **state)
{
	(void)state;
	assert_int_equal(hits_on_alternation("lru"), 0);
	assert_true(hits_on_alternation("odds") > 200 * SETS * PICKS / 3);
	assert_true(hits_on_alternation("auto") > 200 * SETS * PICKS / 3);
}

static void odds_rise_with_demand_and_stay_odds(void **state)
{
	test_world world;
	weir_policy *policy = open_world(&world, "odds", 1, 40);

	(void)state;
	for (uint32_t token = 0; token < 50; token++) {
		for (uint32_t set = 0; set < SETS; set++) {
			uint32_t chunks[2] = {chunk_of(set, 0), chunk_of(set, 1 + token % 10)};

			weir_replay_demand(&world.replay, chunks, 2);
		}
		weir_policy_tick(policy);
	}
	assert_true(weir_odds_of(policy, chunk_of(2, 0)) > 0.7);
	assert_true(weir_odds_of(policy, chunk_of(2, 20)) < 0.1);
	assert_true(weir_odds_of(policy, chunk_of(2, 5)) < weir_odds_of(policy, chunk_of(2, 0)));
	weir_replay_close(&world.replay);
}

/* A prompt that wants nearly all of a set leaves the odds as they were. */
static void a_broad_visit_teaches_nothing(void **state)
{
	test_world world;
	weir_policy *policy = open_world(&world, "odds", 1, CHUNKS);
	uint32_t all[PER_SET], one = chunk_of(0, 3);
	double before;

	(void)state;
	for (uint32_t i = 0; i < PER_SET; i++)
		all[i] = chunk_of(0, i);
	for (int token = 0; token < 20; token++) {
		weir_replay_demand(&world.replay, &one, 1);
		weir_policy_tick(policy);
	}
	before = policy->odds->rates[2][policy->chunks[one].member];
	weir_replay_demand(&world.replay, all, PER_SET);
	weir_policy_tick(policy);
	assert_true(policy->odds->rates[2][policy->chunks[one].member] >= before);
	assert_true(policy->odds->rates[2][policy->chunks[chunk_of(0, 7)].member] <= 0);
	weir_replay_close(&world.replay);
}

/* Sets 0, 1, 2 as the parts of a layer, set 3 alone: expert by expert in one demand, as some callers do it. */
static void demand_parts(test_world *world, uint32_t number, uint32_t other, uint32_t last_part)
{
	const uint32_t chunks[] = {chunk_of(0, number), chunk_of(1, number), chunk_of(2, number),
				   chunk_of(0, other),	chunk_of(1, other),  chunk_of(2, last_part)};
	const uint32_t alone = chunk_of(3, number);

	weir_replay_demand(&world->replay, chunks, sizeof chunks / sizeof chunks[0]);
	weir_replay_demand(&world->replay, &alone, 1);
	weir_policy_tick(&world->replay.policy);
	assert_sound(&world->replay.policy);
}

static void parts_of_a_layer_follow_the_first_until_they_part(void **state)
{
	test_world world;
	weir_policy *policy = open_world(&world, "odds", 1, CHUNKS);
	const weir_odds_set *sets = policy->odds->sets;

	(void)state;
	for (uint32_t token = 0; token < 20; token++)
		demand_parts(&world, 2, 5 + token % 8, 5 + token % 8);
	assert_int_equal(sets[0].visits, 20);
	assert_int_equal(sets[1].leader, 0);
	assert_int_equal(sets[2].leader, 0);
	assert_int_equal(sets[3].leader, WEIR_NONE);
	for (uint32_t i = 0; i < PER_SET; i++)
		assert_float_equal(weir_odds_of(policy, chunk_of(0, i)), weir_odds_of(policy, chunk_of(2, i)), 0);
	assert_true(weir_odds_of(policy, chunk_of(1, 2)) > 0.5);
	demand_parts(&world, 2, 7, 20);
	assert_int_equal(sets[1].leader, 0);
	assert_int_equal(sets[2].leader, WEIR_NONE);
	assert_int_equal(sets[2].visits, sets[0].visits + 1); /* a copy, and what it learned itself */
	assert_true(weir_odds_of(policy, chunk_of(2, 2)) > 0.5);
	assert_true(weir_odds_of(policy, chunk_of(2, 20)) > weir_odds_of(policy, chunk_of(0, 20)));
	weir_replay_close(&world.replay);
}

static void auto_leaves_a_candidate_that_does_worse(void **state)
{
	test_world world;
	weir_policy *policy = open_world(&world, "auto", 1, 40);
	weir_auto *chooser = policy->chooser;

	(void)state;
	assert_string_equal(policy->methods->name, "odds");
	for (uint32_t window = 0; window < 2; window++) {
		chooser->replays[0].demanded = 10000;
		chooser->replays[0].hits = 5000;
		chooser->replays[1].hits = 5050; /* better, but not by the margin */
		chooser->replays[2].hits = 4000;
		for (uint32_t i = 0; i < WEIR_AUTO_WINDOW_TICKS; i++)
			weir_policy_tick(policy);
		assert_string_equal(policy->methods->name, "odds");
	}
	for (uint32_t window = 0; window < 2; window++) {
		assert_string_equal(policy->methods->name, "odds"); /* not after one window */
		chooser->replays[0].demanded = 10000;
		chooser->replays[0].hits = 2000;
		chooser->replays[2].hits = 9000;
		for (uint32_t i = 0; i < WEIR_AUTO_WINDOW_TICKS; i++)
			weir_policy_tick(policy);
	}
	assert_string_equal(policy->methods->name, "lru");
	assert_sound(policy);
	weir_replay_close(&world.replay);
}

static void earlier_counts_decide_at_first(void **state)
{
	static const char *const policies[] = {"auto", "odds", "lfu", "lfu-global", "lfru"};
	uint32_t totals[CHUNKS];

	(void)state;
	for (uint32_t i = 0; i < CHUNKS; i++)
		totals[i] = i / SETS < 4 ? 1000 : 10; /* numbers 0..3 of each set are the hot ones */
	for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
		test_world world;
		weir_policy *policy = open_world(&world, policies[p], 1, SETS * 6);

		weir_policy_seed(policy, totals);
		assert_sound(policy);
		for (uint32_t number = 0; number < 6; number++)
			for (uint32_t set = 0; set < SETS; set++) {
				uint32_t chunk = chunk_of(set, number);

				weir_replay_demand(&world.replay, &chunk, 1);
				assert_sound(policy);
			}
		weir_policy_tick(policy);
		assert_true(
			policy->chunks[policy->slots[weir_policy_victim(policy, chunk_of(0, 9), WEIR_FOR_DEMAND)].chunk].total <
			1000);
		assert_int_equal(policy->chunks[chunk_of(1, 0)].total, 1001);
		weir_replay_close(&world.replay);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_policy_keeps_its_invariants),
		cmocka_unit_test(what_follows_what_is_learned),
		cmocka_unit_test(odds_rise_with_demand_and_stay_odds),
		cmocka_unit_test(a_broad_visit_teaches_nothing),
		cmocka_unit_test(parts_of_a_layer_follow_the_first_until_they_part),
		cmocka_unit_test(auto_leaves_a_candidate_that_does_worse),
		cmocka_unit_test(earlier_counts_decide_at_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
