/*
 * prompt.h - where a prompt comes from: an option, a file, standard input, or raw token ids.
 *
 * Only the main thread calls these functions.
 */
#ifndef WEIR_PROGRAMS_PROMPT_H
#define WEIR_PROGRAMS_PROMPT_H

#include <stdint.h>

#include "cli.h"

typedef struct prompt_source {
	const char *text; /* --prompt */
	const char *path; /* --file; "-" is standard input */
	const char *tokens; /* --prompt-tokens */
} prompt_source;

/* 0, or WEIR_EINVAL when more than one source is given. */
int prompt_check(const prompt_source *source, weir_error *error);

/* The text of a source that is not --prompt-tokens; free() it.  Refused: nothing at all, a NUL byte, more than 64 MiB.
 * WEIR_EINTERRUPTED when a signal came while waiting for standard input. */
int prompt_read(const cli_common *common, const prompt_source *source, char **text, weir_error *error);

/* "1,2,3" → ids; free() them.  0, WEIR_EINVAL or WEIR_ENOMEM. */
int prompt_parse_tokens(const char *text, int32_t **tokens, uint32_t *count, weir_error *error);

#endif
