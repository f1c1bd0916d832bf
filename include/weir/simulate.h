/*
 * simulate.h - replaying what a router picked against policies and budgets, without a model and without a drive.
 *
 * The policies are those that stores run, the same code.  "belady" is added: it knows the future, so no policy can do better
 * (L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966).
 *
 * A trace is replayed token by token and layer by layer: each layer of a token demands the experts that its router picked, and
 * an expert that had to be read stays until another needs its slot.  All slots are empty at the start.
 *
 * Threads: a trace that is open may be read by several threads at once; each simulation has tables of its own.
 */
#ifndef WEIR_SIMULATE_H
#define WEIR_SIMULATE_H

#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_routing weir_routing;

typedef struct weir_routing_info {
	uint32_t tokens_count;
	uint32_t prompt_tokens_count; /* of those, the ones marked as prompt */
	uint32_t layers_count; /* with experts; numbered anew from 0 in their order */
	uint32_t experts_count; /* of a layer: as the file says, else the largest expert id + 1 */
	uint32_t picks_max; /* experts picked by one token in one layer */
	uint64_t picks_count; /* in all */
} weir_routing_info;

typedef struct weir_simulation {
	uint64_t demanded, hits; /* over the whole trace, from empty slots */
	uint64_t warm_demanded, warm_hits; /* over the second half of its tokens */
} weir_simulation;

/*
 * Reads a routing trace: comma-separated values with the columns
 *     turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
 * (`weir run --trace` writes them), comments that begin with #, or one JSON object a line, {"tok": 1, "layers": [[6, 8], ...]}.
 * The rows of one token need not be neighbours.  WEIR_EFORMAT names the line and the rule it breaks (`offset` is the line's
 * place in the file); WEIR_EUNSUPPORTED for a file past 1 GiB or numbers past what a trace can hold.
 */
int weir_routing_open(const char *path, weir_routing **routing, weir_error *error);
void weir_routing_close(weir_routing *routing); /* NULL is allowed */
void weir_routing_get_info(const weir_routing *routing, weir_routing_info *info);

/* Replays it under a policy (or "belady") with `slots_count` slots, each for one expert.  WEIR_EINVAL for an unknown policy, no
 * slots, or an `experts_count` (0: the trace's) less than the trace needs; WEIR_ENOMEM. */
int weir_routing_simulate(const weir_routing *routing, const char *policy, uint32_t experts_count, uint32_t slots_count,
			  weir_simulation *result, weir_error *error);

/* Names of the policies that a store can run, by number from 0; NULL past the last. */
const char *weir_policy_name(uint32_t index);

#ifdef __cplusplus
}
#endif
#endif
