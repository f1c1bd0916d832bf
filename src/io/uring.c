/*
 * uring.c - the method "uring": io_uring with O_DIRECT where the file system takes it, fixed files and fixed buffers.
 *
 * The ring is entered by two threads: the owner submits and collects, and a waiter may sleep in io_uring_enter beside it.  The
 * waiter therefore touches no part of the rings, only the system call, and the ring is opened without SINGLE_ISSUER,
 * DEFER_TASKRUN and COOP_TASKRUN: with those a completion would appear only when the owner next enters the kernel.
 *
 * A wake is a no-op in the ring.  It stays in the completion queue until it is collected, so that a waiter on its way to sleep
 * cannot miss it.
 *
 * Registering files and buffers saves the kernel a look-up and pinning pages for each read; when that is refused (the limit on
 * locked memory, an old kernel) reads go without.  Registered memory is given back by name before the ring goes: a ring that is
 * closed is taken apart by the kernel some time later, and until then its pages stay in memory, unmapped or not.
 */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "io/io_types.h"

#define FILES_MAX 256u
#define BUFFERS_MAX 256u
#define BUFFER_BYTES_MAX ((uint64_t)1 << 30) /* the kernel's limit for one fixed buffer */
#define SUBMIT_TRIES_MAX 100
#define SUBMIT_PAUSE_NS 100000

typedef struct uring {
	struct io_uring ring;
	bool wake_in_ring;
	bool has_files, has_buffers; /* tables that fixed ones can be put into */
	bool file_taken[FILES_MAX];
	uint32_t buffers_count;
	struct iovec buffers[BUFFERS_MAX];
	atomic_uint refused_count; /* pieces that the kernel did not take: given back by collect */
	weir_io_result refused[WEIR_IO_QUEUE_DEPTH_MAX];
} uring;

static int init_ring(struct io_uring *ring, uint32_t entries)
{
	static const unsigned FLAGS[] = {IORING_SETUP_SUBMIT_ALL, 0};
	struct io_uring_params parameters;
	int result = -EINVAL;
	size_t i;

	for (i = 0; i < sizeof FLAGS / sizeof FLAGS[0] && result == -EINVAL; i++) {
		memset(&parameters, 0, sizeof parameters);
		parameters.flags = FLAGS[i];
		result = io_uring_queue_init_params(entries, ring, &parameters);
	}
	if (result == 0 && !(ring->features & IORING_FEAT_EXT_ARG)) {
		io_uring_queue_exit(ring);
		return -ENOSYS;
	}
	return result;
}

static void make_tables(uring *state)
{
	int none[FILES_MAX];

	memset(none, 0xff, sizeof none);
	state->has_files = io_uring_register_files(&state->ring, none, FILES_MAX) == 0;
	state->has_buffers = io_uring_register_buffers_sparse(&state->ring, BUFFERS_MAX) == 0;
}

static int open_uring(uint32_t queue_depth, void **opened, weir_error *error)
{
	uring *state = calloc(1, sizeof *state);
	int result;

	if (!state)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for io_uring");
	result = init_ring(&state->ring, queue_depth + 1);
	if (result < 0) {
		free(state);
		return weir_fail(error, result == -ENOMEM ? WEIR_ENOMEM : WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET,
				 -result, "io_uring cannot be used here");
	}
	make_tables(state);
	*opened = state;
	return 0;
}

static void close_uring(void *opened)
{
	uring *state = opened;

	if (state->buffers_count)
		(void)io_uring_unregister_buffers(&state->ring);
	io_uring_queue_exit(&state->ring);
	free(state);
}

/* The handle is the place in the table of fixed files, or -1. */
static int add_file(void *opened, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error)
{
	uring *state = opened;
	unsigned place = 0;

	(void)path;
	(void)bytes;
	(void)error;
	*handle = -1;
	while (place < FILES_MAX && state->file_taken[place])
		place++;
	if (!state->has_files || place == FILES_MAX || io_uring_register_files_update(&state->ring, place, &fd, 1) != 1)
		return 0;
	state->file_taken[place] = true;
	*handle = (intptr_t)place;
	return 0;
}

static void remove_file(void *opened, intptr_t handle)
{
	uring *state = opened;
	int none = -1;

	if (handle < 0)
		return;
	(void)io_uring_register_files_update(&state->ring, (unsigned)handle, &none, 1);
	state->file_taken[handle] = false;
}

static void add_buffer(void *opened, void *base, uint64_t bytes)
{
	uring *state = opened;
	unsigned char *start = base;
	struct iovec part;

	while (bytes && state->has_buffers && state->buffers_count < BUFFERS_MAX) {
		part.iov_base = start;
		part.iov_len = bytes < BUFFER_BYTES_MAX ? bytes : BUFFER_BYTES_MAX;
		if (io_uring_register_buffers_update_tag(&state->ring, state->buffers_count, &part, NULL, 1) != 1)
			return;
		state->buffers[state->buffers_count++] = part;
		start += part.iov_len;
		bytes -= part.iov_len;
	}
}

/* Place of the fixed buffer that holds all of the range, or -1 (also for a range across two). */
static int find_buffer(const uring *state, const void *start, uint32_t bytes)
{
	uint32_t i;

	for (i = 0; i < state->buffers_count; i++) {
		uintptr_t into = (uintptr_t)start - (uintptr_t)state->buffers[i].iov_base;

		if (into < state->buffers[i].iov_len && bytes <= state->buffers[i].iov_len - into)
			return (int)i;
	}
	return -1;
}

static int start(void *opened, const weir_io_piece *piece)
{
	uring *state = opened;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&state->ring);
	int buffer = find_buffer(state, piece->buffer, piece->bytes);
	int fd = piece->handle >= 0 ? (int)piece->handle : piece->fd;

	if (!sqe)
		return -EBUSY;
	if (buffer >= 0)
		io_uring_prep_read_fixed(sqe, fd, piece->buffer, piece->bytes, piece->offset, buffer);
	else
		io_uring_prep_read(sqe, fd, piece->buffer, piece->bytes, piece->offset);
	if (piece->handle >= 0)
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data64(sqe, piece->index);
	return 0;
}

static void wake(void *opened)
{
	uring *state = opened;
	struct io_uring_sqe *sqe;

	if (state->wake_in_ring)
		return;
	sqe = io_uring_get_sqe(&state->ring);
	if (!sqe)
		return;
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, WEIR_IO_WAKE_RESULT);
	state->wake_in_ring = true;
}

/* Takes back what the kernel did not: every entry after the kernel's head. */
static void take_back(uring *state)
{
	struct io_uring_sq *sq = &state->ring.sq;
	unsigned head = *sq->khead, place;
	uint32_t count = atomic_load(&state->refused_count);

	for (place = head; place != sq->sqe_tail; place++) {
		uint64_t data = sq->sqes[place & sq->ring_mask].user_data;

		if (data == WEIR_IO_WAKE_RESULT)
			state->wake_in_ring = false;
		else
			state->refused[count++] = (weir_io_result){.piece = (uint32_t)data, .count = -EAGAIN};
	}
	sq->sqe_head = sq->sqe_tail = head;
	*sq->ktail = head;
	atomic_store(&state->refused_count, count);
}

/* The kernel can be short of memory for a moment. */
static void flush(void *opened)
{
	const struct timespec pause = {.tv_nsec = SUBMIT_PAUSE_NS};
	uring *state = opened;
	int tries = 0;

	while (io_uring_sq_ready(&state->ring)) {
		if (io_uring_submit(&state->ring) > 0)
			continue;
		if (++tries == SUBMIT_TRIES_MAX) {
			take_back(state);
			return;
		}
		nanosleep(&pause, NULL);
	}
}

static uint32_t collect_refused(uring *state, weir_io_result *results, uint32_t capacity)
{
	uint32_t count = atomic_load(&state->refused_count), left;

	if (!count)
		return 0;
	left = count > capacity ? count - capacity : 0;
	memcpy(results, state->refused + left, (count - left) * sizeof *results);
	atomic_store(&state->refused_count, left);
	return count - left;
}

static uint32_t collect(void *opened, weir_io_result *results, uint32_t capacity)
{
	uring *state = opened;
	uint32_t count = collect_refused(state, results, capacity);
	struct io_uring_cqe *cqe;

	while (count < capacity && io_uring_peek_cqe(&state->ring, &cqe) == 0) {
		results[count++] = (weir_io_result){.piece = (uint32_t)cqe->user_data, .count = cqe->res};
		if (cqe->user_data == WEIR_IO_WAKE_RESULT)
			state->wake_in_ring = false;
		io_uring_cqe_seen(&state->ring, cqe);
	}
	return count;
}

static void wait_for_completion(void *opened, uint64_t timeout_us)
{
	uring *state = opened;
	struct __kernel_timespec timeout = {
		.tv_sec = (long long)(timeout_us / 1000000u),
		.tv_nsec = (long long)(timeout_us % 1000000u * 1000u),
	};
	struct io_uring_getevents_arg argument = {
		.ts = timeout_us == UINT64_MAX ? 0 : (uint64_t)(uintptr_t)&timeout,
	};

	if (atomic_load(&state->refused_count))
		return;
	(void)io_uring_enter2((unsigned)state->ring.ring_fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
			      (sigset_t *)&argument, sizeof argument);
}

/* The rings are the kernel's; one entry has 64 bytes, a completion 16, of which there are twice as many. */
static uint64_t ring_bytes(uint32_t queue_depth, uint32_t piece_bytes)
{
	(void)piece_bytes;
	return sizeof(uring) + (uint64_t)queue_depth * (2 * 64 + 4 * 16);
}

const weir_method weir_io_uring = {
	.name = "uring",
	.direct = true,
	.memory_bytes = ring_bytes,
	.open = open_uring,
	.close = close_uring,
	.add_file = add_file,
	.remove_file = remove_file,
	.add_buffer = add_buffer,
	.start = start,
	.flush = flush,
	.collect = collect,
	.wait = wait_for_completion,
	.wake = wake,
};
