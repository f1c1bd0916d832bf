/*
 * threads.c - see threads.h.
 *
 * Others: a processor that other processes keep busy is left to them.  A thread that shares it makes all the others wait.
 *
 * Trials, while tokens mostly wait for the drive: a number of threads and half of it take turns, four tokens each of which the
 * first does not count.  The half is kept when its tokens, by their median, take no longer.  What was chosen is then kept
 * for a while, twice as long each time that it is confirmed; a change of the tokens' times brings the next trial at once.
 *
 *     threads:  4 ×5 | 2 ×4 | 4 ×4 | ... | 2 ×5 | 1 ×4 | 2 ×4 | ... | 2 ×32 | 2 ×4 | 4 ×4 | ... | 2 ×64 | ...
 *                    └──── trial ──┘     kept   └─── trial ──┘                └─── trial ──┘
 *
 * Half of the threads compute up to twice as long, and the drive hides at most what was waited for it.  So fewer are not tried
 * while tokens do not mostly wait, nor more while they do little else.
 */
#include "ggml/threads.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS 4
#define KEEP_TOKENS_FIRST 15 /* at first more is read than later */
#define KEEP_TOKENS_LEAST 32
#define KEEP_TOKENS_MOST 512
#define FEWER_STALL_SHARE 0.6 /* of a token's time, at least */
#define MORE_STALL_SHARE 0.9 /* at most */
#define UNUSUAL 1.3 /* times as long as usual, or the other way round */
#define TAKEN_LEAST 0.4 /* of a processor: what others keep less busy is free */

static int compare_times(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return (left > right) - (left < right);
}

static uint64_t median_of(const uint64_t *times, uint32_t count)
{
	uint64_t sorted[WEIR_THREADS_TRIAL_TOKENS];

	memcpy(sorted, times, count * sizeof *times);
	qsort(sorted, count, sizeof *sorted, compare_times);
	return sorted[count / 2];
}

static void begin_keeping(weir_threads *threads, uint32_t now, uint32_t keep_tokens)
{
	threads->now = now;
	threads->trying = false;
	threads->keep_tokens = keep_tokens;
	threads->kept_tokens = 0;
	threads->usual_ns = threads->passed_ns = threads->stalled_ns = 0;
}

void weir_threads_begin(weir_threads *threads, uint32_t most)
{
	*threads = (weir_threads){.most = most, .free = most};
	begin_keeping(threads, most, KEEP_TOKENS_FIRST);
}

void weir_threads_heed_others(weir_threads *threads, double processors_busy)
{
	uint32_t before = threads->free, now = threads->trying ? threads->before : threads->now;
	double taken = processors_busy + 1 - TAKEN_LEAST;

	threads->free = taken < threads->most ? threads->most - (uint32_t)(taken > 0 ? taken : 0) : 1;
	if (threads->most > 1 && threads->free != before)
		begin_keeping(threads, now == before || now > threads->free ? threads->free : now, WEIR_THREADS_RECENT);
}

/* ---- trials ---- */

static void begin_trial(weir_threads *threads, bool up)
{
	threads->trying = true;
	threads->up = up;
	threads->before = threads->now;
	threads->high = up ? threads->now * 2 : threads->now;
	if (threads->high > threads->free)
		threads->high = threads->free;
	threads->low = up ? threads->now : threads->now / 2;
	threads->trial_tokens = threads->low_count = threads->high_count = 0;
	threads->now = threads->low;
}

/* A change is tested again soon, and a further step the same way at once. */
static void end_trial(weir_threads *threads, uint32_t chosen)
{
	bool further = threads->up ? chosen < threads->free : chosen > 1;
	uint32_t longer = threads->keep_tokens * 2;

	if (longer < KEEP_TOKENS_LEAST)
		longer = KEEP_TOKENS_LEAST;
	if (longer > KEEP_TOKENS_MOST)
		longer = KEEP_TOKENS_MOST;
	if (chosen == threads->before)
		begin_keeping(threads, chosen, longer);
	else
		begin_keeping(threads, chosen, further ? WEIR_THREADS_RECENT : KEEP_TOKENS_LEAST);
}

static void note_trial_time(weir_threads *threads, uint64_t token_ns)
{
	if (threads->trial_tokens++ % BLOCK_TOKENS == 0)
		return;
	if (threads->now == threads->low)
		threads->low_ns[threads->low_count++] = token_ns;
	else
		threads->high_ns[threads->high_count++] = token_ns;
}

/* How many times as long the slower must take for a trial to end early: the more tokens, the less chance has to say. */
static double clear_after(uint32_t tokens)
{
	return 1.2 + 2.4 / tokens;
}

static void note_trial(weir_threads *threads, uint64_t token_ns)
{
	uint32_t tokens;
	double low, high;

	note_trial_time(threads, token_ns);
	tokens = threads->trial_tokens;
	if (tokens % BLOCK_TOKENS)
		return;
	threads->now = threads->now == threads->low ? threads->high : threads->low;
	if (tokens % (2 * BLOCK_TOKENS))
		return;
	low = (double)median_of(threads->low_ns, threads->low_count);
	high = (double)median_of(threads->high_ns, threads->high_count);
	if (tokens == WEIR_THREADS_TRIAL_TOKENS || low > high * clear_after(tokens) || high > low * clear_after(tokens))
		end_trial(threads, low <= high ? threads->low : threads->high);
}

/* ---- between trials ---- */

static bool is_unusual(weir_threads *threads)
{
	double recent;

	if (threads->kept_tokens % WEIR_THREADS_RECENT)
		return false;
	recent = (double)median_of(threads->recent_ns, WEIR_THREADS_RECENT);
	if (!threads->usual_ns)
		threads->usual_ns = (uint64_t)recent;
	return recent > (double)threads->usual_ns * UNUSUAL || recent * UNUSUAL < (double)threads->usual_ns;
}

/* More threads and fewer in turns, where both may be better. */
static void try_another(weir_threads *threads)
{
	double share = (double)threads->stalled_ns / (double)(threads->passed_ns + 1);
	bool more = threads->now < threads->free && share <= MORE_STALL_SHARE;
	bool fewer = threads->now > 1 && share >= FEWER_STALL_SHARE;

	if (more || fewer)
		begin_trial(threads, more && !(fewer && threads->up));
	else
		begin_keeping(threads, threads->now, KEEP_TOKENS_LEAST);
}

static void note_kept(weir_threads *threads, uint64_t token_ns, uint64_t stalled_ns)
{
	threads->recent_ns[threads->kept_tokens++ % WEIR_THREADS_RECENT] = token_ns;
	threads->passed_ns += token_ns;
	threads->stalled_ns += stalled_ns;
	if (is_unusual(threads)) {
		threads->keep_tokens = WEIR_THREADS_RECENT;
		try_another(threads);
	} else if (threads->kept_tokens >= threads->keep_tokens) {
		try_another(threads);
	}
}

void weir_threads_note(weir_threads *threads, uint64_t token_ns, uint64_t stalled_ns)
{
	threads->last = threads->now;
	threads->tokens++;
	threads->threads_sum += threads->now;
	if (threads->most < 2)
		return;
	if (threads->trying)
		note_trial(threads, token_ns);
	else
		note_kept(threads, token_ns, stalled_ns);
}
