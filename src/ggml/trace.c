/*
 * trace.c - writing the routing trace, as a table of comma-separated values:
 *
 *     turn,phase,step,layer,slot,expert,weight,residency,expert_bytes
 *     0,0,0,0,0,49,0,0,3059712          token 0, layer 0: the router's first choice is expert 49, which must be read
 *     0,0,0,0,1,19,0,1,3059712                            its second is expert 19, which is there
 *
 *   turn          0: the device does not see where one conversation ends and the next begins
 *   phase         0 for the tokens of a graph of several (a prompt), 1 for those of a graph of one
 *   step          the token's number since the session began
 *   layer         from the weight's name, "blk.N."; without one, the number of the route within its graph
 *   slot          position among the router's choices
 *   weight        0: it is worked out elsewhere in the graph
 *   residency     1 when the expert was in memory when the layer asked for it, 0 when it was read or on its way
 *   expert_bytes  all parts of the expert together: gate, up, down
 *
 * A layer's last rows may concern fewer tokens than its graph has: those whose output is wanted, taken to be the last ones.
 *
 * The session owns the trace; the thread that computes its graphs (thread 0 of a graph) writes it.  A write that fails is
 * remembered and ends the graph in progress with an error; then tracing is over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ggml/experts_types.h"
#include "ggml/trace.h"
#include "os/outfile.h"

#define HEADER "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes\n"

/* A step before the first of the operations that share a route, where all experts stay. */
typedef struct trace_step {
	weir_trace *trace;
	const struct ggml_tensor *ids;
	const struct ggml_tensor *matrix; /* of the first operation */
	uint64_t expert_bytes;
	struct ggml_tensor node;
} trace_step;

struct weir_trace {
	weir_session *session;
	weir_outfile file;
	int sys_errno; /* of the first write that failed */
	uint64_t step; /* of the graph's first token */
	int64_t graph_tokens; /* -1: no route seen yet */
	uint32_t routes; /* of this graph so far */
	trace_step **steps;
	uint32_t steps_count, steps_capacity;
};

/* A route as it is written: `op` is NULL where all experts stay. */
typedef struct trace_rows {
	const struct ggml_tensor *ids;
	uint32_t layer;
	uint64_t expert_bytes;
	const weir_expert_op *op;
} trace_rows;

int weir_trace_open(weir_session *session, weir_error *error)
{
	weir_trace *trace;
	int result;

	if (!session->options.trace_path)
		return 0;
	trace = calloc(1, sizeof *trace);
	if (!trace)
		return weir_fail(error, WEIR_ENOMEM, session->options.trace_path, WEIR_ERROR_NO_OFFSET, 0,
				 "no memory for the trace");
	result = weir_outfile_open(session->options.trace_path, &trace->file, error);
	if (result) {
		free(trace);
		return result;
	}
	if (fputs(HEADER, trace->file.stream) < 0)
		trace->sys_errno = errno;
	trace->session = session;
	session->trace = trace;
	return 0;
}

int weir_trace_close(weir_trace *trace, bool keep, weir_error *error)
{
	int result = 0;

	if (!trace)
		return 0;
	if (keep)
		result = weir_outfile_finish(&trace->file, error);
	else
		weir_outfile_discard(&trace->file);
	for (uint32_t i = 0; i < trace->steps_capacity; i++)
		free(trace->steps[i]);
	free(trace->steps);
	free(trace);
	return result;
}

void weir_trace_begin_graph(weir_trace *trace)
{
	trace->graph_tokens = -1;
	trace->routes = 0;
	trace->steps_count = 0;
}

void weir_trace_end_graph(weir_trace *trace)
{
	weir_error error;

	if (trace->graph_tokens > 0)
		trace->step += (uint64_t)trace->graph_tokens;
	if (!trace->file.stream)
		return;
	if (fflush(trace->file.stream) && !trace->sys_errno)
		trace->sys_errno = errno;
	if (!trace->sys_errno)
		return;
	weir_outfile_fail(&trace->file, trace->sys_errno, &error);
	weir_outfile_discard(&trace->file);
	weir_session_set_error(trace->session, &error);
}

/* ---- rows ---- */

static uint32_t layer_of(const weir_trace *trace, const struct ggml_tensor *matrix)
{
	unsigned layer;

	return sscanf(matrix->name, "blk.%u.", &layer) == 1 ? layer : trace->routes;
}

static int32_t expert_at(const struct ggml_tensor *ids, int64_t slot, int64_t token)
{
	return *(const int32_t *)(const void *)((const char *)ids->data + (size_t)token * ids->nb[1] +
						(size_t)slot * ids->nb[0]);
}

static bool is_resident(const weir_expert_op *op, int32_t expert)
{
	return !op || (op->leases[expert] && weir_lease_ready(op->leases[expert]));
}

static void write_rows(weir_trace *trace, const trace_rows *rows)
{
	int64_t tokens = rows->ids->ne[1];
	uint64_t step;

	if (trace->graph_tokens < 0)
		trace->graph_tokens = tokens;
	step = trace->step + (uint64_t)(trace->graph_tokens > tokens ? trace->graph_tokens - tokens : 0);
	trace->routes++;
	for (int64_t token = 0; token < tokens && trace->file.stream; token++)
		for (int64_t slot = 0; slot < rows->ids->ne[0]; slot++) {
			int32_t expert = expert_at(rows->ids, slot, token);

			if (fprintf(trace->file.stream, "0,%d,%llu,%u,%lld,%d,0,%d,%llu\n", trace->graph_tokens == 1,
				    (unsigned long long)step + (unsigned long long)token, rows->layer, (long long)slot, expert,
				    is_resident(rows->op, expert), (unsigned long long)rows->expert_bytes) < 0 &&
			    !trace->sys_errno)
				trace->sys_errno = errno;
		}
}

void weir_trace_route(weir_expert_op *op)
{
	weir_trace *trace = op->experts->session->trace;
	weir_steps *steps = op->experts->steps;
	trace_rows rows = {.ids = op->node->src[2], .op = op};

	if (op->index && steps->experts[op->index - 1]->node->src[2] == rows.ids)
		return; /* the same route again */
	for (uint32_t i = op->index; i < steps->experts_count && steps->experts[i]->node->src[2] == rows.ids; i++)
		rows.expert_bytes += steps->experts[i]->weight->tensor->nb[2];
	rows.layer = layer_of(trace, op->weight->tensor);
	write_rows(trace, &rows);
}

static void run_step(struct ggml_tensor *node, int thread, int threads, void *user)
{
	trace_step *step = user;

	(void)node;
	(void)threads;
	if (thread == 0)
		write_rows(step->trace, &(trace_rows){.ids = step->ids,
						      .layer = layer_of(step->trace, step->matrix),
						      .expert_bytes = step->expert_bytes});
}

int weir_trace_append(weir_trace *trace, weir_steps *steps, struct ggml_tensor *node)
{
	trace_step *step = trace->steps_count ? trace->steps[trace->steps_count - 1] : NULL;

	if (step && step->ids == node->src[2]) {
		step->expert_bytes += node->src[0]->nb[2];
		return 0;
	}
	step = weir_steps_take(&trace->steps, &trace->steps_count, &trace->steps_capacity, sizeof *step);
	if (!step)
		return WEIR_ENOMEM;
	step->trace = trace;
	step->ids = node->src[2];
	step->matrix = node->src[0];
	step->expert_bytes = node->src[0]->nb[2];
	weir_step_node(&step->node, run_step, step);
	return weir_steps_add(steps, &step->node);
}
