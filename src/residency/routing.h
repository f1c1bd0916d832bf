/*
 * routing.h - a routing trace in memory (internal to src/residency).
 *
 *   visits   what one layer of one token demanded: picks[first .. first + count)
 *
 *   visit    token 0, layer 0   token 0, layer 1   token 1, layer 0   ...      ordered by token, then by layer
 *   picks    │49 19 3│          │7 101 22│         │49 19 8│
 *
 * Tokens and layers are numbered from 0 without gaps, in the order of the numbers in the file.  Never written to once open.
 */
#ifndef WEIR_RESIDENCY_ROUTING_H
#define WEIR_RESIDENCY_ROUTING_H

#include <stddef.h>

#include "weir/simulate.h"

#define WEIR_ROUTING_LAYERS_MAX 4096U
#define WEIR_ROUTING_EXPERTS_MAX 65536U

typedef struct weir_routing_visit {
	uint32_t token, layer;
	uint32_t first, count; /* of picks; count ≥ 1 */
} weir_routing_visit;

/* One pick as it is read. */
typedef struct weir_routing_row {
	uint64_t turn, step;
	uint32_t layer, slot, expert;
	uint32_t phase; /* 0 prompt, 1 decode */
	uint64_t offset; /* of its line in the file */
} weir_routing_row;

struct weir_routing {
	const char *path; /* the caller's, while it is opened; for messages */
	weir_routing_info info;
	uint32_t experts_stated; /* by the file; 0: it does not say */
	weir_routing_row *rows; /* while it is opened */
	uint32_t rows_count, rows_capacity;
	weir_routing_visit *visits;
	uint32_t *picks;
	uint32_t visits_count;
};

/* routing_text.c: appends the rows of text[0..bytes).  WEIR_EFORMAT and the like, with the line in `error`. */
int weir_routing_parse(weir_routing *routing, const char *text, size_t bytes, weir_error *error);

#endif
