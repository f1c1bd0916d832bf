/*
 * rates.c - see rates.h.
 */
#include "rates.h"

#include <math.h>
#include <string.h>

#include "weir/disk.h"

#define QUEUE_DEPTH_DEFAULT 32 /* those of weir/disk.h */

/* ---- the drive ---- */

/* As many reads at a time as asked for and as there is room for; 0 when there is none for one. */
static uint32_t affordable_depth(const rates_reading *reading, uint32_t piece)
{
	uint32_t depth = reading->queue_depth ? reading->queue_depth : QUEUE_DEPTH_DEFAULT;

	while (depth && weir_disk_rate_memory_bytes(reading->method, depth, piece) > reading->room_bytes)
		depth /= 2;
	return depth;
}

double rates_measure_device(const rates_reading *reading, double seconds)
{
	uint32_t piece = reading->piece_bytes < UINT32_MAX ? (uint32_t)reading->piece_bytes : 0;
	uint32_t depth = affordable_depth(reading, piece);
	double rate = NAN;

	if (!depth ||
	    weir_disk_rate(reading->path, reading->method, depth, piece, reading->room_bytes, seconds, &rate, NULL) < 0)
		return NAN;
	return rate > 0 ? rate : NAN;
}

/* ---- what `weir disk` has found ---- */

void rates_tune(rates_reading *reading)
{
	weir_disk_point tuned;

	if (reading->queue_depth || reading->piece_bytes || weir_disk_tuned(reading->path, reading->method, &tuned) != 0)
		return;
	reading->queue_depth = tuned.queue_depth;
	reading->piece_bytes = tuned.piece_bytes;
	if (strcmp(tuned.method, "threads") == 0)
		reading->method = "threads";
}

double rates_remembered_device(const rates_reading *reading)
{
	weir_disk_point tuned;

	return weir_disk_tuned(reading->path, reading->method, &tuned) == 0 ? tuned.bytes_per_second : NAN;
}

double rates_latency(const rates_reading *reading)
{
	weir_disk disk;

	return weir_disk_cached(reading->path, &disk) == 0 ? disk.burst_latency_us / 1e6 : 0;
}
