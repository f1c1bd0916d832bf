/*
 * config.c - the backend's options.
 *
 * weir's own programs set them with weir_backend_configure.  In an unmodified llama.cpp program they come from the
 * environment; a value that cannot be read there is reported once on standard error and the default is used, since ggml's
 * interface gives a backend no way to refuse.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"
#include "ggml/config.h"
#include "os/limits.h"

static weir_backend_options options;
static bool configured;
static bool from_environment;

static int copy_string(const char **target, const char *source)
{
	free((char *)(uintptr_t)*target);
	*target = NULL;
	if (!source)
		return 0;
	*target = strdup(source);
	return *target ? 0 : WEIR_ENOMEM;
}

int weir_backend_configure(const weir_backend_options *wanted, weir_error *error)
{
	weir_backend_options old = options;
	int result = 0;

	options = *wanted;
	options.io_method = old.io_method;
	options.io_fault = old.io_fault;
	options.policy = old.policy;
	options.trace_path = old.trace_path;
	options.report_path = old.report_path;
	options.pack_path = old.pack_path;
	result |= copy_string(&options.io_method, wanted->io_method);
	result |= copy_string(&options.io_fault, wanted->io_fault);
	result |= copy_string(&options.policy, wanted->policy);
	result |= copy_string(&options.trace_path, wanted->trace_path);
	result |= copy_string(&options.report_path, wanted->report_path);
	result |= copy_string(&options.pack_path, wanted->pack_path);
	configured = true;
	if (result)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the options");
	return 0;
}

static uint64_t budget_from_environment(void)
{
	const char *text = getenv("WEIR_MEMORY");
	weir_limits limits;
	weir_size size;
	weir_error error;

	weir_limits_read(&limits);
	if (weir_size_parse(text && *text ? text : "auto", &size, &error)) {
		fprintf(stderr, "weir: WEIR_MEMORY: %s; using \"auto\"\n", error.message);
		return limits.auto_bytes;
	}
	return weir_limits_resolve(&limits, &size);
}

static const char *text_from_environment(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
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
		.lookahead = true,
	};

	from_environment = true;
	weir_backend_configure(&wanted, NULL);
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

	if (!from_environment)
		return;
	weir_error_format(error, line, (int)sizeof line);
	fprintf(stderr, "weir: %s\n", line);
}
