/*
 * error.c - the table of codes, and the error record.
 */
#include "weir/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"

#define NAME_CASE(name, value, text)                                                                                           \
	case name:                                                                                                             \
		return #name;
#define TEXT_CASE(name, value, text)                                                                                           \
	case name:                                                                                                             \
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

int weir_code_of_errno(int sys_errno)
{
	switch (sys_errno) {
	case ENOENT:
	case ENOTDIR:
		return WEIR_ENOTFOUND;
	case EACCES:
	case EPERM:
		return WEIR_EACCESS;
	case ENOMEM:
		return WEIR_ENOMEM;
	case EMFILE:
	case ENFILE:
	case EAGAIN:
		return WEIR_ELIMIT;
	case ENOSPC:
	case EDQUOT:
		return WEIR_ENOSPACE;
	default:
		return WEIR_EIO;
	}
}

/* A line under construction: what does not fit is dropped from the end. */
struct line {
	char *text;
	size_t capacity;
	size_t length;
};

static void append(struct line *line, const char *text, size_t bytes)
{
	size_t room = line->capacity - line->length;
	size_t length = weir_text_escape(text, bytes, line->text + line->length, room);

	line->length += length < room ? length : strlen(line->text + line->length);
}

static void append_offset(struct line *line, uint64_t offset)
{
	char text[48];

	snprintf(text, sizeof text, "offset %llu: ", (unsigned long long)offset);
	append(line, text, strlen(text));
}

static void append_errno(struct line *line, int sys_errno)
{
	char buffer[128];
	const char *text = strerror_r(sys_errno, buffer, sizeof buffer);

	append(line, " (", 2);
	append(line, text, strlen(text));
	append(line, ")", 1);
}

int weir_error_format(const weir_error *error, char *out, int capacity)
{
	struct line line = {.text = out, .capacity = capacity > 0 ? (size_t)capacity : 0};
	const char *message = error->message[0] ? error->message : weir_error_text(error->code);

	if (!line.capacity)
		return 0;
	out[0] = '\0';
	if (error->file[0]) {
		append(&line, error->file, strlen(error->file));
		append(&line, ": ", 2);
	}
	if (error->offset != WEIR_ERROR_NO_OFFSET)
		append_offset(&line, error->offset);
	append(&line, message, strlen(message));
	if (error->sys_errno)
		append_errno(&line, error->sys_errno);
	return (int)line.length;
}
