/*
 * config.c - the backend's options, and the last error that had no other way out.
 *
 * weir's own programs set the options with weir_backend_configure, other callers with weir_plugin_configure.  In an unmodified
 * llama.cpp program they come from the environment; a value that cannot be read there is reported once on standard error and
 * the default is used, since ggml's interface gives a backend no way to refuse.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "ggml/config.h"
#include "ggml/plugin.h"
#include "os/limits.h"

static weir_backend_options options;
static bool configured;
static bool from_environment;

static pthread_mutex_t complaint_mutex = PTHREAD_MUTEX_INITIALIZER;
static weir_error complaint; /* the last one; code 0: none */

/* Strings of options are kept for the life of the process: sessions that began with earlier options still point to them. */
static struct kept_string {
	struct kept_string *next;
	char text[];
} * kept_strings;

static int keep_string(const char **text)
{
	struct kept_string *kept = kept_strings;
	size_t bytes = *text ? strlen(*text) + 1 : 0;

	if (!*text)
		return 0;
	while (kept && strcmp(kept->text, *text) != 0)
		kept = kept->next;
	if (!kept) {
		kept = malloc(sizeof *kept + bytes);
		if (!kept)
			return WEIR_ENOMEM;
		memcpy(kept->text, *text, bytes);
		kept->next = kept_strings;
		kept_strings = kept;
	}
	*text = kept->text;
	return 0;
}

int weir_backend_configure(const weir_backend_options *wanted, weir_error *error)
{
	weir_backend_options made = *wanted;
	const char **const strings[] = {&made.io_method,  &made.io_fault,    &made.policy,
					&made.trace_path, &made.report_path, &made.pack_path};

	for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
		if (keep_string(strings[i]))
			return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the options");
	options = made;
	configured = true;
	from_environment = false;
	return 0;
}

static int parse_budget(const char *text, uint64_t *budget_bytes, weir_error *error)
{
	weir_limits limits;
	weir_size size;
	int result = weir_size_parse(text && *text ? text : "auto", &size, error);

	if (result)
		return result;
	weir_limits_read(&limits);
	*budget_bytes = weir_limits_resolve(&limits, &size);
	return 0;
}

static uint64_t budget_from_environment(void)
{
	uint64_t budget_bytes = 0;
	weir_error error;

	if (parse_budget(getenv("WEIR_MEMORY"), &budget_bytes, &error)) {
		fprintf(stderr, "weir: WEIR_MEMORY: %s; using \"auto\"\n", error.message);
		parse_budget(NULL, &budget_bytes, NULL);
	}
	return budget_bytes;
}

static const char *text_from_environment(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

static bool is_off(const char *name)
{
	const char *text = text_from_environment(name);

	return text && (strcmp(text, "off") == 0 || strcmp(text, "0") == 0);
}

static void configure_from_environment(void)
{
	weir_backend_options wanted = {
		.budget_bytes = budget_from_environment(),
		.io_method = text_from_environment("WEIR_IO"),
		.io_fault = text_from_environment("WEIR_FAULT"),
		.policy = text_from_environment("WEIR_POLICY"),
		.trace_path = text_from_environment("WEIR_TRACE"),
		.report_path = text_from_environment("WEIR_REPORT"),
		.pack_path = text_from_environment("WEIR_PACK"),
		.no_counts = is_off("WEIR_COUNTS"),
		.lookahead = true,
	};

	weir_backend_configure(&wanted, NULL);
	from_environment = true;
}

const weir_backend_options *weir_config(void)
{
	if (!configured)
		configure_from_environment();
	return &options;
}

void weir_config_complain(const weir_error *error)
{
	char line[1200];

	pthread_mutex_lock(&complaint_mutex);
	complaint = *error;
	pthread_mutex_unlock(&complaint_mutex);
	if (!from_environment)
		return;
	weir_error_format(error, line, (int)sizeof line);
	fprintf(stderr, "weir: %s\n", line);
}

/* ---- weir/plugin.h ---- */

int weir_plugin_configure(const weir_plugin_options *wanted, weir_error *error)
{
	weir_backend_options made = {
		.io_method = wanted->io_method,
		.policy = wanted->policy,
		.trace_path = wanted->trace_path,
		.lookahead = !wanted->no_lookahead,
		.no_counts = wanted->no_counts,
	};
	int result = parse_budget(wanted->memory, &made.budget_bytes, error);

	return result ? result : weir_backend_configure(&made, error);
}

int weir_plugin_take_error(weir_error *error)
{
	int code;

	pthread_mutex_lock(&complaint_mutex);
	code = complaint.code;
	if (code)
		*error = complaint;
	complaint.code = 0;
	pthread_mutex_unlock(&complaint_mutex);
	return code;
}
