/*
 * disk.c - measuring a drive: see weir/disk.h for what the numbers mean.
 *
 *   target (file, or a temporary one) ─► rounds over a grid of settings ─► choose ─► the chosen one again, bursts, single reads
 *
 * Drives that others use too change from one second to the next.  So no setting is measured in one go: every round gives each
 * setting a slice of some milliseconds, every second round in reverse order, and what counts is the median of a setting's
 * slices.  After each stage only the settings that may still be chosen go on (disk_choice.c), with more slices each:
 *
 *   stage 0   all settings                                    ├─ round ─┼─ round ─┤
 *   stage 1   the lightest of those not far from the fastest            ├ r ┼ r ┼ r ┤
 *   stage 2   the same again, fewer                                                 ├r┼r┼r┼r┼r┤
 *
 * A stage ends when its share of the time is over, but not before its first round.
 */
#include "weir/disk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/fail.h"
#include "io/disk_choice.h"
#include "io/disk_load.h"
#include "io/disk_target.h"
#include "io/io.h"
#include "os/memory.h"

#define DEFAULT_SECONDS 5.0
#define DEFAULT_FILE_BYTES ((uint64_t)512 << 20)
/* What code that runs for the first time, the C library and the kernel add.  The kernel counts a process's pages by processor,
 * and adds them up now and then: what it says before is not exact either. */
#define MEASURING_BYTES ((uint64_t)4 << 20)
#define DEFAULT_QUEUE_DEPTH 32u
#define DEFAULT_PIECE_BYTES (1u << 20)
#define IN_FLIGHT_BYTES_MAX ((uint64_t)32 << 20) /* deeper than this is no use to a budget */
#define SPREAD_BYTES ((uint64_t)64 << 20) /* memory that reads go to in turns: more than processors' caches hold */
#define SLICES_COUNT 250 /* in all, about: slices of 20 ms in 5 seconds */
#define STAGES_COUNT 3
#define SAMPLES_MAX 2048u
#define SINGLE_READS 8 /* in a row */
#define BURST_BYTES ((uint64_t)8 << 20) /* the largest */

static const char *const METHODS[] = {"uring", "threads"};
static const uint32_t DEPTHS[] = {1, 2, 4, 8, 16, 32, 64};
static const uint32_t PIECES[] = {128u << 10, 256u << 10, 512u << 10, 1u << 20, 2u << 20, 4u << 20};
static const double STAGE_ENDS[STAGES_COUNT] = {0.45, 0.65, 0.80}; /* of the time */
#define COUNT_OF(array) ((uint32_t)(sizeof(array) / sizeof(array)[0]))

/* A measurement of a whole drive. */
typedef struct measurement {
	const weir_disk_options *options;
	weir_disk_target target;
	weir_disk_memory memory;
	weir_disk *disk;
	weir_disk_slices *slices; /* of each point */
	uint64_t start_ns;
	double slice_seconds;
	double single_us[SAMPLES_MAX], beyond_us[SAMPLES_MAX], rates[SAMPLES_MAX];
	uint32_t single_count, beyond_count, rates_count;
} measurement;

static double passed_share(const measurement *m)
{
	return (double)(weir_clock_ns() - m->start_ns) / 1e9 / m->options->seconds;
}

static int report_progress(const measurement *m, weir_error *error)
{
	double share = passed_share(m);

	if (!m->options->progress || m->options->progress(share < 1 ? share : 1, m->options->context))
		return 0;
	return weir_fail(error, WEIR_EINTERRUPTED, m->target.name, WEIR_ERROR_NO_OFFSET, 0, "stopped while measuring");
}

/* ---- the grid ---- */

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

/* ---- rounds ---- */

static int open_load(const measurement *m, const weir_disk_point *point, weir_disk_load *load, weir_error *error)
{
	int code = weir_disk_load_open(load, &m->target, point, &m->memory, error);

	if (code == 0 && weir_io_offset_alignment(load->io) == 1)
		weir_disk_target_drop_cache(&m->target);
	return code;
}

static int measure_slice(measurement *m, uint32_t index, weir_error *error)
{
	weir_disk_point *point = &m->disk->points[index];
	weir_disk_load load;
	double rate = 0;
	int code = open_load(m, point, &load, error);

	if (code != 0)
		return code;
	code = weir_disk_load_run(&load, m->slice_seconds, &rate, error);
	m->disk->offset_alignment_bytes = weir_io_offset_alignment(load.io);
	m->disk->memory_alignment_bytes = weir_io_memory_alignment(load.io);
	m->disk->direct = m->disk->offset_alignment_bytes > 1;
	weir_disk_load_close(&load);
	if (code == 0)
		weir_disk_slices_add(&m->slices[index], point, rate);
	return code;
}

static int run_round(measurement *m, bool reverse, weir_error *error)
{
	uint32_t count = m->disk->points_count, i;
	int code = 0;

	for (i = 0; i < count && code == 0; i++) {
		uint32_t index = reverse ? count - 1 - i : i;

		if (!m->slices[index].running)
			continue;
		code = report_progress(m, error);
		if (code == 0)
			code = measure_slice(m, index, error);
	}
	return code;
}

static int run_stages(measurement *m, weir_error *error)
{
	uint32_t stage, rounds;
	int code = 0;

	for (stage = 0; stage < STAGES_COUNT && code == 0; stage++) {
		if (stage)
			weir_disk_choice_narrow(m->disk, m->slices, stage);
		rounds = 0;
		do
			code = run_round(m, rounds++ % 2, error);
		while (code == 0 && rounds < WEIR_DISK_SLICES_MAX / STAGES_COUNT && passed_share(m) < STAGE_ENDS[stage]);
	}
	return code;
}

/* ---- the chosen setting ---- */

static int compare_samples(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Nearest rank: the smallest sample that at least this share of them does not exceed.  Sorts. */
static double percentile(double *samples, uint32_t count, double share)
{
	uint32_t rank = (uint32_t)ceil(share * count);

	qsort(samples, count, sizeof *samples, compare_samples);
	return count ? samples[rank ? rank - 1 : 0] : 0;
}

static void add_sample(double samples[SAMPLES_MAX], uint32_t *count, double sample)
{
	if (*count < SAMPLES_MAX)
		samples[(*count)++] = sample;
}

static int read_singles(measurement *m, weir_disk_load *load, weir_error *error)
{
	double seconds;
	uint64_t bytes;
	int i, code = 0;

	for (i = 0; i < SINGLE_READS && code == 0; i++) {
		code = weir_disk_load_burst(load, 1, &seconds, &bytes, error);
		if (code == 0)
			add_sample(m->single_us, &m->single_count, seconds * 1e6);
	}
	return code;
}

/* From one piece to as many as make BURST_BYTES, doubling: what each takes beyond its bytes at the rate. */
static int read_bursts(measurement *m, weir_disk_load *load, double rate, weir_error *error)
{
	double seconds;
	uint64_t bytes;
	uint32_t pieces;
	int code = 0;

	for (pieces = 1; pieces <= load->queue_depth && code == 0; pieces *= 2) {
		code = weir_disk_load_burst(load, pieces, &seconds, &bytes, error);
		if (code == 0 && (double)bytes * 8 >= (double)BURST_BYTES)
			add_sample(m->beyond_us, &m->beyond_count, (seconds - (double)bytes / rate) * 1e6);
	}
	return code;
}

/* The settings for bursts: as the chosen one, with room for the largest burst. */
static weir_disk_point burst_point(const weir_disk *disk)
{
	weir_disk_point point = {.piece_bytes = disk->piece_bytes, .queue_depth = 1};

	memcpy(point.method, disk->method, sizeof point.method);
	while ((uint64_t)point.queue_depth * point.piece_bytes < BURST_BYTES)
		point.queue_depth *= 2;
	return point;
}

/* One more slice of the chosen setting; then bursts and single reads on the drive that is idle again. */
static int confirm_once(measurement *m, const weir_disk_point *chosen, weir_error *error)
{
	weir_disk_point bursts = burst_point(m->disk);
	weir_disk_load load;
	double rate = 0;
	int code = open_load(m, chosen, &load, error);

	if (code != 0)
		return code;
	code = weir_disk_load_run(&load, 2 * m->slice_seconds, &rate, error);
	weir_disk_load_close(&load);
	if (code != 0)
		return code;
	add_sample(m->rates, &m->rates_count, rate);
	code = open_load(m, &bursts, &load, error);
	if (code != 0)
		return code;
	code = read_bursts(m, &load, rate, error);
	if (code == 0)
		code = read_singles(m, &load, error);
	weir_disk_load_close(&load);
	return code;
}

static int confirm(measurement *m, weir_error *error)
{
	weir_disk_point chosen;
	weir_disk *disk = m->disk;
	int code = 0;

	if (weir_disk_choice_make(disk, m->slices, &chosen) != 0)
		return weir_fail(error, WEIR_EUNSUPPORTED, m->target.name, WEIR_ERROR_NO_OFFSET, 0,
				 "no I/O method can be used here");
	memcpy(disk->method, chosen.method, sizeof disk->method);
	disk->queue_depth = chosen.queue_depth;
	disk->piece_bytes = chosen.piece_bytes;
	do {
		code = report_progress(m, error);
		if (code == 0)
			code = confirm_once(m, &chosen, error);
	} while (code == 0 && passed_share(m) < 1 && m->rates_count < SAMPLES_MAX);
	disk->bytes_per_second = percentile(m->rates, m->rates_count, 0.50);
	disk->burst_latency_us = fmax(percentile(m->beyond_us, m->beyond_count, 0.50), 0);
	disk->read_latency_us_p50 = percentile(m->single_us, m->single_count, 0.50);
	disk->read_latency_us_p95 = percentile(m->single_us, m->single_count, 0.95);
	disk->read_latency_us_p99 = percentile(m->single_us, m->single_count, 0.99);
	return code;
}

/* ---- the measurement ---- */

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

static int measure_target(measurement *m, weir_error *error)
{
	int code;

	lay_out_grid(m->disk, m->target.bytes);
	m->slices = calloc(WEIR_DISK_POINTS_MAX, sizeof *m->slices);
	if (!m->slices)
		return weir_fail(error, WEIR_ENOMEM, m->target.name, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	weir_disk_slices_begin(m->slices, m->disk->points_count);
	code = weir_disk_memory_map(SPREAD_BYTES, &m->memory, error);
	m->start_ns = weir_clock_ns();
	if (code == 0)
		code = run_stages(m, error);
	if (code == 0)
		code = confirm(m, error);
	weir_disk_memory_unmap(&m->memory);
	free(m->slices);
	return code;
}

int weir_disk_measure(const char *path, const weir_disk_options *given, weir_disk *disk, weir_error *error)
{
	weir_disk_options options;
	measurement *m;
	int code;

	if (!path || !disk)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no path or no place for the result");
	code = take_options(given, &options, path, error);
	if (code != 0)
		return code;
	m = calloc(1, sizeof *m);
	if (!m)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	m->options = &options;
	m->disk = disk;
	m->slice_seconds = options.seconds / SLICES_COUNT;
	code = weir_disk_target_open(path, &options, &m->target, error);
	if (code == 0) {
		memset(disk, 0, sizeof *disk);
		disk->file_bytes = m->target.bytes;
		disk->measured_at_s = (int64_t)time(NULL);
		code = measure_target(m, error);
		weir_disk_target_close(&m->target);
	}
	free(m);
	return code;
}

/* ---- one rate ---- */

static uint64_t buffer_bytes(const weir_disk_point *point, uint64_t memory_bytes)
{
	uint64_t wanted = weir_disk_memory_wanted(point->queue_depth, point->piece_bytes);
	uint64_t least = weir_disk_rate_memory_bytes(point->method, point->queue_depth, point->piece_bytes);
	uint64_t spread = wanted < SPREAD_BYTES ? SPREAD_BYTES : wanted;

	if (memory_bytes <= least)
		return wanted;
	return memory_bytes - least < spread - wanted ? wanted + (memory_bytes - least) : spread;
}

static int measure_rate(const weir_disk_target *target, weir_disk_point *point, uint64_t memory_bytes, double seconds,
			weir_error *error)
{
	weir_disk_memory memory;
	weir_disk_load load;
	int code = weir_disk_memory_map(buffer_bytes(point, memory_bytes), &memory, error);

	if (code != 0)
		return code;
	code = weir_disk_load_open(&load, target, point, &memory, error);
	if (code == 0) {
		if (weir_io_offset_alignment(load.io) == 1)
			weir_disk_target_drop_cache(target);
		code = weir_disk_load_run(&load, seconds, &point->bytes_per_second, error);
		weir_disk_load_close(&load);
	}
	weir_disk_memory_unmap(&memory);
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

int weir_disk_rate(const char *path, const char *method, uint32_t queue_depth, uint32_t piece_bytes, uint64_t memory_bytes,
		   double seconds, double *bytes_per_second, weir_error *error)
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
	code = measure_rate(&target, &point, memory_bytes, seconds, error);
	if (code == 0)
		*bytes_per_second = point.bytes_per_second;
	weir_disk_target_close(&target);
	return code;
}
