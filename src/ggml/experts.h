/*
 * experts.h - expert weights, streamed chunk by chunk through the store (internal to src/ggml).
 */
#ifndef WEIR_GGML_EXPERTS_H
#define WEIR_GGML_EXPERTS_H

#include "ggml/session.h"
#include "ggml/steps.h"

uint64_t weir_experts_scratch_bytes(const weir_scratch_sizes *scratch);

/* Opens the store over all weights placed in SLOTS; does nothing when there are none. */
int weir_experts_open(weir_session *session, weir_error *error);
void weir_experts_close(weir_experts *experts);

void weir_experts_begin_graph(weir_experts *experts);
/* Puts the steps for one mul_mat_id into the list, in its place. */
int weir_experts_append(weir_experts *experts, weir_steps *steps, struct ggml_tensor *node, weir_weight *weight);
/* Releases what a failed graph left held; ages the policy. */
void weir_experts_end_graph(weir_experts *experts);
void weir_experts_add_stats(const weir_experts *experts, weir_session_stats *stats);
void weir_experts_free_op(weir_expert_op *op);

#endif
