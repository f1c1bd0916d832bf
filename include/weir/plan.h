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

/* Expert chunks of one size.  A token touches chunks_per_token of them: (expert tensors of this size) × top-k. */
typedef struct weir_plan_class {
	uint64_t chunk_bytes;
	uint64_t slot_bytes; /* chunk_bytes with room for the drive's alignment */
	uint64_t chunks_count; /* tensors × experts */
	uint64_t chunks_per_token;
	uint64_t slots_least; /* fewer cannot work: the chunks of this size that one layer's token needs at once */
} weir_plan_class;

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
	double hit_rate_hint; /* measured or expected hit rate at this budget, or < 0: estimate it */
	double device_bytes_per_second; /* 0: unknown */
	double compute_tokens_per_second; /* 0: unknown; with every weight resident */
	uint64_t prompt_tokens; /* for first_token_seconds; 0: one token */
	double prompt_tokens_per_second; /* compute alone, every weight resident; 0: as compute_tokens_per_second */
	double lookahead_share; /* 0..1 of the missing chunks that are asked for a layer early; 0: none */
	uint32_t batch_tokens; /* of the prompt that pass through the layers together; 0: 512 */
} weir_plan_facts;

/*
 * What decides the speed.  COMPUTE: the processor is the slower side, or nothing is read.  DISK: the drive is, although what
 * one token touches (dense weights and its token cycle) could stay.  MEMORY: the drive is, because not even that can stay, so
 * that even a token that repeats the last one must read.
 */
typedef enum weir_plan_limit { WEIR_LIMIT_DISK, WEIR_LIMIT_COMPUTE, WEIR_LIMIT_MEMORY } weir_plan_limit;

typedef struct weir_plan {
	bool fits; /* the budget can hold this plan; else only least_budget_bytes and largest are set */
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
 * favourites would hit no more often than that share).  A token's time is
 *   max(io, compute, compute_dense + max(compute_experts, io_experts × (1 - lookahead_share)))
 * where compute is split by bytes touched: dense weights are read ahead, in a known order, beside everything; a missing expert
 * is known only when its layer's router has spoken.  first_token_seconds counts from the start, with nothing in memory: the
 * weights that stay are read, then what the prompt wants, batch by batch, beside its compute.
 *
 * Returns 0, WEIR_EINVAL (counts that wrap, more than WEIR_PLAN_CLASSES_MAX classes) or WEIR_EBUDGET
 * with plan->least_budget_bytes set. */
int weir_plan_make(const weir_plan_facts *facts, weir_plan *plan, weir_error *error);

const char *weir_plan_limit_name(weir_plan_limit limit); /* "disk", "compute", "memory" */

#ifdef __cplusplus
}
#endif
#endif
