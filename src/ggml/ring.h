/*
 * ring.h - dense weights that do not fit: read again for every token, always a little ahead of their use (internal to
 * src/ggml).
 */
#ifndef WEIR_GGML_RING_H
#define WEIR_GGML_RING_H

#include "ggml/session.h"

/* A weight goes through the ring in parts: ranges of rows.  A part is a matrix of its own to ggml. */
typedef struct weir_ring_part {
	uint32_t weight;
	uint32_t successor; /* the part that was used next last time, or WEIR_NO_PART */
	int64_t row, rows;
	uint64_t offset, bytes; /* in the file */
} weir_ring_part;

#define WEIR_NO_PART UINT32_MAX

uint64_t weir_ring_largest_part(const weir_weight *weight);

/* The least ring for parts of which the largest has so many bytes: one in use, one on its way. */
uint64_t weir_ring_least_bytes(uint64_t largest_bytes);

int weir_ring_open(weir_session *session, uint64_t bytes, weir_ring **ring, weir_error *error);
void weir_ring_close(weir_ring *ring);

const weir_ring_part *weir_ring_get_part(const weir_ring *ring, uint32_t part);

/* Makes a part present and gives its first byte, valid until the next use.  Everything that was used before is given up. */
int weir_ring_use(weir_ring *ring, uint32_t part, void **data, weir_error *error);

/* Collects finished reads and starts further ones, without waiting. */
void weir_ring_poll(weir_ring *ring);

void weir_ring_add_stats(const weir_ring *ring, weir_session_stats *stats);

#endif
