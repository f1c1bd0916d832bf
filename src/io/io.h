/*
 * io.h - reading extents of files into memory: one request type, several interchangeable methods behind it.
 *
 *   caller ── submit(request...) ──► pending ── split into pieces of at most piece_bytes ──► in flight (≤ queue_depth)
 *   caller ◄─ reap(completion...) ── done ◄──── a request is done when its last piece is ───┘
 *
 * Methods: "uring" (io_uring, O_DIRECT, registered buffers), "threads" (a pool with pread, O_DIRECT where the file system
 * takes it), "mmap" (copied out of a mapping whose pages are given back at once), and a wrapper that injects faults.
 * Short reads are resumed, EINTR and EAGAIN retried; what the caller sees is all of the bytes or an error.
 *
 * Threads: one thread at a time may call submit, reap and the rest (the owner locks).  weir_io_wait alone may run, in one
 * thread at a time, beside another thread's submit or reap.
 */
#ifndef WEIR_IO_IO_H
#define WEIR_IO_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

typedef struct weir_io weir_io;

typedef struct weir_io_options {
	const char *method; /* "auto", "uring", "threads" or "mmap"; NULL is "auto" */
	uint32_t queue_depth; /* pieces in flight; 0 takes the default (32) */
	uint32_t piece_bytes; /* largest single read; 0 takes the default (1 MiB); rounded up to the alignment */
	uint64_t in_flight_bytes; /* no piece begins while as many are in flight; 0: only queue_depth counts */
	uint32_t requests_max; /* requests pending or in flight; 0 takes the default (4096) */
	bool page_cache; /* besides a direct method: read from there what it holds, while that is faster; it is never filled */
	const char *fault; /* fault description (fault.h), NULL or "" for none */
} weir_io_options;

/* An extent to read.  Direct methods want offset and bytes aligned to weir_io_offset_alignment, and buffer to
 * weir_io_memory_alignment: the caller asks for the aligned superset of what it needs.  Reading may end early only at the end
 * of the file; at least `least` bytes must arrive or the request fails with WEIR_EIO and sys_errno 0 (the file ended early),
 * and with offset where it ended.  What the buffer holds past the end of the file is undefined. */
typedef struct weir_io_request {
	uint32_t file; /* from weir_io_add_file */
	uint64_t offset; /* aligned */
	uint64_t bytes; /* aligned; may reach past the end of the file */
	uint64_t least; /* bytes that must arrive, counted from offset */
	void *buffer; /* aligned, at least `bytes` long */
	uint64_t tag; /* given back in the completion */
} weir_io_request;

typedef struct weir_io_completion {
	uint64_t tag;
	int code; /* 0 or a WEIR_E code */
	int sys_errno; /* behind it; 0 with WEIR_EIO: the file ended early */
	uint32_t file;
	uint64_t offset; /* of the piece that failed */
} weir_io_completion;

typedef struct weir_io_stats {
	uint64_t requests, pieces, bytes; /* completed */
	uint64_t page_cache_bytes; /* of pieces that came from the page cache */
	uint64_t retries; /* short reads resumed, EINTR, EAGAIN */
} weir_io_stats;

/* What an open weir_io takes at most besides the buffers that it reads into: tables, threads' stacks, mapped pages. */
uint64_t weir_io_memory_bytes(const weir_io_options *options);

int weir_io_open(const weir_io_options *options, weir_io **io, weir_error *error);
void weir_io_close(weir_io *io); /* waits for what is in flight; NULL is allowed */

/* Opens a regular file for reading (never blocks on a FIFO or device: WEIR_ENOTREGULAR).  Size and mtime are remembered;
 * weir_io_check_file gives WEIR_ECHANGED when they differ now. */
int weir_io_add_file(weir_io *io, const char *path, uint32_t *file, weir_error *error);
int weir_io_check_file(weir_io *io, uint32_t file, weir_error *error);
uint64_t weir_io_file_bytes(const weir_io *io, uint32_t file);
const char *weir_io_file_path(const weir_io *io, uint32_t file);

/* Registers memory that reads will land in (io_uring fixed buffers).  Failing to register is not an error: the method then
 * reads unregistered.  Registered pages stay in memory.  Call before the first submit; several calls add up. */
int weir_io_add_buffer(weir_io *io, void *base, uint64_t bytes);

/* Alignment in bytes, a power of two, that offset/length and memory need over all files added so far (1 for mmap). */
uint32_t weir_io_offset_alignment(const weir_io *io);
uint32_t weir_io_memory_alignment(const weir_io *io);

/* Takes up to `count` requests, in order, and starts as many pieces as the queue depth allows.  Returns how many were taken
 * (fewer when requests_max is reached), or WEIR_EINVAL with none taken when one of them is not valid.  A read that fails does
 * so in its completion. */
int weir_io_submit(weir_io *io, const weir_io_request *requests, uint32_t count);

/* Collects up to `capacity` completions without waiting, and starts further pieces.  Returns how many. */
int weir_io_reap(weir_io *io, weir_io_completion *completions, uint32_t capacity);

/* Sleeps until a reap would make progress, another thread's reap made some, or timeout_us passed (UINT64_MAX: no limit).  It
 * may also return early, so loop: reap, and wait when that gave nothing.  Returns 0, or WEIR_EINVAL when nothing is pending. */
int weir_io_wait(weir_io *io, uint64_t timeout_us);

uint32_t weir_io_pending(const weir_io *io); /* requests taken and not yet reaped */
uint32_t weir_io_in_flight(const weir_io *io); /* pieces; always ≤ queue_depth */
uint32_t weir_io_queue_depth(const weir_io *io);
/* Whether a further request would have to wait for one that is pending. */
bool weir_io_is_full(const weir_io *io);
uint32_t weir_io_piece_bytes(const weir_io *io);
const char *weir_io_method(const weir_io *io); /* the method in use, never "auto" */
void weir_io_get_stats(const weir_io *io, weir_io_stats *stats);

#endif
