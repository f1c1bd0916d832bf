/*
 * plugin_report.h - the report that the backend writes by itself, in programs that are not weir's (internal to src/ggml).
 */
#ifndef WEIR_GGML_PLUGIN_REPORT_H
#define WEIR_GGML_PLUGIN_REPORT_H

#include "ggml/session.h"

/* Writes the session's report where its options say, whole or not at all, once.  Nothing to do: 0. */
int weir_plugin_report_write(weir_session *session, weir_error *error);

#endif
