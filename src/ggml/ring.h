/*
 * ring.h - dense weights that do not fit: read again for every token, always a little ahead of their use (internal to
 * src/ggml).
 */
#ifndef WEIR_GGML_RING_H
#define WEIR_GGML_RING_H

#include "ggml/session.h"

/* The least ring for weights of which the largest has so many bytes: one in use, one on its way. */
uint64_t weir_ring_least_bytes(uint64_t largest_bytes);

int weir_ring_open(weir_session *session, uint64_t bytes, weir_ring **ring, weir_error *error);
void weir_ring_close(weir_ring *ring);

/* Makes a weight present and gives its first byte, valid until the next use.  Everything that was used before is given up. */
int weir_ring_use(weir_ring *ring, weir_weight *weight, void **data, weir_error *error);

/* Collects finished reads and starts further ones, without waiting. */
void weir_ring_poll(weir_ring *ring);

void weir_ring_add_stats(const weir_ring *ring, weir_session_stats *stats);

#endif
