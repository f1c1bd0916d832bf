/*
 * plugin.c - the way in for unmodified llama.cpp programs: GGML_BACKEND_PATH=libggml-weir.so, device WEIR0.
 */
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
