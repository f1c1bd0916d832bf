/*
 * cached.h - the wrapper that reads from the kernel's page cache what lies there already, and the rest by the method below it.
 */
#ifndef WEIR_IO_CACHED_H
#define WEIR_IO_CACHED_H

#include "io/io_types.h"

#define WEIR_IO_TRIAL_WINDOWS 5

/* Whether the page cache is worth asking; see cached.c. */
typedef struct weir_io_judge {
	bool asking;
	uint32_t window; /* WEIR_IO_TRIAL_WINDOWS: no trial is on */
	uint64_t window_began_ns, window_bytes, window_hit_bytes; /* so far */
	uint64_t with_ns, without_ns; /* of this trial's windows */
	uint64_t kept_bytes; /* between trials: when to try again */
} weir_io_judge;

void weir_io_judge_begin(weir_io_judge *judge, uint64_t now_ns);

/* Notes so many bytes that were asked for, of which so many came from the page cache. */
void weir_io_judge_note(weir_io_judge *judge, uint64_t bytes, uint64_t hit_bytes, uint64_t now_ns);

extern const weir_method weir_io_cached; /* its open is weir_io_cached_wrap */

/* Wraps an open method; the wrapper's close closes it.  WEIR_EUNSUPPORTED where the kernel cannot say what it has cached
 * (before Linux 6.5), and the method stays the caller's. */
int weir_io_cached_wrap(const weir_method *inner, void *inner_state, uint32_t queue_depth, void **state, weir_error *error);

/* Bytes that came from the page cache.  Any thread. */
uint64_t weir_io_cached_bytes(void *state);

#endif
