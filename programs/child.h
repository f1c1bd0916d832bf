/*
 * child.h - runs this program again as a child: its own memory figures, its own limit, and nothing of it left behind.
 *
 * The child's standard output, its standard error and whatever it writes to CHILD_EXTRA_PATH are kept, up to 64 MiB each.  It
 * dies with its parent.  Main thread only.
 */
#ifndef WEIR_PROGRAMS_CHILD_H
#define WEIR_PROGRAMS_CHILD_H

#include <stdbool.h>
#include <stddef.h>

#include "memory_group.h"
#include "weir/error.h"

#define CHILD_WORDS_MAX 80
#define CHILD_EXTRA_PATH "/dev/fd/3" /* a file name that the child can be told to write to */

enum child_stream { CHILD_OUT, CHILD_ERR, CHILD_EXTRA, CHILD_STREAMS };

typedef struct child_text {
	char *text; /* ends with NUL; NULL for nothing */
	size_t bytes, capacity;
} child_text;

typedef struct child {
	int exit_code; /* -1 when a signal ended it */
	int signal; /* which, or 0 */
	bool timed_out;
	child_text streams[CHILD_STREAMS];
} child;

/* From now on SIGINT, SIGTERM and SIGHUP end the child that runs, and child_run with WEIR_EINTERRUPTED (interrupt_install). */
void child_catch_interrupt(void);
bool child_interrupted(void);

/* Runs `words` (words[0] is a command of this program; NULL at the end) in `group`, for at most `timeout_seconds` (0: without
 * end).  0 when it ran, however it ended; else a WEIR_E code.  child_free it in any case. */
int child_run(const char *const *words, memory_group *group, double timeout_seconds, child *result, weir_error *error);
void child_free(child *result);

/* What a child that did not succeed has to say: its last line, or how it ended. */
#define CHILD_WHY_BYTES 320
void child_why(const child *result, char why[CHILD_WHY_BYTES]);

#endif
