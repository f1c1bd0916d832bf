/*
 * mapped.c - the method "mmap": bytes are copied out of a mapping of the file, that is, through the page cache.
 *
 * A mapping of a file that another process truncates raises SIGBUS where it is touched.  So it never is: the kernel copies,
 * by process_vm_readv on this very process, and reports pages that are gone as a short count or EFAULT.  A piece is copied in
 * steps of 256 KiB, and the pages that a step mapped in are given back after it, so that resident memory grows by no more than
 * one step for each worker.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/pool.h"
#include "os/memory.h"

/* The kernel maps neighbours of a faulted page that happen to be cached (fault-around, 64 KiB by default). */
#define FAULT_AROUND_BYTES ((uint64_t)64 << 10)
#define STEP_BYTES ((uint64_t)256 << 10)
#define WORKERS_MAX 8u /* the kernel reads a whole piece ahead: more would only map more at a time */

typedef struct mapping {
	unsigned char *base;
	uint64_t bytes; /* of the file when it was added */
} mapping;

static ssize_t copy_own_memory(void *to, void *from, size_t bytes)
{
	struct iovec local = {.iov_base = to, .iov_len = bytes}, remote = {.iov_base = from, .iov_len = bytes};

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
}

/* How much of [offset, offset + bytes) the file still has: the rest of its last page reads as zeros, not as an error. */
static uint64_t bytes_still_there(int fd, uint64_t offset, uint64_t bytes)
{
	struct stat now;
	uint64_t left;

	if (fstat(fd, &now) != 0 || (uint64_t)now.st_size <= offset)
		return 0;
	left = (uint64_t)now.st_size - offset;
	return left < bytes ? left : bytes;
}

static void give_back(const mapping *map, uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset > FAULT_AROUND_BYTES ? offset - FAULT_AROUND_BYTES : 0;
	uint64_t end = offset + bytes, page_bytes = weir_page_bytes();

	end = map->bytes - end > FAULT_AROUND_BYTES ? end + FAULT_AROUND_BYTES : map->bytes;
	first = first / page_bytes * page_bytes;
	end = (end + page_bytes - 1) / page_bytes * page_bytes;
	(void)weir_memory_advise(map->base + first, end - first, WEIR_ADVICE_DISCARD);
}

/* Bytes copied, fewer where a step came out short; or -1 with errno when the first one failed. */
static ssize_t copy_in_steps(const mapping *map, const weir_io_piece *piece, uint64_t bytes)
{
	uint64_t done = 0;
	ssize_t count = 1;

	while (done < bytes && count > 0) {
		uint64_t step = bytes - done < STEP_BYTES ? bytes - done : STEP_BYTES;
		uint64_t offset = piece->offset + done;
		int failed;

		count = copy_own_memory((unsigned char *)piece->buffer + done, map->base + offset, step);
		failed = errno;
		give_back(map, offset, step);
		errno = failed;
		if (count > 0)
			done += (uint64_t)count;
		if (count != (ssize_t)step)
			break;
	}
	return done || count >= 0 ? (ssize_t)done : -1;
}

static int32_t copy_piece(const weir_io_piece *piece)
{
	const mapping *map = (const mapping *)piece->handle;
	uint64_t bytes = piece->bytes;
	ssize_t count;
	int failed;

	if (piece->offset >= map->bytes)
		return 0;
	if (bytes > map->bytes - piece->offset)
		bytes = map->bytes - piece->offset;
	(void)weir_memory_advise(map->base + piece->offset, bytes, WEIR_ADVICE_WILLNEED);
	count = copy_in_steps(map, piece, bytes);
	failed = errno;
	if (count < 0 && failed != EFAULT)
		return -failed;
	bytes = bytes_still_there(piece->fd, piece->offset, bytes);
	if (count < 0)
		return bytes ? -EIO : 0;
	return (int32_t)((uint64_t)count < bytes ? (uint64_t)count : bytes);
}

static int open_mapped(uint32_t queue_depth, void **state, weir_error *error)
{
	char from = 1, to = 0;

	if (copy_own_memory(&to, &from, 1) != 1)
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, errno,
				 "the mmap method needs process_vm_readv, which is not allowed here");
	return weir_io_pool_open(queue_depth, WORKERS_MAX, copy_piece, state, error);
}

static int map_file(mapping *map, int fd)
{
	void *base;

	map->base = NULL;
	if (!map->bytes)
		return 0;
	base = mmap(NULL, map->bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return errno;
	map->base = base;
	return 0;
}

static int add_file(void *state, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error)
{
	mapping *map = malloc(sizeof *map);
	int failed;

	(void)state;
	if (!map)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory");
	map->bytes = bytes;
	failed = map_file(map, fd);
	if (failed) {
		free(map);
		return weir_fail(error, weir_code_of_errno(failed), path, WEIR_ERROR_NO_OFFSET, failed, "cannot map the file");
	}
	*handle = (intptr_t)map;
	return 0;
}

static void remove_file(void *state, intptr_t handle)
{
	mapping *map = (mapping *)handle;

	(void)state;
	if (map->base)
		munmap(map->base, map->bytes);
	free(map);
}

static uint64_t worker_bytes(uint32_t queue_depth, uint32_t piece_bytes)
{
	uint64_t workers = queue_depth < WORKERS_MAX ? queue_depth : WORKERS_MAX;
	uint64_t step = piece_bytes < STEP_BYTES ? piece_bytes : STEP_BYTES;

	return workers * (WEIR_IO_WORKER_BYTES + step + 2 * FAULT_AROUND_BYTES);
}

const weir_method weir_io_mapped = {
	.name = "mmap",
	.direct = false,
	.memory_bytes = worker_bytes,
	.open = open_mapped,
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
