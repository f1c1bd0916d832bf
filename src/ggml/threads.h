/*
 * threads.h - how many of the compute threads work on a token.
 *
 * When the drive sets the pace, fewer threads give the same speed and leave the other processors to whoever wants them; and
 * where another process has a processor, threads that wait for each other are better one fewer.  Which number that is, is
 * measured while running; see threads.c.  Bits do not depend on it; see graph.c.
 */
#ifndef WEIR_GGML_THREADS_H
#define WEIR_GGML_THREADS_H

#include <stdbool.h>
#include <stdint.h>

#define WEIR_THREADS_TRIAL_TOKENS 24
#define WEIR_THREADS_RECENT 5

/* 1 ≤ now ≤ free ≤ most, unless most is 0. */
typedef struct weir_threads {
	uint32_t most; /* 0: nothing is judged */
	uint32_t free; /* as many have a processor that no other process keeps busy */
	uint32_t now, last; /* for the next token, and of the one before */
	uint64_t tokens, threads_sum; /* judged so far, and the threads that they had */

	bool trying;
	bool up; /* the last trial was of more threads, not of fewer */
	uint32_t low, high; /* numbers of threads that take turns in a trial */
	uint32_t before; /* the number when it began */
	uint32_t trial_tokens;
	uint64_t low_ns[WEIR_THREADS_TRIAL_TOKENS], high_ns[WEIR_THREADS_TRIAL_TOKENS];
	uint32_t low_count, high_count;

	uint32_t kept_tokens, keep_tokens; /* between trials: so many of so many */
	uint64_t usual_ns; /* a token's time soon after a trial; 0: not known yet */
	uint64_t recent_ns[WEIR_THREADS_RECENT];
	uint64_t passed_ns, stalled_ns;
} weir_threads;

/* Judges from now on, beginning with all threads; `most` 0 or 1: there is nothing to judge. */
void weir_threads_begin(weir_threads *threads, uint32_t most);

/* Other processes keep so many processors busy. */
void weir_threads_heed_others(weir_threads *threads, double processors_busy);

/* Notes the time of a token that was computed with threads->now, and how much of it was a wait for the drive. */
void weir_threads_note(weir_threads *threads, uint64_t token_ns, uint64_t stalled_ns);

#endif
