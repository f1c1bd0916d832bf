/*
 * pool.h - worker threads that read pieces with a blocking function: what the methods "threads" and "mmap" share.
 *
 * The pool owns its threads; they take no signals and live until weir_io_pool_close.  The functions have the signatures and
 * thread rules of weir_method (io_types.h).
 */
#ifndef WEIR_IO_POOL_H
#define WEIR_IO_POOL_H

#include "io/io_types.h"

typedef struct weir_io_pool weir_io_pool;

/* Reads one piece; gives the bytes read, 0 at the end of the file, or -errno.  Called from several threads. */
typedef int32_t (*weir_io_pool_read)(const weir_io_piece *piece);

#define WEIR_IO_WORKERS_MAX 32u
#define WEIR_IO_WORKER_BYTES ((uint64_t)16 << 10) /* what a worker touches of its stack, and what its C library keeps */

/* As many workers as queue_depth, at most workers_max, which is at most WEIR_IO_WORKERS_MAX. */
int weir_io_pool_open(uint32_t queue_depth, uint32_t workers_max, weir_io_pool_read read, void **state, weir_error *error);
void weir_io_pool_close(void *state);
int weir_io_pool_start(void *state, const weir_io_piece *piece);
void weir_io_pool_flush(void *state);
uint32_t weir_io_pool_collect(void *state, weir_io_result *results, uint32_t capacity);
void weir_io_pool_wait(void *state, uint64_t timeout_us);
void weir_io_pool_wake(void *state);
void weir_io_pool_add_buffer(void *state, void *base, uint64_t bytes); /* nothing to do */

#endif
