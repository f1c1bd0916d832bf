/*
 * lookahead.c - guessing the next layer's experts.
 *
 * The next layer's router, applied to the activations that this layer's experts work on, names most of the experts that the
 * next layer will want, because a layer changes the activations little.  The guess is a hint to the store: its reads go behind
 * those that are wanted now, and never displace what is wanted more.
 *
 * Whether that pays depends on the model, the drive and the cache, so it is measured and not assumed: windows of tokens with
 * and without guessing alternate, the faster way wins and is kept for a while, then both are tried again.
 *
 *     tokens:  on ×8 | off ×8 | on ×8 | off ×8 | the faster ×192 | on ×8 | ...
 *
 * The router is found in the engine's own graph: the matrix with a row for each expert from which the ids were computed.
 */
#include <string.h>

#include "ggml/lookahead.h"

#define SEARCH_DEPTH 16
#define CHUNK_BYTES (128u << 10)
#define WINDOW_TOKENS 8
#define WINDOWS 4
#define KEPT_TOKENS 192
#define GAIN_LEAST 1.01 /* guessing must be faster by this to be kept: it reads more */

/* --- finding the router ----------------------------------------------------------------------------------------------------
 */

static weir_weight *find_router(const weir_session *session, const struct ggml_tensor *tensor, int64_t experts, int depth)
{
	weir_weight *found = NULL;

	if (!tensor || !depth)
		return NULL;
	if (tensor->op == GGML_OP_MUL_MAT) {
		weir_weight *weight = weir_weights_find(session, tensor->src[0]);

		return weight && weight->tensor->ne[1] == experts && weight->place == PLACE_RESIDENT ? weight : NULL;
	}
	for (int i = 0; i < 2 && !found; i++)
		found = find_router(session, tensor->src[i], experts, depth - 1);
	return found;
}

void weir_lookahead_link(weir_expert_op *before, weir_expert_op *op)
{
	weir_lookahead *guess = &before->lookahead;
	const struct ggml_tensor *activations = before->node->src[1];
	weir_weight *router;

	memset(guess, 0, sizeof *guess);
	if (!before->experts->judge.guessing || before->node->src[2]->ne[1] != 1 || activations->type != GGML_TYPE_F32)
		return;
	router = find_router(op->experts->session, op->node->src[2], op->weight->tensor->ne[2], SEARCH_DEPTH);
	if (!router || router->tensor->type != GGML_TYPE_F32 || router->tensor->ne[0] != activations->ne[0])
		return;
	guess->target = op;
	guess->router = router;
	guess->chunk_rows = (uint32_t)(CHUNK_BYTES / router->tensor->nb[1]) + 1;
	guess->chunks = ((uint32_t)router->tensor->ne[1] + guess->chunk_rows - 1) / guess->chunk_rows;
}

/* --- the guess
 * ---------------------------------------------------------------------------------------------------------------- */

void weir_lookahead_work(weir_expert_op *op, uint32_t chunk)
{
	weir_lookahead *guess = &op->lookahead;
	const struct ggml_tensor *router = guess->router->tensor;
	ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(router->type)->vec_dot;
	uint32_t row = chunk * guess->chunk_rows, end = row + guess->chunk_rows;

	for (; row < end && row < (uint32_t)router->ne[1]; row++)
		vec_dot((int)router->ne[0], &op->experts->logits[row], 0, (const char *)router->data + row * router->nb[1], 0,
			op->node->src[1]->data, 0, 1);
	atomic_fetch_add(&guess->chunks_done, 1);
}

static uint32_t take_best(float *logits, uint32_t experts)
{
	uint32_t best = 0;

	for (uint32_t e = 1; e < experts; e++)
		if (logits[e] > logits[best])
			best = e;
	logits[best] = -3.4e38f;
	return best;
}

void weir_lookahead_submit(weir_expert_op *op)
{
	weir_lookahead *guess = &op->lookahead;
	weir_expert_op *target = guess->target;
	weir_steps *steps = op->experts->steps;
	uint32_t experts, wanted, best;

	if (!guess->chunks || guess->submitted || atomic_load(&guess->chunks_done) < guess->chunks)
		return;
	guess->submitted = true;
	experts = (uint32_t)target->weight->tensor->ne[2];
	wanted = ((uint32_t)target->node->src[2]->ne[0] + 1) / 2;
	for (uint32_t k = 0; k < wanted; k++) {
		best = take_best(op->experts->logits, experts);
		for (uint32_t i = target->index;
		     i < steps->experts_count && steps->experts[i]->node->src[2] == target->node->src[2]; i++) {
			uint32_t chunk = steps->experts[i]->weight->chunk_first + best;

			weir_store_expect(op->experts->session->store, &chunk, 1);
		}
	}
}

/* --- does it pay?
 * --------------------------------------------------------------------------------------------------------------- */

static void end_window(weir_lookahead_judge_state *judge)
{
	judge->window_ns[judge->window % 2] += judge->passed_ns;
	judge->passed_ns = 0;
	judge->passed_tokens = 0;
	if (++judge->window < WINDOWS) {
		judge->guessing = judge->window % 2 == 0;
		return;
	}
	judge->guessing = (double)judge->window_ns[0] * GAIN_LEAST < (double)judge->window_ns[1];
}

static void begin_trial(weir_lookahead_judge_state *judge)
{
	memset(judge->window_ns, 0, sizeof judge->window_ns);
	judge->passed_ns = 0;
	judge->passed_tokens = 0;
	judge->window = 0;
	judge->guessing = true;
}

void weir_lookahead_judge(weir_lookahead_judge_state *judge, uint64_t token_ns)
{
	if (!judge->allowed)
		return;
	judge->passed_ns += token_ns;
	judge->passed_tokens++;
	if (judge->window < WINDOWS) {
		if (judge->passed_tokens == WINDOW_TOKENS)
			end_window(judge);
	} else if (judge->passed_tokens == KEPT_TOKENS) {
		begin_trial(judge);
	}
}
