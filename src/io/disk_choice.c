/*
 * disk_choice.c - see disk_choice.h.
 *
 * Worked example, a drive of 2 GB/s, which delivers 4 MB in 2 ms:
 *
 *   depth × read    in flight   rate
 *    1 × 1 MiB        1 MiB      0.8    too slow
 *    2 × 1 MiB        2 MiB      1.95   within 5 %, but idle as soon as two completions wait to be noticed
 *    4 × 1 MiB        4 MiB      1.98   chosen
 *   32 × 1 MiB       32 MiB      2.00   no better, and a read that is wanted now waits behind 31 others
 */
#include "io/disk_choice.h"

#include <stddef.h>
#include <string.h>

#include "weir/error.h"

#define CLOSE_TO_BEST 0.95
#define LATE_SECONDS 0.002 /* by which a completion may be noticed late while threads compute */

static const struct {
	double close;
	uint32_t kept;
} STAGES[] = {{0, WEIR_DISK_POINTS_MAX}, {0.80, 9}, {0.90, 4}};

void weir_disk_slices_begin(weir_disk_slices *slices, uint32_t count)
{
	memset(slices, 0, count * sizeof *slices);
	for (uint32_t i = 0; i < count; i++)
		slices[i].running = true;
}

void weir_disk_slices_add(weir_disk_slices *slices, weir_disk_point *point, double bytes_per_second)
{
	uint32_t at = slices->count;

	if (at == WEIR_DISK_SLICES_MAX)
		return;
	for (; at && slices->rates[at - 1] > bytes_per_second; at--)
		slices->rates[at] = slices->rates[at - 1];
	slices->rates[at] = bytes_per_second;
	slices->count++;
	point->slices_count = slices->count;
	point->bytes_per_second = (slices->rates[(slices->count - 1) / 2] + slices->rates[slices->count / 2]) / 2;
}

static uint64_t in_flight(const weir_disk_point *point)
{
	return (uint64_t)point->queue_depth * point->piece_bytes;
}

/* Whether `a` would be chosen before `b`, both being fast enough. */
static bool comes_before(const weir_disk_point *a, const weir_disk_point *b, double best)
{
	double needed = best * LATE_SECONDS;
	bool a_bridges = (double)in_flight(a) >= needed, b_bridges = (double)in_flight(b) >= needed;
	int order = strcmp(a->method, b->method);

	if (order != 0)
		return order > 0; /* "uring" comes after "threads" */
	if (a_bridges != b_bridges)
		return a_bridges;
	if (in_flight(a) != in_flight(b))
		return a_bridges == (in_flight(a) < in_flight(b));
	return a->bytes_per_second > b->bytes_per_second;
}

static bool is_candidate(const weir_disk *disk, const weir_disk_slices *slices, uint32_t index, const char *method)
{
	return (!slices || slices[index].running) && (!method || strcmp(disk->points[index].method, method) == 0);
}

static uint32_t find_best(const weir_disk *disk, const weir_disk_slices *slices, const char *method)
{
	uint32_t best = disk->points_count;

	for (uint32_t i = 0; i < disk->points_count; i++) {
		if (!is_candidate(disk, slices, i, method))
			continue;
		if (best == disk->points_count || disk->points[i].bytes_per_second > disk->points[best].bytes_per_second)
			best = i;
	}
	return best;
}

/* What a point may well reach: where its slices differ widely its median says little, and the upper quartile, against the
 * median of the fastest, keeps chance from deciding for a heavier setting. */
static double credible_rate(const weir_disk *disk, const weir_disk_slices *slices, uint32_t index)
{
	if (!slices || !slices[index].count)
		return disk->points[index].bytes_per_second;
	return slices[index].rates[3 * slices[index].count / 4];
}

/* The first in the order of choice that is as fast as `close` of the best, and not in `taken`; points_count when none is. */
static uint32_t find_first(const weir_disk *disk, const weir_disk_slices *slices, const char *method, double close,
			   const bool *taken)
{
	uint32_t found = disk->points_count, fastest = find_best(disk, slices, method);
	double best = fastest < disk->points_count ? disk->points[fastest].bytes_per_second : 0;

	for (uint32_t i = 0; i < disk->points_count; i++) {
		const weir_disk_point *point = &disk->points[i];

		if (!is_candidate(disk, slices, i, method) || (taken && taken[i]) ||
		    credible_rate(disk, slices, i) < close * best)
			continue;
		if (found == disk->points_count || comes_before(point, &disk->points[found], best))
			found = i;
	}
	return found;
}

void weir_disk_choice_narrow(const weir_disk *disk, weir_disk_slices *slices, uint32_t stage)
{
	bool taken[WEIR_DISK_POINTS_MAX] = {false};
	uint32_t best = find_best(disk, slices, NULL), first;

	for (uint32_t i = 0; i < STAGES[stage].kept; i++) {
		first = find_first(disk, slices, NULL, STAGES[stage].close, taken);
		if (first < disk->points_count)
			taken[first] = true;
	}
	if (best < disk->points_count)
		taken[best] = true;
	for (uint32_t i = 0; i < disk->points_count; i++)
		slices[i].running = slices[i].running && taken[i];
}

static int choose(const weir_disk *disk, const weir_disk_slices *slices, const char *method, weir_disk_point *chosen)
{
	uint32_t index = find_first(disk, slices, method, CLOSE_TO_BEST, NULL);

	if (index == disk->points_count)
		return WEIR_ENOTFOUND;
	*chosen = disk->points[index];
	return 0;
}

int weir_disk_choice_make(const weir_disk *disk, const weir_disk_slices *slices, weir_disk_point *chosen)
{
	return choose(disk, slices, NULL, chosen);
}

int weir_disk_choice_of_method(const weir_disk *disk, const char *method, weir_disk_point *chosen)
{
	return choose(disk, NULL, method, chosen);
}
