/*
 * dtype.c - the table of element types, seen from each side: our enum, ggml's numbers, safetensors' names.
 */
#include "format/dtype.h"

#include <string.h>

#define INFO(NAME, value, ggml, elements, bytes, alignment)                                                                    \
	[WEIR_DTYPE_##NAME] = {.dtype = WEIR_DTYPE_##NAME,                                                                     \
			       .ggml_type = (ggml),                                                                            \
			       .block_elements = (elements),                                                                   \
			       .block_bytes = (bytes),                                                                         \
			       .alignment_bytes = (alignment),                                                                 \
			       .name = #NAME},

static const weir_dtype_info infos[] = {WEIR_DTYPE_TABLE(INFO)};

enum { INFOS_COUNT = sizeof infos / sizeof infos[0], SAFETENSORS_LAST = WEIR_DTYPE_F4 };

const weir_dtype_info *weir_dtype_describe(weir_dtype dtype)
{
	if ((unsigned)dtype >= INFOS_COUNT || !infos[dtype].name)
		return NULL;
	return &infos[dtype];
}

const weir_dtype_info *weir_dtype_of_ggml(uint32_t ggml_type)
{
	for (unsigned i = 0; i < INFOS_COUNT; i++) {
		if (infos[i].name && infos[i].ggml_type >= 0 && (uint32_t)infos[i].ggml_type == ggml_type)
			return &infos[i];
	}
	return NULL;
}

const weir_dtype_info *weir_dtype_of_safetensors(const char *name)
{
	for (unsigned i = 1; i <= SAFETENSORS_LAST; i++) {
		if (!strcmp(infos[i].name, name))
			return &infos[i];
	}
	return NULL;
}
