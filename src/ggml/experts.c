/*
 * experts.c - mul_mat_id over weights that are in memory only expert by expert.
 *
 * The engine's node names, for each token, the experts that the router picked.  It is replaced by
 *
 *     [quantize]  [pick] [gather] mul_mat_id  [pick] [gather] mul_mat_id  ...  [pick] [gather]
 *
 * where each pick takes whichever wanted expert is in memory first and points the next mul_mat_id, which has just one expert,
 * at its slot.  So what is there computes while the rest arrives.  The kernel is ggml's own, with the rows that one expert
 * takes together in one operation, as it does itself: the same bits come out, whatever the order.  A list has as many rounds
 * as there can be different experts; rounds that are not needed have no rows and do nothing.
 *
 * As soon as a layer's ids are known all of its parts are asked for.  For a prompt, whose tokens want nearly every expert of
 * every layer, the next layer's experts are asked for as well while this layer's are worked on.
 *
 * This is for batches; decode.c does one token.
 *
 * Threads: picks work on thread 0 of the graph and may sleep; quantize and gather share the work among all.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ggml/decode.h"
#include "ggml/lookahead.h"
#include "ggml/trace.h"
#include "os/memory.h"

#define AHEAD_PAIRS_PER_EXPERT 4 /* ask for a whole layer ahead when each expert is wanted so often on average */
#define ACQUIRE_AT_ONCE 64

void weir_experts_free_op(weir_expert_op *op)
{
	if (!op)
		return;
	weir_decode_free(op);
	free(op->leases);
	free(op->todo);
	free(op);
}

/* ---- what the router picked ---- */

static uint32_t expert_at(const struct ggml_tensor *ids, int64_t slot, int64_t token)
{
	return (uint32_t) * (const int32_t *)((const char *)ids->data + (size_t)token * ids->nb[1] + (size_t)slot * ids->nb[0]);
}

static int count_pairs(route *r, uint32_t experts)
{
	memset(r->count, 0, experts * sizeof *r->count);
	for (int64_t token = 0; token < r->ids->ne[1]; token++)
		for (int64_t slot = 0; slot < r->ids->ne[0]; slot++) {
			uint32_t expert = expert_at(r->ids, slot, token);

			if (expert >= experts || r->count[expert] == (uint32_t)r->ids->ne[1])
				return WEIR_EENGINE;
			r->count[expert]++;
		}
	return 0;
}

/* In ggml's own order: by expert, then by token, then by slot. */
static int build_route(route *r, const struct ggml_tensor *ids, uint32_t experts)
{
	uint32_t at = 0;

	r->ids = ids;
	if (count_pairs(r, experts))
		return WEIR_EENGINE;
	r->active_count = 0;
	for (uint32_t e = 0; e < experts; e++) {
		r->start[e] = at;
		at += r->count[e];
		if (r->count[e])
			r->active[r->active_count++] = e;
		r->count[e] = 0;
	}
	for (int64_t token = 0; token < ids->ne[1]; token++)
		for (int64_t slot = 0; slot < ids->ne[0]; slot++) {
			uint32_t e = expert_at(ids, slot, token);

			r->pairs[r->start[e] + r->count[e]++] = (pair){(int32_t)slot, (int32_t)token};
		}
	return 0;
}

/* ---- leases ---- */

void weir_experts_release(weir_expert_op *op, uint32_t expert)
{
	if (!op->leases[expert])
		return;
	weir_lease_release(op->leases[expert]);
	op->leases[expert] = NULL;
	op->experts->held--;
}

void weir_experts_release_all(weir_expert_op *op)
{
	uint32_t experts = (uint32_t)op->weight->tensor->ne[2];

	for (uint32_t e = 0; e < experts; e++)
		weir_experts_release(op, e);
	op->acquired_all = false;
}

/* Acquires what the list names and the op does not hold yet, in order, as far as slots can be had. */
static int acquire_list(weir_expert_op *op, const uint32_t *list, uint32_t count, weir_error *error)
{
	uint32_t chunks[ACQUIRE_AT_ONCE], experts[ACQUIRE_AT_ONCE];
	weir_lease *leases[ACQUIRE_AT_ONCE];
	uint32_t wanted = 0;

	for (uint32_t i = 0; i <= count; i++) {
		int got;

		if (i < count) {
			uint32_t expert = list ? list[i] : i;

			if (op->leases[expert])
				continue;
			experts[wanted] = expert;
			chunks[wanted++] = op->weight->chunk_first + expert;
		}
		if (!wanted || (i < count && wanted < ACQUIRE_AT_ONCE))
			continue;
		got = weir_store_acquire(op->experts->session->store, chunks, wanted, leases, error);
		if (got < 0)
			return got;
		for (int k = 0; k < got; k++)
			op->leases[experts[k]] = leases[k];
		op->experts->held += (uint32_t)got;
		if ((uint32_t)got < wanted)
			return 0;
		wanted = 0;
	}
	op->acquired_all = true;
	return 0;
}

static bool wants_whole_layers(const weir_expert_op *op)
{
	const struct ggml_tensor *ids = op->node->src[2];

	return op->experts->session->options.lookahead &&
	       ids->ne[0] * ids->ne[1] >= AHEAD_PAIRS_PER_EXPERT * op->weight->tensor->ne[2];
}

/* Asks for what this op still lacks, then for the layer's other parts, then, for prompts, for the next layer. */
static int acquire_onward(weir_expert_op *op, weir_error *error)
{
	weir_experts *experts = op->experts;
	const struct ggml_tensor *ahead = NULL;

	for (uint32_t i = op->index; i < experts->steps->experts_count; i++) {
		weir_expert_op *other = experts->steps->experts[i];
		const struct ggml_tensor *ids = other->node->src[2];
		int result;

		if (ids != experts->route.ids && !ahead)
			ahead = wants_whole_layers(other) ? ids : NULL;
		if (ids != experts->route.ids && ids != ahead)
			return 0;
		if (other->acquired_all)
			continue;
		if (ids == ahead)
			result = acquire_list(other, NULL, (uint32_t)other->weight->tensor->ne[2], error);
		else if (other->begun)
			result = acquire_list(other, other->todo, other->todo_count, error);
		else
			result = acquire_list(other, experts->route.active, experts->route.active_count, error);
		if (result || !other->acquired_all)
			return result;
	}
	return 0;
}

/* When nothing of this op can be had, what was asked for ahead stands in the way: let go of it. */
static void release_onward(weir_expert_op *op)
{
	for (uint32_t i = op->index + 1; i < op->experts->steps->experts_count; i++)
		weir_experts_release_all(op->experts->steps->experts[i]);
}

/* A layer was asked for as a whole; now its ids are known. */
static void drop_unwanted(weir_expert_op *op)
{
	const route *r = &op->experts->route;
	weir_steps *steps = op->experts->steps;

	for (uint32_t i = op->index; i < steps->experts_count && steps->experts[i]->node->src[2] == r->ids; i++) {
		weir_expert_op *other = steps->experts[i];

		for (uint32_t e = 0; e < (uint32_t)other->weight->tensor->ne[2]; e++)
			if (!r->count[e])
				weir_experts_release(other, e);
		other->acquired_all = false;
	}
}

/* ---- picking ---- */

int weir_experts_begin_op(weir_expert_op *op, weir_error *error)
{
	weir_experts *experts = op->experts;
	const struct ggml_tensor *ids = op->node->src[2];
	int result;

	if (experts->route.ids != ids) {
		if (build_route(&experts->route, ids, (uint32_t)op->weight->tensor->ne[2]))
			return weir_fail(error, WEIR_EENGINE, NULL, WEIR_ERROR_NO_OFFSET, 0,
					 "%s: the router named an expert that does not exist, or one twice for a token",
					 op->weight->tensor->name);
		weir_lookahead_learn(op);
		if (experts->held)
			drop_unwanted(op);
	}
	memcpy(op->todo, experts->route.active, experts->route.active_count * sizeof *op->todo);
	op->todo_count = experts->route.active_count;
	op->begun = true;
	result = acquire_onward(op, error);
	if (experts->session->trace)
		weir_trace_route(op);
	return result;
}

static uint32_t collect_held(weir_expert_op *const *ops, uint32_t ops_count)
{
	weir_experts *experts = ops[0]->experts;
	uint32_t count = 0;

	for (uint32_t o = 0; o < ops_count; o++)
		for (uint32_t i = 0; i < ops[o]->todo_count; i++)
			if (ops[o]->leases[ops[o]->todo[i]]) {
				experts->wait_leases[count] = ops[o]->leases[ops[o]->todo[i]];
				experts->wait_places[count++] = (todo_place){ops[o], i};
			}
	return count;
}

/* With very few slots, the one that could be freed may hold another chunk of the same list, which acquiring them together
 * keeps: ask for any single one. */
static void acquire_any(weir_expert_op *op)
{
	for (uint32_t i = 0; i < op->todo_count && !op->experts->held; i++)
		acquire_list(op, &op->todo[i], 1, NULL);
	op->acquired_all = false;
}

/* When nothing of these ops can be had: lets go of what was asked for ahead, and waits until some read has ended, since all
 * slots may be filling with chunks that are no longer wanted. */
static int wait_for_slot(weir_expert_op *const *ops, uint32_t ops_count, uint32_t *held, weir_error *error)
{
	int result;

	release_onward(ops[ops_count - 1]);
	for (;;) {
		result = acquire_onward(ops[0], error);
		for (uint32_t o = 0; o < ops_count && !result && !collect_held(ops, ops_count); o++)
			acquire_any(ops[o]);
		*held = collect_held(ops, ops_count);
		if (result || *held)
			return result;
		if (weir_store_wait_read(ops[0]->experts->session->store))
			return weir_fail(error, WEIR_EBUSY, NULL, WEIR_ERROR_NO_OFFSET, 0,
					 "%s: no slot can be had for an expert", ops[0]->weight->tensor->name);
	}
}

static bool any_ready(const weir_experts *experts, uint32_t held)
{
	for (uint32_t i = 0; i < held; i++)
		if (weir_lease_ready(experts->wait_leases[i]))
			return true;
	return false;
}

int weir_experts_next(weir_expert_op *const *ops, uint32_t ops_count, bool wait, weir_expert_op **op, uint32_t *expert,
		      weir_error *error)
{
	weir_experts *experts = ops[0]->experts;
	uint32_t held, index;
	todo_place place;
	int result = acquire_onward(ops[0], error);

	if (result)
		return result;
	held = collect_held(ops, ops_count);
	if (!wait) {
		weir_store_poll(experts->session->store);
		if (!any_ready(experts, held))
			return WEIR_EBUSY;
	}
	if (!held)
		result = wait_for_slot(ops, ops_count, &held, error);
	if (!result)
		result = weir_store_wait_any(experts->session->store, experts->wait_leases, held, &index, error);
	if (result)
		return result;
	place = experts->wait_places[index];
	*op = place.op;
	*expert = place.op->todo[place.index];
	place.op->todo[place.index] = place.op->todo[--place.op->todo_count];
	return 0;
}

static void resize(struct ggml_tensor *tensor, int64_t rows)
{
	tensor->ne[2] = rows;
	tensor->nb[3] = tensor->nb[2] * (size_t)rows;
}

static uint64_t row_index(const weir_expert_op *op, const pair *p)
{
	int64_t rows = op->node->src[1]->ne[1];

	return (uint64_t)(p->slot % rows + p->token * rows);
}

static bool is_batch(const weir_expert_op *op)
{
	return op->node->src[2]->ne[1] > 1;
}

static char *result_row(const weir_expert_op *op, const pair *p)
{
	return (char *)op->node->data + (size_t)p->slot * op->node->nb[1] + (size_t)p->token * op->node->nb[2];
}

static const char *activation_row(const weir_expert_op *op, const pair *p)
{
	const struct ggml_tensor *source = op->node->src[1];

	if (source->type != op->rows.type)
		return op->experts->quantized + row_index(op, p) * op->rows.nb[1];
	return (const char *)source->data + (size_t)(p->slot % source->ne[1]) * source->nb[1] +
	       (size_t)p->token * source->nb[2];
}

/* One row needs no gathering: the multiply works on it where it lies. */
static void point_at(weir_expert_op *op, uint32_t expert, const void *data)
{
	const route *r = &op->experts->route;
	uint32_t count = r->count[expert];
	const pair *first = &r->pairs[r->start[expert]];

	op->matrix.data = (void *)(uintptr_t)data;
	resize(&op->multiply, count);
	resize(&op->rows, count);
	op->ids.ne[1] = count;
	op->multiply.data = count == 1 ? result_row(op, first) : op->experts->result;
	op->rows.data = count == 1 ? (char *)(uintptr_t)activation_row(op, first) : op->experts->gathered;
}

static int pick(weir_expert_op *op, weir_error *error)
{
	const void *data;
	uint32_t expert = NO_EXPERT;
	int result = op->begun ? 0 : weir_experts_begin_op(op, error);

	if (op->current != NO_EXPERT)
		weir_experts_release(op, op->current);
	op->scattered = op->current;
	op->current = NO_EXPERT;
	if (result)
		return result;
	if (!op->todo_count) {
		resize(&op->multiply, 0);
		return 0;
	}
	result = weir_experts_next(&op, 1, true, &op, &expert, error);
	if (result)
		return result;
	op->current = expert;
	result = weir_lease_wait(op->leases[expert], &data, error);
	if (!result)
		point_at(op, expert, data);
	return result;
}

static void run_pick(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_expert_op *op = user;
	weir_error error;

	(void)node;
	weir_step_enter(op->experts->session, thread, threads);
	if (thread || op->experts->session->failed)
		return;
	if (pick(op, &error))
		weir_session_set_error(op->experts->session, &error);
}

/* ---- batches: rows of activations together, rows of results apart ---- */

static void run_gather(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_expert_op *op = user;
	const route *r = &op->experts->route;
	size_t result_bytes = op->multiply.nb[1], row_bytes = op->rows.nb[1];

	(void)node;
	if (op->scattered != NO_EXPERT && r->count[op->scattered] > 1)
		for (uint32_t i = (uint32_t)thread; i < r->count[op->scattered]; i += (uint32_t)threads)
			memcpy(result_row(op, &r->pairs[r->start[op->scattered] + i]), op->experts->result + i * result_bytes,
			       result_bytes);
	if (op->current != NO_EXPERT && r->count[op->current] > 1)
		for (uint32_t i = (uint32_t)thread; i < r->count[op->current]; i += (uint32_t)threads)
			memcpy(op->experts->gathered + i * row_bytes, activation_row(op, &r->pairs[r->start[op->current] + i]),
			       row_bytes);
}

static void run_quantize(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_expert_op *op = user;
	const struct ggml_tensor *source = op->node->src[1];
	ggml_from_float_t from_float = ggml_get_type_traits_cpu(op->rows.type)->from_float;
	int64_t count = source->ne[1] * source->ne[2];

	(void)node;
	for (int64_t i = thread; i < count; i += threads) {
		const char *row = (const char *)source->data + (size_t)(i % source->ne[1]) * source->nb[1] +
				  (size_t)(i / source->ne[1]) * source->nb[2];

		from_float((const float *)(const void *)row, op->experts->quantized + (size_t)i * op->rows.nb[1],
			   source->ne[0]);
	}
}

/* ---- building the list ---- */

static void shape_operation(weir_expert_op *op)
{
	struct ggml_tensor *node = op->node;
	const struct ggml_tensor *source = node->src[1];
	enum ggml_type dot_type = ggml_get_type_traits_cpu(op->weight->tensor->type)->vec_dot_type;
	int64_t tokens = node->src[2]->ne[1];

	op->matrix = *op->weight->tensor;
	op->matrix.ne[2] = 1;
	op->matrix.nb[3] = op->matrix.nb[2];
	op->rows = *source;
	op->rows.type = dot_type;
	op->rows.view_src = NULL;
	op->rows.ne[1] = 1;
	op->rows.ne[3] = 1;
	op->rows.nb[0] = ggml_type_size(op->rows.type);
	op->rows.nb[1] = op->rows.nb[2] = ggml_row_size(op->rows.type, source->ne[0]);
	resize(&op->rows, tokens);
	op->ids = *node->src[2];
	op->ids.view_src = NULL;
	op->ids.ne[0] = 1;
	op->ids.ne[1] = tokens;
	op->ids.nb[0] = op->ids.nb[1] = sizeof(int32_t);
	op->ids.data = op->experts->zero_ids;
	op->multiply = *node;
	op->multiply.view_src = NULL;
	op->multiply.src[0] = &op->matrix;
	op->multiply.src[1] = &op->rows;
	op->multiply.src[2] = &op->ids;
	op->multiply.ne[1] = op->multiply.ne[3] = 1;
	op->multiply.nb[1] = op->multiply.nb[2] = sizeof(float) * (size_t)node->ne[0];
	resize(&op->multiply, tokens);
}

static int prepare_lists(weir_expert_op *op)
{
	uint32_t experts = (uint32_t)op->weight->tensor->ne[2];

	if (op->leases_capacity >= experts)
		return 0;
	free(op->leases);
	free(op->todo);
	op->leases = calloc(experts, sizeof *op->leases);
	op->todo = calloc(experts, sizeof *op->todo);
	op->leases_capacity = op->leases && op->todo ? experts : 0;
	return op->leases_capacity ? 0 : WEIR_ENOMEM;
}

static int append_rounds(weir_steps *steps, weir_expert_op *op)
{
	const struct ggml_tensor *ids = op->node->src[2];
	int64_t rounds = ids->ne[0] * ids->ne[1];
	int result = 0;

	if (rounds > op->weight->tensor->ne[2])
		rounds = op->weight->tensor->ne[2];
	for (int64_t i = 0; i <= rounds && !result; i++) {
		result = weir_steps_add(steps, &op->pick);
		if (!result)
			result = weir_steps_add(steps, &op->gather);
		if (!result && i < rounds)
			result = weir_steps_add(steps, &op->multiply);
	}
	return result;
}

static int append_quantize(weir_experts *experts, weir_steps *steps, weir_expert_op *op)
{
	const struct ggml_tensor *source = op->node->src[1];

	if (source->type == op->rows.type)
		return 0;
	if (experts->quantized_source == source && experts->quantized_type == op->rows.type)
		return 0; /* gate and up work on the same activations */
	experts->quantized_source = source;
	experts->quantized_type = op->rows.type;
	weir_step_node(&op->quantize, run_quantize, op);
	return weir_steps_add(steps, &op->quantize);
}

int weir_experts_append(weir_experts *experts, weir_steps *steps, struct ggml_tensor *node, weir_weight *weight)
{
	weir_expert_op *op;
	int result;

	op = weir_steps_take(&steps->experts, &steps->experts_count, &steps->experts_capacity, sizeof *op);
	if (!op)
		return WEIR_ENOMEM;
	op->experts = experts;
	op->weight = weight;
	op->node = node;
	op->index = steps->experts_count - 1;
	op->begun = op->acquired_all = false;
	op->current = op->scattered = NO_EXPERT;
	op->todo_count = 0;
	experts->steps = steps;
	result = prepare_lists(op);
	if (result)
		return result;
	memset(op->lookahead, 0, sizeof op->lookahead);
	if (!experts->layer_first || experts->layer_first->node->src[2] != node->src[2]) {
		weir_lookahead_link(experts->layer_first, op);
		experts->layer_first = op;
	}
	if (!is_batch(op))
		return weir_decode_append(steps, op);
	shape_operation(op);
	weir_step_node(&op->pick, run_pick, op);
	weir_step_node(&op->gather, run_gather, op);
	result = append_quantize(experts, steps, op);
	return result ? result : append_rounds(steps, op);
}

void weir_experts_begin_graph(weir_experts *experts)
{
	if (!experts)
		return;
	experts->route.ids = NULL;
	experts->quantized_source = NULL;
	experts->decoded = NULL;
	experts->layer_first = NULL;
	weir_lookahead_drop(experts);
	experts->token_began_ns = weir_clock_ns();
}

void weir_experts_end_graph(weir_experts *experts)
{
	if (!experts || !experts->steps)
		return;
	for (uint32_t i = 0; i < experts->steps->experts_count && experts->held; i++)
		weir_experts_release_all(experts->steps->experts[i]);
	weir_store_tick(experts->session->store);
	if (experts->steps->experts_count && !is_batch(experts->steps->experts[0]))
		weir_lookahead_judge(&experts->judge, weir_clock_ns() - experts->token_began_ns);
}
