/*
 * output.h - JSON that is safe to show, and files that are whole or not there.
 *
 * Only the main thread calls these functions.
 */
#ifndef WEIR_PROGRAMS_OUTPUT_H
#define WEIR_PROGRAMS_OUTPUT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"

/* The object as text ending in a newline; members in the order in which they were set.  No control character is left raw: C0,
 * DEL and C1 are \u escapes.  free() the text; NULL when out of memory. */
char *output_json_text(const json_t *object);

/* Prints the object on standard output and lets go of it (NULL is taken as out of memory).  The exit code. */
int output_json_print(const cli_common *common, json_t *object);

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD.  NULL only when out of memory. */
json_t *output_json_string(const char *text, size_t bytes);

/* A count that is not known or does not apply; numbers are NAN then. */
#define OUTPUT_NONE UINT64_MAX

/* The number, or null for NAN and infinities; a count, or null for OUTPUT_NONE and what JSON integers here cannot hold. */
json_t *output_json_real(double value);
json_t *output_json_count(uint64_t value);

/* Sets a member of an object to such a count, number or text; NULL and "" become null. */
void output_put_count(json_t *object, const char *name, uint64_t value);
void output_put_real(json_t *object, const char *name, double value);
void output_put_text(json_t *object, const char *name, const char *text);

/* Writes `path` beside and renames it into place.  An existing file that is no regular one (/dev/stdout, a pipe) is written to
 * directly.  0 or a WEIR_E code; on failure nothing is left behind. */
int output_write_file(const char *path, const char *text, size_t bytes, weir_error *error);

/* Whether output_write_file can be expected to work, without touching the file: for a check before long work. */
int output_check_path(const char *path, weir_error *error);

#endif
