/* test_plan.c - budgets divided: tables of facts, and rules that hold for every plan of a sweep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/plan_internal.h"
#include "weir/plan.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* The shapes of a 30B model with 128 experts in 48 layers, 8 a token: two sizes of chunks. */
static weir_plan_facts moe_facts(void)
{
	weir_plan_facts facts = {
		.budget_bytes = 4 * GIB,
		.program_bytes = 60 * MIB,
		.kv_bytes = 384 * MIB,
		.compute_bytes = 104 * MIB,
		.margin_bytes = 64 * MIB,
		.dense_fixed_bytes = 1 * MIB,
		.dense_stream_bytes = 700 * MIB,
		.dense_largest_bytes = 12 * MIB,
		.rows_bytes = 170 * MIB,
		.rows_per_token_bytes = 1152,
		.rows_least_bytes = MIB,
		.classes_count = 2,
		.expert_layers_count = 48,
		.experts_per_layer = 8,
		.hit_rate_hint = -1,
		.device_bytes_per_second = 2e9,
		.compute_tokens_per_second = 12,
	};

	facts.classes[0] = (weir_plan_class){884736, 888832, 48 * 128 * 2, 48 * 8 * 2, 16};
	facts.classes[1] = (weir_plan_class){1290240, 1294336, 48 * 128, 48 * 8, 8};
	return facts;
}

static weir_plan_facts dense_facts(void)
{
	weir_plan_facts facts = moe_facts();

	facts.classes_count = 0;
	facts.dense_stream_bytes = 3500 * MIB;
	facts.dense_largest_bytes = 90 * MIB;
	return facts;
}

static uint64_t memory_sum(const weir_plan *plan)
{
	return plan->memory_dense_bytes + plan->memory_experts_bytes + plan->memory_kv_bytes + plan->memory_compute_bytes +
	       plan->memory_other_bytes;
}

static uint64_t one_step(const weir_plan_facts *facts)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < facts->classes_count; i++)
		bytes += facts->classes[i].slot_bytes;
	return bytes;
}

static bool all_slots(const weir_plan_facts *facts, const weir_plan *plan)
{
	for (uint32_t i = 0; i < facts->classes_count; i++)
		if (plan->class_slots[i] != facts->classes[i].chunks_count)
			return false;
	return true;
}

/* What holds for every plan that fits. */
static void check_plan(const weir_plan_facts *facts, const weir_plan *plan)
{
	uint64_t slots = 0, bytes = 0;

	assert_true(plan->fits);
	assert_true(plan->budget_bytes == facts->budget_bytes);
	assert_true(plan->least_budget_bytes <= plan->budget_bytes);
	assert_true(memory_sum(plan) <= plan->budget_bytes);
	if (plan->ring_bytes)
		assert_true(memory_sum(plan) == plan->budget_bytes);
	else if (!all_slots(facts, plan))
		assert_true(plan->budget_bytes - memory_sum(plan) < one_step(facts));
	else if (!plan->all_resident)
		assert_true(plan->budget_bytes - memory_sum(plan) < facts->rows_bytes);
	for (uint32_t i = 0; i < facts->classes_count; i++) {
		assert_true(plan->class_slots[i] >= facts->classes[i].slots_least);
		assert_true(plan->class_slots[i] <= facts->classes[i].chunks_count);
		slots += plan->class_slots[i];
		bytes += plan->class_slots[i] * facts->classes[i].slot_bytes;
	}
	assert_true(plan->slots_count == slots);
	assert_true(plan->slots_bytes == bytes && plan->memory_experts_bytes == bytes);
	assert_true(plan->dense_resident_bytes <= facts->dense_stream_bytes);
	assert_true((plan->ring_bytes == 0) == (plan->dense_resident_bytes == facts->dense_stream_bytes));
	assert_true(plan->expected_hit_rate >= 0 && plan->expected_hit_rate <= 1);
	assert_true(plan->bytes_per_token >= 0);
	if (plan->all_resident)
		assert_true(plan->bytes_per_token <= 0);
}

/* More is never worse: every class's slots, dense weights that stay, hits, bytes, speed; the first token waits longer at most
 * by what is read for good before it. */
static void check_not_worse(const weir_plan_facts *facts, const weir_plan *less, const weir_plan *more)
{
	double loaded;

	for (uint32_t i = 0; i < facts->classes_count; i++)
		assert_true(more->class_slots[i] >= less->class_slots[i]);
	assert_true(more->slots_count >= less->slots_count);
	assert_true(more->dense_resident_bytes >= less->dense_resident_bytes);
	assert_true(more->expected_hit_rate >= less->expected_hit_rate);
	assert_true(more->bytes_per_token <= less->bytes_per_token);
	assert_true(more->tokens_per_second >= less->tokens_per_second);
	loaded = (double)(more->dense_resident_bytes - less->dense_resident_bytes) +
		 (more->all_resident ? (double)facts->rows_bytes : 0);
	assert_true(more->first_token_seconds <=
		    less->first_token_seconds * (1 + 1e-12) + loaded / facts->device_bytes_per_second);
	assert_true(more->all_resident >= less->all_resident);
}

static void sweep(weir_plan_facts facts, uint64_t step, uint64_t until)
{
	weir_plan previous, plan;
	weir_error error;

	facts.budget_bytes = 0;
	assert_int_equal(weir_plan_make(&facts, &previous, &error), WEIR_EBUDGET);
	facts.budget_bytes = previous.least_budget_bytes;
	assert_int_equal(weir_plan_make(&facts, &previous, &error), 0);
	check_plan(&facts, &previous);
	for (; facts.budget_bytes < until; facts.budget_bytes += step) {
		assert_int_equal(weir_plan_make(&facts, &plan, &error), 0);
		check_plan(&facts, &plan);
		check_not_worse(&facts, &previous, &plan);
		previous = plan;
	}
	assert_true(previous.all_resident);
}

static void every_budget_is_kept_and_more_is_never_worse(void **state)
{
	weir_plan_facts odd = moe_facts();

	(void)state;
	sweep(moe_facts(), 7 * MIB + 13, 20 * GIB);
	sweep(dense_facts(), 3 * MIB + 1, 5 * GIB);
	odd.classes_count = 3;
	odd.classes[2] = (weir_plan_class){1000, 1536, 17, 3, 3};
	odd.prompt_tokens = 1300;
	odd.overlap_share = 0.6;
	odd.device_latency_seconds = 1e-4;
	sweep(odd, 11 * MIB + 7, 20 * GIB);
}

static void check_least(weir_plan_facts facts)
{
	weir_plan plan;
	weir_error error;
	uint64_t least;

	facts.budget_bytes = 1;
	assert_int_equal(weir_plan_make(&facts, &plan, &error), WEIR_EBUDGET);
	assert_false(plan.fits);
	least = plan.least_budget_bytes;
	facts.budget_bytes = least - 1;
	assert_int_equal(weir_plan_make(&facts, &plan, &error), WEIR_EBUDGET);
	assert_true(plan.least_budget_bytes == least);
	facts.budget_bytes = least;
	assert_int_equal(weir_plan_make(&facts, &plan, &error), 0);
	assert_true(memory_sum(&plan) == least);
	check_plan(&facts, &plan);
}

static void the_least_budget_is_exact(void **state)
{
	weir_plan_facts facts = moe_facts();

	(void)state;
	check_least(moe_facts());
	check_least(dense_facts());
	facts.ring_least_bytes = 4000 * MIB; /* more than would stream: then all of it stays */
	check_least(facts);
	facts = moe_facts();
	facts.rows_least_bytes = GIB; /* more than the rows */
	check_least(facts);
}

static void the_least_budget_is_the_sum_of_its_parts(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	facts.budget_bytes = 1;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), WEIR_EBUDGET);
	assert_true(plan.least_budget_bytes ==
		    (60 + 384 + 104 + 64 + 1 + 24 + 1) * MIB + 16 * UINT64_C(888832) + 8 * UINT64_C(1294336));
}

static void the_refusal_names_what_takes_most(void **state)
{
	static const struct {
		size_t field;
		const char *name;
	} rows[] = {
		{offsetof(weir_plan_facts, kv_bytes), "KV cache"},
		{offsetof(weir_plan_facts, compute_bytes), "compute buffers"},
		{offsetof(weir_plan_facts, dense_fixed_bytes), "dense weights"},
		{offsetof(weir_plan_facts, program_bytes), "the program itself"},
	};
	weir_plan plan;
	weir_error error;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		weir_plan_facts facts = moe_facts();

		*(uint64_t *)(void *)((char *)&facts + rows[i].field) = 9 * GIB;
		assert_int_equal(weir_plan_make(&facts, &plan, &error), WEIR_EBUDGET);
		assert_string_equal(plan.least_taken_by, rows[i].name);
		assert_non_null(strstr(error.message, rows[i].name));
	}
}

static void all_resident_needs_exactly_the_sum(void **state)
{
	weir_plan_facts facts = moe_facts();
	uint64_t all = (60 + 384 + 104 + 64 + 1 + 700 + 170) * MIB + UINT64_C(12288) * 888832 + UINT64_C(6144) * 1294336;
	weir_plan plan;

	(void)state;
	facts.budget_bytes = all - 1;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_false(plan.all_resident);
	assert_true(plan.bytes_per_token > 0);
	facts.budget_bytes = all;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.all_resident);
	assert_true(plan.bytes_per_token <= 0);
	assert_true(memory_sum(&plan) == all);
	assert_int_equal(plan.limits, WEIR_LIMIT_COMPUTE);
	facts.budget_bytes = UINT64_MAX;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.all_resident && memory_sum(&plan) == all);
}

static void dense_weights_come_before_slots(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	facts.budget_bytes = 1000 * MIB;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.ring_bytes == 24 * MIB);
	assert_true(plan.slots_count == 24);
	assert_true(plan.dense_resident_bytes > 0);
	facts.budget_bytes = 2 * GIB;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.ring_bytes == 0);
	assert_true(plan.slots_count > 24);
}

static void the_token_cycle_is_what_a_token_touches(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.token_cycle_bytes == UINT64_C(768) * 884736 + UINT64_C(384) * 1290240);
}

/* ---- expectation ---- */

static void hits_rise_and_never_fall_below_the_share(void **state)
{
	double previous = 0;

	(void)state;
	for (int i = 0; i <= 1000; i++) {
		double share = i / 1000.0, hits = weir_plan_hit_rate(share);

		assert_true(hits >= previous && hits >= share && hits <= 1);
		previous = hits;
	}
	assert_true(weir_plan_hit_rate(0) <= 0 && weir_plan_hit_rate(-1) <= 0);
	assert_true(weir_plan_hit_rate(1) >= 1 && weir_plan_hit_rate(2) <= 1);
	assert_true(weir_plan_hit_rate(0.125) > 0.55 && weir_plan_hit_rate(0.125) < 0.66);
	assert_true(weir_plan_hit_rate(0.25) > 0.74 && weir_plan_hit_rate(0.25) < 0.84);
}

static void near(double a, double b)
{
	double difference = a > b ? a - b : b - a;

	if (difference > 1e-9 * (b > 0 ? b : 1))
		fail_msg("%.12g is not %.12g", a, b);
}

static void a_hint_replaces_the_estimate(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	facts.hit_rate_hint = 0.75;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.expected_hit_rate, 0.75);
	near(plan.bytes_per_token, (double)plan.token_cycle_bytes / 4 + 1152);
	facts.hit_rate_hint = 0;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.bytes_per_token, (double)plan.token_cycle_bytes + 1152);
}

static void a_token_takes_the_slower_of_drive_and_processor(void **state)
{
	weir_plan_facts facts = dense_facts();
	weir_plan plan;
	double io;

	(void)state;
	facts.budget_bytes = 2 * GIB;
	facts.compute_tokens_per_second = 1000;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	io = ((double)(facts.dense_stream_bytes - plan.dense_resident_bytes) + 1152) / 2e9;
	near(plan.bytes_per_token, io * 2e9);
	near(plan.tokens_per_second, 1 / io);
	facts.compute_tokens_per_second = 0.25;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.tokens_per_second, 0.25);
	assert_int_equal(plan.limits, WEIR_LIMIT_COMPUTE);
}

/* With one expert for each layer: half of the layers lack it, and each of those waits for what its computing leaves open. */
static void missing_experts_wait_layer_by_layer(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;
	double compute = 1 / 12.0, cycle, wait;

	(void)state;
	facts.experts_per_layer = 1;
	facts.hit_rate_hint = 0.5;
	facts.device_latency_seconds = 1e-3;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	cycle = (double)plan.token_cycle_bytes;
	near(plan.tokens_per_second, 1 / (compute + 48 * 0.5 * (1e-3 + cycle / 48 / 2e9)));
	facts.overlap_share = 0.5;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	wait = 1e-3 + cycle / 48 / 2e9 - 0.5 * compute / 48;
	assert_true(wait > 0);
	near(plan.tokens_per_second, 1 / (compute + 48 * 0.5 * wait));
	facts.hit_rate_hint = 0; /* every layer waits */
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.tokens_per_second, 1 / (compute + 48 * wait));
	facts.overlap_share = 1;
	facts.device_bytes_per_second = 2e11;
	facts.device_latency_seconds = 0;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.tokens_per_second, 12); /* all is hidden */
}

/* Layers lack different numbers of experts: the mean of what they wait is more than the wait of the mean. */
static void uneven_layers_wait_longer(void **state)
{
	weir_plan_facts facts = moe_facts();
	double together, apart;
	weir_plan plan;

	(void)state;
	facts.hit_rate_hint = 0.9;
	facts.overlap_share = 0.8;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	apart = 1 / plan.tokens_per_second;
	facts.expert_layers_count = 0;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	together = 1 / plan.tokens_per_second;
	assert_true(apart > together * 1.05);
	near(together, 1 / 12.0);
}

static void what_runs_have_shown_is_expected_again(void **state)
{
	weir_plan_facts facts = moe_facts();
	double share;
	weir_plan plan;

	(void)state;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	share = (double)plan.class_slots[0] / (double)facts.classes[0].chunks_count;
	facts.points_count = 2;
	facts.points[0] = (weir_plan_point){share, 0.9, 0.12};
	facts.points[1] = (weir_plan_point){0.5, 0.95, 0.05};
	assert_true(weir_plan_own_hit_rate(&facts, share) > 0.8999 && weir_plan_own_hit_rate(&facts, share) < 0.9001);
	assert_true(weir_plan_own_read_share(&facts, share) > 0.1199 && weir_plan_own_read_share(&facts, share) < 0.1201);
	near(weir_plan_own_hit_rate(&facts, 0.5), 0.95);
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.expected_hit_rate > 0.899 && plan.expected_hit_rate < 0.901);
	assert_true(plan.bytes_per_token > 0.119 * (double)plan.token_cycle_bytes);
	/* In between it lies between; outside the nearest point's factor holds. */
	assert_true(weir_plan_own_hit_rate(&facts, 0.3) > 0.9 && weir_plan_own_hit_rate(&facts, 0.3) < 0.95);
	assert_true(weir_plan_own_hit_rate(&facts, 0.05) < 0.9 && weir_plan_own_hit_rate(&facts, 0.05) > 0.35);
	assert_true(weir_plan_own_hit_rate(&facts, 0.9) > 0.95 && weir_plan_own_hit_rate(&facts, 0.9) <= 1);
	assert_true(weir_plan_own_hit_rate(&facts, 1) >= 1 && weir_plan_own_read_share(&facts, 1) <= 0);
	facts.points[0].hit_rate = 0;
	facts.points[0].read_share = 3;
	assert_true(weir_plan_own_hit_rate(&facts, 0.01) >= 0);
	assert_true(weir_plan_own_hit_rate(&facts, 0) >= 0);
}

/* A forecast that is told what a run has shown gives that run's speed. */
static void learning_finds_what_was_seen(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan_seen seen = {.compute_seconds = 0.09, .stall_seconds = 0.06, .bytes_per_token = 1.5e8};
	double overlap = -9, exposed = -9;
	weir_plan plan;

	(void)state;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_int_equal(weir_plan_learn(&facts, &plan, &seen, &overlap, &exposed), 0);
	assert_true(overlap > -4 && overlap < 1 && exposed < -8);
	facts.overlap_share = overlap;
	facts.compute_tokens_per_second = 1 / 0.09;
	facts.hit_rate_hint = 1 - (1.5e8 - 1152) / (double)plan.token_cycle_bytes;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.tokens_per_second > 0.999 / 0.15 && plan.tokens_per_second < 1.001 / 0.15);
	seen.stall_seconds = 0; /* faster than the drive was: as much overlap as there can be */
	assert_int_equal(weir_plan_learn(&facts, &plan, &seen, &overlap, &exposed), 0);
	assert_true(overlap > 0.99);
	seen.bytes_per_token = 0;
	assert_int_equal(weir_plan_learn(&facts, &plan, &seen, &overlap, &exposed), WEIR_ENOTFOUND);
	facts = dense_facts();
	facts.budget_bytes = 2 * GIB;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	seen = (weir_plan_seen){.compute_seconds = 0.5, .bytes_per_token = plan.bytes_per_token};
	seen.stall_seconds = plan.bytes_per_token / 2e9 - 0.5 + 0.1;
	assert_int_equal(weir_plan_learn(&facts, &plan, &seen, &overlap, &exposed), 0);
	assert_true(exposed > 0.199 && exposed < 0.201);
}

static void the_limit_is_named(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	facts.budget_bytes = 1000 * MIB; /* dense weights stream */
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_int_equal(plan.limits, WEIR_LIMIT_MEMORY);
	facts.budget_bytes = 2 * GIB; /* dense stays, but fewer slots than a token wants */
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.slots_count < 768 + 384);
	assert_int_equal(plan.limits, WEIR_LIMIT_MEMORY);
	facts.budget_bytes = 4 * GIB;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_int_equal(plan.limits, WEIR_LIMIT_DISK);
	facts.device_bytes_per_second = 2e11;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_int_equal(plan.limits, WEIR_LIMIT_COMPUTE);
	assert_string_equal(weir_plan_limit_name(WEIR_LIMIT_DISK), "disk");
	assert_string_equal(weir_plan_limit_name(WEIR_LIMIT_COMPUTE), "compute");
	assert_string_equal(weir_plan_limit_name(WEIR_LIMIT_MEMORY), "memory");
}

static void unknown_rates_give_no_speed(void **state)
{
	weir_plan_facts facts = moe_facts();
	weir_plan plan;

	(void)state;
	facts.device_bytes_per_second = 0;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.tokens_per_second <= 0 && plan.first_token_seconds <= 0);
	facts.budget_bytes = UINT64_MAX; /* nothing is read: the drive's rate does not matter */
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	near(plan.tokens_per_second, 12);
}

static void a_longer_prompt_takes_longer(void **state)
{
	weir_plan_facts facts = moe_facts();
	double previous = 0;
	weir_plan plan;

	(void)state;
	for (uint64_t tokens = 1; tokens <= 4096; tokens *= 2) {
		facts.prompt_tokens = tokens;
		facts.prompt_tokens_per_second = 50;
		assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
		assert_true(plan.first_token_seconds > previous);
		previous = plan.first_token_seconds;
	}
	assert_true(previous >= 4096 / 50.0);
}

/* Every chunk is wanted by a batch: the first batch reads all of them, each later one what has no slot. */
static void later_batches_read_what_has_no_slot(void **state)
{
	weir_plan_facts facts = moe_facts();
	double once, twice, missing;
	weir_plan plan;

	(void)state;
	facts.compute_tokens_per_second = 1e9;
	facts.batch_tokens = 4096;
	facts.prompt_tokens = 4096;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	once = plan.first_token_seconds;
	facts.prompt_tokens = 8192;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	twice = plan.first_token_seconds;
	missing = (double)(facts.classes[0].chunks_count - plan.class_slots[0]) * (double)facts.classes[0].chunk_bytes +
		  (double)(facts.classes[1].chunks_count - plan.class_slots[1]) * (double)facts.classes[1].chunk_bytes;
	near((twice - once) * 2e9, missing + 4096 * 1152.0);
}

/* ---- what is refused ---- */

static void refused(const weir_plan_facts *facts)
{
	weir_plan plan;
	weir_error error = {0};

	assert_int_equal(weir_plan_make(facts, &plan, &error), WEIR_EINVAL);
	assert_int_equal(error.code, WEIR_EINVAL);
	assert_false(plan.fits);
}

static void sums_that_wrap_are_refused(void **state)
{
	static const size_t fields[] = {
		offsetof(weir_plan_facts, program_bytes),      offsetof(weir_plan_facts, kv_bytes),
		offsetof(weir_plan_facts, compute_bytes),      offsetof(weir_plan_facts, margin_bytes),
		offsetof(weir_plan_facts, dense_fixed_bytes),  offsetof(weir_plan_facts, rows_bytes),
		offsetof(weir_plan_facts, dense_stream_bytes),
	};
	weir_plan_facts facts;

	(void)state;
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		facts = moe_facts();
		*(uint64_t *)(void *)((char *)&facts + fields[i]) = UINT64_MAX;
		refused(&facts);
		*(uint64_t *)(void *)((char *)&facts + fields[i]) = UINT64_MAX - GIB;
		refused(&facts);
	}
	facts = moe_facts();
	facts.classes[1].slot_bytes = UINT64_C(1) << 60;
	refused(&facts);
	facts = moe_facts();
	facts.classes[0].slot_bytes = facts.classes[1].slot_bytes = UINT64_MAX / (2 * 128 * 48) + 1;
	refused(&facts);
}

static void facts_that_contradict_are_refused(void **state)
{
	const double not_a_number = __builtin_nan(""), infinite = __builtin_inf();
	weir_plan_facts facts = moe_facts();

	(void)state;
	facts.classes_count = WEIR_PLAN_CLASSES_MAX + 1;
	refused(&facts);
	facts = moe_facts();
	facts.classes[0].slot_bytes = facts.classes[0].chunk_bytes - 1;
	refused(&facts);
	facts = moe_facts();
	facts.classes[0].chunks_count = UINT64_C(1) << 32;
	refused(&facts);
	facts = moe_facts();
	facts.classes[0].chunks_per_token = facts.classes[0].chunks_count + 1;
	refused(&facts);
	facts = moe_facts();
	facts.dense_largest_bytes = facts.dense_stream_bytes + 1;
	refused(&facts);
	facts = moe_facts();
	facts.hit_rate_hint = 1.5;
	refused(&facts);
	facts.hit_rate_hint = not_a_number;
	refused(&facts);
	facts = moe_facts();
	facts.device_bytes_per_second = not_a_number;
	refused(&facts);
	facts.device_bytes_per_second = infinite;
	refused(&facts);
	facts = moe_facts();
	facts.compute_tokens_per_second = -1;
	refused(&facts);
	facts = moe_facts();
	facts.overlap_share = 1.1;
	refused(&facts);
	facts.overlap_share = not_a_number;
	refused(&facts);
	facts = moe_facts();
	facts.dense_exposed_share = -0.1;
	refused(&facts);
	facts = moe_facts();
	facts.points_count = WEIR_PLAN_POINTS_MAX + 1;
	refused(&facts);
	facts.points_count = 2;
	facts.points[0] = (weir_plan_point){0.5, 0.8, 0.2};
	facts.points[1] = (weir_plan_point){0.4, 0.8, 0.2};
	refused(&facts);
	facts.points[1] = (weir_plan_point){0.6, not_a_number, 0.2};
	refused(&facts);
	assert_int_equal(weir_plan_make(NULL, NULL, NULL), WEIR_EINVAL);
}

static void a_model_without_weights_is_a_plan(void **state)
{
	weir_plan_facts facts = {.budget_bytes = 1, .hit_rate_hint = -1};
	weir_plan plan;

	(void)state;
	assert_int_equal(weir_plan_make(&facts, &plan, NULL), 0);
	assert_true(plan.fits && plan.all_resident && plan.slots_count == 0 && memory_sum(&plan) == 0);
	assert_true(plan.tokens_per_second <= 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_budget_is_kept_and_more_is_never_worse),
		cmocka_unit_test(the_least_budget_is_exact),
		cmocka_unit_test(the_least_budget_is_the_sum_of_its_parts),
		cmocka_unit_test(the_refusal_names_what_takes_most),
		cmocka_unit_test(all_resident_needs_exactly_the_sum),
		cmocka_unit_test(dense_weights_come_before_slots),
		cmocka_unit_test(the_token_cycle_is_what_a_token_touches),
		cmocka_unit_test(hits_rise_and_never_fall_below_the_share),
		cmocka_unit_test(a_hint_replaces_the_estimate),
		cmocka_unit_test(a_token_takes_the_slower_of_drive_and_processor),
		cmocka_unit_test(missing_experts_wait_layer_by_layer),
		cmocka_unit_test(uneven_layers_wait_longer),
		cmocka_unit_test(what_runs_have_shown_is_expected_again),
		cmocka_unit_test(learning_finds_what_was_seen),
		cmocka_unit_test(the_limit_is_named),
		cmocka_unit_test(unknown_rates_give_no_speed),
		cmocka_unit_test(a_longer_prompt_takes_longer),
		cmocka_unit_test(later_batches_read_what_has_no_slot),
		cmocka_unit_test(sums_that_wrap_are_refused),
		cmocka_unit_test(facts_that_contradict_are_refused),
		cmocka_unit_test(a_model_without_weights_is_a_plan),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
