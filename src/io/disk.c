/*
 * disk.c - measuring a drive: see disk.h for what the numbers mean.
 *
 *   weir_disk_measure: target (file, or a temporary one) ─► a grid of settings, briefly each ─► choose ─► confirm, latency
 *
 * Each setting opens its own weir_io and keeps it full: as soon as a read is done the next one, elsewhere in the file, is
 * submitted.  The clock starts when the queue has been filled and emptied once.
 */
#include "weir/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "io/disk_target.h"
#include "io/io.h"
#include "os/memory.h"

#define DEFAULT_SECONDS 5.0
#define DEFAULT_FILE_BYTES ((uint64_t)512 << 20)
#define MEASURING_BYTES ((uint64_t)512 << 10) /* what the C library and the kernel add */
#define DEFAULT_QUEUE_DEPTH 32u
#define DEFAULT_PIECE_BYTES (1u << 20)
#define IN_FLIGHT_BYTES_MAX ((uint64_t)64 << 20) /* deeper than this is no use to a budget */
#define OFFSET_UNIT_BYTES 4096u /* at least: offsets as a page or a drive's sector would have them */
#define SAMPLES_MAX 8192u
#define CLOSE_TO_BEST 0.95
#define CONFIRM_SHARE 0.15 /* of the time */
#define LATENCY_SHARE 0.10

static const char *const METHODS[] = {"uring", "threads"};
static const uint32_t DEPTHS[] = {1, 2, 4, 8, 16, 32, 64};
static const uint32_t PIECES[] = {128u << 10, 256u << 10, 512u << 10, 1u << 20, 2u << 20, 4u << 20};
#define COUNT_OF(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))

/* One setting under measurement. */
typedef struct load {
	const weir_disk_target *target;
	weir_io *io;
	uint32_t file;
	uint32_t queue_depth;
	uint32_t piece_bytes;
	uint64_t unit_bytes;
	uint64_t slot_bytes;
	void *memory;
	uint64_t *started_ns; /* by slot */
	weir_io_completion *completions; /* queue_depth */
	uint64_t completed_count;
	uint64_t completed_bytes;
	double *samples_us; /* latencies, or NULL */
	uint32_t samples_count;
} load;

static uint64_t next_random(void)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = weir_clock_ns() | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void close_load(load *one)
{
	weir_io_close(one->io);
	weir_memory_unmap(one->memory, one->slot_bytes * one->queue_depth);
	free(one->started_ns);
	free(one->completions);
}

static int allocate_load(load *one, weir_error *error)
{
	uint32_t alignment = weir_io_memory_alignment(one->io);
	int code;

	one->slot_bytes = ((uint64_t)one->piece_bytes + alignment - 1) / alignment * alignment;
	code = weir_memory_map(one->slot_bytes * one->queue_depth, true, &one->memory, error);
	if (code != 0)
		return code;
	one->started_ns = calloc(one->queue_depth, sizeof *one->started_ns);
	one->completions = calloc(one->queue_depth, sizeof *one->completions);
	if (!one->started_ns || !one->completions)
		return weir_fail(error, WEIR_ENOMEM, one->target->path, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	return weir_io_add_buffer(one->io, one->memory, one->slot_bytes * one->queue_depth);
}

static int open_load(load *one, const weir_disk_target *target, const weir_disk_point *point, weir_error *error)
{
	weir_io_options options = {
		.method = point->method,
		.queue_depth = point->queue_depth,
		.piece_bytes = point->piece_bytes,
		.requests_max = point->queue_depth,
	};
	int code;

	*one = (load){.target = target, .queue_depth = point->queue_depth};
	code = weir_io_open(&options, &one->io, error);
	if (code == 0)
		code = weir_io_add_file(one->io, target->path, &one->file, error);
	if (code == 0) {
		one->piece_bytes = weir_io_piece_bytes(one->io);
		one->unit_bytes = weir_io_offset_alignment(one->io);
		if (one->unit_bytes < OFFSET_UNIT_BYTES)
			one->unit_bytes = OFFSET_UNIT_BYTES;
		code = allocate_load(one, error);
	}
	if (code != 0)
		close_load(one);
	return code;
}

/* A whole piece at a random place; in a file smaller than a piece, all of it. */
static weir_io_request choose_extent(const load *one, uint32_t slot)
{
	uint64_t file_bytes = one->target->bytes, places = 1;
	weir_io_request request = {.file = one->file, .bytes = one->piece_bytes, .tag = slot};

	if (file_bytes > one->piece_bytes)
		places = (file_bytes - one->piece_bytes) / one->unit_bytes + 1;
	request.offset = next_random() % places * one->unit_bytes;
	request.least = file_bytes - request.offset;
	if (request.least > request.bytes)
		request.least = request.bytes;
	request.buffer = (unsigned char *)one->memory + slot * one->slot_bytes;
	return request;
}

static int submit_slot(load *one, uint32_t slot, weir_error *error)
{
	weir_io_request request = choose_extent(one, slot);

	one->started_ns[slot] = weir_clock_ns();
	if (weir_io_submit(one->io, &request, 1) == 1)
		return 0;
	return weir_fail(error, WEIR_EIO, one->target->path, request.offset, 0, "the read was not taken");
}

static int take_completion(load *one, const weir_io_completion *completion, uint64_t now_ns, weir_error *error)
{
	uint32_t slot = (uint32_t)completion->tag;
	uint64_t file_bytes = one->target->bytes;

	if (completion->code != 0)
		return weir_fail(error, completion->code, one->target->name, completion->offset, completion->sys_errno,
				 completion->sys_errno ? "read failed" : "the file ended early");
	one->completed_count++;
	one->completed_bytes += file_bytes < one->piece_bytes ? file_bytes : one->piece_bytes;
	if (one->samples_us && one->samples_count < SAMPLES_MAX)
		one->samples_us[one->samples_count++] = (double)(now_ns - one->started_ns[slot]) / 1e3;
	return submit_slot(one, slot, error);
}

/* Waits for completions, and replaces each by a new read. */
static int turn_over(load *one, weir_error *error)
{
	int count, i, code;
	uint64_t now_ns;

	while ((count = weir_io_reap(one->io, one->completions, one->queue_depth)) == 0)
		(void)weir_io_wait(one->io, UINT64_MAX);
	now_ns = weir_clock_ns();
	for (i = 0; i < count; i++) {
		code = take_completion(one, &one->completions[i], now_ns, error);
		if (code != 0)
			return code;
	}
	return 0;
}

static int fill_queue(load *one, weir_error *error)
{
	uint32_t slot;
	int code = 0;

	for (slot = 0; slot < one->queue_depth && code == 0; slot++)
		code = submit_slot(one, slot, error);
	while (code == 0 && one->completed_count < one->queue_depth)
		code = turn_over(one, error);
	return code;
}

static int run_load(load *one, double seconds, double *bytes_per_second, weir_error *error)
{
	int code = fill_queue(one, error);
	uint64_t start_ns = weir_clock_ns(), start_bytes = one->completed_bytes, now_ns;

	one->samples_count = 0;
	do {
		if (code == 0)
			code = turn_over(one, error);
		now_ns = weir_clock_ns();
	} while (code == 0 && (double)(now_ns - start_ns) < seconds * 1e9);
	if (code == 0)
		*bytes_per_second = (double)(one->completed_bytes - start_bytes) / ((double)(now_ns - start_ns) / 1e9);
	return code;
}

static int measure_point(const weir_disk_target *target, weir_disk_point *point, double seconds, weir_disk *traits,
			 double *samples_us, uint32_t *samples_count, weir_error *error)
{
	load one;
	int code = open_load(&one, target, point, error);

	if (code != 0)
		return code;
	if (weir_io_offset_alignment(one.io) == 1)
		weir_disk_target_drop_cache(target);
	one.samples_us = samples_us;
	code = run_load(&one, seconds, &point->bytes_per_second, error);
	if (samples_count)
		*samples_count = one.samples_count;
	if (traits) {
		traits->offset_alignment_bytes = weir_io_offset_alignment(one.io);
		traits->memory_alignment_bytes = weir_io_memory_alignment(one.io);
		traits->direct = traits->offset_alignment_bytes > 1;
	}
	close_load(&one);
	return code;
}

static bool is_worth_measuring(const char *method, uint32_t queue_depth, uint32_t piece_bytes, uint64_t file_bytes)
{
	if ((uint64_t)queue_depth * piece_bytes > IN_FLIGHT_BYTES_MAX)
		return false;
	if (piece_bytes > file_bytes && piece_bytes > PIECES[0])
		return false;
	/* Threads are the fallback: a coarser grid is enough. */
	return strcmp(method, "threads") != 0 || ((queue_depth == 1 || queue_depth == 8 || queue_depth == 32) &&
						  (piece_bytes == 128u << 10 || piece_bytes == 1u << 20));
}

static void add_point(weir_disk *disk, const char *method, uint32_t queue_depth, uint32_t piece_bytes, uint64_t file_bytes)
{
	weir_disk_point *point = &disk->points[disk->points_count];

	if (disk->points_count == WEIR_DISK_POINTS_MAX || !is_worth_measuring(method, queue_depth, piece_bytes, file_bytes))
		return;
	*point = (weir_disk_point){.queue_depth = queue_depth, .piece_bytes = piece_bytes};
	memcpy(point->method, method, strlen(method) + 1);
	disk->points_count++;
}

static bool method_opens(const char *method)
{
	weir_io_options options = {.method = method, .queue_depth = 1, .requests_max = 1};
	weir_io *io = NULL;
	bool opens = weir_io_open(&options, &io, NULL) == 0;

	weir_io_close(io);
	return opens;
}

static void lay_out_grid(weir_disk *disk, uint64_t file_bytes)
{
	uint32_t m, p, d;

	for (m = 0; m < COUNT_OF(METHODS); m++) {
		if (!method_opens(METHODS[m]))
			continue;
		for (p = 0; p < COUNT_OF(PIECES); p++) {
			for (d = 0; d < COUNT_OF(DEPTHS); d++)
				add_point(disk, METHODS[m], DEPTHS[d], PIECES[p], file_bytes);
		}
	}
}

static int report_progress(const weir_disk_options *options, double fraction, const char *path, weir_error *error)
{
	if (!options->progress || options->progress(fraction, options->context))
		return 0;
	return weir_fail(error, WEIR_EINTERRUPTED, path, WEIR_ERROR_NO_OFFSET, 0, "stopped while measuring");
}

static int measure_grid(const weir_disk_target *target, const weir_disk_options *options, weir_disk *disk, weir_error *error)
{
	double seconds = options->seconds * (1 - CONFIRM_SHARE - LATENCY_SHARE) / disk->points_count;
	uint32_t i;
	int code = 0;

	for (i = 0; i < disk->points_count && code == 0; i++) {
		code = report_progress(options, (double)i / (disk->points_count + 8.0), target->name, error);
		if (code == 0)
			code = measure_point(target, &disk->points[i], seconds, disk, NULL, NULL, error);
	}
	return code;
}

static bool is_better(const weir_disk_point *point, const weir_disk_point *than)
{
	uint64_t bytes = (uint64_t)point->queue_depth * point->piece_bytes;
	uint64_t than_bytes = (uint64_t)than->queue_depth * than->piece_bytes;
	int order = strcmp(point->method, than->method);

	if (order != 0)
		return order > 0; /* "uring" comes after "threads" */
	return bytes < than_bytes;
}

static weir_disk_point choose_point(const weir_disk *disk)
{
	const weir_disk_point *chosen = NULL;
	double best = 0;
	uint32_t i;

	for (i = 0; i < disk->points_count; i++)
		best = fmax(best, disk->points[i].bytes_per_second);
	for (i = 0; i < disk->points_count; i++) {
		const weir_disk_point *point = &disk->points[i];

		if (point->bytes_per_second >= CLOSE_TO_BEST * best && (!chosen || is_better(point, chosen)))
			chosen = point;
	}
	return *chosen;
}

static int compare_samples(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Nearest rank: the smallest sample that at least this share of them does not exceed. */
static double percentile(const double *sorted, uint32_t count, double share)
{
	uint32_t rank = (uint32_t)ceil(share * count);

	return count ? sorted[rank ? rank - 1 : 0] : 0;
}

static int measure_latency(const weir_disk_target *target, weir_disk *disk, double seconds, weir_error *error)
{
	weir_disk_point point = {.queue_depth = 1, .piece_bytes = disk->piece_bytes};
	double *samples_us = calloc(SAMPLES_MAX, sizeof *samples_us);
	uint32_t count = 0;
	int code;

	if (!samples_us)
		return weir_fail(error, WEIR_ENOMEM, target->name, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	memcpy(point.method, disk->method, sizeof point.method);
	code = measure_point(target, &point, seconds, NULL, samples_us, &count, error);
	if (code == 0) {
		qsort(samples_us, count, sizeof *samples_us, compare_samples);
		disk->read_latency_us_p50 = percentile(samples_us, count, 0.50);
		disk->read_latency_us_p95 = percentile(samples_us, count, 0.95);
		disk->read_latency_us_p99 = percentile(samples_us, count, 0.99);
	}
	free(samples_us);
	return code;
}

static int confirm(const weir_disk_target *target, const weir_disk_options *options, weir_disk *disk, weir_error *error)
{
	weir_disk_point chosen = choose_point(disk);
	int code;

	code = report_progress(options, 0.9, target->name, error);
	if (code == 0)
		code = measure_point(target, &chosen, options->seconds * CONFIRM_SHARE, disk, NULL, NULL, error);
	if (code != 0)
		return code;
	memcpy(disk->method, chosen.method, sizeof disk->method);
	disk->queue_depth = chosen.queue_depth;
	disk->piece_bytes = chosen.piece_bytes;
	disk->bytes_per_second = chosen.bytes_per_second;
	code = report_progress(options, 0.95, target->name, error);
	if (code == 0)
		code = measure_latency(target, disk, options->seconds * LATENCY_SHARE, error);
	return code;
}

static int take_options(const weir_disk_options *given, weir_disk_options *options, const char *path, weir_error *error)
{
	*options = given ? *given : (weir_disk_options){.seconds = 0};
	if (options->seconds == 0)
		options->seconds = DEFAULT_SECONDS;
	if (options->file_bytes == 0)
		options->file_bytes = DEFAULT_FILE_BYTES;
	if (!isfinite(options->seconds) || options->seconds < 0 || options->seconds > 3600)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "cannot measure for %g seconds",
				 options->seconds);
	return 0;
}

int weir_disk_measure(const char *path, const weir_disk_options *given, weir_disk *disk, weir_error *error)
{
	weir_disk_options options;
	weir_disk_target target;
	int code;

	if (!path || !disk)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no path or no place for the result");
	code = take_options(given, &options, path, error);
	if (code == 0)
		code = weir_disk_target_open(path, &options, &target, error);
	if (code != 0)
		return code;
	memset(disk, 0, sizeof *disk);
	disk->file_bytes = target.bytes;
	disk->measured_at_s = (int64_t)time(NULL);
	lay_out_grid(disk, target.bytes);
	code = measure_grid(&target, &options, disk, error);
	if (code == 0)
		code = confirm(&target, &options, disk, error);
	weir_disk_target_close(&target);
	return code;
}

uint64_t weir_disk_rate_memory_bytes(const char *method, uint32_t queue_depth, uint32_t piece_bytes)
{
	uint32_t depth = queue_depth ? queue_depth : DEFAULT_QUEUE_DEPTH;
	uint64_t piece = piece_bytes ? piece_bytes : DEFAULT_PIECE_BYTES;
	weir_io_options options = {
		.method = method,
		.queue_depth = depth,
		.piece_bytes = piece_bytes,
		.requests_max = depth,
	};

	return depth * (piece + weir_page_bytes() + sizeof(weir_io_completion) + sizeof(uint64_t)) +
	       weir_io_memory_bytes(&options) + MEASURING_BYTES;
}

int weir_disk_rate(const char *path, const char *method, uint32_t queue_depth, uint32_t piece_bytes, double seconds,
		   double *bytes_per_second, weir_error *error)
{
	weir_disk_point point = {
		.queue_depth = queue_depth ? queue_depth : DEFAULT_QUEUE_DEPTH,
		.piece_bytes = piece_bytes ? piece_bytes : DEFAULT_PIECE_BYTES,
	};
	weir_disk_target target;
	int code;

	if (!path || !bytes_per_second || !(seconds > 0 && seconds <= 3600))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no path, or cannot measure for %g seconds",
				 seconds);
	if (!method)
		method = "auto";
	if (strlen(method) >= sizeof point.method)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "unknown I/O method");
	memcpy(point.method, method, strlen(method) + 1);
	code = weir_disk_target_open_file(path, &target, error);
	if (code != 0)
		return code;
	code = measure_point(&target, &point, seconds, NULL, NULL, NULL, error);
	if (code == 0)
		*bytes_per_second = point.bytes_per_second;
	weir_disk_target_close(&target);
	return code;
}
