/*
 * buffer.h - ggml buffers of the device: the engine's own memory, and the mapped model file (internal to src/ggml).
 */
#ifndef WEIR_GGML_BUFFER_H
#define WEIR_GGML_BUFFER_H

#include "ggml/session.h"

ggml_backend_buffer_type_t weir_buffer_type(ggml_backend_dev_t device);

/* A buffer over a mapping of a model file: its tensors become weights of a session, nothing is read. */
ggml_backend_buffer_t weir_buffer_from_mapping(ggml_backend_dev_t device, void *base, size_t size);

/* The session that a graph's weights belong to, or NULL. */
weir_session *weir_buffer_session_of(struct ggml_cgraph *graph);

/* A number that changes whenever the engine has made a buffer: a context was made, or needs more than it had. */
uint64_t weir_buffer_generation(void);

/* From now on, clearing a buffer must write: a graph may have written to it. */
void weir_buffer_mark_computed(void);

/* Bytes of the engine's buffers: KV cache and state, graph buffers, and how much of both is in memory already. */
void weir_buffer_sizes(uint64_t *kv_bytes, uint64_t *compute_bytes, uint64_t *touched_bytes);

/* Brings every page of them into memory, so that what the kernel counts later is known now. */
int weir_buffer_populate(weir_error *error);

#endif
