/*
 * giveup.cpp - see giveup.h.  In C++, since only there can an exception be asked what it is.
 *
 * One setting for the whole process, changed by the main thread while no engine call is under way.
 */
#include "engine/giveup.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include <ggml.h>

namespace
{

void (*give_up)(const char *message);
std::terminate_handler terminate_before;

constexpr std::size_t MESSAGE_BYTES = 256;

/* "/where/it/was/built/ggml.c:12: text\n" -> "ggml.c:12: text" */
void shorten(const char *message, char *out)
{
	const char *end = std::strchr(message, ':'), *start = message;

	for (const char *at = message; end && at < end; at++)
		if (*at == '/')
			start = at + 1;
	std::snprintf(out, MESSAGE_BYTES, "%s", start);
	out[std::strcspn(out, "\n")] = '\0';
}

void on_abort(const char *message)
{
	char out[MESSAGE_BYTES];

	shorten(message, out);
	if (give_up)
		give_up(out);
}

[[noreturn]] void on_terminate()
{
	const char *message = "an exception that is none of the standard library";

	try {
		if (std::current_exception())
			std::rethrow_exception(std::current_exception());
		message = "it was terminated";
	} catch (const std::exception &exception) {
		message = exception.what();
	} catch (...) {
	}
	if (give_up)
		give_up(message);
	std::abort();
}

} // namespace

void weir_engine_on_give_up(void (*function)(const char *message))
{
	bool installed = give_up != nullptr;

	give_up = function;
	if (function && !installed) {
		ggml_set_abort_callback(on_abort);
		terminate_before = std::set_terminate(on_terminate);
	} else if (!function && installed) {
		ggml_set_abort_callback(nullptr);
		std::set_terminate(terminate_before);
	}
}
