/*
 * trace.h - the routing trace: which experts the router picked for which token, and whether they were there (internal).
 */
#ifndef WEIR_GGML_TRACE_H
#define WEIR_GGML_TRACE_H

#include "ggml/experts.h"

/* Opens session->trace when the options name a file; else it stays NULL and nothing below is called. */
int weir_trace_open(weir_session *session, weir_error *error);

/* Puts the file in place, or leaves nothing of it, and frees the trace.  NULL is allowed. */
int weir_trace_close(weir_trace *trace, bool keep, weir_error *error);

/* Around each graph.  The end writes out what the graph gave; a failure is the session's error, and ends the trace. */
void weir_trace_begin_graph(weir_trace *trace);
void weir_trace_end_graph(weir_trace *trace);

/* The route of an operation over streamed experts, right after they were asked for. */
void weir_trace_route(weir_expert_op *op);

/* Puts a step before a mul_mat_id over experts that all stay. */
int weir_trace_append(weir_trace *trace, weir_steps *steps, struct ggml_tensor *node);

#endif
