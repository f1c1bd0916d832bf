/*
 * plan.c - divides a budget; the order is described at weir_plan_make in weir/plan.h.
 *
 *   budget ├ program+margin ┤├ KV ┤├ compute ┤├ dense: fixed, rows buffer, ring or all ┤├ slots: c × chunks of each class ┤
 *
 * All counts come from files: check_facts adds up the whole model with checked arithmetic, and every later sum is a part of
 * that one, so none of them can wrap.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "plan/plan_internal.h"

#define SHARE_ONE (UINT64_C(1) << 32) /* shares of chunks in fixed point; chunk counts stay below it */

/* The facts added up.  least ≤ all. */
struct demand {
	uint64_t base; /* program, margin, KV cache, compute buffers, fixed dense weights: needed at any budget */
	uint64_t rows_least; /* row buffers */
	uint64_t ring_least; /* ring, or all that would stream when that is less */
	uint64_t slots_least; /* bytes */
	uint64_t experts_all;
	uint64_t least, all;
};

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static bool is_rate(double rate)
{
	return rate >= 0 && rate <= 1e30;
}

static const char *broken_rule(const weir_plan_facts *facts)
{
	if (facts->classes_count > WEIR_PLAN_CLASSES_MAX)
		return "more classes of chunks than a plan can hold";
	if (!is_rate(facts->device_bytes_per_second) || !is_rate(facts->compute_tokens_per_second) ||
	    !is_rate(facts->prompt_tokens_per_second))
		return "a rate is no positive number";
	if (!(facts->hit_rate_hint <= 1) || !(facts->dense_exposed_share >= 0 && facts->dense_exposed_share <= 1))
		return "a share is not from 0 to 1";
	if (!(facts->overlap_share >= WEIR_PLAN_OVERLAP_LEAST && facts->overlap_share <= 1) ||
	    !is_rate(facts->device_latency_seconds))
		return "an overlap or a latency makes no sense";
	if (!weir_plan_points_are_sound(facts))
		return "what runs have shown makes no sense";
	if (facts->dense_largest_bytes > facts->dense_stream_bytes)
		return "a dense weight is larger than all of them";
	for (uint32_t i = 0; i < facts->classes_count; i++) {
		const weir_plan_class *class = &facts->classes[i];

		if (class->slot_bytes < class->chunk_bytes || !class->slot_bytes)
			return "a slot is smaller than its chunk";
		if (class->chunks_count >= SHARE_ONE)
			return "more chunks than a plan can count";
		if (class->chunks_per_token > class->chunks_count)
			return "a token touches more chunks than there are";
	}
	return NULL;
}

/* Fewest slots of a class that a plan gives. */
static uint64_t class_least(const weir_plan_class *class)
{
	return smaller(larger(class->slots_least, 1), class->chunks_count);
}

static bool add_classes(const weir_plan_facts *facts, struct demand *demand)
{
	uint64_t bytes;

	for (uint32_t i = 0; i < facts->classes_count; i++) {
		const weir_plan_class *class = &facts->classes[i];

		if (!weir_checked_multiply(class->slot_bytes, class->chunks_count, &bytes) ||
		    !weir_checked_add(demand->experts_all, bytes, &demand->experts_all))
			return false;
		demand->slots_least += class_least(class) * class->slot_bytes;
	}
	return true;
}

static uint64_t ring_least(const weir_plan_facts *facts)
{
	uint64_t twice;

	if (facts->ring_least_bytes)
		return smaller(facts->ring_least_bytes, facts->dense_stream_bytes);
	if (!weir_checked_multiply(facts->dense_largest_bytes, 2, &twice))
		return facts->dense_stream_bytes;
	return smaller(twice, facts->dense_stream_bytes);
}

/* Adds everything up; false when a sum wraps. */
static bool add_up(const weir_plan_facts *facts, struct demand *demand)
{
	const uint64_t base[] = {facts->program_bytes, facts->margin_bytes, facts->kv_bytes, facts->compute_bytes,
				 facts->dense_fixed_bytes};
	bool fits = true;

	memset(demand, 0, sizeof *demand);
	for (size_t i = 0; i < sizeof base / sizeof *base; i++)
		fits = fits && weir_checked_add(demand->base, base[i], &demand->base);
	fits = fits && add_classes(facts, demand);
	fits = fits && weir_checked_add(demand->base, facts->rows_bytes, &demand->all);
	fits = fits && weir_checked_add(demand->all, facts->dense_stream_bytes, &demand->all);
	fits = fits && weir_checked_add(demand->all, demand->experts_all, &demand->all);
	demand->rows_least = smaller(facts->rows_least_bytes, facts->rows_bytes);
	demand->ring_least = ring_least(facts);
	demand->least = demand->base + demand->rows_least + demand->ring_least + demand->slots_least;
	return fits;
}

/* ---- refusal ---- */

/* Names what takes most of the least budget. */
static uint64_t largest_part(const weir_plan_facts *facts, const struct demand *demand, const char **name)
{
	const struct {
		const char *name;
		uint64_t bytes;
	} parts[] = {
		{"dense weights", facts->dense_fixed_bytes + demand->rows_least + demand->ring_least},
		{"expert slots", demand->slots_least},
		{"KV cache", facts->kv_bytes},
		{"compute buffers", facts->compute_bytes},
		{"the program itself", facts->program_bytes + facts->margin_bytes},
	};
	size_t largest = 0;

	for (size_t i = 1; i < sizeof parts / sizeof *parts; i++)
		if (parts[i].bytes > parts[largest].bytes)
			largest = i;
	*name = parts[largest].name;
	return parts[largest].bytes;
}

/* For people: MiB below a GiB, rounded up, so that what is shown holds when it is given as a budget. */
static void show_least(uint64_t bytes, char *text, size_t size)
{
	uint64_t unit = UINT64_C(1) << (bytes >> 30 ? 30 : 20);
	uint64_t hundredths = bytes / unit * 100 + (bytes % unit * 100 + unit - 1) / unit;

	snprintf(text, size, "%" PRIu64 ".%02" PRIu64 " %s", hundredths / 100, hundredths % 100, bytes >> 30 ? "GiB" : "MiB");
}

static int refuse_budget(const weir_plan *plan, uint64_t part_bytes, weir_error *error)
{
	char least[32];

	show_least(plan->least_budget_bytes, least, sizeof least);
	return weir_fail(error, WEIR_EBUDGET, NULL, WEIR_ERROR_NO_OFFSET, 0,
			 "a budget of %llu bytes cannot hold this model: the least is %llu bytes (%s), most of it for %s "
			 "(%llu bytes)",
			 (unsigned long long)plan->budget_bytes, (unsigned long long)plan->least_budget_bytes, least,
			 plan->least_taken_by, (unsigned long long)part_bytes);
}

/* ---- division ---- */

/* Slots of a class at a share of its chunks. */
static uint64_t slots_at(const weir_plan_class *class, uint64_t share)
{
	return larger(class_least(class), class->chunks_count * share / SHARE_ONE);
}

static uint64_t slots_bytes_at(const weir_plan_facts *facts, uint64_t share)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < facts->classes_count; i++)
		bytes += slots_at(&facts->classes[i], share) * facts->classes[i].slot_bytes;
	return bytes;
}

/* The largest share of all chunks whose slots fit in `bytes`; share 0 fits. */
static uint64_t largest_share(const weir_plan_facts *facts, uint64_t bytes)
{
	uint64_t fits = 0, beyond = SHARE_ONE + 1;

	while (beyond - fits > 1) {
		uint64_t middle = fits + (beyond - fits) / 2;

		if (slots_bytes_at(facts, middle) <= bytes)
			fits = middle;
		else
			beyond = middle;
	}
	return fits;
}

static void divide_slots(const weir_plan_facts *facts, uint64_t share, weir_plan *plan)
{
	for (uint32_t i = 0; i < facts->classes_count; i++) {
		const weir_plan_class *class = &facts->classes[i];

		plan->class_slots[i] = slots_at(class, share);
		plan->slots_count += plan->class_slots[i];
		plan->slots_bytes += plan->class_slots[i] * class->slot_bytes;
		plan->token_cycle_bytes += class->chunks_per_token * class->chunk_bytes;
	}
	plan->memory_experts_bytes = plan->slots_bytes;
}

/* Gives dense weights what they can use of `spare`, and what is left of it back. */
static uint64_t divide_dense(const weir_plan_facts *facts, const struct demand *demand, uint64_t spare, weir_plan *plan)
{
	uint64_t more = smaller(spare, facts->dense_stream_bytes - demand->ring_least);
	uint64_t wanted = facts->ring_wanted_bytes > demand->ring_least ? facts->ring_wanted_bytes - demand->ring_least : 0;
	uint64_t ahead = smaller(more, wanted);

	plan->dense_resident_bytes = more - ahead;
	plan->ring_bytes = demand->ring_least + ahead;
	if (demand->ring_least + more == facts->dense_stream_bytes) {
		plan->dense_resident_bytes = facts->dense_stream_bytes;
		plan->ring_bytes = 0;
	}
	return spare - more;
}

static void divide(const weir_plan_facts *facts, const struct demand *demand, weir_plan *plan)
{
	uint64_t spare = plan->budget_bytes - demand->least;
	uint64_t rows;

	plan->fits = true;
	plan->all_resident = plan->budget_bytes >= demand->all;
	spare = divide_dense(facts, demand, spare, plan);
	divide_slots(facts, largest_share(facts, demand->slots_least + spare), plan);
	rows = plan->all_resident ? facts->rows_bytes : demand->rows_least;
	plan->memory_dense_bytes = facts->dense_fixed_bytes + rows + plan->dense_resident_bytes + plan->ring_bytes;
	plan->memory_kv_bytes = facts->kv_bytes;
	plan->memory_compute_bytes = facts->compute_bytes;
	plan->memory_other_bytes = facts->program_bytes + facts->margin_bytes;
}

int weir_plan_make(const weir_plan_facts *facts, weir_plan *plan, weir_error *error)
{
	struct demand demand;
	const char *rule;
	uint64_t part_bytes;

	if (!facts || !plan)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "facts and a plan are needed");
	memset(plan, 0, sizeof *plan);
	rule = broken_rule(facts);
	if (!rule && !add_up(facts, &demand))
		rule = "sizes add up to more than 64 bits hold";
	if (rule)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "%s", rule);
	plan->budget_bytes = facts->budget_bytes;
	plan->least_budget_bytes = demand.least;
	plan->experts_bytes = demand.experts_all;
	part_bytes = largest_part(facts, &demand, &plan->least_taken_by);
	if (facts->budget_bytes < demand.least)
		return refuse_budget(plan, part_bytes, error);
	divide(facts, &demand, plan);
	weir_plan_forecast(facts, plan);
	return 0;
}
