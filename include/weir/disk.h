/*
 * disk.h - what a drive delivers when it is read the way weir reads: random extents, several at a time, past the page cache.
 *
 * Rates are bytes per second, sustained: counted after the queue was filled once.  A file is read as it lies; for a directory a
 * temporary file is written there first, which has no name and so is gone whatever happens.  Where the file system has no
 * direct reads, the file's cached pages are dropped before each measurement, and `direct` is false.
 *
 * Threads: all functions may be called from any thread; two measurements at one time measure each other.
 */
#ifndef WEIR_DISK_H
#define WEIR_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_DISK_POINTS_MAX 96
#define WEIR_DISK_METHOD_BYTES 16

/* The rate at one setting. */
typedef struct weir_disk_point {
	char method[WEIR_DISK_METHOD_BYTES]; /* "uring" or "threads" */
	uint32_t queue_depth;
	uint32_t piece_bytes; /* of one read */
	double bytes_per_second; /* the median of its slices */
	uint32_t slices_count; /* how often it was measured: more often the more likely it was to be chosen */
} weir_disk_point;

typedef struct weir_disk {
	/* The setting to use.  Of those within 5 % of the fastest, as far as the noise of the drive lets one tell: io_uring
	 * first; then those with as many bytes in flight as the drive delivers in 2 ms, so that a completion noticed late
	 * leaves no gap; of these the one with the fewest, since what is in flight delays what is wanted at once. */
	char method[WEIR_DISK_METHOD_BYTES];
	uint32_t queue_depth;
	uint32_t piece_bytes;
	double bytes_per_second; /* measured anew at that setting, median */

	bool direct;
	uint32_t offset_alignment_bytes; /* what reads there need: offsets and lengths; 1 when not direct */
	uint32_t memory_alignment_bytes;
	double read_latency_us_p50; /* of one read of piece_bytes on an otherwise idle drive */
	double read_latency_us_p95;
	double read_latency_us_p99;
	/* What 1 to 8 MiB that are asked for at once, of an idle drive, take beyond their bytes ÷ bytes_per_second: the median,
	 * 0 when they take no longer. */
	double burst_latency_us;

	uint64_t file_bytes; /* of the file that was read: a small one may fit a cache in the drive */
	int64_t measured_at_s; /* seconds since 1970 */
	uint32_t points_count;
	weir_disk_point points[WEIR_DISK_POINTS_MAX];
} weir_disk;

typedef struct weir_disk_options {
	double seconds; /* about how long reading may take; 0 takes the default (5) */
	uint64_t file_bytes; /* of the temporary file; 0 takes the default (512 MiB); less when space is short */
	/* Called now and then with 0..1; false stops the measurement with WEIR_EINTERRUPTED.  NULL for none. */
	bool (*progress)(double fraction, void *context);
	void *context;
} weir_disk_options;

/* Measures the drive that holds `path`, a regular file or a directory.  `options` may be NULL.  WEIR_ENOSPACE when the
 * directory has less than 128 MiB free, WEIR_EUNSUPPORTED for an empty file, WEIR_EINVAL for a number that makes no sense; else
 * the codes of opening and reading. */
int weir_disk_measure(const char *path, const weir_disk_options *options, weir_disk *disk, weir_error *error);

/* The rate of the file at given settings, measured for `seconds`.  `method` may be "auto" or NULL; 0 takes the defaults of
 * depth (32) and piece (1 MiB).  Reads go to one place in memory after the other, as far as `memory_bytes` reach: places that
 * are used again at once stay in the processor's caches, and drives are faster into those than into the memory that weights lie
 * in.  No more than 64 MiB for that are taken, and no less in all than weir_disk_rate_memory_bytes. */
int weir_disk_rate(const char *path, const char *method, uint32_t queue_depth, uint32_t piece_bytes, uint64_t memory_bytes,
		   double seconds, double *bytes_per_second, weir_error *error);

/* The least memory in bytes that weir_disk_rate takes at these settings: buffers, tables, threads.  Thread-safe. */
uint64_t weir_disk_rate_memory_bytes(const char *method, uint32_t queue_depth, uint32_t piece_bytes);

/*
 * Results are remembered in ${XDG_CACHE_HOME:-~/.cache}/weir/disk.json, under the device number, type and (where the system
 * shows it) drive model of the file system that holds `path`.  The file is written beside and renamed; what cannot be
 * understood is ignored.  Of two processes that write at one time the later one's file stays.
 */
int weir_disk_cached(const char *path, weir_disk *disk); /* WEIR_ENOTFOUND when there is none */
int weir_disk_remember(const char *path, const weir_disk *disk, weir_error *error);

/* The setting to use for the drive that holds `path`, from a remembered result: the one found best, or, when `method` is
 * "uring" or "threads" and that is not the method found best, the best of that method.  NULL is "auto".  WEIR_ENOTFOUND when
 * nothing is remembered, or nothing of that method. */
int weir_disk_tuned(const char *path, const char *method, weir_disk_point *point);

#ifdef __cplusplus
}
#endif
#endif
