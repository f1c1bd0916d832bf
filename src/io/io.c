/*
 * io.c - opening and closing, the choice of a method, waiting, and the questions about a weir_io.
 *
 * Everything is allocated here, at open; only adding files allocates later.  pieces.c does the reading, files.c the files.
 */
#include "io/io.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "io/cached.h"
#include "io/fault.h"
#include "io/io_types.h"

#define DEFAULT_QUEUE_DEPTH 32u
#define DEFAULT_PIECE_BYTES (1u << 20)
#define DEFAULT_REQUESTS_MAX 4096u

static const weir_method *const METHODS[] = {
#ifdef WEIR_HAVE_URING
	&weir_io_uring,
#endif
	&weir_io_threads,
	&weir_io_mapped,
};
#define METHODS_COUNT (sizeof METHODS / sizeof METHODS[0])

static uint32_t or_default(uint32_t value, uint32_t default_value)
{
	return value ? value : default_value;
}

static int take_options(weir_io *io, const weir_io_options *options, weir_error *error)
{
	io->queue_depth = or_default(options->queue_depth, DEFAULT_QUEUE_DEPTH);
	io->piece_bytes = or_default(options->piece_bytes, DEFAULT_PIECE_BYTES);
	io->requests_max = or_default(options->requests_max, DEFAULT_REQUESTS_MAX);
	io->in_flight_bytes_max = options->in_flight_bytes ? options->in_flight_bytes : UINT64_MAX;
	io->offset_alignment = 1;
	io->memory_alignment = 1;
	if (io->queue_depth > WEIR_IO_QUEUE_DEPTH_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "queue depth %u is above %u",
				 io->queue_depth, WEIR_IO_QUEUE_DEPTH_MAX);
	if (io->piece_bytes > WEIR_IO_PIECE_BYTES_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "reads of %u bytes are above %u",
				 io->piece_bytes, WEIR_IO_PIECE_BYTES_MAX);
	if (io->requests_max > WEIR_IO_REQUESTS_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "%u requests are above %u",
				 io->requests_max, WEIR_IO_REQUESTS_MAX);
	return 0;
}

static int allocate(weir_io *io, weir_error *error)
{
	uint32_t i;

	io->pieces = calloc(io->queue_depth, sizeof *io->pieces);
	io->results = calloc((size_t)io->queue_depth + 1, sizeof *io->results);
	io->requests = calloc(io->requests_max, sizeof *io->requests);
	if (!io->pieces || !io->results || !io->requests)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for %u requests",
				 io->requests_max);
	for (i = 0; i < io->queue_depth; i++) {
		io->pieces[i].index = i;
		io->pieces[i].next_free = i + 1 < io->queue_depth ? i + 1 : WEIR_IO_NONE;
	}
	io->free.head = io->queued.head = io->done.head = WEIR_IO_NONE;
	for (i = 0; i < io->requests_max; i++)
		weir_io_list_push(io, &io->free, i);
	return 0;
}

/* "auto" may become any of those it tries. */
static bool may_become(const weir_method *method, const char *name)
{
	if (!name || strcmp(name, "auto") == 0)
		return method != &weir_io_mapped;
	return strcmp(name, method->name) == 0;
}

uint64_t weir_io_memory_bytes(const weir_io_options *options)
{
	uint32_t queue_depth = or_default(options->queue_depth, DEFAULT_QUEUE_DEPTH);
	uint32_t piece_bytes = or_default(options->piece_bytes, DEFAULT_PIECE_BYTES);
	uint64_t most = 0;

	for (size_t i = 0; i < METHODS_COUNT; i++)
		if (may_become(METHODS[i], options->method) && METHODS[i]->memory_bytes(queue_depth, piece_bytes) > most)
			most = METHODS[i]->memory_bytes(queue_depth, piece_bytes);
	return most + sizeof(weir_io) + queue_depth * (sizeof(weir_io_piece) + 2 * sizeof(weir_io_result)) +
	       or_default(options->requests_max, DEFAULT_REQUESTS_MAX) * sizeof(weir_io_entry);
}

static int open_method(weir_io *io, const weir_method *method, weir_error *error)
{
	int code = method->open(io->queue_depth, &io->state, error);

	if (code != 0)
		return code;
	io->method = method;
	io->method_name = method->name;
	io->direct = method->direct;
	return 0;
}

/* io_uring may be missing or forbidden (containers); threads work everywhere. */
static int open_auto(weir_io *io, weir_error *error)
{
#ifdef WEIR_HAVE_URING
	if (open_method(io, &weir_io_uring, NULL) == 0)
		return 0;
#endif
	return open_method(io, &weir_io_threads, error);
}

static int choose_method(weir_io *io, const char *name, weir_error *error)
{
	size_t i;

	if (!name || strcmp(name, "auto") == 0)
		return open_auto(io, error);
	for (i = 0; i < METHODS_COUNT; i++) {
		if (strcmp(name, METHODS[i]->name) == 0)
			return open_method(io, METHODS[i], error);
	}
	if (strcmp(name, "uring") == 0)
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "built without io_uring");
	return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
			 "unknown I/O method \"%s\": auto, uring, threads or mmap", name);
}

/* Going without is no failure. */
static void wrap_page_cache(weir_io *io, const weir_io_options *options)
{
	void *wrapped;

	if (!options->page_cache || !io->direct)
		return;
	if (weir_io_cached_wrap(io->method, io->state, io->queue_depth, &wrapped, NULL) != 0)
		return;
	io->method = &weir_io_cached;
	io->state = io->cached = wrapped;
}

static int wrap_faults(weir_io *io, const char *description, weir_error *error)
{
	void *wrapped;
	int code;

	if (!description || !*description)
		return 0;
	code = weir_io_faulty_wrap(io->method, io->state, io->queue_depth, description, &wrapped, error);
	if (code != 0)
		return code;
	io->method = &weir_io_faulty;
	io->state = wrapped;
	return 0;
}

int weir_io_open(const weir_io_options *options, weir_io **io, weir_error *error)
{
	static const weir_io_options defaults;
	weir_io *opened;
	int code;

	if (!io)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no place for the result");
	if (!options)
		options = &defaults;
	opened = calloc(1, sizeof *opened);
	if (!opened)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	code = take_options(opened, options, error);
	if (code == 0)
		code = allocate(opened, error);
	if (code == 0)
		code = choose_method(opened, options->method, error);
	if (code == 0)
		wrap_page_cache(opened, options);
	if (code == 0)
		code = wrap_faults(opened, options->fault, error);
	if (code != 0) {
		weir_io_close(opened);
		return code;
	}
	*io = opened;
	return 0;
}

static void finish_in_flight(weir_io *io)
{
	while (atomic_load(&io->in_flight)) {
		io->method->wait(io->state, UINT64_MAX);
		weir_io_progress(io, false);
	}
}

void weir_io_close(weir_io *io)
{
	if (!io)
		return;
	if (io->method) {
		finish_in_flight(io);
		weir_io_forget_files(io);
		io->method->close(io->state);
	}
	free(io->files);
	free(io->pieces);
	free(io->results);
	free(io->requests);
	free(io);
}

/* The flag is raised before the counters are read, and weir_io_progress changes the counters before it reads the flag: so a
 * thread on its way to sleep either sees the change or is woken. */
int weir_io_wait(weir_io *io, uint64_t timeout_us)
{
	if (!io || !atomic_load(&io->pending))
		return WEIR_EINVAL;
	atomic_store(&io->waiting, true);
	if (!atomic_load(&io->done_count) && atomic_load(&io->in_flight))
		io->method->wait(io->state, timeout_us);
	atomic_store(&io->waiting, false);
	return 0;
}

uint32_t weir_io_offset_alignment(const weir_io *io)
{
	return io->offset_alignment;
}

uint32_t weir_io_memory_alignment(const weir_io *io)
{
	return io->memory_alignment;
}

uint32_t weir_io_pending(const weir_io *io)
{
	return atomic_load(&io->pending);
}

uint32_t weir_io_in_flight(const weir_io *io)
{
	return atomic_load(&io->in_flight);
}

uint32_t weir_io_queue_depth(const weir_io *io)
{
	return io->queue_depth;
}

uint32_t weir_io_piece_bytes(const weir_io *io)
{
	return io->piece_bytes;
}

const char *weir_io_method(const weir_io *io)
{
	return io->method_name;
}

void weir_io_get_stats(const weir_io *io, weir_io_stats *stats)
{
	*stats = io->stats;
	stats->page_cache_bytes = io->cached ? weir_io_cached_bytes(io->cached) : 0;
}
