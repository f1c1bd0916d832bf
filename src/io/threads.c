/*
 * threads.c - the method "threads": pread in a pool of threads, with O_DIRECT where the file system takes it.
 */
#include <errno.h>
#include <unistd.h>

#include "io/pool.h"

static int32_t read_piece(const weir_io_piece *piece)
{
	ssize_t count = pread(piece->fd, piece->buffer, piece->bytes, (off_t)piece->offset);

	return count < 0 ? -errno : (int32_t)count;
}

static int open_threads(uint32_t queue_depth, void **state, weir_error *error)
{
	return weir_io_pool_open(queue_depth, WEIR_IO_WORKERS_MAX, read_piece, state, error);
}

static int add_file(void *state, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error)
{
	(void)state;
	(void)fd;
	(void)path;
	(void)bytes;
	(void)error;
	*handle = 0;
	return 0;
}

static void remove_file(void *state, intptr_t handle)
{
	(void)state;
	(void)handle;
}

static uint64_t worker_bytes(uint32_t queue_depth, uint32_t piece_bytes)
{
	(void)piece_bytes;
	return (queue_depth < WEIR_IO_WORKERS_MAX ? queue_depth : WEIR_IO_WORKERS_MAX) * WEIR_IO_WORKER_BYTES;
}

const weir_method weir_io_threads = {
	.name = "threads",
	.direct = true,
	.memory_bytes = worker_bytes,
	.open = open_threads,
	.close = weir_io_pool_close,
	.add_file = add_file,
	.remove_file = remove_file,
	.add_buffer = weir_io_pool_add_buffer,
	.start = weir_io_pool_start,
	.flush = weir_io_pool_flush,
	.collect = weir_io_pool_collect,
	.wait = weir_io_pool_wait,
	.wake = weir_io_pool_wake,
};
