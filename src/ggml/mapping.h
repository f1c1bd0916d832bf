/* mapping.h - from an address inside a mapped file back to the file (internal to src/ggml). */
#ifndef WEIR_GGML_MAPPING_H
#define WEIR_GGML_MAPPING_H

#include "ggml/session.h"

/* Records the file that is mapped at `base` in session->files, unless it is there.  WEIR_ENOTFOUND: no file is mapped there. */
int weir_mapping_add(weir_session *session, void *base, size_t size);

/* Gives back the pages of a mapping that lie in memory; the mapping stays valid. */
void weir_mapping_drop(void *base, size_t size);

#endif
