/*
 * crash.h - what becomes of an assertion or a crash inside the engine: one line and an exit code, never a signal.
 *
 *   while loading   exit code 4: the file is well formed, but the engine does not survive it
 *   later           exit code 1
 *
 * A failed assertion or an exception still lets the command write its report.  A crash (SIGSEGV and its like) writes a line
 * that was made beforehand and ends the process.  One watch at a time, opened and closed by the main thread.
 */
#ifndef WEIR_PROGRAMS_CRASH_H
#define WEIR_PROGRAMS_CRASH_H

#include <stdbool.h>

#include "cli.h"

typedef struct crash_watch {
	const cli_common *common;
	const char *file; /* that the engine works on */
	/* Called once, on the thread where the engine gave up, for whatever is still to be done: it prints the error, and gives
	 * the exit code.  NULL prints only.  Must not enter the engine. */
	int (*give_up)(void *user, const weir_error *error);
	void *user;
} crash_watch;

/* From here on the engine is loading `watch->file`.  The watch is copied. */
void crash_open(const crash_watch *watch);

/* It has loaded the file: from here on it is running. */
void crash_loaded(void);

void crash_close(void); /* also when none is open */

#endif
