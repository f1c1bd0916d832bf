/* engine_types.h - the engine's state, shared by the files of src/engine. */
#ifndef WEIR_ENGINE_TYPES_H
#define WEIR_ENGINE_TYPES_H

#include <signal.h>

#include <llama.h>

#include "engine/engine.h"
#include "ggml/backend.h"

struct weir_engine {
	struct llama_model *model;
	struct llama_context *context;
	const struct llama_vocab *vocab;
	weir_session *session; /* NULL when the model has no weight on the device */
	bool plain; /* llama.cpp by itself: no session */
	char *path;
	char architecture[64];
	uint32_t ctx, batch, threads;
	uint64_t opened_ns, load_ns;
	volatile sig_atomic_t interrupted;
};

/* What the engine complained of first since it was last forgotten, for an error message; never NULL. */
const char *weir_engine_message(void);
void weir_engine_forget_message(void);

#endif
