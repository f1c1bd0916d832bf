/*
 * proctext.h - the kernel's small text files (/proc, cgroups): reading one whole, finding a number in it.
 *
 * Any thread.  Not for files that users can write: a size beyond 8 MiB is cut.
 */
#ifndef WEIR_OS_PROCTEXT_H
#define WEIR_OS_PROCTEXT_H

#include <stdbool.h>
#include <stdint.h>

/* The whole file, ended by NUL; free() it.  NULL with errno set when it cannot be read. */
char *weir_proctext_read(const char *path);

/* The number that follows `key` at the start of a line ("VmRSS:", "anon"): true and *value when there is one. */
bool weir_proctext_number(const char *text, const char *key, uint64_t *value);

/* The start of the next line, or NULL after the last. */
const char *weir_proctext_next(const char *line);

#endif
