/* config.h - the backend's options, from the program or from the environment (internal to src/ggml). */
#ifndef WEIR_GGML_CONFIG_H
#define WEIR_GGML_CONFIG_H

#include "ggml/backend.h"

/* The options in force: those of weir_backend_configure, else from the environment: WEIR_MEMORY, WEIR_IO, WEIR_POLICY,
 * WEIR_REPORT, WEIR_TRACE. */
const weir_backend_options *weir_config(void);

/* Inside a program that is not weir's, an error has no other way out than standard error; inside ours this does nothing. */
void weir_config_complain(const weir_error *error);

#endif
