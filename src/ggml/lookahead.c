/*
 * lookahead.c - guessing the experts of the next two layers.
 *
 * The router of a later layer, applied to the activations that this layer's experts work on, names most of the experts that
 * the later layer will want, because a layer changes the activations little.
 *
 * A guess is read only while the drive would be idle: at most READS_AHEAD reads are under way when one is begun, nearest layer
 * and best rank first, and what was not begun when the router itself has spoken is dropped.  So a guess never stands before
 * what is wanted now by more than these reads, and a busy drive reads few guesses.
 *
 *     compute:  [ experts of layer 1      ][ attention 2 ][ experts of layer 2    ]
 *     drive:    [wanted][wanted][ guess 2 ][ guess 2 ][ 3 ][wanted][ guess 3 ] ...
 *
 * How often an expert of each rank that is not in memory turns out to be wanted is counted; ranks that seldom are are not read.
 *
 * Whether all this pays depends on the model, the drive and the hit rate, so it is measured and not assumed: some tokens go
 * without, and the faster way, by the medians of the tokens' times, is kept for a while; then both are tried again.
 *
 *     tokens:  with ×6 | without ×2 | ... ×8 | the faster ×256 | with ×6 | ...
 *
 * The router is found in the engine's own graph: the matrix with a row for each expert from which the ids were computed.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "ggml/lookahead.h"

#define SEARCH_DEPTH 16
#define CHUNK_BYTES (128u << 10)
#define ODDS_FIRST 0.5F
#define ODDS_STEP (1.0F / 64)
#define ODDS_LEAST 0.4F /* below it a guess costs later reads more than it saves */
#define READS_AHEAD 2 /* keep the drive busy; a wrong guess delays what is wanted by no more than these */
#define PERIOD_TOKENS 8
#define PERIOD_WITH_TOKENS 6
#define KEPT_TOKENS 256

/* ---- finding the router ---- */

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

static void link_guess(weir_expert_op *from, weir_expert_op *target, weir_lookahead *work)
{
	const struct ggml_tensor *activations = from->node->src[1];
	weir_weight *router;

	if (from->node->src[2]->ne[1] != 1 || activations->type != GGML_TYPE_F32)
		return;
	router = find_router(from->experts->session, target->node->src[2], target->weight->tensor->ne[2], SEARCH_DEPTH);
	if (!router || router->tensor->type != GGML_TYPE_F32 || router->tensor->ne[0] != activations->ne[0])
		return;
	work->target = target;
	work->router = router;
	work->chunk_rows = (uint32_t)(CHUNK_BYTES / router->tensor->nb[1]) + 1;
	work->chunks = ((uint32_t)router->tensor->ne[1] + work->chunk_rows - 1) / work->chunk_rows;
}

void weir_lookahead_link(weir_expert_op *before, weir_expert_op *op)
{
	weir_expert_op *from = before;

	memset(op->lookahead, 0, sizeof op->lookahead);
	op->layer_before = before;
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++) {
		op->guess[d].ranks = op->guess[d].chunks_count = op->guess[d].chunks_next = 0;
		if (from && op->experts->judge.guessing) {
			link_guess(from, op, &from->lookahead[d]);
			from = from->layer_before;
		}
	}
}

uint32_t weir_lookahead_chunks(const weir_expert_op *op)
{
	uint32_t chunks = 0;

	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++)
		chunks += op->lookahead[d].chunks;
	return chunks;
}

/* ---- the guess ---- */

void weir_lookahead_work(weir_expert_op *op, uint32_t chunk)
{
	uint32_t d = chunk < op->lookahead[0].chunks ? 0 : 1;
	weir_lookahead *work = &op->lookahead[d];
	const struct ggml_tensor *router = work->router->tensor;
	ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(router->type)->vec_dot;
	uint32_t row = (chunk - (d ? op->lookahead[0].chunks : 0)) * work->chunk_rows, end = row + work->chunk_rows;

	for (; row < end && row < (uint32_t)router->ne[1]; row++)
		vec_dot((int)router->ne[0], &op->experts->logits[d][row], 0, (const char *)router->data + row * router->nb[1],
			0, op->node->src[1]->data, 0, 1);
	atomic_fetch_add(&work->chunks_done, 1);
}

static uint32_t take_best(float *logits, uint32_t experts)
{
	uint32_t best = 0;

	for (uint32_t e = 1; e < experts; e++)
		if (logits[e] > logits[best])
			best = e;
	logits[best] = -FLT_MAX;
	return best;
}

/* Appends the chunks of all parts of an expert of the layer that begins with `op`. */
static void list_chunks(weir_guess *guess, weir_expert_op *op, uint32_t expert)
{
	weir_steps *steps = op->experts->steps;

	for (uint32_t i = op->index, parts = 0;
	     i < steps->experts_count && parts < WEIR_GUESS_PARTS_MAX && steps->experts[i]->node->src[2] == op->node->src[2];
	     i++, parts++)
		guess->chunks[guess->chunks_count++] = steps->experts[i]->weight->chunk_first + expert;
}

static void rank(weir_expert_op *target, weir_guess *guess, float *logits, const float *odds)
{
	uint32_t experts = (uint32_t)target->weight->tensor->ne[2];
	uint32_t top_k = (uint32_t)target->node->src[2]->ne[0], ranks = top_k + top_k / 2;

	ranks = ranks < WEIR_GUESS_RANKS_MAX ? ranks : WEIR_GUESS_RANKS_MAX;
	guess->ranks = ranks < experts ? ranks : experts;
	guess->chunks_count = guess->chunks_next = 0;
	for (uint32_t r = 0; r < guess->ranks; r++) {
		uint32_t expert = take_best(logits, experts);

		guess->experts[r] = expert;
		guess->absent[r] = !weir_store_has(target->experts->session->store, target->weight->chunk_first + expert);
		if (guess->absent[r] && odds[r] >= ODDS_LEAST)
			list_chunks(guess, target, expert);
	}
}

void weir_lookahead_rank(weir_expert_op *op)
{
	weir_experts *experts = op->experts;

	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++) {
		weir_lookahead *work = &op->lookahead[d];

		if (!work->chunks || work->ranked || atomic_load(&work->chunks_done) < work->chunks)
			continue;
		work->ranked = true;
		experts->guessed[d] = &work->target->guess[d];
		rank(work->target, experts->guessed[d], experts->logits[d], experts->odds[d]);
	}
	weir_lookahead_pump(experts);
}

static weir_guess *to_be_read(weir_experts *experts)
{
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++)
		if (experts->guessed[d] && experts->guessed[d]->chunks_next < experts->guessed[d]->chunks_count)
			return experts->guessed[d];
	return NULL;
}

void weir_lookahead_pump(weir_experts *experts)
{
	weir_store *store = experts->session->store;
	weir_guess *guess = to_be_read(experts);

	if (!guess)
		return;
	weir_store_poll(store);
	while (guess && weir_store_reads_under_way(store) < READS_AHEAD) {
		weir_store_expect(store, &guess->chunks[guess->chunks_next++], 1);
		guess = to_be_read(experts);
	}
}

/* What was not begun is not worth it any more. */
void weir_lookahead_drop(weir_experts *experts)
{
	memset(experts->guessed, 0, sizeof experts->guessed);
}

void weir_lookahead_learn(weir_expert_op *op)
{
	const uint32_t *count = op->experts->route.count;

	weir_lookahead_drop(op->experts);
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++) {
		weir_guess *guess = &op->guess[d];
		float *odds = op->experts->odds[d];

		for (uint32_t i = 0; i < guess->ranks; i++)
			if (guess->absent[i])
				odds[i] += ((count[guess->experts[i]] ? 1.0F : 0.0F) - odds[i]) * ODDS_STEP;
		guess->ranks = 0;
	}
}

static void run_pump(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_experts *experts = user;

	(void)node;
	weir_step_enter(experts->session, thread, threads);
	if (thread == 0)
		weir_lookahead_pump(experts);
}

int weir_lookahead_append_pump(weir_experts *experts, weir_steps *steps)
{
	if (!experts->layer_first || !experts->judge.guessing || experts->layer_first->node->src[2]->ne[1] != 1)
		return 0;
	weir_step_node(&experts->pump, run_pump, experts);
	return weir_steps_add(steps, &experts->pump);
}

void weir_lookahead_init(weir_experts *experts)
{
	experts->judge.allowed = experts->judge.guessing = experts->session->options.lookahead;
	for (int d = 0; d < WEIR_LOOKAHEAD_LAYERS; d++)
		for (uint32_t r = 0; r < WEIR_GUESS_RANKS_MAX; r++)
			experts->odds[d][r] = ODDS_FIRST;
}

/* ---- does it pay? ---- */

static int compare_times(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static uint64_t median_of(uint64_t *times, uint32_t count)
{
	qsort(times, count, sizeof *times, compare_times);
	return times[count / 2];
}

static void begin_trial(weir_lookahead_judge_state *judge)
{
	judge->trial_tokens = judge->with_count = judge->without_count = judge->kept_tokens = 0;
	judge->guessing = true;
}

static void end_trial(weir_lookahead_judge_state *judge)
{
	judge->with_ns = median_of(judge->with, judge->with_count);
	judge->without_ns = median_of(judge->without, judge->without_count);
	judge->guessing = judge->with_ns <= judge->without_ns;
	judge->kept_tokens = KEPT_TOKENS;
}

void weir_lookahead_judge(weir_lookahead_judge_state *judge, uint64_t token_ns)
{
	if (!judge->allowed)
		return;
	if (judge->kept_tokens) {
		if (--judge->kept_tokens == 0)
			begin_trial(judge);
		return;
	}
	if (judge->guessing)
		judge->with[judge->with_count++] = token_ns;
	else
		judge->without[judge->without_count++] = token_ns;
	judge->trial_tokens++;
	judge->guessing = judge->trial_tokens % PERIOD_TOKENS < PERIOD_WITH_TOKENS;
	if (judge->trial_tokens == WEIR_TRIAL_TOKENS)
		end_trial(judge);
}
