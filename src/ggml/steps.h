/*
 * steps.h - the list of nodes that replaces an engine's graph: its own nodes, with weir's steps in between (internal).
 *
 * Everything here is reused from graph to graph and only grows, so that a token allocates nothing once its like was seen.
 */
#ifndef WEIR_GGML_STEPS_H
#define WEIR_GGML_STEPS_H

#include "ggml/session.h"

typedef struct weir_expert_op weir_expert_op;

/* A step before a mul_mat that reads a weight of the ring, and the mul_mat over one of its parts: rows of the matrix are rows
 * of the result. */
typedef struct weir_ring_step {
	weir_session *session;
	uint32_t part;
	struct ggml_tensor node, multiply, matrix;
} weir_ring_step;

/* A step before a get_rows, and the get_rows that reads the compact rows instead. */
typedef struct weir_rows_step {
	weir_session *session;
	weir_weight *weight;
	const struct ggml_tensor *ids;
	struct ggml_tensor node, get_rows, table, compact_ids;
} weir_rows_step;

struct weir_steps {
	uint64_t shape; /* of the last graph; debug builds only */
	struct ggml_tensor **nodes;
	uint32_t nodes_count, nodes_capacity;
	weir_expert_op **experts;
	uint32_t experts_count, experts_capacity;
	weir_ring_step **rings;
	uint32_t rings_count, rings_capacity;
	weir_rows_step **rows;
	uint32_t rows_count, rows_capacity;
};

int weir_steps_add(weir_steps *steps, struct ggml_tensor *node);

/* The next unused element of one of the lists above (`list` is the address of its array), made with `bytes` zero bytes when it
 * is new. */
void *weir_steps_take(void *list, uint32_t *count, uint32_t *capacity, size_t bytes);

#endif
