/*
 * plugin.h - the functions behind weir/plugin.h, which programs find by name (internal to src/ggml).
 */
#ifndef WEIR_GGML_PLUGIN_H
#define WEIR_GGML_PLUGIN_H

#include "weir/plugin.h"

int weir_plugin_configure(const weir_plugin_options *wanted, weir_error *error);
int weir_plugin_take_error(weir_error *error);
int weir_plugin_write_report(const char *path, weir_error *error);
const char *weir_plugin_engine_version(void);

#endif
