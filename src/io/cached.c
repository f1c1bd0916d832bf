/*
 * cached.c - reading from the page cache what another reader has left there.
 *
 * Pages that others brought into the cache are not charged to this process, and copying them is faster than most drives.  So
 * before a piece is handed to the method below, cachestat says whether all of it is cached; if so it is copied on the spot, by
 * a second descriptor without O_DIRECT and with RWF_NOWAIT.  A piece that is not cached as a whole is left alone: reading it
 * through the cache would fill it at the expense of this process's memory limit, and even RWF_NOWAIT starts readahead.
 *
 * Copying takes a processor that may be computing, where a drive would have read beside it.  Whether it pays is therefore
 * judged by what counts, the time in which the same number of bytes is asked for: windows with and without asking alternate,
 * the faster way is kept for a while, and then both are tried again.
 *
 *     bytes:  on, not counted | off 128 MiB | on | off | on | the faster for 8 GiB | on, not counted | ...
 *
 * A window that finds next to nothing ends the trial at once; asking costs little, so that the next one comes soon.
 *
 * Threads: as weir_method has it.  A copy is done in start; its result waits for collect, and wait does not sleep over it.
 */
#include "io/cached.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/memory.h"
#include "os/pagecache.h"

#define WINDOW_BYTES ((uint64_t)128 << 20)
#define KEPT_BYTES ((uint64_t)8 << 30)
#define HIT_SHARE_LEAST 8 /* one in so many bytes must be cached */
#define GAIN_LEAST 1.02
#define FOUND_BYTES_LEAST ((uint64_t)16 << 20) /* asked for before nothing found says something */

/* ---- does it pay? ---- */

void weir_io_judge_begin(weir_io_judge *judge, uint64_t now_ns)
{
	*judge = (weir_io_judge){.asking = true, .window_began_ns = now_ns};
}

static void keep(weir_io_judge *judge, bool asking, uint64_t bytes)
{
	judge->asking = asking;
	judge->kept_bytes = bytes;
	judge->window = WEIR_IO_TRIAL_WINDOWS;
}

static void end_window(weir_io_judge *judge, uint64_t passed_ns)
{
	if (!judge->window)
		; /* weights that stay, the prompt: what comes first is like nothing that follows */
	else if (judge->asking)
		judge->with_ns += passed_ns;
	else
		judge->without_ns += passed_ns;
	if (++judge->window < WEIR_IO_TRIAL_WINDOWS)
		judge->asking = !judge->asking;
	else
		keep(judge, (double)judge->with_ns * GAIN_LEAST < (double)judge->without_ns, KEPT_BYTES);
}

static bool finds_nothing(const weir_io_judge *judge)
{
	return judge->asking && judge->window_bytes >= FOUND_BYTES_LEAST &&
	       judge->window_hit_bytes < judge->window_bytes / HIT_SHARE_LEAST;
}

void weir_io_judge_note(weir_io_judge *judge, uint64_t bytes, uint64_t hit_bytes, uint64_t now_ns)
{
	bool trial = judge->window < WEIR_IO_TRIAL_WINDOWS;

	judge->window_bytes += bytes;
	judge->window_hit_bytes += hit_bytes;
	if (finds_nothing(judge))
		keep(judge, false, WINDOW_BYTES);
	else if (judge->window_bytes < (trial ? WINDOW_BYTES : judge->kept_bytes))
		return;
	else if (trial)
		end_window(judge, now_ns - judge->window_began_ns);
	else
		weir_io_judge_begin(judge, now_ns);
	judge->window_began_ns = now_ns;
	judge->window_bytes = judge->window_hit_bytes = 0;
}

/* ---- the page cache ---- */

typedef struct cached_file {
	intptr_t inner; /* the method's handle */
	int fd; /* without O_DIRECT; -1: not to be asked */
} cached_file;

typedef struct cached {
	const weir_method *inner;
	void *inner_state;
	weir_io_judge judge;
	atomic_uint results_count;
	atomic_ullong bytes;
	weir_io_result results[]; /* queue_depth */
} cached;

static bool is_cached(int fd, const weir_io_piece *piece)
{
	uint64_t page_bytes = weir_page_bytes(), pages;
	uint64_t first = piece->offset / page_bytes, end = (piece->offset + piece->bytes + page_bytes - 1) / page_bytes;

	return weir_page_cache_count(fd, piece->offset, piece->bytes, &pages) && pages == end - first;
}

/* The bytes that were copied, or 0 when the piece is not wholly cached. */
static uint32_t copy_cached(int fd, const weir_io_piece *piece)
{
	struct iovec part = {.iov_base = piece->buffer, .iov_len = piece->bytes};
	ssize_t count;

	if (fd < 0 || !is_cached(fd, piece))
		return 0;
	count = preadv2(fd, &part, 1, (off_t)piece->offset, RWF_NOWAIT);
	return count > 0 ? (uint32_t)count : 0;
}

/* ---- the method ---- */

int weir_io_cached_wrap(const weir_method *inner, void *inner_state, uint32_t queue_depth, void **state, weir_error *error)
{
	cached *wrapper;

	if (!weir_page_cache_tells())
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, errno,
				 "this kernel does not tell what it has cached");
	wrapper = calloc(1, sizeof *wrapper + queue_depth * sizeof wrapper->results[0]);
	if (!wrapper)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	wrapper->inner = inner;
	wrapper->inner_state = inner_state;
	weir_io_judge_begin(&wrapper->judge, weir_clock_ns());
	*state = wrapper;
	return 0;
}

static void close_cached(void *opened)
{
	cached *state = opened;

	state->inner->close(state->inner_state);
	free(state);
}

/* The same open file once more, by its descriptor: its name may mean another one by now.  -1 also where the method reads
 * through the page cache itself. */
static int reopen_buffered(int fd)
{
	int flags = fcntl(fd, F_GETFL), again;
	char path[32];

	if (flags < 0 || !(flags & O_DIRECT))
		return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (again >= 0)
		(void)posix_fadvise(again, 0, 0, POSIX_FADV_RANDOM); /* pages that went just now bring no others in */
	return again;
}

static int add_file(void *opened, int fd, const char *path, uint64_t bytes, intptr_t *handle, weir_error *error)
{
	cached *state = opened;
	cached_file *file = malloc(sizeof *file);
	int code;

	if (!file)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory");
	code = state->inner->add_file(state->inner_state, fd, path, bytes, &file->inner, error);
	if (code != 0) {
		free(file);
		return code;
	}
	file->fd = reopen_buffered(fd);
	*handle = (intptr_t)file;
	return 0;
}

static void remove_file(void *opened, intptr_t handle)
{
	cached *state = opened;
	cached_file *file = (cached_file *)handle;

	state->inner->remove_file(state->inner_state, file->inner);
	if (file->fd >= 0)
		close(file->fd);
	free(file);
}

static void add_buffer(void *opened, void *base, uint64_t bytes)
{
	cached *state = opened;

	state->inner->add_buffer(state->inner_state, base, bytes);
}

static int start(void *opened, const weir_io_piece *piece)
{
	cached *state = opened;
	const cached_file *file = (const cached_file *)piece->handle;
	uint32_t count = state->judge.asking ? copy_cached(file->fd, piece) : 0, place;
	weir_io_piece below = *piece;

	weir_io_judge_note(&state->judge, piece->bytes, count, weir_clock_ns());
	if (count) {
		place = atomic_load(&state->results_count);
		state->results[place] = (weir_io_result){.piece = piece->index, .count = (int32_t)count};
		atomic_store(&state->results_count, place + 1);
		atomic_fetch_add(&state->bytes, count);
		return 0;
	}
	below.handle = file->inner;
	return state->inner->start(state->inner_state, &below);
}

static void flush(void *opened)
{
	cached *state = opened;

	state->inner->flush(state->inner_state);
}

static uint32_t collect(void *opened, weir_io_result *results, uint32_t capacity)
{
	cached *state = opened;
	uint32_t count = atomic_load(&state->results_count), left;

	left = count > capacity ? count - capacity : 0;
	memcpy(results, state->results + left, (count - left) * sizeof *results);
	atomic_store(&state->results_count, left);
	count -= left;
	return count + state->inner->collect(state->inner_state, results + count, capacity - count);
}

static bool has_results(void *opened)
{
	cached *state = opened;

	return atomic_load(&state->results_count) != 0;
}

static void wait(void *opened, uint64_t timeout_us)
{
	cached *state = opened;

	if (!has_results(state))
		state->inner->wait(state->inner_state, timeout_us);
}

static void wake(void *opened)
{
	cached *state = opened;

	state->inner->wake(state->inner_state);
}

uint64_t weir_io_cached_bytes(void *opened)
{
	cached *state = opened;

	return atomic_load(&state->bytes);
}

const weir_method weir_io_cached = {
	.name = "cached",
	.direct = true,
	.close = close_cached,
	.add_file = add_file,
	.remove_file = remove_file,
	.add_buffer = add_buffer,
	.start = start,
	.flush = flush,
	.collect = collect,
	.has_results = has_results,
	.wait = wait,
	.wake = wake,
};
