/*
 * plugin.h - libggml-weir.so inside another program's llama.cpp: how that program configures it, and asks what happened.
 *
 * A program that cannot be changed uses the environment (docs/plugin.md).  One that can loads the backend with
 * ggml_backend_load, and finds these functions in its registry entry, as ggml's backends offer them:
 *
 *	weir_plugin_configure_fn configure = ggml_backend_reg_get_proc_address(reg, "weir_plugin_configure");
 *
 * It then names the device WEIR0 for the model, all layers on it, loaded by mmap, without weight repacking.
 *
 * Threads: configure before a model is loaded; the others from any thread.
 */
#ifndef WEIR_PLUGIN_H
#define WEIR_PLUGIN_H

#include <stdbool.h>

#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_plugin_options {
	const char *memory; /* budget of the whole process: "4G", "60%", bytes; NULL is "auto" */
	const char *io_method; /* "uring", "threads", "mmap"; NULL is "auto" */
	const char *policy; /* as in weir_store_options; NULL is "auto" */
	const char *trace_path; /* gets the routing trace of each model; NULL: none */
	bool no_lookahead;
	bool no_counts; /* keep no counts between runs, and use none */
} weir_plugin_options;

/* "weir_plugin_configure": options for models that are loaded later (strings are copied), in place of those of the environment;
 * errors are then kept for weir_plugin_take_error and not printed.  WEIR_EINVAL: no size. */
typedef int (*weir_plugin_configure_fn)(const weir_plugin_options *options, weir_error *error);

/* "weir_plugin_take_error": the code of what failed last, with the error filled, and forgets it; 0 when nothing did.  Why a
 * llama_decode failed, for example: WEIR_EBUDGET when the budget cannot hold the model. */
typedef int (*weir_plugin_take_error_fn)(weir_error *error);

/* "weir_plugin_write_report": writes the report of the model that was loaded last as JSON (docs/plugin.md), beside and renamed.
 * WEIR_ENOTFOUND when none is loaded; else what writing gives.  Not while that model computes. */
typedef int (*weir_plugin_write_report_fn)(const char *path, weir_error *error);

/* "weir_plugin_engine_version": version of ggml that the backend was built for, "0.25.3"; compare with ggml_version(). */
typedef const char *(*weir_plugin_engine_version_fn)(void);

#ifdef __cplusplus
}
#endif
#endif
