/*
 * rates.h - the rate of the drive: measured on the model's own file, the way the model is read, or what `weir disk` remembered.
 * NAN stands for "not known".
 *
 * Only the main thread calls these functions.  They never fail: a rate that cannot be had is NAN.
 */
#ifndef WEIR_PROGRAMS_RATES_H
#define WEIR_PROGRAMS_RATES_H

#include <stdint.h>

typedef struct rates_reading {
	const char *path;
	const char *method; /* "auto" or a name */
	uint32_t queue_depth; /* 0: the default */
	uint64_t piece_bytes; /* 0: the default */
	uint64_t room_bytes; /* buffers stay below this */
} rates_reading;

/* Fills in what `weir disk` found best where depth and size are 0, as the backend does. */
void rates_tune(rates_reading *reading);

/* Bytes per second, measured now, for about `seconds`. */
double rates_measure_device(const rates_reading *reading, double seconds);

/* What `weir disk` remembered: bytes per second, and what a burst takes beyond its bytes in seconds (0 when not known). */
double rates_remembered_device(const rates_reading *reading);
double rates_latency(const rates_reading *reading);

#endif
