/*
 * report.h - the report of a run: one object in which every field is always present, null where it does not apply.
 *
 * Bytes and seconds, never scaled units.  Pure functions over the struct; the JSON is built with jansson.  Any one thread.
 */
#ifndef WEIR_PROGRAMS_REPORT_H
#define WEIR_PROGRAMS_REPORT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"

/*
 * Counts are OUTPUT_NONE and reals NAN where they do not apply; texts are NULL.  Texts are not copied.
 *
 * Decode phase only, that is after the first token: tokens_per_second, bytes_read and what is counted per chunk, stall_seconds.
 *   tokens_per_second = (tokens - 1) / seconds            bytes_per_token = bytes_read / (tokens - 1)
 *   hit_rate = hits / demanded                            demanded = hits + joined + misses
 *   bound.compute_seconds = (seconds - stall_seconds) / (tokens - 1)
 *   bound.io_seconds = bytes_per_token / io.device_bytes_per_second, a rate measured apart from the run
 *   bound.tokens_per_second = 1 / the larger of the two   bound.ratio = tokens_per_second / bound.tokens_per_second
 *   forecast.error = forecast.tokens_per_second / tokens_per_second - 1
 */

typedef struct weir_report {
	const char *model;
	const char *architecture;
	uint64_t budget_bytes;
	uint64_t peak_memory_bytes;
	struct {
		uint64_t dense, experts, kv, compute, other;
	} memory;
	struct {
		uint64_t count, bytes;
	} slots;
	uint64_t prompt_tokens;
	double prompt_seconds, prompt_tokens_per_second;
	uint64_t tokens;
	double seconds, tokens_per_second, first_token_seconds, load_seconds;
	uint64_t bytes_read;
	double bytes_per_token;
	uint64_t demanded, hits, joined, misses;
	double hit_rate;
	uint64_t prefetched, prefetch_used, evictions;
	double stall_seconds;
	struct {
		int guessing; /* 1 or 0 at the end of the run; -1: does not apply */
		double with_seconds, without_seconds; /* a token's time in the last trial, median */
	} lookahead;
	struct {
		uint64_t most, last; /* that compute a prompt, and that computed the last token */
		double mean; /* of the tokens after the first */
	} threads;
	struct {
		const char *method;
		uint64_t queue_depth, read_bytes_typical;
		double device_bytes_per_second;
		uint64_t page_cache_bytes; /* of bytes_read */
	} io;
	struct {
		double compute_seconds, io_seconds, tokens_per_second, ratio;
	} bound;
	struct {
		double tokens_per_second, error;
	} forecast;
	const char *policy;
	uint64_t counts_loaded; /* demands that earlier runs have counted */
	const char *pack; /* path of the pack that weights were read from, or NULL */
	const char *logits_hash; /* 16 hex digits */
	const char *text; /* any bytes */
	size_t text_bytes;
	int exit;
} weir_report;

/* Nothing applies yet. */
void weir_report_clear(weir_report *report);

/* Computes what follows from other fields: the rates, hit_rate, bytes_per_token, bound and forecast.error. */
void weir_report_derive(weir_report *report);

/* The object; the caller lets go of it.  NULL when out of memory. */
json_t *weir_report_json(const weir_report *report);

/* The lines that a person reads after a run, on standard error unless -q. */
void weir_report_summary(const cli_common *common, const weir_report *report);

#endif
