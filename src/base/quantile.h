/*
 * quantile.h - the one way in which quantiles are taken here: medians of runs, the 95th percentile of token times.
 *
 * Pure functions, any thread.
 */
#ifndef WEIR_BASE_QUANTILE_H
#define WEIR_BASE_QUANTILE_H

#include <stddef.h>

/* Sorts `values` (none may be NAN) and gives the value that stands at `share` (0..1) of the way through them, interpolated
 * between its neighbours: 0 is the least, 0.5 the median, 1 the largest.  NAN of none. */
double weir_quantile(double *values, size_t count, double share);

#endif
