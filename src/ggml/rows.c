/*
 * rows.c - single rows of a table, read as a graph asks for them.
 *
 * Each row is read with its aligned surroundings into a stride of its own; then the rows are moved together, in place, since
 * a row's final place never lies behind where it was read.  Owned by the session, used by the thread that computes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ggml/reads.h"
#include "ggml/rows.h"
#include "os/memory.h"

#define ALIGNMENT_MAX_BYTES 4096u

struct weir_rows {
	weir_session *session;
	char *buffer;
	uint64_t buffer_bytes;
	uint32_t rows_max;
	weir_read *reads;
	void **found; /* where each row begins after its read */
	int32_t *ids;
	uint64_t stall_ns, bytes_read;
};

static bool is_rows(const weir_weight *weight)
{
	return (weight->uses & USE_ROWS) && weight->bytes >= WEIR_SMALL_BYTES;
}

static uint64_t longest_row(const weir_session *session)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < session->weights_count; i++)
		if (is_rows(&session->weights[i]) && session->weights[i].tensor->nb[1] > longest)
			longest = session->weights[i].tensor->nb[1];
	return longest;
}

uint64_t weir_rows_bytes(const weir_session *session)
{
	uint64_t longest = longest_row(session);

	if (!longest)
		return 0;
	return session->scratch.rows_count *
	       (longest + 2 * ALIGNMENT_MAX_BYTES + sizeof(weir_read) + sizeof(void *) + sizeof(int32_t));
}

int weir_rows_open(weir_session *session, weir_rows **rows, weir_error *error)
{
	weir_rows *self;
	uint64_t longest = longest_row(session);

	if (!longest || session->plan.all_resident)
		return 0;
	self = calloc(1, sizeof *self);
	if (!self)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for rows");
	*rows = self;
	self->session = session;
	self->rows_max = (uint32_t)session->scratch.rows_count;
	self->reads = calloc(self->rows_max, sizeof *self->reads);
	self->found = calloc(self->rows_max, sizeof *self->found);
	self->ids = calloc(self->rows_max, sizeof *self->ids);
	self->buffer_bytes = self->rows_max * weir_reads_room(session, longest);
	if (!self->reads || !self->found || !self->ids ||
	    weir_memory_map(self->buffer_bytes, true, (void **)&self->buffer, NULL))
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for rows");
	for (uint32_t i = 0; i < self->rows_max; i++)
		self->ids[i] = (int32_t)i;
	return 0;
}

void weir_rows_close(weir_rows *rows)
{
	if (!rows)
		return;
	if (rows->buffer)
		weir_memory_unmap(rows->buffer, rows->buffer_bytes);
	free(rows->reads);
	free(rows->found);
	free(rows->ids);
	free(rows);
}

static int start_rows(weir_rows *rows, const weir_weight *weight, const struct ggml_tensor *ids, uint32_t *started,
		      weir_error *error)
{
	uint64_t row_bytes = weight->tensor->nb[1], stride = weir_reads_room(rows->session, row_bytes);
	int64_t count = ids->ne[0];

	for (int64_t i = 0; i < count; i++) {
		int32_t row = *(const int32_t *)((const char *)ids->data + (size_t)i * ids->nb[0]);
		int result;

		if (row < 0 || row >= weight->tensor->ne[1])
			return weir_fail(error, WEIR_EINVAL, rows->session->files[weight->file].path, weight->offset, 0,
					 "row %d of tensor %s, which has %lld", row, weight->tensor->name,
					 (long long)weight->tensor->ne[1]);
		result = weir_reads_start(rows->session, &rows->reads[i], weight->file,
					  weight->offset + (uint64_t)row * row_bytes, row_bytes,
					  rows->buffer + (uint64_t)i * stride, &rows->found[i], error);
		if (result)
			return result;
		rows->bytes_read += row_bytes;
		*started = (uint32_t)i + 1;
	}
	return 0;
}

int weir_rows_fetch(weir_rows *rows, const weir_weight *weight, const struct ggml_tensor *ids, void **data, weir_error *error)
{
	uint64_t row_bytes = weight->tensor->nb[1];
	uint32_t started = 0;
	weir_error later;
	int result;

	if (ids->ne[0] > (int64_t)rows->rows_max)
		return weir_fail(error, WEIR_EENGINE, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "a batch is larger than the engine reserved");
	result = start_rows(rows, weight, ids, &started, error);
	for (uint32_t i = 0; i < started; i++) {
		int one = weir_reads_wait(rows->session, &rows->reads[i], &rows->stall_ns, result ? &later : error);

		if (!result)
			result = one;
		if (!result)
			memmove(rows->buffer + i * row_bytes, rows->found[i], row_bytes);
	}
	*data = rows->buffer;
	return result;
}

int32_t *weir_rows_ids(weir_rows *rows)
{
	return rows->ids;
}

void weir_rows_add_stats(const weir_rows *rows, weir_session_stats *stats)
{
	stats->dense_bytes_read += rows->bytes_read;
	stats->dense_stall_ns += rows->stall_ns;
}
