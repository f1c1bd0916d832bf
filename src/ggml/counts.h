/*
 * counts.h - how often each expert was demanded, kept between runs of a model (internal to src/ggml).
 *
 * One small file for each model, ${XDG_CACHE_HOME:-~/.cache}/weir/models/KEY.counts.  KEY is a hash of the model's path, size,
 * time of change, and its expert weights' names and shapes.  The policy takes the counts over before the first token is worked
 * on; nothing is read because of them.  Byte order is the machine's:
 *
 *     "WEIRCNT1"   u32 weights   u32 counts   u64 XXH3-64 of what follows
 *     for each weight:    u64 XXH3-64 of its name   u32 experts   u32 0
 *     for each of its experts, in the same order:   u32 count ≤ 65535
 *
 * The file is read as untrusted input: one that breaks a rule is as good as none, and replaced.  A weight that a run did not
 * stream keeps no counts.
 *
 * Nothing here fails: what cannot be read is not there, what cannot be written is lost.
 */
#ifndef WEIR_GGML_COUNTS_H
#define WEIR_GGML_COUNTS_H

#include "ggml/session.h"

/* Once the store is open. */
void weir_counts_load(weir_session *session);

/* Writes beside and renames; does nothing without a store, or when nothing was demanded since. */
void weir_counts_save(weir_session *session);

#endif
