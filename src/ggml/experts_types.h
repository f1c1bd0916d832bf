/*
 * experts_types.h - what experts.c (batches) and decode.c (one token) share.
 *
 *   route   what the router picked: for each expert the (slot of top-k, token) pairs that want it.
 *   op      one mul_mat_id of the engine: its weight, its steps, the leases it holds.
 *
 * Invariants: an op holds at most one lease for each expert; held = sum of leases over all ops; leases are held only while
 * their graph runs.
 */
#ifndef WEIR_GGML_EXPERTS_TYPES_H
#define WEIR_GGML_EXPERTS_TYPES_H

#include "ggml/experts.h"

#define NO_EXPERT UINT32_MAX

/* One token's experts, worked on by all threads: see decode.c. */
typedef struct weir_decode_job {
	weir_expert_op *op; /* the member it belongs to */
	uint32_t expert;
	const char *matrix; /* the expert's rows */
	const char *activation; /* quantized */
	float *result;
	atomic_uint chunks_done;
} weir_decode_job;

typedef struct weir_decode {
	struct ggml_tensor node;
	weir_expert_op *members[2]; /* the op itself, and one that shares its step (gate and up) */
	uint32_t members_count;
	weir_decode_job *jobs; /* jobs_count = members × top-k */
	uint32_t jobs_capacity, jobs_count;
	uint32_t chunk_rows, chunks; /* of one job */
	uint32_t quantized_row; /* row of activations that was quantized last */
	atomic_uint published; /* jobs that threads may work on: the first so many */
	atomic_uint ticket; /* next chunk over all jobs */
	atomic_uint sleepers;
} weir_decode;

#define WEIR_LOOKAHEAD_LAYERS 2
#define WEIR_GUESS_RANKS_MAX 32
#define WEIR_GUESS_PARTS_MAX 4 /* gate, up, down, and one to spare */

/* The work of a guess at the layer `target` begins, done beside an op's jobs: see lookahead.c. */
typedef struct weir_lookahead {
	weir_expert_op *target;
	const weir_weight *router;
	uint32_t chunk_rows, chunks; /* chunks 0: no guess */
	atomic_uint chunks_done;
	bool ranked;
} weir_lookahead;

/* A guess at what a layer will want, best first, kept with the layer's first op. */
typedef struct weir_guess {
	uint32_t ranks; /* 0: none */
	uint32_t experts[WEIR_GUESS_RANKS_MAX];
	bool absent[WEIR_GUESS_RANKS_MAX]; /* not in memory when it was guessed */
	uint32_t chunks[WEIR_GUESS_RANKS_MAX * WEIR_GUESS_PARTS_MAX]; /* to be read, in order */
	uint32_t chunks_count, chunks_next;
} weir_guess;

#define WEIR_TRIAL_TOKENS 64

/* A trial is under way when kept_tokens is 0: with_count + without_count = trial_tokens.  The medians are those of the last
 * trial; 0 before its end. */
typedef struct weir_lookahead_judge_state {
	bool allowed, guessing;
	uint32_t trial_tokens, kept_tokens;
	uint32_t with_count, without_count;
	uint64_t with[WEIR_TRIAL_TOKENS], without[WEIR_TRIAL_TOKENS];
	uint64_t with_ns, without_ns;
} weir_lookahead_judge_state;

typedef struct pair {
	int32_t slot, token; /* position in ids: slot of top-k, token */
} pair;

/* What the router picked, sorted by expert: the pairs of expert e are pairs[start[e] .. start[e] + count[e]). */
typedef struct route {
	const struct ggml_tensor *ids;
	uint32_t *count, *start, *active;
	uint32_t active_count;
	pair *pairs;
} route;

struct weir_expert_op {
	weir_experts *experts;
	weir_weight *weight;
	struct ggml_tensor *node; /* the engine's */
	uint32_t index; /* in steps->experts */
	struct ggml_tensor quantize, pick, gather, multiply, matrix, rows, ids;
	weir_lease **leases; /* by expert; NULL when not held */
	uint32_t leases_capacity;
	uint32_t *todo;
	uint32_t todo_count;
	bool begun, acquired_all;
	uint32_t current; /* expert that the next multiply works on */
	uint32_t scattered; /* expert whose results still lie in the result buffer */
	weir_decode decode; /* instead of the above, when there is one token */
	weir_expert_op *layer_before; /* first op of a layer: that of the layer before */
	weir_lookahead lookahead[WEIR_LOOKAHEAD_LAYERS]; /* [d]: the guess at the layer d + 1 after this one */
	weir_guess guess[WEIR_LOOKAHEAD_LAYERS]; /* [d]: made d + 1 layers before */
};

/* An entry of an op's list of experts still to be worked on. */
typedef struct todo_place {
	weir_expert_op *op;
	uint32_t index;
} todo_place;

struct weir_experts {
	weir_session *session;
	weir_steps *steps;
	route route;
	char *quantized, *gathered, *result;
	int32_t *zero_ids;
	weir_lease **wait_leases;
	todo_place *wait_places; /* beside wait_leases */
	const struct ggml_tensor *quantized_source; /* while a list is built */
	enum ggml_type quantized_type;
	uint32_t held;
	weir_expert_op *layer_first; /* first op of the layer that is being built */
	float *logits[WEIR_LOOKAHEAD_LAYERS]; /* of a guess */
	weir_guess *guessed[WEIR_LOOKAHEAD_LAYERS]; /* what may be read now, nearest layer first; NULL: nothing */
	float odds[WEIR_LOOKAHEAD_LAYERS][WEIR_GUESS_RANKS_MAX]; /* that an absent expert of this rank is wanted */
	struct ggml_tensor pump; /* a step that keeps the guess's reads going: it may stand in a graph many times */
	weir_lookahead_judge_state judge;
	uint64_t token_began_ns;
	weir_expert_op *decoded; /* its leases are released when the next one begins */
};

/* experts.c, for decode.c.  All run on thread 0. */

/* Finds out what the router picked and asks for it. */
int weir_experts_begin_op(weir_expert_op *op, weir_error *error);

/* Takes the next expert of these ops (one route) that is in memory off its op's list.  When none is: waits, or gives
 * WEIR_EBUSY. WEIR_EBUSY also when no slot can be had, whatever one waits for. */
int weir_experts_next(weir_expert_op *const *ops, uint32_t ops_count, bool wait, weir_expert_op **op, uint32_t *expert,
		      weir_error *error);
void weir_experts_release(weir_expert_op *op, uint32_t expert);
void weir_experts_release_all(weir_expert_op *op);

#endif
