/*
 * lookahead.h - reading what the next layer will probably want while this one computes (internal to src/ggml).
 */
#ifndef WEIR_GGML_LOOKAHEAD_H
#define WEIR_GGML_LOOKAHEAD_H

#include "ggml/experts_types.h"

/* Links an op, the first of its layer, to that of the layer before (NULL: none), which will guess for this one, as the one
 * before that will. */
void weir_lookahead_link(weir_expert_op *before, weir_expert_op *op);

/* How many chunks the guesses beside an op have; and one of them: some rows of a later layer's router, on any thread. */
uint32_t weir_lookahead_chunks(const weir_expert_op *op);
void weir_lookahead_work(weir_expert_op *op, uint32_t chunk);

/* The following are called on thread 0.
 *
 * Once all chunks are done: ranks the experts and begins to read those that are worth it; does nothing before, and the second
 * time. */
void weir_lookahead_rank(weir_expert_op *op);

/* Begins further reads of the guess as far as the drive would be idle without; called often while a layer computes. */
void weir_lookahead_pump(weir_experts *experts);
/* Puts a step that does so into the list. */
int weir_lookahead_append_pump(weir_experts *experts, weir_steps *steps);

/* The router has spoken: drops what is left of the guess and learns how good each rank was. */
void weir_lookahead_learn(weir_expert_op *op);
void weir_lookahead_drop(weir_experts *experts);

void weir_lookahead_init(weir_experts *experts);

/* At the end of each token: judges by the tokens' times whether guessing pays. */
void weir_lookahead_judge(weir_lookahead_judge_state *judge, uint64_t token_ns);

#endif
