/*
 * lookahead.h - reading what the next layer will probably want while this one computes (internal to src/ggml).
 */
#ifndef WEIR_GGML_LOOKAHEAD_H
#define WEIR_GGML_LOOKAHEAD_H

#include "ggml/experts_types.h"

/* Links an op, the first of its layer, to the one before: that one will guess for this one. */
void weir_lookahead_link(weir_expert_op *before, weir_expert_op *op);

/* One chunk of the guess: some rows of the next layer's router, on any thread. */
void weir_lookahead_work(weir_expert_op *op, uint32_t chunk);

/* On thread 0: asks for the guessed experts once all chunks are done; does nothing before, and the second time. */
void weir_lookahead_submit(weir_expert_op *op);

/* At the end of each token: judges by the tokens' times whether guessing pays. */
void weir_lookahead_judge(weir_lookahead_judge_state *judge, uint64_t token_ns);

#endif
