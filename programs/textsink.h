/*
 * textsink.h - generated text on its way out: kept for the report, streamed to standard output as it comes.
 *
 * The model's pieces may end inside a character: what is written always ends at the end of one.  On a terminal, control
 * characters other than newline and tab are shown as escapes and stray bytes too; into a pipe or file every byte goes as it is.
 * One thread at a time.
 */
#ifndef WEIR_PROGRAMS_TEXTSINK_H
#define WEIR_PROGRAMS_TEXTSINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct textsink {
	FILE *stream; /* NULL: only keep */
	bool escape;
	char *text; /* all of it so far; ends with NUL once there is any */
	size_t text_bytes, capacity;
	size_t written; /* of text, bytes that have gone out; the rest is the start of a character */
	bool failed; /* memory or the stream: nothing more is taken */
} textsink;

/* `stream` may be NULL. */
void textsink_open(textsink *sink, FILE *stream, bool escape);

/* Takes a piece.  False once the sink has failed. */
bool textsink_add(textsink *sink, const char *piece, size_t bytes);

/* Writes what is held back, and a newline when the text has none at its end. */
bool textsink_finish(textsink *sink);

void textsink_close(textsink *sink); /* frees the text */

#endif
