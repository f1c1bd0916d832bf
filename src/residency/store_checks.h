/*
 * store_checks.h - a store that compares what it reads with checksums.  For whoever opens a store inside the library.
 */
#ifndef WEIR_RESIDENCY_STORE_CHECKS_H
#define WEIR_RESIDENCY_STORE_CHECKS_H

#include "weir/store.h"

/* From now on each chunk that is read must have the XXH3-64 that `sums` gives for its id, or its lease fails with
 * WEIR_ECHECKSUM.  The table is borrowed and must outlive the store.  Call before the first acquire. */
void weir_store_check_reads(weir_store *store, const uint64_t *sums);

#endif
