/* quantile.c - see quantile.h. */
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double weir_quantile(double *values, size_t count, double share)
{
	double place, whole, part;
	size_t at;

	if (!count)
		return NAN;
	qsort(values, count, sizeof *values, by_value);
	place = share * (double)(count - 1);
	part = modf(place, &whole);
	at = (size_t)whole;
	if (at + 1 >= count)
		return values[count - 1];
	return values[at] + part * (values[at + 1] - values[at]);
}
