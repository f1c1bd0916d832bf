/*
 * others.h - how many processors other processes keep busy, of those that this one may use.
 */
#ifndef WEIR_OS_OTHERS_H
#define WEIR_OS_OTHERS_H

#include <stdbool.h>
#include <stdint.h>

/* All zero before the first sample. */
typedef struct weir_others {
	uint64_t at_ns, busy_ns, own_ns;
} weir_others;

/* False, in almost no time, until half a second has passed since the last that was true; then the average since.  What runs at
 * a lower priority than this process does not count.  False for ever where /proc/stat does not tell.  One thread at a time. */
bool weir_others_sample(weir_others *others, double *processors);

#endif
