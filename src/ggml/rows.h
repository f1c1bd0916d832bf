/* rows.h - tables of which a graph takes single rows, such as the token embeddings: read row by row (internal to src/ggml). */
#ifndef WEIR_GGML_ROWS_H
#define WEIR_GGML_ROWS_H

#include "ggml/session.h"

/* Memory for the rows of the largest graph seen. */
uint64_t weir_rows_bytes(const weir_session *session);

int weir_rows_open(weir_session *session, weir_rows **rows, weir_error *error);
void weir_rows_close(weir_rows *rows);

/* Reads the rows that `ids` (int32, one dimension) names, one behind the other; *data is valid until the next fetch. */
int weir_rows_fetch(weir_rows *rows, const weir_weight *weight, const struct ggml_tensor *ids, void **data, weir_error *error);

/* 0, 1, 2, …: the ids that take those rows again, in the same order. */
int32_t *weir_rows_ids(weir_rows *rows);

void weir_rows_add_stats(const weir_rows *rows, weir_session_stats *stats);

#endif
