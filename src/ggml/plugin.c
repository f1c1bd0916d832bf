/*
 * plugin.c - the way in for llama.cpp programs: GGML_BACKEND_PATH=libggml-weir.so, device WEIR0; and the engine's version.
 */
#include "ggml/plugin.h"
#include "ggml/backend.h"

#include <ggml-backend-impl.h>

__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void);
__attribute__((visibility("default"))) int ggml_backend_score(void);

ggml_backend_reg_t ggml_backend_init(void)
{
	return weir_backend_reg();
}

int ggml_backend_score(void)
{
	return 1;
}

const char *weir_plugin_engine_version(void)
{
	return WEIR_GGML_VERSION;
}
