/*
 * session.h - the state behind one loaded model (internal to src/ggml).
 *
 * Glossary
 *   weight   a tensor of the model file, as libllama created it: file, offset, bytes.
 *   use      how the engine's graphs touch it: as a matrix, as experts, by rows, or otherwise.
 *   place    where its bytes live once the session has started:
 *              MAPPED    in the file mapping, never touched (no graph uses it)
 *              RESIDENT  in our memory from start to end
 *              RING      read again for every token, in a known order (ring.c)
 *              SLOTS     expert by expert in the store (experts.c)
 *              ROWS      row by row from the file (rows.c)
 *   step     a node that weir puts into the engine's graph: it makes bytes present and points the next node at them.
 *
 * Invariants
 *   every weight has one place; place == RESIDENT  <=>  tensor->data lies in session->resident
 *   memory: resident + ring + rows + scratch + slab ≤ what the plan gave to dense weights and experts
 *   a graph that runs is either the engine's own (all resident) or a list of its nodes with steps in between
 */
#ifndef WEIR_GGML_SESSION_H
#define WEIR_GGML_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include "ggml/backend.h"
#include "ggml/threads.h"
#include "io/io.h"
#include "os/others.h"

enum weir_use { USE_MATRIX = 1, USE_EXPERTS = 2, USE_ROWS = 4, USE_OTHER = 8 };
enum weir_place { PLACE_MAPPED, PLACE_RESIDENT, PLACE_RING, PLACE_SLOTS, PLACE_ROWS };

typedef struct weir_weight {
	struct ggml_tensor *tensor;
	void *mapped; /* tensor->data as libllama set it */
	uint32_t file;
	unsigned uses; /* weir_use bits */
	enum weir_place place;
	uint64_t offset, bytes;
	uint64_t stride; /* from one expert to the next in the file; nb[2] of the tensor unless a pack has it in slices */
	uint32_t mapped_file; /* file and offset in the model itself, whatever is read instead */
	uint64_t mapped_offset;
	uint32_t packed; /* number in the pack, or WEIR_NO_WEIGHT */
	uint64_t order; /* of its first use in a graph; UINT64_MAX: never used */
	uint32_t group; /* SLOTS: group in the store, and chunk_first + expert is the chunk */
	uint32_t chunk_first;
	uint32_t used_experts; /* SLOTS: top-k */
	uint32_t part_first, parts_count; /* RING: its parts in the ring */
} weir_weight;

#define WEIR_NO_WEIGHT UINT32_MAX
#define WEIR_FILES_MAX 1024
#define WEIR_SMALL_BYTES (256u << 10) /* weights below this always stay: streaming them costs more than it saves */

typedef struct weir_file {
	char *path;
	uintptr_t map_start, map_end;
	uint64_t map_offset;
	uint32_t io; /* its number in session->io */
} weir_file;

/* Scratch that steps need, found from the graphs seen; sizes only grow. */
typedef struct weir_scratch_sizes {
	uint64_t pairs; /* (expert slot, token) pairs of one operation */
	uint64_t quantized; /* activations of one operation in the weights' dot type */
	uint64_t gathered; /* those rows of them that one expert takes */
	uint64_t result; /* what one expert makes of them */
	uint64_t rows; /* rows of one get_rows, compact */
	uint64_t rows_count;
	uint64_t experts; /* largest expert count */
} weir_scratch_sizes;

typedef struct weir_ring weir_ring;
typedef struct weir_rows weir_rows;
typedef struct weir_experts weir_experts;
typedef struct weir_steps weir_steps;
typedef struct weir_trace weir_trace;
typedef struct weir_packed weir_packed;

struct weir_session {
	weir_session *next;
	unsigned buffers; /* weight buffers alive */
	bool started;
	bool failed;
	bool reported; /* plugin_report.c */
	weir_error error; /* of the last graph */
	weir_error start_error; /* of a start that failed; code 0: none */
	weir_backend_options options;
	weir_threads threads;
	weir_others others;
	double others_busy, others_before; /* processors: heeded now, and at the last look */
	bool page_cache; /* may be read: nobody asked for a method by name */
	uint32_t tuned_depth; /* found best for the drive, of reads of options.piece_bytes; 0: none was */
	uint64_t in_flight_bytes; /* the same in bytes; 0: not limited */

	weir_file *files;
	uint32_t files_count;
	weir_weight *weights;
	uint32_t weights_count, weights_capacity;
	uint32_t *table; /* tensor pointer → weight, open addressing */
	uint32_t table_size;
	uint64_t order_next;
	uint64_t work_bytes; /* the CPU backend's work buffer at its largest */
	uint64_t nodes_max; /* of the graphs seen */
	weir_scratch_sizes scratch;
	weir_scratch_sizes scratch_placed; /* what the start made room for */
	uint64_t generation; /* of the engine's buffers that the session is fit for */

	weir_plan plan;
	weir_io *io;
	void *resident; /* RESIDENT weights, as images of the file runs they came from */
	uint64_t resident_bytes;
	uint64_t start_bytes_read;
	weir_store *store;
	weir_ring *ring;
	weir_rows *rows;
	weir_experts *experts;
	weir_steps *steps;
	uint64_t counts_loaded; /* demands that earlier runs have counted, of all chunks; 0: none */
	uint64_t counts_demanded; /* of this run, when counts were last saved */
	weir_trace *trace; /* NULL: none is wanted */
	weir_packed *packed; /* once the session was started */
};

/* weights.c: the registry */
int weir_weights_add(weir_session *session, struct ggml_tensor *tensor);
weir_weight *weir_weights_find(const weir_session *session, const struct ggml_tensor *tensor);
/* The weight that a tensor is, or is a view of; NULL if neither. */
weir_weight *weir_weights_root(const weir_session *session, const struct ggml_tensor *tensor);
void weir_weights_free(weir_session *session);
/* Learns from a graph how weights are used and what scratch its steps need. */
void weir_weights_learn(weir_session *session, struct ggml_cgraph *graph);
bool weir_weights_is_expert(const weir_weight *weight); /* may live in SLOTS */
bool weir_weights_is_matrix(const weir_weight *weight); /* may live in RING */
bool weir_weights_is_rows(const weir_weight *weight); /* may live in ROWS */

/* session.c */
void weir_session_free(weir_session *session);
/* Before a graph is computed.  Programs make contexts while a model stays loaded: when they need more than the plan left for
 * them, the session is brought back to before its start, so that the next start divides the budget anew. */
void weir_session_adapt(weir_session *session, struct ggml_cgraph *graph);
/* Writes what outlives the session: counts, the trace and the report, if they are wanted and not written yet. */
void weir_session_hand_over(weir_session *session);

/* place.c */
int weir_place_weights(weir_session *session, weir_error *error);

/* graph.c: runs a graph of a started session on the inner backend */
enum ggml_status weir_graph_compute(weir_session *session, ggml_backend_t inner, struct ggml_cgraph *graph);
void weir_steps_free(weir_steps *steps);

/* Remembers the first error of a graph; the graph stops after the node in progress. */
void weir_session_set_error(weir_session *session, const weir_error *error);

/* The first thing a step does on each thread: binds it to a processor, where the options ask for it. */
void weir_step_enter(const weir_session *session, int thread, int threads);

/* A custom node: called on every thread of the graph. */
void weir_step_node(struct ggml_tensor *node, ggml_custom_op_t function, void *user);

#endif
