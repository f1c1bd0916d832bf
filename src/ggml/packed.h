/*
 * packed.h - reading weights from the pack that lies beside a model instead of from the model itself (internal to src/ggml).
 *
 * Used by the thread that starts the session.
 */
#ifndef WEIR_GGML_PACKED_H
#define WEIR_GGML_PACKED_H

#include "ggml/session.h"

/* Looks for the session's pack, once: one that matches is used from the next start on, another is left alone and noted.
 * Without a pack the model must be whole: WEIR_EUNSUPPORTED names a tensor that lies in a hole of its file. */
int weir_packed_open(weir_session *session, weir_error *error);
void weir_packed_close(weir_packed *packed);

/* Once places are decided: where each weight is read from. */
void weir_packed_use(weir_session *session);

/* The weight is read from its pack, expert by expert: its bytes do not lie together. */
bool weir_packed_is_sliced(const weir_weight *weight);

/* Reads resident weights that are sliced into their memory. */
int weir_packed_load(weir_session *session, weir_error *error);

/* Compares resident weights that came from the pack with their checksums. */
int weir_packed_check_resident(const weir_session *session, weir_error *error);

/* Has the store compare what it reads. */
int weir_packed_check_store(weir_session *session, weir_error *error);

/* The pack in use, or NULL; and why one that is there is not used (code 0: there is none). */
const char *weir_packed_path(const weir_packed *packed);
const weir_error *weir_packed_notice(const weir_packed *packed);

#endif
