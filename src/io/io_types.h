/*
 * io_types.h - what the I/O core and its methods share.  Included by src/io/ only.
 *
 * Words
 *   request   what the caller submitted: one extent, one buffer, one completion.
 *   piece     one read handed to the method: at most piece_bytes of one request.  Its slot number never changes.
 *   method    how a piece is read: a table of functions and its own state.
 *   wake      makes a thread that sleeps in the method's wait return.
 *
 * A request's way, and the list that holds it:
 *
 *   free ──submit──► queued ──its last piece is started──► (no list) ──its last piece ended──► done ──reap──► free
 *
 * Invariants (weir_io_is_sound checks them)
 *   requests_max = free + queued + flying + done       pending   = queued + flying + done
 *   queue_depth  = free pieces + in_flight             in_flight = sum of request.pieces
 *
 * Threads: everything belongs to the thread that submits or reaps, except the atomics and what a method's wait uses.
 */
#ifndef WEIR_IO_IO_TYPES_H
#define WEIR_IO_IO_TYPES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "io/io.h"
#include "os/direct.h"
#include "os/file.h"

#define WEIR_IO_NONE UINT32_MAX /* end of a list */
#define WEIR_IO_WAKE_RESULT UINT32_MAX /* result.piece of a wake that was consumed */
#define WEIR_IO_QUEUE_DEPTH_MAX 1024u
#define WEIR_IO_PIECE_BYTES_MAX (1u << 30)
#define WEIR_IO_REQUESTS_MAX (1u << 20)
#define WEIR_IO_IDLE_TRIES_MAX 1000u /* restarts of a piece without a byte gained, before it fails */

/* The read that is wanted next: offset, bytes and buffer move on when a short read is resumed. */
typedef struct weir_io_piece {
	uint64_t offset;
	void *buffer;
	uint32_t bytes;
	uint32_t span_bytes; /* bytes when it began */
	uint32_t index; /* slot number, < queue_depth */
	uint32_t file;
	uint32_t request;
	uint32_t idle_tries;
	uint32_t next_free;
	int fd;
	intptr_t handle; /* the method's own, from its add_file */
} weir_io_piece;

typedef struct weir_io_result {
	uint32_t piece;
	int32_t count; /* bytes read, 0 at the end of the file, or -errno */
} weir_io_result;

/* All but wait belong to one thread at a time; wait may run beside them, in one thread. */
typedef struct weir_method {
	const char *name;
	bool direct; /* wants O_DIRECT */
	uint64_t (*memory_bytes)(uint32_t queue_depth, uint32_t piece_bytes); /* at most, besides what it reads into */
	int (*open)(uint32_t queue_depth, void **state, weir_error *error);
	void (*close)(void *state); /* nothing is in flight */
	int (*add_file)(void *state, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error);
	void (*remove_file)(void *state, intptr_t handle); /* nothing is in flight */
	void (*add_buffer)(void *state, void *base, uint64_t bytes);
	int (*start)(void *state, const weir_io_piece *piece); /* 0, or -errno and the piece is not in flight */
	void (*flush)(void *state); /* after the last start of a batch: all of it is under way */
	uint32_t (*collect)(void *state, weir_io_result *results, uint32_t capacity); /* never waits */
	bool (*has_results)(void *state); /* whether start itself brought results; NULL: it never does */
	void (*wait)(void *state, uint64_t timeout_us); /* until collect would give something, a wake, or the time */
	void (*wake)(void *state); /* effective after the next flush */
} weir_method;

extern const weir_method weir_io_threads;
extern const weir_method weir_io_mapped;
#ifdef WEIR_HAVE_URING
extern const weir_method weir_io_uring;
#endif

typedef struct weir_io_file {
	char *path;
	weir_file opened; /* and what it was then */
	intptr_t handle;
	weir_direct direct;
	bool fell_back; /* O_DIRECT was on and had to be switched off */
} weir_io_file;

typedef struct weir_io_entry {
	weir_io_request request;
	uint64_t wanted_bytes; /* to read: request.bytes without what lies past the end of the file */
	uint64_t started_bytes; /* ≤ wanted_bytes */
	uint64_t arrived_bytes; /* lowered when a piece ends early; at the end, what the buffer holds */
	uint64_t failed_offset;
	uint32_t pieces; /* in flight */
	uint32_t next;
	int code;
	int sys_errno;
} weir_io_entry;

typedef struct weir_io_list {
	uint32_t head, tail, count;
} weir_io_list;

struct weir_io {
	const weir_method *method;
	void *state;
	void *cached; /* the state of the wrapper that asks the page cache (cached.h), or NULL */
	const char *method_name; /* of the method itself, below a fault wrapper */
	bool direct; /* likewise */
	uint32_t queue_depth, piece_bytes, requests_max;
	uint64_t in_flight_bytes_max;
	uint32_t offset_alignment, memory_alignment;

	weir_io_file *files;
	uint32_t files_count;

	weir_io_piece *pieces;
	uint32_t free_piece;
	weir_io_result *results; /* room for queue_depth and a wake */

	weir_io_entry *requests;
	weir_io_list free, queued, done;

	atomic_uint pending; /* requests */
	atomic_uint in_flight; /* pieces */
	uint64_t in_flight_bytes; /* sum of span_bytes of the pieces in flight */
	atomic_uint done_count;
	atomic_bool waiting; /* a thread is in weir_io_wait */
	weir_io_stats stats;
};

/* Lists of requests, linked through io->requests[].next. */
void weir_io_list_push(weir_io *io, weir_io_list *list, uint32_t index);
uint32_t weir_io_list_pop(weir_io *io, weir_io_list *list);

/* Closes all files. */
void weir_io_forget_files(weir_io *io);

/* Collects, resumes or ends pieces, and starts further ones.  `restart` false: nothing new is started (closing). */
void weir_io_progress(weir_io *io, bool restart);

/* For tests: the invariants above. */
bool weir_io_is_sound(const weir_io *io);

#endif
