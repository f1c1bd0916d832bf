/*
 * memory.h - page-aligned anonymous memory, advice about ranges of it, and the monotonic clock.
 *
 * The caller owns what weir_memory_map gives and returns it with weir_memory_unmap and the same size.  All functions are
 * thread-safe.  Nothing here locks pages (mlock) or touches memory that it did not map, except to give advice on it.
 */
#ifndef WEIR_OS_MEMORY_H
#define WEIR_OS_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"

typedef enum weir_advice {
	WEIR_ADVICE_HUGE, /* back with huge pages where the system allows it */
	WEIR_ADVICE_DISCARD, /* contents no longer wanted: anonymous pages are freed, file pages unmapped */
	WEIR_ADVICE_WILLNEED, /* start reading a mapped file range */
	WEIR_ADVICE_POPULATE, /* fault pages in for writing now; fails instead of raising SIGBUS */
	WEIR_ADVICE_NODUMP, /* leave the range out of core dumps */
} weir_advice;

uint64_t weir_page_bytes(void);

/* Maps `bytes` (rounded up to pages) of zeroed memory, at a multiple of the page size, or of 2 MiB when `huge` is set and the
 * range is that large.  Huge pages are a wish: not getting them is no error.  Gives WEIR_ENOMEM, or WEIR_EINVAL for 0. */
int weir_memory_map(uint64_t bytes, bool huge, void **base, weir_error *error);
void weir_memory_unmap(void *base, uint64_t bytes); /* NULL is allowed */

/* Advises on the whole pages that lie inside [base, base + bytes); a range without a whole page is left alone.  Returns 0 or
 * a negative code; advice that the kernel does not know gives WEIR_EUNSUPPORTED, which callers may ignore. */
int weir_memory_advise(void *base, uint64_t bytes, weir_advice advice);

/* Faults the whole pages inside the range in for writing, keeping what they hold, with as many threads as there are processors:
 * the kernel clears a few GB a second on one.  Codes as above; WEIR_EUNSUPPORTED by kernels before 5.14. */
int weir_memory_populate(void *base, uint64_t bytes);

/* Nanoseconds of CLOCK_MONOTONIC: for differences only. */
uint64_t weir_clock_ns(void);

#endif
