/*
 * plan.h - how a budget is divided, and how fast that will be: pure arithmetic over byte counts.
 *
 * No file is opened, no thread started, nothing allocated: facts in, plan out.  All sizes are bytes, all rates per second.
 * Thread-safe.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_PLAN_CLASSES_MAX 16
#define WEIR_PLAN_POINTS_MAX 16
#define WEIR_PLAN_OVERLAP_TYPICAL 0.3 /* seen with mixtures of 1 to 30 billion weights, two threads, a drive of 1 to 2 GB/s */

/* Expert chunks of one size.  A token touches chunks_per_token of them: (expert tensors of this size) × top-k. */
typedef struct weir_plan_class {
	uint64_t chunk_bytes;
	uint64_t slot_bytes; /* chunk_bytes with room for the drive's alignment */
	uint64_t chunks_count; /* tensors × experts */
	uint64_t chunks_per_token;
	uint64_t slots_least; /* fewer cannot work: the chunks of this size that one layer's token needs at once */
} weir_plan_class;

/* What runs of a model have shown at a budget. */
typedef struct weir_plan_point {
	double slots_share; /* of its chunks had a slot; 0..1 */
	double hit_rate; /* 0..1 */
	double read_share; /* expert bytes read for a token ÷ token_cycle_bytes: misses, and what was read in vain */
} weir_plan_point;

typedef struct weir_plan_facts {
	uint64_t budget_bytes;
	uint64_t program_bytes; /* the process before any weight is read: code, libraries, vocabulary, tables */
	uint64_t kv_bytes; /* KV cache and recurrent state at the context asked for */
	uint64_t compute_bytes; /* the engine's graph buffers and work buffers at their largest */
	uint64_t margin_bytes; /* kept free for what the allocator and the kernel add */
	uint64_t dense_fixed_bytes; /* weights that must be resident: norms, biases, whatever is not read in a known order */
	uint64_t dense_stream_bytes; /* dense weights that can go through the ring when they do not fit */
	uint64_t dense_largest_bytes; /* the largest of those */
	uint64_t rows_bytes; /* tables of which a token reads single rows (embeddings): resident only if all fits */
	uint64_t rows_per_token_bytes;
	uint64_t rows_least_bytes; /* buffer for the rows of one batch */
	uint64_t ring_least_bytes; /* least ring when dense weights stream; 0: twice the largest */
	uint64_t ring_wanted_bytes; /* ring that keeps the drive busy, where the budget allows it; 0: the least */
	uint32_t classes_count;
	weir_plan_class classes[WEIR_PLAN_CLASSES_MAX];
	uint32_t expert_layers_count; /* layers with routed experts, and how many of them a token wants in each; 0: unknown */
	uint32_t experts_per_layer;
	double hit_rate_hint; /* measured or expected hit rate at this budget, or < 0: estimate it */
	uint32_t points_count; /* what runs of this model have shown, ascending by share; 0: none, take the mean of models */
	weir_plan_point points[WEIR_PLAN_POINTS_MAX];
	double device_bytes_per_second; /* 0: unknown */
	double device_latency_seconds; /* what a burst of reads takes beyond its bytes at that rate */
	double compute_tokens_per_second; /* 0: unknown; with every weight resident */
	uint64_t prompt_tokens; /* for first_token_seconds; 0: one token */
	double prompt_tokens_per_second; /* compute alone, every weight resident; 0: as compute_tokens_per_second */
	/* The share of a layer's computing beside which its missing experts are read, -4..1; negative where waiting costs more
	 * than reading alone would.  0: none.  Measured by weir_plan_learn, else WEIR_PLAN_OVERLAP_TYPICAL. */
	double overlap_share;
	double dense_exposed_share; /* 0..1 of computing beside which no dense weights are read ahead; 0: none */
	uint32_t batch_tokens; /* of the prompt that pass through the layers together; 0: 512 */
} weir_plan_facts;

/*
 * What decides the speed.  COMPUTE: the processor is the slower side, or nothing is read.  DISK: the drive is, although what
 * one token touches (dense weights and its token cycle) could stay.  MEMORY: the drive is, because not even that can stay, so
 * that even a token that repeats the last one must read.
 */
typedef enum weir_plan_limit { WEIR_LIMIT_DISK, WEIR_LIMIT_COMPUTE, WEIR_LIMIT_MEMORY } weir_plan_limit;

typedef struct weir_plan {
	bool fits; /* the budget can hold this plan; else only least_budget_bytes and least_taken_by are set */
	bool all_resident; /* every weight stays: nothing is streamed */
	uint64_t budget_bytes;
	uint64_t least_budget_bytes; /* the smallest budget that works */
	const char *least_taken_by; /* what takes most of it: "dense weights", "KV cache", ... */
	uint64_t memory_dense_bytes; /* resident dense weights, ring and row buffers */
	uint64_t memory_experts_bytes; /* slots */
	uint64_t memory_kv_bytes;
	uint64_t memory_compute_bytes;
	uint64_t memory_other_bytes; /* program and margin */
	uint64_t dense_resident_bytes; /* of dense_stream_bytes, what stays */
	uint64_t ring_bytes; /* 0: all dense weights stay */
	uint64_t experts_bytes; /* all expert chunks of the model */
	uint64_t slots_count;
	uint64_t slots_bytes;
	uint64_t class_slots[WEIR_PLAN_CLASSES_MAX];
	uint64_t token_cycle_bytes; /* expert bytes that one token touches */
	double expected_hit_rate; /* 0..1 */
	double bytes_per_token;
	double tokens_per_second; /* 0 when the rates are unknown */
	double first_token_seconds;
	weir_plan_limit limits;
} weir_plan;

/*
 * Divides the budget, in this order:
 *   1. the least of everything: program, margin, KV cache, compute buffers, dense_fixed, row buffers, ring, slots_least;
 *   2. dense weights, since a token reads every byte of them that does not stay, until all stay and the ring goes;
 *   3. slots, the same share of each class's chunks;
 *   4. rows, when everything else stays.
 * More budget never gives fewer slots of any class.  What is left over is less than one slot of each class, or less than
 * `rows_bytes`; memory_* sum to at most the budget.
 *
 * Forecast.  Hits are estimated from the share of the chunks that have a slot (see hits.c for the source; routing without any
 * favourites would hit no more often than that share), bent through `points` where there are some.  A token's time is
 *   max(io, compute + experts + dense)
 *   experts = layers × mean over the number m of a layer's experts that are missing of
 *                 max(0, latency + m × expert bytes ÷ rate - overlap_share × compute ÷ layers)
 *   dense   = max(0, io_dense - (1 - dense_exposed_share) × compute)
 * m being binomial: each of experts_per_layer is missing with the share of bytes that are read.  So a layer that lacks nothing
 * saves nothing for one that lacks three.  Dense weights are read ahead, in a known order; a missing expert is known only when
 * its layer's router has spoken.  first_token_seconds counts from the start, with nothing in memory: the weights that stay are
 * read, then what the prompt wants, batch by batch, beside its compute.
 *
 * 0, WEIR_EINVAL (counts that wrap, more than WEIR_PLAN_CLASSES_MAX classes) or WEIR_EBUDGET with plan->least_budget_bytes set.
 */
int weir_plan_make(const weir_plan_facts *facts, weir_plan *plan, weir_error *error);

/* What a run of the plan has shown, means over its tokens. */
typedef struct weir_plan_seen {
	double compute_seconds; /* a token's time without its stall */
	double stall_seconds;
	double bytes_per_token;
} weir_plan_seen;

/* The overlap_share, or for a model without experts that were read the dense_exposed_share, with which the forecast would have
 * been what was seen, given the facts' own rate of the drive; the other one is left alone.  WEIR_ENOTFOUND when the run says
 * nothing about it: nothing was read, or the rate is not known. */
int weir_plan_learn(const weir_plan_facts *facts, const weir_plan *plan, const weir_plan_seen *seen, double *overlap_share,
		    double *dense_exposed_share);

const char *weir_plan_limit_name(weir_plan_limit limit); /* "disk", "compute", "memory" */

#ifdef __cplusplus
}
#endif
#endif
