/*
 * outfile.h - a file that is written beside its place and renamed into it when it is whole.
 *
 *   no name (O_TMPFILE) ─► "TARGET.PID-N.part" (linkat) ─► TARGET (rename)
 *
 * So nothing is left of it when its process is killed, and nobody else who writes to the same target is disturbed.  It has its
 * name beside the target from the start where the file system has no files without a name; a killed process leaves it then.
 *
 * A path that names something else than a regular file (/dev/stderr, a pipe) is written to directly.  One thread at a time.
 */
#ifndef WEIR_OS_OUTFILE_H
#define WEIR_OS_OUTFILE_H

#include <stdbool.h>
#include <stdio.h>

#include "weir/error.h"

typedef struct weir_outfile {
	FILE *stream; /* NULL: closed */
	char *target; /* links followed */
	char *beside; /* NULL when the target is written to directly */
	bool named; /* the file has that name now */
} weir_outfile;

int weir_outfile_open(const char *path, weir_outfile *file, weir_error *error);

/* Flushes, makes durable, renames, closes; a failure leaves what was there before.  Does nothing when closed. */
int weir_outfile_finish(weir_outfile *file, weir_error *error);

/* Closes; nothing is left of it. */
void weir_outfile_discard(weir_outfile *file);

/* Fills `error` for a write that failed with this errno. */
int weir_outfile_fail(const weir_outfile *file, int sys_errno, weir_error *error);

/* Removes what stands beside the targets of files that are open, for a process that ends at once.  The files are of no use
 * after that.  Async-signal-safe, any thread. */
void weir_outfile_abandon_all(void);

#endif
