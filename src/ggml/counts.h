/*
 * counts.h - how often each expert was demanded, kept between runs of a model (internal to src/ggml): what weir/store.h does,
 * for a session's weights.  A weight that a run did not stream keeps no counts.
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
