/*
 * weights.c - the registry of weights: which tensor is which extent of which file, and how graphs use it.
 *
 * No list of architectures: what a weight may become follows from the operations that touch it, learned from the graphs that
 * the engine itself builds when it reserves its buffers.  Owned by the session; used by the thread that computes.
 */
#include <stdlib.h>
#include <string.h>

#include "ggml/session.h"

static uint32_t table_slot(const weir_session *session, const struct ggml_tensor *tensor)
{
	uint64_t hash = (uint64_t)(uintptr_t)tensor * UINT64_C(0x9E3779B97F4A7C15);
	uint32_t mask = session->table_size - 1;
	uint32_t slot = (uint32_t)(hash >> 32) & mask;

	while (session->table[slot] != WEIR_NO_WEIGHT && session->weights[session->table[slot]].tensor != tensor)
		slot = (slot + 1) & mask;
	return slot;
}

static int table_grow(weir_session *session)
{
	uint32_t size = session->table_size ? session->table_size * 2 : 1024;
	uint32_t *table = malloc(size * sizeof *table);

	if (!table)
		return WEIR_ENOMEM;
	memset(table, 0xff, size * sizeof *table);
	free(session->table);
	session->table = table;
	session->table_size = size;
	for (uint32_t i = 0; i < session->weights_count; i++)
		session->table[table_slot(session, session->weights[i].tensor)] = i;
	return 0;
}

static int weights_grow(weir_session *session)
{
	uint32_t capacity = session->weights_capacity ? session->weights_capacity * 2 : 512;
	weir_weight *weights = realloc(session->weights, capacity * sizeof *weights);

	if (!weights)
		return WEIR_ENOMEM;
	session->weights = weights;
	session->weights_capacity = capacity;
	return 0;
}

static const weir_file *file_of(const weir_session *session, uintptr_t address, uint32_t *index)
{
	for (uint32_t i = 0; i < session->files_count; i++)
		if (address >= session->files[i].map_start && address < session->files[i].map_end) {
			*index = i;
			return &session->files[i];
		}
	return NULL;
}

int weir_weights_add(weir_session *session, struct ggml_tensor *tensor)
{
	uint32_t file_index = 0;
	const weir_file *file = file_of(session, (uintptr_t)tensor->data, &file_index);
	weir_weight *weight;

	if (!file)
		return WEIR_ENOTFOUND;
	if (session->weights_count == session->weights_capacity && weights_grow(session))
		return WEIR_ENOMEM;
	if ((uint64_t)session->weights_count * 2 >= session->table_size && table_grow(session))
		return WEIR_ENOMEM;
	weight = &session->weights[session->weights_count];
	memset(weight, 0, sizeof *weight);
	weight->tensor = tensor;
	weight->mapped = tensor->data;
	weight->file = file_index;
	weight->offset = (uintptr_t)tensor->data - file->map_start + file->map_offset;
	weight->mapped_file = weight->file;
	weight->mapped_offset = weight->offset;
	weight->stride = tensor->nb[2];
	weight->packed = WEIR_NO_WEIGHT;
	weight->bytes = ggml_nbytes(tensor);
	weight->order = UINT64_MAX;
	session->table[table_slot(session, tensor)] = session->weights_count++;
	return 0;
}

weir_weight *weir_weights_find(const weir_session *session, const struct ggml_tensor *tensor)
{
	uint32_t index;

	if (!session->table_size || !tensor)
		return NULL;
	index = session->table[table_slot(session, tensor)];
	return index == WEIR_NO_WEIGHT ? NULL : &session->weights[index];
}

weir_weight *weir_weights_root(const weir_session *session, const struct ggml_tensor *tensor)
{
	while (tensor && tensor->view_src)
		tensor = tensor->view_src;
	return weir_weights_find(session, tensor);
}

void weir_weights_free(weir_session *session)
{
	free(session->weights);
	free(session->table);
}

static bool is_view_operation(const struct ggml_tensor *node)
{
	return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
	       node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

static unsigned use_of(const struct ggml_tensor *node, int source)
{
	const struct ggml_tensor *weight = node->src[source];

	if (source != 0 || weight->view_src)
		return USE_OTHER;
	if (node->op == GGML_OP_MUL_MAT)
		return USE_MATRIX;
	if (node->op == GGML_OP_MUL_MAT_ID && weight->ne[3] == 1 && weight->nb[2] > 0)
		return USE_EXPERTS;
	if (node->op == GGML_OP_GET_ROWS && weight->ne[2] == 1 && weight->ne[3] == 1)
		return USE_ROWS;
	return USE_OTHER;
}

static void raise(uint64_t *value, uint64_t at_least)
{
	if (*value < at_least)
		*value = at_least;
}

static void learn_experts(weir_session *session, weir_weight *weight, const struct ggml_tensor *node)
{
	const struct ggml_tensor *activations = node->src[1], *ids = node->src[2];
	enum ggml_type dot_type = ggml_get_type_traits_cpu(weight->tensor->type)->vec_dot_type;
	uint64_t row_bytes = ggml_row_size(dot_type, activations->ne[0]);
	uint64_t tokens = (uint64_t)ids->ne[1], used = (uint64_t)ids->ne[0];
	weir_scratch_sizes *scratch = &session->scratch;

	raise(&scratch->pairs, tokens * used);
	raise(&scratch->quantized, row_bytes * (uint64_t)(activations->ne[1] * activations->ne[2]));
	raise(&scratch->gathered, row_bytes * tokens);
	raise(&scratch->result, sizeof(float) * (uint64_t)node->ne[0] * tokens);
	raise(&scratch->experts, (uint64_t)weight->tensor->ne[2]);
	if (!weight->used_experts || used < weight->used_experts)
		weight->used_experts = (uint32_t)used;
}

static void learn_rows(weir_session *session, const weir_weight *weight, const struct ggml_tensor *node)
{
	uint64_t rows = (uint64_t)ggml_nelements(node->src[1]);

	raise(&session->scratch.rows, rows * weight->tensor->nb[1]);
	raise(&session->scratch.rows_count, rows);
}

static void learn_node(weir_session *session, const struct ggml_tensor *node)
{
	for (int i = 0; i < GGML_MAX_SRC; i++) {
		weir_weight *weight = weir_weights_root(session, node->src[i]);
		unsigned use;

		if (!weight)
			continue;
		use = use_of(node, i);
		weight->uses |= use;
		if (weight->order == UINT64_MAX)
			weight->order = session->order_next++;
		if (use == USE_EXPERTS)
			learn_experts(session, weight, node);
		if (use == USE_ROWS)
			learn_rows(session, weight, node);
	}
}

void weir_weights_learn(weir_session *session, struct ggml_cgraph *graph)
{
	int count = ggml_graph_n_nodes(graph);

	raise(&session->nodes_max, (uint64_t)count);
	for (int i = 0; i < count; i++) {
		const struct ggml_tensor *node = ggml_graph_node(graph, i);

		if (!is_view_operation(node))
			learn_node(session, node);
	}
}

bool weir_weights_is_expert(const weir_weight *weight)
{
	return weight->uses == USE_EXPERTS && weight->tensor->ne[2] > 1 &&
	       weight->bytes == (uint64_t)weight->tensor->ne[2] * weight->tensor->nb[2];
}

bool weir_weights_is_matrix(const weir_weight *weight)
{
	return (weight->uses & USE_MATRIX) && !(weight->uses & ~(unsigned)(USE_MATRIX | USE_ROWS)) &&
	       weight->bytes >= WEIR_SMALL_BYTES;
}

bool weir_weights_is_rows(const weir_weight *weight)
{
	return weight->uses == USE_ROWS && weight->bytes >= WEIR_SMALL_BYTES;
}
