/*
 * guard.c - see guard.h.  The names that begin with __ are the linker's: --wrap=malloc makes a call of malloc one of
 * __wrap_malloc, and __real_malloc the function itself.
 */
#include "base/guard.h"

#ifdef WEIR_ALLOCATION_GUARD

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A user of the static library may link without --wrap: then nothing is guarded, and nothing is missing. */
#define WEAK __attribute__((weak))
WEAK void *__real_malloc(size_t bytes);
WEAK void *__real_calloc(size_t count, size_t bytes);
WEAK void *__real_realloc(void *memory, size_t bytes);
WEAK char *__real_strdup(const char *text);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
char *__wrap_strdup(const char *text);

static _Thread_local bool held;

void weir_guard_hold(void)
{
	held = true;
}

void weir_guard_drop(void)
{
	held = false;
}

static void put(const char *text)
{
	ssize_t written = write(STDERR_FILENO, text, strlen(text));

	(void)written;
}

void weir_guard_check(const char *what)
{
	if (!held)
		return;
	put("weir: allocation while a token is worked on: ");
	put(what);
	put("\n");
	abort();
}

void *__wrap_malloc(size_t bytes)
{
	weir_guard_check("malloc");
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	weir_guard_check("calloc");
	return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	weir_guard_check("realloc");
	return __real_realloc(memory, bytes);
}

char *__wrap_strdup(const char *text)
{
	weir_guard_check("strdup");
	return __real_strdup(text);
}

#else

typedef int weir_guard_is_empty; /* C wants something in every file */

#endif
