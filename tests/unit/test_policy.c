/*
 * test_policy.c - policies alone, without a store: quotas, counts, recency, prefetch rules, and a comparison with a slow
 * reference that is written from the description only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "residency/policy.h"
#include "residency/replay.h"
#include "weir/simulate.h"

#define SETS 4
#define PER_SET 16
#define CHUNKS (SETS * PER_SET)

static uint32_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

/* One class, SETS sets of PER_SET chunks. */
typedef struct one_class {
	uint32_t chunk_set[CHUNKS], set_class[SETS], class_slots[1];
	weir_policy_shape shape;
	weir_replay replay;
} one_class;

static weir_policy *open_one_class(one_class *world, const char *policy, uint32_t slots)
{
	memset(world, 0, sizeof *world);
	for (uint32_t i = 0; i < CHUNKS; i++)
		world->chunk_set[i] = i / PER_SET;
	world->class_slots[0] = slots;
	world->shape = (weir_policy_shape){
		.chunks_count = CHUNKS,
		.sets_count = SETS,
		.classes_count = 1,
		.slots_count = slots,
		.chunk_set = world->chunk_set,
		.set_class = world->set_class,
		.class_slots = world->class_slots,
	};
	assert_int_equal(weir_replay_open(&world->replay, policy, &world->shape), 0);
	assert_null(weir_policy_broken(&world->replay.policy));
	return &world->replay.policy;
}

static uint32_t chunk_of(uint32_t set, uint32_t member)
{
	return set * PER_SET + member;
}

static uint32_t demand(one_class *world, uint32_t chunk)
{
	uint32_t hits = weir_replay_demand(&world->replay, &chunk, 1);

	assert_null(weir_policy_broken(&world->replay.policy));
	return hits;
}

static bool resident(const one_class *world, uint32_t chunk)
{
	return world->replay.policy.chunks[chunk].slot != WEIR_NONE;
}

static uint32_t victim_chunk(weir_policy *policy, uint32_t chunk, weir_policy_purpose purpose)
{
	uint32_t slot = weir_policy_victim(policy, chunk, purpose);

	return slot == WEIR_NONE ? WEIR_NONE : policy->slots[slot].chunk;
}

static void names_are_found(void **state)
{
	(void)state;
	assert_string_equal(weir_policy_find(NULL)->name, "auto");
	for (uint32_t i = 0; weir_policy_name(i); i++)
		assert_string_equal(weir_policy_find(weir_policy_name(i))->name, weir_policy_name(i));
	assert_string_equal(weir_policy_find("lru")->name, "lru");
	assert_string_equal(weir_policy_find("lru-global")->name, "lru-global");
	assert_string_equal(weir_policy_find("lfu-global")->name, "lfu-global");
	assert_null(weir_policy_find("belady"));
	assert_null(weir_policy_find(""));
}

static void lru_evicts_the_oldest_of_the_set(void **state)
{
	one_class world;

	(void)state;
	open_one_class(&world, "lru", SETS * 2);
	for (uint32_t set = 0; set < SETS; set++)
		for (uint32_t member = 0; member < 2; member++)
			assert_int_equal(demand(&world, chunk_of(set, member)), 0);
	assert_int_equal(demand(&world, chunk_of(1, 0)), 1); /* now 1/1 is the oldest of set 1 */
	assert_int_equal(demand(&world, chunk_of(1, 2)), 0);
	assert_true(resident(&world, chunk_of(1, 0)));
	assert_false(resident(&world, chunk_of(1, 1)));
	assert_true(resident(&world, chunk_of(0, 0)));
	weir_replay_close(&world.replay);
}

static void lfu_evicts_the_rarest_and_then_the_oldest(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS * 3);
	for (uint32_t set = 0; set < SETS; set++)
		for (uint32_t member = 0; member < 3; member++)
			demand(&world, chunk_of(set, member));
	demand(&world, chunk_of(0, 0));
	assert_int_equal(victim_chunk(policy, chunk_of(0, 5), WEIR_FOR_DEMAND), chunk_of(0, 1));
	demand(&world, chunk_of(0, 1));
	assert_int_equal(victim_chunk(policy, chunk_of(0, 5), WEIR_FOR_DEMAND), chunk_of(0, 2));
	demand(&world, chunk_of(0, 2));
	assert_int_equal(victim_chunk(policy, chunk_of(0, 5), WEIR_FOR_DEMAND), chunk_of(0, 0));
	weir_replay_close(&world.replay);
}

static void counts_survive_eviction_and_halve(void **state)
{
	one_class world;
	weir_policy *policy;
	uint32_t count;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	for (int i = 0; i < 5; i++)
		demand(&world, chunk_of(0, 0));
	for (uint32_t set = 1; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	demand(&world, chunk_of(0, 1));
	assert_false(resident(&world, chunk_of(0, 0)));
	count = policy->chunks[chunk_of(0, 0)].count;
	assert_int_equal(count, 5 * WEIR_POLICY_COUNT_ONE);
	for (uint32_t i = 1; i < WEIR_POLICY_HALF_LIFE_TICKS; i++)
		weir_policy_tick(policy);
	assert_int_equal(policy->chunks[chunk_of(0, 0)].count, count);
	weir_policy_tick(policy);
	assert_int_equal(policy->chunks[chunk_of(0, 0)].count, count / 2);
	weir_replay_close(&world.replay);
}

static void a_count_does_not_wrap(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	policy->chunks[0].count = UINT32_MAX - WEIR_POLICY_COUNT_ONE - 1;
	demand(&world, 0);
	demand(&world, 0);
	demand(&world, 0);
	assert_true(policy->chunks[0].count > UINT32_MAX - WEIR_POLICY_COUNT_ONE - 1);
	weir_replay_close(&world.replay);
}

static void a_set_borrows_free_slots_and_gives_them_back(void **state)
{
	one_class world;

	(void)state;
	open_one_class(&world, "lru", SETS * 4);
	for (uint32_t member = 0; member < PER_SET; member++)
		demand(&world, chunk_of(0, member)); /* takes all 16, four times its quota */
	assert_int_equal(world.replay.policy.sets[0].resident, 16);
	for (uint32_t set = 1; set < SETS; set++)
		for (uint32_t member = 0; member < 4; member++)
			demand(&world, chunk_of(set, member));
	for (uint32_t set = 0; set < SETS; set++)
		assert_int_equal(world.replay.policy.sets[set].resident, 4);
	for (uint32_t member = 12; member < PER_SET; member++)
		assert_true(resident(&world, chunk_of(0, member)));
	demand(&world, chunk_of(2, 9)); /* all at their quota: from itself */
	assert_false(resident(&world, chunk_of(2, 0)));
	weir_replay_close(&world.replay);
}

static void shares_of_slots_that_do_not_divide_stay_even(void **state)
{
	one_class world;
	uint64_t random = 7;

	(void)state;
	open_one_class(&world, "lru", SETS * 2 + 3);
	for (int i = 0; i < 2000; i++)
		demand(&world, next_random(&random) % CHUNKS);
	for (uint32_t set = 0; set < SETS; set++)
		assert_in_range(world.replay.policy.sets[set].resident, 2, 3);
	weir_replay_close(&world.replay);
}

static void pinned_slots_are_no_victims(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	for (uint32_t set = 0; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	weir_policy_set_evictable(policy, policy->chunks[chunk_of(0, 0)].slot, false);
	assert_int_not_equal(victim_chunk(policy, chunk_of(0, 1), WEIR_FOR_DEMAND), chunk_of(0, 0));
	for (uint32_t slot = 0; slot < SETS; slot++)
		weir_policy_set_evictable(policy, slot, false);
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_DEMAND), WEIR_NONE);
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), WEIR_NONE);
	weir_replay_close(&world.replay);
}

/* Puts `chunk` in by prefetch, in the slot of `gone`. */
static void prefetch_over(weir_policy *policy, uint32_t chunk, uint32_t gone)
{
	uint32_t slot = policy->chunks[gone].slot;

	weir_policy_remove(policy, slot);
	weir_policy_insert(policy, chunk, slot, WEIR_FOR_PREFETCH);
	weir_policy_set_evictable(policy, slot, true);
	assert_null(weir_policy_broken(policy));
}

static void a_prefetch_takes_only_what_is_counted_less(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	for (uint32_t set = 0; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), WEIR_NONE);
	policy->chunks[chunk_of(0, 1)].count = policy->chunks[chunk_of(0, 0)].count;
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), WEIR_NONE);
	policy->chunks[chunk_of(0, 1)].count++;
	assert_int_equal(victim_chunk(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), chunk_of(0, 0));
	weir_replay_close(&world.replay);
}

static void a_prefetch_under_lru_waits_for_a_chunk_unused_for_two_ticks(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lru", SETS);
	for (uint32_t set = 0; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), WEIR_NONE);
	weir_policy_tick(policy);
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), WEIR_NONE);
	weir_policy_tick(policy);
	assert_int_equal(victim_chunk(policy, chunk_of(0, 1), WEIR_FOR_PREFETCH), chunk_of(0, 0));
	weir_replay_close(&world.replay);
}

static void a_prefetch_takes_from_a_borrower(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS * 2);
	for (uint32_t member = 0; member < 5; member++)
		demand(&world, chunk_of(0, member)); /* three more than its quota of 2 */
	for (uint32_t member = 0; member < 3; member++)
		demand(&world, chunk_of(1, member)); /* one more */
	assert_int_equal(victim_chunk(policy, chunk_of(2, 0), WEIR_FOR_PREFETCH), chunk_of(0, 0));
	assert_int_equal(victim_chunk(policy, chunk_of(1, 3), WEIR_FOR_PREFETCH), chunk_of(0, 0));
	assert_int_equal(weir_policy_victim(policy, chunk_of(0, 6), WEIR_FOR_PREFETCH), WEIR_NONE); /* is the borrower */
	weir_replay_close(&world.replay);
}

/* Quota 2 3/4: three slots are no borrowing, four are. */
static void a_prefetch_leaves_fractions_alone(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS * 2 + 3);
	for (uint32_t set = 1; set < SETS; set++)
		for (uint32_t member = 0; member < 3; member++)
			demand(&world, chunk_of(set, member));
	demand(&world, chunk_of(0, 0));
	demand(&world, chunk_of(0, 1));
	policy->sets[0].chunks_count -= 8; /* quota 1 3/8, held 2 */
	policy->sets[1].chunks_count += 8;
	assert_int_equal(weir_policy_victim(policy, chunk_of(1, 9), WEIR_FOR_PREFETCH), WEIR_NONE);
	policy->sets[0].chunks_count -= 6; /* quota 11/32, held 2 */
	policy->sets[1].chunks_count += 6;
	assert_int_equal(victim_chunk(policy, chunk_of(1, 9), WEIR_FOR_PREFETCH), chunk_of(0, 0));
	weir_replay_close(&world.replay);
}

static void a_fresh_prefetch_is_spared_until_it_is_stale(void **state)
{
	one_class world;
	weir_policy *policy;
	uint32_t wanted = chunk_of(0, 9);

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	for (uint32_t set = 0; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	policy->chunks[wanted].count = 100 * WEIR_POLICY_COUNT_ONE;
	prefetch_over(policy, chunk_of(0, 5), chunk_of(0, 0));
	assert_int_equal(weir_policy_victim(policy, wanted, WEIR_FOR_PREFETCH), WEIR_NONE);
	assert_int_equal(victim_chunk(policy, wanted, WEIR_FOR_DEMAND), chunk_of(0, 5)); /* a demand may */
	for (uint32_t i = 0; i < WEIR_POLICY_STALE_TICKS; i++)
		weir_policy_tick(policy);
	assert_int_equal(victim_chunk(policy, wanted, WEIR_FOR_PREFETCH), chunk_of(0, 5));
	weir_replay_close(&world.replay);
}

static void a_used_prefetch_is_like_any_other(void **state)
{
	one_class world;
	weir_policy *policy;
	uint32_t wanted = chunk_of(0, 9);

	(void)state;
	policy = open_one_class(&world, "lfu", SETS);
	for (uint32_t set = 0; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	policy->chunks[wanted].count = 100 * WEIR_POLICY_COUNT_ONE;
	prefetch_over(policy, chunk_of(0, 5), chunk_of(0, 0));
	demand(&world, chunk_of(0, 5));
	assert_int_equal(victim_chunk(policy, wanted, WEIR_FOR_PREFETCH), chunk_of(0, 5));
	weir_replay_close(&world.replay);
}

static void one_demand_does_not_evict_its_own_hits(void **state)
{
	one_class world;
	uint32_t chunks[2] = {chunk_of(0, 1), chunk_of(0, 0)};

	(void)state;
	open_one_class(&world, "lru", SETS);
	demand(&world, chunk_of(0, 0)); /* the oldest of all */
	for (uint32_t set = 1; set < SETS; set++)
		demand(&world, chunk_of(set, 0));
	assert_int_equal(weir_replay_demand(&world.replay, chunks, 2), 1);
	assert_true(resident(&world, chunk_of(0, 0)));
	assert_true(resident(&world, chunk_of(0, 1)));
	weir_replay_close(&world.replay);
}

/* Below one token cycle a global LRU forgets everything before it comes round again; a policy that counts does not. */
static void a_global_lru_hits_nothing_below_one_cycle(void **state)
{
	one_class world;

	(void)state;
	open_one_class(&world, "lru-global", CHUNKS - 1);
	for (uint32_t i = 0; i < 10 * CHUNKS; i++)
		demand(&world, i % CHUNKS);
	assert_int_equal(world.replay.hits, 0);
	weir_replay_close(&world.replay);
	open_one_class(&world, "lru-global", CHUNKS);
	for (uint32_t i = 0; i < 10 * CHUNKS; i++)
		demand(&world, i % CHUNKS);
	assert_int_equal(world.replay.hits, 9 * CHUNKS);
	weir_replay_close(&world.replay);
}

/* A class keeps to its own slots, whatever happens in another. */
static void classes_do_not_mix(void **state)
{
	const uint32_t chunk_set[8] = {0, 0, 0, 0, 1, 1, 1, 1}, set_class[2] = {0, 1}, class_slots[2] = {1, 2};
	const weir_policy_shape shape = {.chunks_count = 8,
					 .sets_count = 2,
					 .classes_count = 2,
					 .slots_count = 3,
					 .chunk_set = chunk_set,
					 .set_class = set_class,
					 .class_slots = class_slots};
	uint64_t random = 3;

	(void)state;
	for (const weir_policy_methods *methods = weir_policy_table; methods->name; methods++) {
		weir_replay replay;

		assert_int_equal(weir_replay_open(&replay, methods->name, &shape), 0);
		for (int i = 0; i < 500; i++) {
			uint32_t chunk = next_random(&random) % 8;

			weir_replay_demand(&replay, &chunk, 1);
			assert_null(weir_policy_broken(&replay.policy));
			if (replay.policy.chunks[chunk].slot != WEIR_NONE)
				assert_int_equal(replay.policy.chunks[chunk].slot > 0, chunk >= 4);
		}
		weir_replay_close(&replay);
	}
}

/* The reference: arrays of times and counts, every decision by looking at everything. */
typedef struct reference {
	bool by_count, by_group, in[CHUNKS];
	uint64_t seen[CHUNKS], now;
	double count[CHUNKS];
	uint32_t slots, used, hits;
} reference;

static uint32_t reference_held(const reference *ref, uint32_t set)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < PER_SET; i++)
		held += ref->in[chunk_of(set, i)];
	return held;
}

/* The fullest set that holds anything, `own` counted with one more, and first among equals; then the lowest. */
static uint32_t reference_set(const reference *ref, uint32_t own)
{
	uint32_t best = WEIR_NONE, best_held = 0;

	for (uint32_t i = 0; i <= SETS; i++) {
		uint32_t set = i == 0 ? own : i - 1, held = reference_held(ref, set) + (set == own);

		if (reference_held(ref, set) == 0 || held <= best_held)
			continue;
		best = set;
		best_held = held;
	}
	return best;
}

static void reference_evict(reference *ref, uint32_t own)
{
	uint32_t set = ref->by_group ? reference_set(ref, own) : 0, gone = WEIR_NONE;
	uint32_t first = ref->by_group ? chunk_of(set, 0) : 0, end = ref->by_group ? first + PER_SET : CHUNKS;

	for (uint32_t i = first; i < end; i++) {
		if (!ref->in[i])
			continue;
		if (gone == WEIR_NONE || (ref->by_count && ref->count[i] < ref->count[gone]) ||
		    ((!ref->by_count || ref->count[i] == ref->count[gone]) && ref->seen[i] < ref->seen[gone]))
			gone = i;
	}
	ref->in[gone] = false;
	ref->used--;
}

static void reference_demand(reference *ref, uint32_t chunk)
{
	if (ref->in[chunk]) {
		ref->hits++;
	} else {
		if (ref->used == ref->slots)
			reference_evict(ref, chunk / PER_SET);
		ref->in[chunk] = true;
		ref->used++;
	}
	ref->seen[chunk] = ++ref->now;
	ref->count[chunk] += WEIR_POLICY_COUNT_ONE;
}

static void reference_tick(reference *ref, uint32_t tick)
{
	for (uint32_t i = 0; i < CHUNKS && tick % WEIR_POLICY_HALF_LIFE_TICKS == 0; i++)
		ref->count[i] = (double)(uint32_t)(ref->count[i] / 2);
}

/* Routing as routers do it: the same few experts often, and a favourite that moves.  Set by set, two chunks each. */
static uint32_t routed(uint64_t *random, uint32_t token, uint32_t set)
{
	uint32_t spread = next_random(random) % PER_SET * (next_random(random) % PER_SET) / PER_SET;

	return chunk_of(set, (spread + token / 50 + set) % PER_SET);
}

static void compare_with_reference(const char *policy, uint32_t slots)
{
	reference ref = {.by_count = policy[1] == 'f', .by_group = !strchr(policy, '-'), .slots = slots};
	uint64_t random = 1234567;
	one_class world;

	open_one_class(&world, policy, slots);
	for (uint32_t token = 1; token <= 400; token++) {
		for (uint32_t i = 0; i < 2 * SETS; i++) {
			uint32_t chunk = routed(&random, token, i / 2);

			demand(&world, chunk);
			reference_demand(&ref, chunk);
		}
		weir_policy_tick(&world.replay.policy);
		reference_tick(&ref, token);
		for (uint32_t i = 0; i < CHUNKS; i++)
			assert_int_equal(resident(&world, i), ref.in[i]);
	}
	assert_int_equal(world.replay.hits, ref.hits);
	assert_true(ref.hits > 0 || !ref.by_group);
	weir_replay_close(&world.replay);
}

static void simple_policies_decide_as_the_reference_does(void **state)
{
	static const char *const policies[] = {"lfu", "lru", "lfu-global", "lru-global"};
	static const uint32_t slots[] = {1, 3, SETS, 8, 11, 16, 32, 63};

	(void)state;
	for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++)
		for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++)
			compare_with_reference(policies[p], slots[i]);
}

static uint64_t hits_on_moving_favourites(const char *policy)
{
	uint64_t random = 99, hits;
	one_class world;

	open_one_class(&world, policy, CHUNKS / 4);
	for (uint32_t token = 0; token < 600; token++) {
		for (uint32_t i = 0; i < 2 * SETS; i++)
			demand(&world, routed(&random, token, i / 2));
		weir_policy_tick(&world.replay.policy);
	}
	hits = world.replay.hits;
	weir_replay_close(&world.replay);
	return hits;
}

static void counting_beats_recency_where_favourites_last(void **state)
{
	(void)state;
	assert_true(hits_on_moving_favourites("lfu") > hits_on_moving_favourites("lru"));
}

static void the_walker_finds_what_is_wrong(void **state)
{
	one_class world;
	weir_policy *policy;

	(void)state;
	policy = open_one_class(&world, "lfu", SETS * 2);
	for (uint32_t i = 0; i < SETS * 2; i++)
		demand(&world, i * 8);
	policy->sets[1].resident++;
	assert_non_null(weir_policy_broken(policy));
	policy->sets[1].resident--;
	policy->sets[2].evictable--;
	assert_non_null(weir_policy_broken(policy));
	policy->sets[2].evictable++;
	policy->chunks[1].slot = 0;
	assert_non_null(weir_policy_broken(policy));
	policy->chunks[1].slot = WEIR_NONE;
	policy->slots[policy->sets[0].oldest].next = policy->sets[0].oldest;
	assert_non_null(weir_policy_broken(policy));
	weir_replay_close(&world.replay);
}

static void shapes_that_cannot_be_are_refused(void **state)
{
	one_class world;
	weir_replay replay;

	(void)state;
	open_one_class(&world, "lfu", 1);
	assert_int_equal(weir_replay_open(&replay, "best", &world.shape), WEIR_EINVAL);
	world.shape.slots_count = 0;
	assert_int_equal(weir_replay_open(&replay, "lfu", &world.shape), WEIR_EINVAL);
	world.shape.slots_count = 1;
	world.shape.chunks_count = WEIR_POLICY_CHUNKS_MAX + 1;
	assert_int_equal(weir_replay_open(&replay, "lfu", &world.shape), WEIR_EINVAL);
	weir_replay_close(&world.replay);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_found),
		cmocka_unit_test(lru_evicts_the_oldest_of_the_set),
		cmocka_unit_test(lfu_evicts_the_rarest_and_then_the_oldest),
		cmocka_unit_test(counts_survive_eviction_and_halve),
		cmocka_unit_test(a_count_does_not_wrap),
		cmocka_unit_test(a_set_borrows_free_slots_and_gives_them_back),
		cmocka_unit_test(shares_of_slots_that_do_not_divide_stay_even),
		cmocka_unit_test(pinned_slots_are_no_victims),
		cmocka_unit_test(a_prefetch_takes_only_what_is_counted_less),
		cmocka_unit_test(a_prefetch_under_lru_waits_for_a_chunk_unused_for_two_ticks),
		cmocka_unit_test(a_prefetch_takes_from_a_borrower),
		cmocka_unit_test(a_prefetch_leaves_fractions_alone),
		cmocka_unit_test(a_fresh_prefetch_is_spared_until_it_is_stale),
		cmocka_unit_test(a_used_prefetch_is_like_any_other),
		cmocka_unit_test(one_demand_does_not_evict_its_own_hits),
		cmocka_unit_test(a_global_lru_hits_nothing_below_one_cycle),
		cmocka_unit_test(classes_do_not_mix),
		cmocka_unit_test(simple_policies_decide_as_the_reference_does),
		cmocka_unit_test(counting_beats_recency_where_favourites_last),
		cmocka_unit_test(the_walker_finds_what_is_wrong),
		cmocka_unit_test(shapes_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
