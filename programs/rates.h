/*
 * rates.h - the two rates that a forecast needs: the drive's and the processor's.
 *
 * The drive's rate is measured on the model's own file, the way the model is read, and cached by weir/disk.h.  The processor's
 * is what an earlier run of the same model with the same threads reached (its token time less its stalls), kept in
 * $XDG_CACHE_HOME/weir/compute.json; before the first run it is estimated from how fast this machine reads memory, since
 * generating touches every weight of a token once.  NAN stands for "not known".
 *
 * Only the main thread calls these functions.  They never fail: a rate that cannot be had is NAN.
 */
#ifndef WEIR_PROGRAMS_RATES_H
#define WEIR_PROGRAMS_RATES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rates_reading {
	const char *path;
	const char *method; /* "auto" or a name */
	uint32_t queue_depth; /* 0: the default */
	uint64_t piece_bytes; /* 0: the default */
	uint64_t room_bytes; /* buffers stay below this */
} rates_reading;

/* Bytes per second, measured now, for about `seconds`. */
double rates_measure_device(const rates_reading *reading, double seconds);

/* The cached rate; when there is none and `measure` allows it, measured shortly. */
double rates_device(const rates_reading *reading, bool measure);

/* Tokens per second with every weight resident; touched_bytes is what one token touches. */
double rates_compute(const char *model, uint32_t threads, uint64_t touched_bytes);

/* Keeps what a run has shown. */
void rates_remember_compute(const char *model, uint32_t threads, double tokens_per_second);

#endif
