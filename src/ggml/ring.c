/*
 * ring.c - dense weights that do not fit, read again for every token.
 *
 * The order in which a model uses its dense weights is the same for every token, so what comes next is known.  A weight goes
 * through in parts, ranges of rows of about 2 MiB, so that the ring can be small; each part remembers its successor.  The ring
 * holds the part in use and as many of the next ones as fit; their reads are in flight while this one computes, across the end
 * of a graph and of a token.
 *
 *        read                    write
 *          v                       v
 *   [      | in use | next | next+1 |      ]        an entry is contiguous: one that would cross the end begins at 0
 *
 * A use that was not foreseen (another graph, the first token) drains the ring and begins again at that part: slower, never
 * wrong.  Owned by the session, used by the thread that computes.
 */
#include <stdlib.h>

#include "base/fail.h"
#include "ggml/reads.h"
#include "ggml/ring.h"
#include "os/memory.h"

#define RING_SLACK_BYTES (64u << 10)
#define PART_BYTES (2u << 20)
#define PART_ROWS_STEP 256

typedef struct ring_entry {
	weir_read read;
	uint32_t part;
	uint64_t start, length; /* in the ring */
	void *data;
} ring_entry;

struct weir_ring {
	weir_session *session;
	char *base;
	uint64_t capacity, read, write;
	ring_entry *entries; /* a circular queue, oldest first */
	uint32_t entries_max, first, count;
	weir_ring_part *parts;
	uint32_t parts_count;
	uint32_t in_use; /* part whose data was given last, the first entry; or WEIR_NO_PART */
	uint32_t last_placed;
	uint64_t stall_ns, bytes_read;
};

/* Rows in a part.  A multiple of 256 rows: ggml's kernels work on groups of rows, and every group must come out as it does in
 * the whole matrix.  Matrices of more than two dimensions go through whole. */
static int64_t part_rows(const struct ggml_tensor *tensor)
{
	int64_t rows = (int64_t)(PART_BYTES / tensor->nb[1]) / PART_ROWS_STEP * PART_ROWS_STEP;

	if (tensor->ne[2] > 1 || tensor->ne[3] > 1)
		return tensor->ne[1];
	if (rows < PART_ROWS_STEP)
		rows = PART_ROWS_STEP;
	return rows < tensor->ne[1] ? rows : tensor->ne[1];
}

uint64_t weir_ring_largest_part(const weir_weight *weight)
{
	const struct ggml_tensor *tensor = weight->tensor;

	if (tensor->ne[2] > 1 || tensor->ne[3] > 1)
		return weight->bytes;
	return (uint64_t)part_rows(tensor) * tensor->nb[1];
}

uint64_t weir_ring_least_bytes(uint64_t largest_bytes)
{
	return largest_bytes ? 2 * (largest_bytes + RING_SLACK_BYTES) : 0;
}

static uint32_t count_parts(const weir_weight *weight)
{
	int64_t rows = part_rows(weight->tensor);

	return (uint32_t)((weight->tensor->ne[1] + rows - 1) / rows);
}

static void describe_parts(weir_ring *ring, uint32_t index)
{
	weir_weight *weight = &ring->session->weights[index];
	const struct ggml_tensor *tensor = weight->tensor;
	int64_t rows = part_rows(tensor);

	weight->part_first = ring->parts_count;
	weight->parts_count = count_parts(weight);
	for (int64_t row = 0; row < tensor->ne[1]; row += rows) {
		int64_t count = tensor->ne[1] - row < rows ? tensor->ne[1] - row : rows;
		uint64_t bytes = count == tensor->ne[1] ? weight->bytes : (uint64_t)count * tensor->nb[1];

		ring->parts[ring->parts_count++] = (weir_ring_part){.weight = index,
								    .successor = WEIR_NO_PART,
								    .row = row,
								    .rows = count,
								    .offset = weight->offset + (uint64_t)row * tensor->nb[1],
								    .bytes = bytes};
	}
}

static int make_parts(weir_ring *ring)
{
	const weir_session *session = ring->session;
	uint32_t total = 0;

	for (uint32_t i = 0; i < session->weights_count; i++)
		if (session->weights[i].place == PLACE_RING)
			total += count_parts(&session->weights[i]);
	ring->parts = calloc(total + 1, sizeof *ring->parts);
	if (!ring->parts)
		return WEIR_ENOMEM;
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (session->weights[i].place == PLACE_RING)
			describe_parts(ring, i);
	return 0;
}

const weir_ring_part *weir_ring_get_part(const weir_ring *ring, uint32_t part)
{
	return &ring->parts[part];
}

int weir_ring_open(weir_session *session, uint64_t bytes, weir_ring **ring, weir_error *error)
{
	weir_ring *self = calloc(1, sizeof *self);

	if (!self)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the ring");
	self->session = session;
	self->capacity = bytes;
	self->in_use = self->last_placed = WEIR_NO_PART;
	self->entries_max = (uint32_t)(bytes / WEIR_SMALL_BYTES) + 2;
	self->entries = calloc(self->entries_max, sizeof *self->entries);
	if (!self->entries || make_parts(self) || weir_memory_map(bytes, true, (void **)&self->base, NULL)) {
		free(self->entries);
		free(self->parts);
		free(self);
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the ring");
	}
	weir_io_add_buffer(session->io, self->base, bytes);
	*ring = self;
	return 0;
}

void weir_ring_close(weir_ring *ring)
{
	if (!ring)
		return;
	weir_reads_drain(ring->session);
	weir_memory_unmap(ring->base, ring->capacity);
	free(ring->entries);
	free(ring->parts);
	free(ring);
}

static ring_entry *entry_at(weir_ring *ring, uint32_t index)
{
	return &ring->entries[(ring->first + index) % ring->entries_max];
}

static void retire_first(weir_ring *ring)
{
	ring->first = (ring->first + 1) % ring->entries_max;
	ring->count--;
	if (ring->count)
		ring->read = entry_at(ring, 0)->start;
	else
		ring->read = ring->write = 0;
}

/* Where an entry of so many bytes can begin now, or UINT64_MAX.  `write` never catches up with `read` while entries live. */
static uint64_t find_room(const weir_ring *ring, uint64_t length)
{
	if (ring->count == ring->entries_max)
		return UINT64_MAX;
	if (!ring->count)
		return length <= ring->capacity ? 0 : UINT64_MAX;
	if (ring->write > ring->read) {
		if (ring->write + length <= ring->capacity)
			return ring->write;
		return length < ring->read ? 0 : UINT64_MAX;
	}
	return ring->write + length < ring->read ? ring->write : UINT64_MAX;
}

/* Starts the read of a part behind the others; false when there is no room. */
static bool place(weir_ring *ring, uint32_t index, int *result, weir_error *error)
{
	const weir_ring_part *part = &ring->parts[index];
	uint32_t file = ring->session->weights[part->weight].file;
	uint64_t length = weir_reads_room(ring->session, part->bytes);
	uint64_t start = find_room(ring, length);
	ring_entry *entry;

	if (start == UINT64_MAX)
		return false;
	entry = entry_at(ring, ring->count++);
	entry->part = index;
	entry->start = start;
	entry->length = length;
	ring->write = start + length;
	if (ring->count == 1)
		ring->read = start;
	ring->last_placed = index;
	*result = weir_reads_start(ring->session, &entry->read, file, part->offset, part->bytes, ring->base + start,
				   &entry->data, error);
	if (*result) {
		entry->read.done = true;
		entry->read.code = *result;
	}
	ring->bytes_read += part->bytes;
	return true;
}

/* A read that cannot be started is not reported here: its entry carries the code to the use that waits for it. */
static void place_successors(weir_ring *ring)
{
	int result = 0;

	while (ring->last_placed != WEIR_NO_PART && !result) {
		uint32_t next = ring->parts[ring->last_placed].successor;

		if (next == WEIR_NO_PART || !place(ring, next, &result, NULL))
			return;
	}
}

void weir_ring_poll(weir_ring *ring)
{
	weir_reads_poll(ring->session);
	place_successors(ring);
}

static void wait_done(weir_ring *ring, const ring_entry *entry)
{
	weir_error ignored;

	weir_reads_wait(ring->session, &entry->read, &ring->stall_ns, &ignored);
}

/* Gives up everything before the first entry of this part; false when there is none. */
static bool skip_to(weir_ring *ring, uint32_t index)
{
	uint32_t at = 0;

	while (at < ring->count && entry_at(ring, at)->part != index)
		at++;
	if (at == ring->count)
		return false;
	for (; at; at--) {
		wait_done(ring, entry_at(ring, 0));
		retire_first(ring);
	}
	return true;
}

static int begin_again(weir_ring *ring, uint32_t index, weir_error *error)
{
	int result = 0;

	while (ring->count) {
		wait_done(ring, entry_at(ring, 0));
		retire_first(ring);
	}
	if (!place(ring, index, &result, error))
		return weir_fail(error, WEIR_EBUDGET, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "a part of a weight is larger than the ring");
	return result;
}

int weir_ring_use(weir_ring *ring, uint32_t index, void **data, weir_error *error)
{
	int result = 0;

	if (ring->in_use != index) {
		if (ring->in_use != WEIR_NO_PART) {
			ring->parts[ring->in_use].successor = index;
			if (ring->count)
				retire_first(ring);
		}
		ring->in_use = WEIR_NO_PART;
		if (!skip_to(ring, index))
			result = begin_again(ring, index, error);
		if (result)
			return result;
		ring->in_use = index;
	}
	place_successors(ring);
	result = weir_reads_wait(ring->session, &entry_at(ring, 0)->read, &ring->stall_ns, error);
	if (result) { /* so that the next use reads it again */
		begin_again(ring, index, NULL);
		ring->in_use = WEIR_NO_PART;
		return result;
	}
	*data = entry_at(ring, 0)->data;
	return 0;
}

void weir_ring_add_stats(const weir_ring *ring, weir_session_stats *stats)
{
	stats->dense_bytes_read += ring->bytes_read;
	stats->dense_stall_ns += ring->stall_ns;
}
