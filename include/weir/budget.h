/*
 * budget.h - how many bytes a memory budget comes to, for those who write it as text.
 *
 * Thread-safe.
 */
#ifndef WEIR_BUDGET_H
#define WEIR_BUDGET_H

#include <stdint.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Reads "4G", "3500M", "1.5GiB" (K, M, G, T and KiB... are powers of 1024, KB... of 1000), "60%" of what this process may use,
 * or "auto".  What it may use is the least of the cgroup limits above it (v1 and v2), MemAvailable, RLIMIT_AS and RLIMIT_DATA;
 * what the process holds already counts as usable.  "auto" leaves a margin: one sixteenth, between 64 MiB and 2 GiB.
 * 0 with *bytes ≥ 1, or WEIR_EINVAL with a message that quotes the text.
 */
int weir_budget_resolve(const char *text, uint64_t *bytes, weir_error *error);

#ifdef __cplusplus
}
#endif
#endif
