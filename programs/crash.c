/*
 * crash.c - see crash.h.
 */
#include "crash.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"
#include "engine/engine.h"
#include "engine/giveup.h"

#define LINE_BYTES 2048
#define STACK_BYTES ((size_t)64 << 10)

static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define SIGNALS_COUNT (sizeof SIGNALS / sizeof *SIGNALS)

/* A sanitizer reports crashes better than this does, and a crash that it finds is ours. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CATCHES_SIGNALS false
#else
#define CATCHES_SIGNALS true
#endif

static crash_watch watched;
static volatile sig_atomic_t running; /* 0: loading */
static atomic_flag giving_up = ATOMIC_FLAG_INIT;
static char line[LINE_BYTES]; /* what a handler writes, all but the name of the signal */
static struct sigaction before[SIGNALS_COUNT];
static void *stack;
static bool opened;

static int exit_code(void)
{
	return running ? CLI_FAILED : CLI_FILE;
}

/* ---- assertions and exceptions ---- */

static const char *words_for(bool lacking)
{
	if (running)
		return "the engine gave up";
	return lacking ? "the engine cannot load it, memory or something else is short" : "the engine does not take it";
}

static _Noreturn void give_up(const char *message)
{
	bool lacking = weir_engine_lacks_resources(message);
	weir_error error;
	int code;

	if (atomic_flag_test_and_set(&giving_up))
		for (;;)
			pause(); /* another thread is at it, and ends the process */
	weir_fail(&error, running || lacking ? WEIR_EENGINE : WEIR_EUNSUPPORTED, watched.file, WEIR_ERROR_NO_OFFSET, 0,
		  "%s: %s", words_for(lacking), message);
	code = watched.give_up ? watched.give_up(watched.user, &error) : cli_fail(watched.common, &error);
	fflush(stdout);
	weir_engine_abandon_outputs();
	_exit(code);
}

/* ---- signals ---- */

static const char *name_of(int number)
{
	switch (number) {
	case SIGSEGV:
		return "SIGSEGV";
	case SIGBUS:
		return "SIGBUS";
	case SIGFPE:
		return "SIGFPE";
	case SIGILL:
		return "SIGILL";
	default:
		return "SIGABRT";
	}
}

static void put(const char *text)
{
	size_t bytes = strlen(text);

	while (bytes) {
		ssize_t written = write(STDERR_FILENO, text, bytes);

		if (written <= 0)
			return;
		text += written;
		bytes -= (size_t)written;
	}
}

/* Async-signal-safe throughout. */
static void on_signal(int number)
{
	put(line);
	put(name_of(number));
	put(running ? " while it was running)\n" : " while it was loading)\n");
	weir_engine_abandon_outputs();
	_exit(exit_code());
}

static void make_line(void)
{
	char name[LINE_BYTES - 128];

	weir_text_escape(watched.file, strlen(watched.file), name, sizeof name);
	snprintf(line, sizeof line, "weir %s: %s: the engine crashed on it (", watched.common->command, name);
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)(SA_ONSTACK | SA_RESETHAND)};
	stack_t alternate = {.ss_size = STACK_BYTES};

	if (!CATCHES_SIGNALS)
		return;
	stack = malloc(STACK_BYTES);
	alternate.ss_sp = stack;
	if (stack)
		sigaltstack(&alternate, NULL);
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < SIGNALS_COUNT; i++)
		sigaction(SIGNALS[i], &action, &before[i]);
}

static void restore_signals(void)
{
	stack_t none = {.ss_flags = SS_DISABLE};

	if (!CATCHES_SIGNALS)
		return;
	for (size_t i = 0; i < SIGNALS_COUNT; i++)
		sigaction(SIGNALS[i], &before[i], NULL);
	sigaltstack(&none, NULL);
	free(stack);
	stack = NULL;
}

void crash_open(const crash_watch *watch)
{
	watched = *watch;
	running = 0;
	opened = true;
	make_line();
	catch_signals();
	weir_engine_on_give_up(give_up);
}

void crash_loaded(void)
{
	running = 1;
}

void crash_close(void)
{
	if (!opened)
		return;
	opened = false;
	weir_engine_on_give_up(NULL);
	restore_signals();
}
