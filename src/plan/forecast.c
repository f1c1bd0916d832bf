/*
 * forecast.c - what a divided budget will cost per token: bytes, seconds, and which of drive, processor and memory decides.
 *
 * The model is described at weir_plan_make in weir/plan.h.  All in double: these are expectations, not sizes.
 */
#include "plan/plan_internal.h"

#define BATCH_TOKENS_DEFAULT 512

/* Bytes that one token reads, by the moment at which they are known. */
struct reading {
	double dense; /* in a fixed order: always ahead */
	double experts; /* when the router has spoken */
};

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double slots_share(const weir_plan_facts *facts, const weir_plan *plan, uint32_t class)
{
	uint64_t chunks = facts->classes[class].chunks_count;

	return chunks ? (double)plan->class_slots[class] / (double)chunks : 1;
}

static double class_hit_rate(const weir_plan_facts *facts, double share)
{
	if (share >= 1)
		return 1;
	return facts->hit_rate_hint >= 0 ? facts->hit_rate_hint : weir_plan_own_hit_rate(facts, share);
}

static double class_read_share(const weir_plan_facts *facts, double share)
{
	if (share >= 1)
		return 0;
	return facts->hit_rate_hint >= 0 ? 1 - facts->hit_rate_hint : weir_plan_own_read_share(facts, share);
}

static uint64_t dense_streamed(const weir_plan_facts *facts, const weir_plan *plan)
{
	return facts->dense_stream_bytes - plan->dense_resident_bytes;
}

static double rows_read(const weir_plan_facts *facts, const weir_plan *plan)
{
	return plan->all_resident ? 0 : (double)facts->rows_per_token_bytes;
}

/* Hit rate over all demands, and the bytes that a token in the middle of a long answer reads. */
static struct reading expect_hits(const weir_plan_facts *facts, weir_plan *plan)
{
	struct reading reading = {(double)dense_streamed(facts, plan) + rows_read(facts, plan), 0};
	double demands = 0, hits = 0;

	for (uint32_t i = 0; i < facts->classes_count; i++) {
		const weir_plan_class *class = &facts->classes[i];
		double demand = (double)class->chunks_per_token, share = slots_share(facts, plan, i);

		demands += demand;
		hits += demand * class_hit_rate(facts, share);
		reading.experts += demand * class_read_share(facts, share) * (double)class->chunk_bytes;
	}
	plan->expected_hit_rate = demands > 0 ? hits / demands : 1;
	plan->bytes_per_token = reading.dense + reading.experts;
	return reading;
}

/* base^exponent for 0 <= base <= 1. */
static double power(double base, uint64_t exponent)
{
	double result = 1;

	for (; exponent; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

static double compute_seconds(const weir_plan_facts *facts)
{
	return facts->compute_tokens_per_second > 0 ? 1 / facts->compute_tokens_per_second : 0;
}

/* Mean over the number of experts that a layer lacks of the time it waits for them. */
static double layer_wait(const weir_plan_facts *facts, double missing_share, double expert_seconds, double hidden)
{
	uint32_t experts = facts->experts_per_layer;
	double odds = missing_share / (1 - missing_share), chance, wait = 0;

	if (missing_share >= 1)
		return larger(facts->device_latency_seconds + missing_share * experts * expert_seconds - hidden, 0);
	chance = power(1 - missing_share, experts);
	for (uint32_t missing = 1; missing <= experts; missing++) {
		chance *= odds * (double)(experts - missing + 1) / missing;
		wait += chance * larger(facts->device_latency_seconds + missing * expert_seconds - hidden, 0);
	}
	return wait;
}

/* Seconds of a token that wait for missing experts. */
static double experts_wait(const weir_plan_facts *facts, const weir_plan *plan, double bytes)
{
	double hidden = facts->overlap_share * compute_seconds(facts), layers = facts->expert_layers_count;
	double cycle = (double)plan->token_cycle_bytes;

	if (bytes <= 0 || cycle <= 0)
		return 0;
	if (!facts->expert_layers_count || !facts->experts_per_layer)
		return larger(bytes / facts->device_bytes_per_second - hidden, 0);
	return layers * layer_wait(facts, bytes / cycle,
				   cycle / layers / facts->experts_per_layer / facts->device_bytes_per_second, hidden / layers);
}

/* Seconds per token; see weir/plan.h. */
static double token_seconds(const weir_plan_facts *facts, const weir_plan *plan, const struct reading *reading)
{
	double compute = compute_seconds(facts), rate = facts->device_bytes_per_second, experts, dense;

	if (rate <= 0)
		return compute;
	experts = experts_wait(facts, plan, reading->experts);
	dense = larger(reading->dense / rate - (1 - facts->dense_exposed_share) * compute, 0);
	return larger((reading->dense + reading->experts) / rate, compute + experts + dense);
}

/* Bytes of chunks that `tokens` tokens together want, if they route independently. */
static double class_wanted(const weir_plan_class *class, uint64_t tokens)
{
	double chunks = (double)class->chunks_count;

	if (!class->chunks_count)
		return 0;
	return chunks * (1 - power(1 - (double)class->chunks_per_token / chunks, tokens)) * (double)class->chunk_bytes;
}

/* Expert bytes read for a batch: all that it wants when the slots are empty, else what has no slot. */
static double batch_experts(const weir_plan_facts *facts, const weir_plan *plan, uint64_t tokens, bool first)
{
	double bytes = 0;

	for (uint32_t i = 0; i < facts->classes_count; i++)
		bytes += class_wanted(&facts->classes[i], tokens) * (first ? 1 : 1 - slots_share(facts, plan, i));
	return bytes;
}

static double prompt_bytes(const weir_plan_facts *facts, const weir_plan *plan, uint64_t tokens)
{
	uint64_t batch = facts->batch_tokens ? facts->batch_tokens : BATCH_TOKENS_DEFAULT;
	uint64_t whole = tokens / batch, rest = tokens % batch;
	double bytes =
		(double)tokens * rows_read(facts, plan) + (double)(whole + (rest > 0)) * (double)dense_streamed(facts, plan);

	if (whole)
		bytes += batch_experts(facts, plan, batch, true) +
			 (double)(whole - 1) * batch_experts(facts, plan, batch, false);
	if (rest)
		bytes += batch_experts(facts, plan, rest, whole == 0);
	return bytes;
}

/* Weights that are read before the prompt: those that stay and are no experts. */
static double loading_bytes(const weir_plan_facts *facts, const weir_plan *plan)
{
	return (double)facts->dense_fixed_bytes + (double)plan->dense_resident_bytes +
	       (plan->all_resident ? (double)facts->rows_bytes : 0);
}

static double first_token_seconds(const weir_plan_facts *facts, const weir_plan *plan)
{
	uint64_t tokens = facts->prompt_tokens ? facts->prompt_tokens : 1;
	double rate = facts->prompt_tokens_per_second > 0 ? facts->prompt_tokens_per_second : facts->compute_tokens_per_second;
	double compute = rate > 0 ? (double)tokens / rate : 0;

	if (facts->device_bytes_per_second <= 0)
		return compute;
	return loading_bytes(facts, plan) / facts->device_bytes_per_second +
	       larger(prompt_bytes(facts, plan, tokens) / facts->device_bytes_per_second, compute);
}

/* Whether what one token touches could stay from one token to the next. */
static bool token_stays(const weir_plan_facts *facts, const weir_plan *plan)
{
	if (plan->ring_bytes)
		return false;
	for (uint32_t i = 0; i < facts->classes_count; i++)
		if (plan->class_slots[i] < facts->classes[i].chunks_per_token)
			return false;
	return true;
}

static weir_plan_limit find_limit(const weir_plan_facts *facts, const weir_plan *plan)
{
	double compute = compute_seconds(facts);

	if (plan->bytes_per_token <= 0)
		return WEIR_LIMIT_COMPUTE;
	if (facts->device_bytes_per_second > 0 && plan->bytes_per_token / facts->device_bytes_per_second <= compute)
		return WEIR_LIMIT_COMPUTE;
	return token_stays(facts, plan) ? WEIR_LIMIT_DISK : WEIR_LIMIT_MEMORY;
}

void weir_plan_forecast(const weir_plan_facts *facts, weir_plan *plan)
{
	struct reading reading = expect_hits(facts, plan);
	bool drive_known = facts->device_bytes_per_second > 0 || plan->bytes_per_token <= 0;
	double seconds = token_seconds(facts, plan, &reading);

	plan->limits = find_limit(facts, plan);
	if (drive_known && seconds > 0) {
		plan->tokens_per_second = 1 / seconds;
		plan->first_token_seconds = first_token_seconds(facts, plan);
	}
}

/* ---- learning ---- */

#define LEARNING_STEPS 40

static double fitted_seconds(weir_plan_facts *fitted, const weir_plan *plan, const struct reading *reading, double *value,
			     double try)
{
	*value = try;
	return token_seconds(fitted, plan, reading);
}

/* The value between the two at which a token takes `seconds`; whichever end comes nearer where none does.  A token takes
 * longest at `slow`. */
static double fit(weir_plan_facts *fitted, const weir_plan *plan, const struct reading *reading, double *value, double slow,
		  double fast, double seconds)
{
	for (int i = 0; i < LEARNING_STEPS; i++) {
		double middle = (slow + fast) / 2;

		if (fitted_seconds(fitted, plan, reading, value, middle) > seconds)
			slow = middle;
		else
			fast = middle;
	}
	return (slow + fast) / 2;
}

int weir_plan_learn(const weir_plan_facts *facts, const weir_plan *plan, const weir_plan_seen *seen, double *overlap_share,
		    double *dense_exposed_share)
{
	struct reading reading = {(double)dense_streamed(facts, plan) + rows_read(facts, plan), 0};
	double seconds = seen->compute_seconds + seen->stall_seconds;
	weir_plan_facts fitted = *facts;

	if (!(seen->bytes_per_token > 0) || !(facts->device_bytes_per_second > 0) || !(seen->compute_seconds > 0) ||
	    !(seen->stall_seconds >= 0))
		return WEIR_ENOTFOUND;
	reading.experts = plan->token_cycle_bytes ? larger(seen->bytes_per_token - reading.dense, 0) : 0;
	fitted.compute_tokens_per_second = 1 / seen->compute_seconds;
	if (reading.experts > 0)
		*overlap_share = fit(&fitted, plan, &reading, &fitted.overlap_share, WEIR_PLAN_OVERLAP_LEAST, 1, seconds);
	else
		*dense_exposed_share = fit(&fitted, plan, &reading, &fitted.dense_exposed_share, 1, 0, seconds);
	return 0;
}

const char *weir_plan_limit_name(weir_plan_limit limit)
{
	static const char *const names[] = {
		[WEIR_LIMIT_DISK] = "disk", [WEIR_LIMIT_COMPUTE] = "compute", [WEIR_LIMIT_MEMORY] = "memory"};

	return (unsigned)limit < sizeof names / sizeof *names ? names[limit] : "unknown";
}
