/*
 * token_times.h - how long each token of a run took, as a CSV file:
 *
 *   token,seconds,logits_hash
 *   1,0.812345678,9c1185a5c5e9fc54
 *   2,0.204000123,5d1f...
 *
 * A token's seconds count from the one before it, the first one's from the start of the prompt.  The hash covers the logits of
 * all tokens so far, so that runs of different lengths can be compared; it is empty in a run without --logits-hash.
 *
 * The table owns its rows.  One thread at a time.
 */
#ifndef WEIR_PROGRAMS_TOKEN_TIMES_H
#define WEIR_PROGRAMS_TOKEN_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/error.h"

typedef struct token_time {
	double seconds;
	uint64_t logits_hash; /* 0: none */
} token_time;

typedef struct token_times {
	token_time *rows;
	size_t count, capacity;
	bool failed; /* no memory: nothing more is taken */
} token_times;

void token_times_add(token_times *times, double seconds, uint64_t logits_hash);
void token_times_free(token_times *times);

/* Beside and renamed.  0 or a WEIR_E code. */
int token_times_write(const token_times *times, const char *path, weir_error *error);

/* Reads the text that token_times_write wrote.  False for anything else and without memory; free the table then too. */
bool token_times_parse(token_times *times, const char *text);

#endif
