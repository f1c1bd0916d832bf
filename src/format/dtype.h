/*
 * dtype.h - finding an element type by what a file calls it.  Pure look-ups, any thread.
 */
#ifndef WEIR_FORMAT_DTYPE_H
#define WEIR_FORMAT_DTYPE_H

#include "weir/checkpoint.h"

const weir_dtype_info *weir_dtype_of_ggml(uint32_t ggml_type); /* NULL: unknown or removed */
const weir_dtype_info *weir_dtype_of_safetensors(const char *name); /* NULL: unknown */

#endif
