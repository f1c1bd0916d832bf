/*
 * graph.c - running an engine's graph with weir's steps put in.
 *
 *   engine:  ... norm   get_rows(embd)          mul_mat(attn_q)        mul_mat_id(gate)              ...
 *   weir:    ... norm  [rows] get_rows(compact) [ring] mul_mat(attn_q) [pick] mul_mat_id(1 expert) [pick] ...
 *
 * A step is a custom node: ggml's threads run it like any other, and the barrier after it publishes what it did.  The graph
 * struct is a copy of the engine's with another list of nodes, so that ggml's tables of uses, and with them its fusing of
 * neighbours, stay as they are.  When every weight is resident the engine's graph runs untouched,
 * but for the steps of a routing trace.
 */
#include <stdlib.h>
#include <string.h>

#include "base/guard.h"
#include "ggml/experts.h"
#include "ggml/lookahead.h"
#include "ggml/ring.h"
#include "ggml/rows.h"
#include "ggml/steps.h"
#include "ggml/trace.h"
#include "os/affinity.h"
#include "os/memory.h"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>

void weir_step_enter(const weir_session *session, int thread, int threads)
{
	if (session->options.bind_threads)
		weir_affinity_bind((uint32_t)thread, (uint32_t)threads);
}

void weir_step_node(struct ggml_tensor *node, ggml_custom_op_t function, void *user)
{
	struct ggml_custom_op_params params = {.fun = function, .n_tasks = GGML_N_TASKS_MAX, .userdata = user};

	memset(node, 0, sizeof *node);
	node->type = GGML_TYPE_F32;
	node->op = GGML_OP_CUSTOM;
	node->flags = GGML_TENSOR_FLAG_COMPUTE;
	for (int i = 0; i < GGML_MAX_DIMS; i++) {
		node->ne[i] = 1;
		node->nb[i] = sizeof(float);
	}
	memcpy(node->op_params, &params, sizeof params);
}

int weir_steps_add(weir_steps *steps, struct ggml_tensor *node)
{
	if (steps->nodes_count == steps->nodes_capacity) {
		uint32_t capacity = steps->nodes_capacity ? steps->nodes_capacity * 2 : 4096;
		struct ggml_tensor **nodes = realloc(steps->nodes, capacity * sizeof *nodes);

		if (!nodes)
			return WEIR_ENOMEM;
		steps->nodes = nodes;
		steps->nodes_capacity = capacity;
	}
	steps->nodes[steps->nodes_count++] = node;
	return 0;
}

/* The lists are arrays of pointers to different types: they are read and written as bytes, for which C has a rule. */
static int grow_list(void *list, uint32_t *capacity)
{
	uint32_t more = *capacity ? *capacity * 2 : 64;
	size_t element = sizeof(void *);
	char *old, *grown;

	memcpy(&old, list, sizeof old);
	grown = realloc(old, more * element);
	if (!grown)
		return WEIR_ENOMEM;
	memset(grown + *capacity * element, 0, (more - *capacity) * element);
	memcpy(list, &grown, sizeof grown);
	*capacity = more;
	return 0;
}

void *weir_steps_take(void *list, uint32_t *count, uint32_t *capacity, size_t bytes)
{
	char *array;
	void *step;

	if (*count == *capacity && grow_list(list, capacity))
		return NULL;
	memcpy(&array, list, sizeof array);
	memcpy(&step, array + *count * sizeof step, sizeof step);
	if (!step) {
		step = calloc(1, bytes);
		if (!step)
			return NULL;
		memcpy(array + *count * sizeof step, &step, sizeof step);
	}
	(*count)++;
	return step;
}

void weir_steps_free(weir_steps *steps)
{
	if (!steps)
		return;
	for (uint32_t i = 0; i < steps->experts_capacity; i++)
		weir_experts_free_op(steps->experts[i]);
	for (uint32_t i = 0; i < steps->rings_capacity; i++)
		free(steps->rings[i]);
	for (uint32_t i = 0; i < steps->rows_capacity; i++)
		free(steps->rows[i]);
	free(steps->experts);
	free(steps->rings);
	free(steps->rows);
	free(steps->nodes);
	free(steps);
}

/* ---- steps for dense weights and rows ---- */

static void run_ring_step(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_ring_step *step = user;
	weir_error error;

	(void)node;
	weir_step_enter(step->session, thread, threads);
	if (thread || step->session->failed)
		return;
	if (weir_ring_use(step->session->ring, step->part, &step->matrix.data, &error))
		weir_session_set_error(step->session, &error);
}

static void shape_part(weir_ring_step *step, struct ggml_tensor *node, const weir_ring_part *part)
{
	step->matrix = *node->src[0];
	step->multiply = *node;
	step->multiply.src[0] = &step->matrix;
	if (part->rows == step->matrix.ne[1])
		return;
	step->matrix.ne[1] = part->rows;
	step->matrix.nb[2] = step->matrix.nb[3] = step->matrix.nb[1] * (size_t)part->rows;
	step->multiply.ne[0] = part->rows;
	step->multiply.view_src = NULL;
	step->multiply.data = (char *)node->data + (size_t)part->row * node->nb[0];
}

static int append_ring(weir_session *session, struct ggml_tensor *node, weir_weight *weight)
{
	weir_steps *steps = session->steps;
	int result = 0;

	for (uint32_t i = 0; i < weight->parts_count && !result; i++) {
		weir_ring_step *step =
			weir_steps_take(&steps->rings, &steps->rings_count, &steps->rings_capacity, sizeof *step);

		if (!step)
			return WEIR_ENOMEM;
		step->session = session;
		step->part = weight->part_first + i;
		shape_part(step, node, weir_ring_get_part(session->ring, step->part));
		weir_step_node(&step->node, run_ring_step, step);
		result = weir_steps_add(steps, &step->node);
		if (!result)
			result = weir_steps_add(steps, &step->multiply);
	}
	return result;
}

static void run_rows_step(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_rows_step *step = user;
	weir_error error;

	(void)node;
	(void)threads;
	if (thread || step->session->failed)
		return;
	if (weir_rows_fetch(step->session->rows, step->weight, step->ids, &step->table.data, &error))
		weir_session_set_error(step->session, &error);
}

static int append_rows(weir_session *session, struct ggml_tensor *node, weir_weight *weight)
{
	weir_steps *steps = session->steps;
	weir_rows_step *step = weir_steps_take(&steps->rows, &steps->rows_count, &steps->rows_capacity, sizeof *step);
	int result;

	if (!step)
		return WEIR_ENOMEM;
	step->session = session;
	step->weight = weight;
	step->ids = node->src[1];
	step->table = *weight->tensor;
	step->table.ne[1] = node->src[1]->ne[0];
	step->table.nb[2] = step->table.nb[3] = step->table.nb[1] * (size_t)step->table.ne[1];
	step->compact_ids = *node->src[1];
	step->compact_ids.nb[0] = sizeof(int32_t);
	step->compact_ids.data = weir_rows_ids(session->rows);
	step->get_rows = *node;
	step->get_rows.src[0] = &step->table;
	step->get_rows.src[1] = &step->compact_ids;
	weir_step_node(&step->node, run_rows_step, step);
	result = weir_steps_add(steps, &step->node);
	return result ? result : weir_steps_add(steps, &step->get_rows);
}

/* ---- the list of nodes ---- */

static bool is_row_lookup(const struct ggml_tensor *node, const weir_weight *weight)
{
	return node->op == GGML_OP_GET_ROWS && node->src[0] == weight->tensor &&
	       (weight->place == PLACE_ROWS || weight->place == PLACE_RING) &&
	       ggml_nelements(node->src[1]) == node->src[1]->ne[0];
}

/* A matrix that takes a while is preceded by a look at what the drive has to do. */
static int append_resident(weir_session *session, struct ggml_tensor *node)
{
	int result = 0;

	if (session->experts && node->op == GGML_OP_MUL_MAT)
		result = weir_lookahead_append_pump(session->experts, session->steps);
	return result ? result : weir_steps_add(session->steps, node);
}

static int append_node(weir_session *session, struct ggml_tensor *node)
{
	weir_weight *weight = weir_weights_find(session, node->src[0]);
	int result = 0;

	if (session->trace && weight && weight->place == PLACE_RESIDENT && node->op == GGML_OP_MUL_MAT_ID)
		result = weir_trace_append(session->trace, session->steps, node);
	if (!weight || weight->place == PLACE_RESIDENT || weight->place == PLACE_MAPPED)
		return result ? result : append_resident(session, node);
	/* A batch of which no output is wanted leaves the last layer without tokens: nothing to do, so nothing to read. */
	if (weight->place == PLACE_SLOTS && node->op == GGML_OP_MUL_MAT_ID && !ggml_is_empty(node))
		return weir_experts_append(session->experts, session->steps, node, weight);
	if (is_row_lookup(node, weight))
		return append_rows(session, node, weight);
	if (weight->place == PLACE_RING && node->op == GGML_OP_MUL_MAT)
		return append_ring(session, node, weight);
	/* Any other use reads through the mapping: right, if slow. */
	return weir_steps_add(session->steps, node);
}

/* A graph that was laid out before the session started has views that point into the mapping still. */
static void fix_views(struct ggml_cgraph *graph)
{
	for (int i = 0; i < graph->n_nodes; i++)
		for (int s = 0; s < GGML_MAX_SRC; s++) {
			struct ggml_tensor *source = graph->nodes[i]->src[s];

			if (source && source->view_src && source->view_src->buffer &&
			    source->view_src->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS)
				source->data = (char *)source->view_src->data + source->view_offs;
		}
}

static int build(weir_session *session, const struct ggml_cgraph *graph)
{
	weir_steps *steps = session->steps;
	int result = 0;

	steps->nodes_count = steps->experts_count = steps->rings_count = steps->rows_count = 0;
	for (int i = 0; i < graph->n_nodes && !result; i++)
		result = append_node(session, graph->nodes[i]);
	return result;
}

#ifdef WEIR_ALLOCATION_GUARD
/* Two graphs of one shape need the same steps: the second one allocates nothing. */
static uint64_t shape_of(const struct ggml_cgraph *graph)
{
	uint64_t hash = (uint64_t)graph->n_nodes;

	for (int i = 0; i < graph->n_nodes; i++)
		for (int d = 0; d < GGML_MAX_DIMS; d++)
			hash = hash * UINT64_C(0x9E3779B97F4A7C15) + (uint64_t)graph->nodes[i]->ne[d];
	return hash;
}

static void hold_guard(weir_session *session, const struct ggml_cgraph *graph)
{
	uint64_t shape = shape_of(graph);

	if (shape == session->steps->shape)
		weir_guard_hold();
	session->steps->shape = shape;
}
#else
#define hold_guard(session, graph) ((void)0)
#endif

/* ---- computing with fewer threads ---- */

/*
 * The engine divides a token's work among threads by rows, each of which one thread computes alone, whichever it is: bits do
 * not depend on how many there are.  The one exception is flash attention over many cells for one token, in which each thread
 * takes a share of the cells and the shares' sums are added.  Such a node runs with all threads whatever was chosen.
 *
 *     one token, two of four threads:   [ nodes: 2 ][ flash attention: 4 ][ nodes: 2 ][ flash attention: 4 ] ...
 *
 * Beside a process that keeps a processor busy, gathering all threads once in each layer costs more than it saves: then trials
 * alone say whether fewer threads pay.  Batches depend on the number in other ways too and always have all threads.
 */

#define SPLIT_CELLS_LEAST 512 /* the engine's own rule: with fewer cells each thread has heads of its own */

/* The rows of activations that meet a weight: those of a matrix, or of the router's choice. */
static bool is_one_token(const struct ggml_cgraph *graph)
{
	bool any = false;

	for (int i = 0; i < graph->n_nodes; i++) {
		const struct ggml_tensor *node = graph->nodes[i];

		if (node->op == GGML_OP_MUL_MAT_ID) {
			if (node->src[2]->ne[1] != 1)
				return false;
			any = true;
		} else if (node->op == GGML_OP_MUL_MAT && node->src[0]->op == GGML_OP_NONE) {
			if (ggml_nrows(node->src[1]) != 1)
				return false;
			any = true;
		}
	}
	return any;
}

static bool depends_on_threads(const struct ggml_tensor *node)
{
	return node->op == GGML_OP_FLASH_ATTN_EXT && node->src[1]->ne[1] >= SPLIT_CELLS_LEAST;
}

static bool has_split(const struct ggml_cgraph *graph)
{
	for (int i = 0; i < graph->n_nodes; i++)
		if (depends_on_threads(graph->nodes[i]))
			return true;
	return false;
}

static enum ggml_status compute_part(ggml_backend_t inner, struct ggml_cgraph part, int first, int end, uint32_t count)
{
	if (first == end)
		return GGML_STATUS_SUCCESS;
	part.nodes += first;
	part.n_nodes = end - first;
	ggml_backend_cpu_set_n_threads(inner, (int)count);
	return ggml_backend_graph_compute(inner, &part);
}

static enum ggml_status compute_parts(const weir_threads *threads, ggml_backend_t inner, const struct ggml_cgraph *graph)
{
	enum ggml_status status = GGML_STATUS_SUCCESS;
	int first = 0;

	for (int i = 0; i < graph->n_nodes && status == GGML_STATUS_SUCCESS; i++) {
		if (!depends_on_threads(graph->nodes[i]))
			continue;
		status = compute_part(inner, *graph, first, i, threads->now);
		if (status == GGML_STATUS_SUCCESS)
			status = compute_part(inner, *graph, i, i + 1, threads->most);
		first = i + 1;
	}
	return status == GGML_STATUS_SUCCESS ? compute_part(inner, *graph, first, graph->n_nodes, threads->now) : status;
}

static enum ggml_status compute_token(const weir_threads *threads, ggml_backend_t inner, struct ggml_cgraph *graph)
{
	enum ggml_status status;

	if (threads->now == threads->most)
		return ggml_backend_graph_compute(inner, graph);
	status = compute_parts(threads, inner, graph);
	ggml_backend_cpu_set_n_threads(inner, (int)threads->most);
	return status;
}

static uint64_t stalled_ns(const weir_session *session)
{
	weir_session_stats stats;

	weir_session_get_stats(session, &stats);
	return stats.experts.stall_ns + stats.dense_stall_ns;
}

/* The lesser of two looks: what ends in between is no reason to compute with fewer threads. */
static void sample_others(weir_session *session)
{
	double busy;

	if (!weir_others_sample(&session->others, &busy))
		return;
	session->others_busy = busy < session->others_before ? busy : session->others_before;
	session->others_before = busy;
}

/* `with_steps` is what `graph` has become. */
static enum ggml_status compute(weir_session *session, ggml_backend_t inner, const struct ggml_cgraph *graph,
				struct ggml_cgraph *with_steps)
{
	uint64_t stalled, began;
	enum ggml_status status;

	if (session->threads.most < 2 || session->plan.all_resident)
		return ggml_backend_graph_compute(inner, with_steps);
	sample_others(session);
	if (!is_one_token(graph))
		return ggml_backend_graph_compute(inner, with_steps);
	weir_threads_heed_others(&session->threads, has_split(with_steps) ? 0 : session->others_busy);
	stalled = stalled_ns(session);
	began = weir_clock_ns();
	status = compute_token(&session->threads, inner, with_steps);
	weir_threads_note(&session->threads, weir_clock_ns() - began, stalled_ns(session) - stalled);
	return status;
}

static enum ggml_status compute_with_steps(weir_session *session, ggml_backend_t inner, const struct ggml_cgraph *graph)
{
	struct ggml_cgraph with_steps;
	enum ggml_status status;

	weir_experts_begin_graph(session->experts);
	if (session->trace)
		weir_trace_begin_graph(session->trace);
	if (build(session, graph))
		return GGML_STATUS_ALLOC_FAILED;
	with_steps = *graph;
	with_steps.nodes = session->steps->nodes;
	with_steps.n_nodes = (int)session->steps->nodes_count;
	with_steps.uid = 0;
	status = compute(session, inner, graph, &with_steps);
	weir_experts_end_graph(session->experts);
	if (session->trace)
		weir_trace_end_graph(session->trace);
	return status;
}

enum ggml_status weir_graph_compute(weir_session *session, ggml_backend_t inner, struct ggml_cgraph *graph)
{
	enum ggml_status status;

	fix_views(graph);
	if (session->plan.all_resident && !session->trace)
		return ggml_backend_graph_compute(inner, graph);
	if (!session->steps)
		session->steps = calloc(1, sizeof *session->steps);
	if (!session->steps)
		return GGML_STATUS_ALLOC_FAILED;
	hold_guard(session, graph);
	status = compute_with_steps(session, inner, graph);
	weir_guard_drop();
	return status;
}
