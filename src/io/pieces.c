/*
 * pieces.c - requests in, pieces through the method, completions out.
 *
 * What a method may give back for a piece, and what follows:
 *
 *   all bytes                     the piece ends
 *   fewer, up to the file's end   the piece ends early: request.arrived_bytes is lowered to that point
 *   fewer, inside the file        resumed from where it stopped, rounded down to the alignment; what was read past that is
 *                                 read again:   offset ├────────┼───got──┤ · · · │     alignment |
 *                                                              ^ resumed here
 *   EINTR, EAGAIN, ECANCELED      started again, at most WEIR_IO_IDLE_TRIES_MAX times without a byte gained
 *   EINVAL with O_DIRECT on       the file system refuses what it promised: O_DIRECT is switched off for the file
 *   another errno                 the request fails; its pieces in flight are awaited, no further ones started
 *
 * Only the thread that owns the weir_io comes here; nothing allocates and nothing waits.
 */
#include <assert.h>
#include <errno.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "io/io_types.h"

void weir_io_list_push(weir_io *io, weir_io_list *list, uint32_t index)
{
	io->requests[index].next = WEIR_IO_NONE;
	if (list->head == WEIR_IO_NONE)
		list->head = index;
	else
		io->requests[list->tail].next = index;
	list->tail = index;
	list->count++;
}

uint32_t weir_io_list_pop(weir_io *io, weir_io_list *list)
{
	uint32_t index = list->head;

	if (index == WEIR_IO_NONE)
		return index;
	list->head = io->requests[index].next;
	list->count--;
	return index;
}

/* Nothing more will be started for it. */
static bool is_started(const weir_io_entry *entry)
{
	return entry->code != 0 || entry->started_bytes == entry->wanted_bytes;
}

static bool is_complete(const weir_io_entry *entry)
{
	return is_started(entry) && !entry->pieces;
}

static void fail_entry(weir_io_entry *entry, int sys_errno, uint64_t offset)
{
	if (entry->code != 0)
		return;
	entry->code = weir_code_of_errno(sys_errno);
	entry->sys_errno = sys_errno;
	entry->failed_offset = offset;
}

static void finish_entry(weir_io *io, uint32_t index)
{
	weir_io_entry *entry = &io->requests[index];

	if (entry->code == 0 && entry->arrived_bytes < entry->request.least) {
		entry->code = WEIR_EIO;
		entry->failed_offset = entry->request.offset + entry->arrived_bytes;
	}
	if (entry->code == 0) {
		io->stats.requests++;
		io->stats.bytes += entry->arrived_bytes;
	}
	weir_io_list_push(io, &io->done, index);
	atomic_fetch_add(&io->done_count, 1);
}

static void free_piece(weir_io *io, weir_io_piece *piece)
{
	piece->next_free = io->free_piece;
	io->free_piece = piece->index;
	io->requests[piece->request].pieces--;
	io->in_flight_bytes -= piece->span_bytes;
	atomic_fetch_sub(&io->in_flight, 1);
}

/* Ends a piece.  A request that is still queued (at the head: a later one has no piece) is finished by start_queued. */
static void end_piece(weir_io *io, weir_io_piece *piece)
{
	uint32_t index = piece->request;

	free_piece(io, piece);
	if (is_complete(&io->requests[index]) && io->queued.head != index)
		finish_entry(io, index);
}

static void fail_piece(weir_io *io, weir_io_piece *piece, int sys_errno)
{
	fail_entry(&io->requests[piece->request], sys_errno, piece->offset);
	end_piece(io, piece);
}

/* The file gave nothing from `offset` on. */
static void end_piece_early(weir_io *io, weir_io_piece *piece, uint64_t offset)
{
	weir_io_entry *entry = &io->requests[piece->request];
	uint64_t arrived = offset - entry->request.offset;

	if (arrived < entry->arrived_bytes)
		entry->arrived_bytes = arrived;
	end_piece(io, piece);
}

static void start_piece(weir_io *io, weir_io_piece *piece)
{
	int result = io->method->start(io->state, piece);

	if (result < 0)
		fail_piece(io, piece, -result);
}

/* Starts the rest of a piece, after it gained something or after it gained nothing. */
static void restart_piece(weir_io *io, weir_io_piece *piece, bool gained, int sys_errno)
{
	piece->idle_tries = gained ? 0 : piece->idle_tries + 1;
	if (piece->idle_tries > WEIR_IO_IDLE_TRIES_MAX) {
		fail_piece(io, piece, sys_errno);
		return;
	}
	io->stats.retries++;
	start_piece(io, piece);
}

static bool file_ends_at(const weir_io_file *file, uint64_t offset)
{
	struct stat now;

	return fstat(file->opened.descriptor, &now) != 0 || (uint64_t)now.st_size <= offset;
}

static void take_short(weir_io *io, weir_io_piece *piece, uint32_t count)
{
	const weir_io_file *file = &io->files[piece->file];
	uint64_t end = piece->offset + count;
	uint32_t kept = count / file->direct.offset_bytes * file->direct.offset_bytes;

	if (end >= file->opened.identity.bytes || count == 0 || (kept == 0 && file_ends_at(file, end))) {
		end_piece_early(io, piece, end);
		return;
	}
	piece->offset += kept;
	piece->buffer = (unsigned char *)piece->buffer + kept;
	piece->bytes -= kept;
	restart_piece(io, piece, kept > 0, EIO);
}

/* True when the piece may succeed without O_DIRECT: also for a piece that was under way when another one switched it off. */
static bool fall_back_to_buffered(weir_io_file *file, const weir_io_piece *piece)
{
	if (file->direct.works) {
		weir_direct_disable(file->opened.descriptor);
		file->direct.works = false;
		file->fell_back = true;
		return true;
	}
	return file->fell_back && piece->idle_tries == 0;
}

static void take_error(weir_io *io, weir_io_piece *piece, int sys_errno)
{
	bool passing = sys_errno == EINTR || sys_errno == EAGAIN || sys_errno == ECANCELED;

	if (passing || (sys_errno == EINVAL && fall_back_to_buffered(&io->files[piece->file], piece)))
		restart_piece(io, piece, false, sys_errno);
	else
		fail_piece(io, piece, sys_errno);
}

static void take_result(weir_io *io, const weir_io_result *result, bool restart)
{
	weir_io_piece *piece;

	if (result->piece == WEIR_IO_WAKE_RESULT)
		return;
	piece = &io->pieces[result->piece];
	io->stats.pieces++;
	if (!restart)
		end_piece(io, piece);
	else if (result->count < 0)
		take_error(io, piece, -result->count);
	else if ((uint32_t)result->count < piece->bytes)
		take_short(io, piece, (uint32_t)result->count);
	else
		end_piece(io, piece);
}

static weir_io_piece *take_piece(weir_io *io, uint32_t request)
{
	weir_io_piece *piece = &io->pieces[io->free_piece];

	io->free_piece = piece->next_free;
	piece->request = request;
	piece->idle_tries = 0;
	io->requests[request].pieces++;
	atomic_fetch_add(&io->in_flight, 1);
	return piece;
}

static void start_next_piece(weir_io *io, uint32_t index)
{
	weir_io_entry *entry = &io->requests[index];
	const weir_io_file *file = &io->files[entry->request.file];
	weir_io_piece *piece = take_piece(io, index);
	uint64_t left = entry->wanted_bytes - entry->started_bytes;

	piece->file = entry->request.file;
	piece->fd = file->opened.descriptor;
	piece->handle = file->handle;
	piece->offset = entry->request.offset + entry->started_bytes;
	piece->buffer = (unsigned char *)entry->request.buffer + entry->started_bytes;
	piece->bytes = piece->span_bytes = left < io->piece_bytes ? (uint32_t)left : io->piece_bytes;
	entry->started_bytes += piece->bytes;
	io->in_flight_bytes += piece->span_bytes;
	start_piece(io, piece);
}

static bool has_room(const weir_io *io)
{
	return io->free_piece != WEIR_IO_NONE && io->in_flight_bytes < io->in_flight_bytes_max;
}

static void start_queued(weir_io *io)
{
	uint32_t index;

	while ((index = io->queued.head) != WEIR_IO_NONE) {
		while (!is_started(&io->requests[index]) && has_room(io))
			start_next_piece(io, index);
		if (!is_started(&io->requests[index]))
			return;
		weir_io_list_pop(io, &io->queued);
		if (is_complete(&io->requests[index]))
			finish_entry(io, index);
	}
}

static bool has_results(const weir_io *io)
{
	return io->method->has_results && io->method->has_results(io->state);
}

/* A piece that fails in start is freed there, and start_queued may use it again: results are taken first, as a whole.  A start
 * may bring its result at once, and then there is room for a further one. */
void weir_io_progress(weir_io *io, bool restart)
{
	uint32_t count, total = 0, i;

	do {
		count = io->method->collect(io->state, io->results, io->queue_depth + 1);
		for (i = 0; i < count; i++)
			take_result(io, &io->results[i], restart);
		if (restart)
			start_queued(io);
		total += count;
	} while (restart && has_results(io));
	if ((total || io->done.count) && atomic_load(&io->waiting))
		io->method->wake(io->state);
	io->method->flush(io->state);
	assert(weir_io_in_flight(io) <= io->queue_depth);
}

static bool is_aligned(uint64_t value, uint32_t alignment)
{
	return (value & (alignment - 1)) == 0;
}

static bool is_valid(const weir_io *io, const weir_io_request *request)
{
	const weir_direct *direct;

	if (request->file >= io->files_count || !request->buffer || request->least > request->bytes)
		return false;
	direct = &io->files[request->file].direct;
	return request->offset <= INT64_MAX && request->bytes <= INT64_MAX - request->offset &&
	       is_aligned(request->offset, direct->offset_bytes) && is_aligned(request->bytes, direct->offset_bytes) &&
	       is_aligned((uintptr_t)request->buffer, direct->memory_bytes);
}

/* What lies past the end of the file is not read, except up to the alignment. */
static void set_extent(weir_io_entry *entry, const weir_io_file *file)
{
	uint64_t alignment = file->direct.offset_bytes, file_bytes = file->opened.identity.bytes, left;

	left = entry->request.offset < file_bytes ? file_bytes - entry->request.offset : 0;
	entry->arrived_bytes = entry->request.bytes < left ? entry->request.bytes : left;
	entry->wanted_bytes = (entry->arrived_bytes + alignment - 1) / alignment * alignment;
}

static void queue_request(weir_io *io, const weir_io_request *request)
{
	uint32_t index = weir_io_list_pop(io, &io->free);
	weir_io_entry *entry = &io->requests[index];

	*entry = (weir_io_entry){.request = *request};
	set_extent(entry, &io->files[request->file]);
	weir_io_list_push(io, &io->queued, index);
	atomic_fetch_add(&io->pending, 1);
}

int weir_io_submit(weir_io *io, const weir_io_request *requests, uint32_t count)
{
	uint32_t i;

	if (!io || (!requests && count))
		return WEIR_EINVAL;
	if (count > io->free.count)
		count = io->free.count;
	for (i = 0; i < count; i++) {
		if (!is_valid(io, &requests[i]))
			return WEIR_EINVAL;
	}
	for (i = 0; i < count; i++)
		queue_request(io, &requests[i]);
	weir_io_progress(io, true);
	return (int)count;
}

static void give_completion(weir_io *io, weir_io_completion *completion)
{
	uint32_t index = weir_io_list_pop(io, &io->done);
	const weir_io_entry *entry = &io->requests[index];

	*completion = (weir_io_completion){
		.tag = entry->request.tag,
		.code = entry->code,
		.sys_errno = entry->sys_errno,
		.file = entry->request.file,
		.offset = entry->failed_offset,
	};
	weir_io_list_push(io, &io->free, index);
	atomic_fetch_sub(&io->done_count, 1);
	atomic_fetch_sub(&io->pending, 1);
}

int weir_io_reap(weir_io *io, weir_io_completion *completions, uint32_t capacity)
{
	uint32_t count = 0;

	if (!io || (!completions && capacity))
		return WEIR_EINVAL;
	if (capacity > INT32_MAX)
		capacity = INT32_MAX;
	weir_io_progress(io, true);
	while (count < capacity && io->done.count)
		give_completion(io, &completions[count++]);
	return (int)count;
}

bool weir_io_is_full(const weir_io *io)
{
	return weir_io_pending(io) >= io->queue_depth || io->queued.count > 0 || !has_room(io);
}

static uint32_t count_free_pieces(const weir_io *io)
{
	uint32_t count = 0, index;

	for (index = io->free_piece; index != WEIR_IO_NONE && count <= io->queue_depth; index = io->pieces[index].next_free)
		count++;
	return count;
}

bool weir_io_is_sound(const weir_io *io)
{
	uint32_t pending = weir_io_pending(io), in_flight = weir_io_in_flight(io), pieces = 0, i;

	for (i = 0; i < io->requests_max; i++)
		pieces += io->requests[i].pieces;
	if ((in_flight == 0) != (io->in_flight_bytes == 0))
		return false;
	return pieces == in_flight && count_free_pieces(io) + in_flight == io->queue_depth &&
	       io->free.count + pending == io->requests_max && io->queued.count + io->done.count <= pending &&
	       atomic_load(&io->done_count) == io->done.count;
}
