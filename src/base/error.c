/*
 * error.c - the table of codes, and the error record.
 */
#include "weir/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"

#define NAME_CASE(name, value, text) \
	case name:                   \
		return #name;
#define TEXT_CASE(name, value, text) \
	case name:                   \
		return text;

const char *weir_error_name(int code)
{
	switch (code) {
	case WEIR_OK:
		return "WEIR_OK";
		WEIR_ERROR_TABLE(NAME_CASE)
	default:
		return "WEIR_UNKNOWN";
	}
}

const char *weir_error_text(int code)
{
	switch (code) {
	case WEIR_OK:
		return "done";
		WEIR_ERROR_TABLE(TEXT_CASE)
	default:
		return "unknown error";
	}
}

int weir_fail(weir_error *error, int code, const char *file, uint64_t offset, int sys_errno, const char *message_format, ...)
{
	va_list arguments;

	if (!error)
		return code;
	error->code = code;
	error->sys_errno = sys_errno;
	error->offset = offset;
	snprintf(error->file, sizeof error->file, "%s", file ? file : "");
	va_start(arguments, message_format);
	vsnprintf(error->message, sizeof error->message, message_format, arguments);
	va_end(arguments);
	return code;
}
