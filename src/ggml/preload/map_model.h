/* map_model.h - switches map_model.c off in a program that links it: for runs of llama.cpp by itself, to compare with. */
#ifndef WEIR_GGML_PRELOAD_MAP_MODEL_H
#define WEIR_GGML_PRELOAD_MAP_MODEL_H

#include <stdbool.h>

/* True: every mapping is made as it is asked for.  Set before a model is loaded, by the thread that loads it. */
extern bool weir_map_model_off;

#endif
