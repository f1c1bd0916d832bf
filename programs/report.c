/*
 * report.c - see report.h.  The order of the fields is the order of the contract.
 */
#include "report.h"

#include <inttypes.h>
#include <math.h>

#include "output.h"
#include "weir/version.h"

void weir_report_clear(weir_report *report)
{
	const uint64_t none = OUTPUT_NONE;

	*report = (weir_report){
		.budget_bytes = none,
		.peak_memory_bytes = none,
		.memory = {none, none, none, none, none},
		.slots = {none, none},
		.prompt_tokens = none,
		.prompt_seconds = NAN,
		.prompt_tokens_per_second = NAN,
		.tokens = none,
		.seconds = NAN,
		.tokens_per_second = NAN,
		.first_token_seconds = NAN,
		.load_seconds = NAN,
		.bytes_read = none,
		.bytes_per_token = NAN,
		.demanded = none,
		.hits = none,
		.joined = none,
		.misses = none,
		.hit_rate = NAN,
		.prefetched = none,
		.prefetch_used = none,
		.evictions = none,
		.stall_seconds = NAN,
		.lookahead = {-1, NAN, NAN},
		.threads = {none, none, NAN},
		.io = {NULL, none, none, NAN, none},
		.bound = {NAN, NAN, NAN, NAN},
		.forecast = {NAN, NAN},
		.counts_loaded = none,
	};
}

/* ---- what follows from other fields ---- */

/* a / b, or NAN when that says nothing. */
static double ratio(double a, double b)
{
	return isfinite(a) && isfinite(b) && b > 0 ? a / b : NAN;
}

static double real(uint64_t count)
{
	return count == OUTPUT_NONE ? NAN : (double)count;
}

/* Tokens after the first, or NAN when there is none. */
static double later_tokens(const weir_report *report)
{
	return report->tokens != OUTPUT_NONE && report->tokens > 1 ? (double)(report->tokens - 1) : NAN;
}

/* Without what the page cache gave: copying that is part of computing. */
static double drive_bytes_per_token(const weir_report *report)
{
	uint64_t cached = report->io.page_cache_bytes == OUTPUT_NONE ? 0 : report->io.page_cache_bytes;

	return report->bytes_read < cached ? 0 : ratio(real(report->bytes_read) - (double)cached, later_tokens(report));
}

static void derive_bound(weir_report *report)
{
	double tokens = later_tokens(report), bytes = drive_bytes_per_token(report), compute, io, slower;

	compute = ratio(report->seconds - report->stall_seconds, tokens);
	io = bytes > 0 ? ratio(bytes, report->io.device_bytes_per_second) : bytes;
	slower = compute > io ? compute : io;
	report->bound.compute_seconds = compute < 0 ? 0 : compute;
	report->bound.io_seconds = io;
	report->bound.tokens_per_second = isfinite(compute) && isfinite(io) ? ratio(1, slower) : NAN;
	report->bound.ratio = ratio(report->tokens_per_second, report->bound.tokens_per_second);
}

void weir_report_derive(weir_report *report)
{
	double tokens = later_tokens(report);

	report->prompt_tokens_per_second = ratio(real(report->prompt_tokens), report->prompt_seconds);
	report->tokens_per_second = ratio(tokens, report->seconds);
	report->bytes_per_token = ratio(real(report->bytes_read), tokens);
	report->hit_rate = ratio(real(report->hits), real(report->demanded));
	derive_bound(report);
	report->forecast.error = ratio(report->forecast.tokens_per_second, report->tokens_per_second) - 1;
}

/* ---- JSON ---- */

static void put_memory(json_t *object, const weir_report *report)
{
	json_t *memory = json_object(), *slots = json_object();

	output_put_count(memory, "dense", report->memory.dense);
	output_put_count(memory, "experts", report->memory.experts);
	output_put_count(memory, "kv", report->memory.kv);
	output_put_count(memory, "compute", report->memory.compute);
	output_put_count(memory, "other", report->memory.other);
	json_object_set_new(object, "memory", memory);
	output_put_count(slots, "count", report->slots.count);
	output_put_count(slots, "bytes", report->slots.bytes);
	json_object_set_new(object, "slots", slots);
}

static void put_times(json_t *object, const weir_report *report)
{
	output_put_count(object, "prompt_tokens", report->prompt_tokens);
	output_put_real(object, "prompt_seconds", report->prompt_seconds);
	output_put_real(object, "prompt_tokens_per_second", report->prompt_tokens_per_second);
	output_put_count(object, "tokens", report->tokens);
	output_put_real(object, "seconds", report->seconds);
	output_put_real(object, "tokens_per_second", report->tokens_per_second);
	output_put_real(object, "first_token_seconds", report->first_token_seconds);
	output_put_real(object, "load_seconds", report->load_seconds);
}

static void put_residency(json_t *object, const weir_report *report)
{
	json_t *lookahead = json_object();

	output_put_count(object, "bytes_read", report->bytes_read);
	output_put_real(object, "bytes_per_token", report->bytes_per_token);
	output_put_count(object, "demanded", report->demanded);
	output_put_count(object, "hits", report->hits);
	output_put_count(object, "joined", report->joined);
	output_put_count(object, "misses", report->misses);
	output_put_real(object, "hit_rate", report->hit_rate);
	output_put_count(object, "prefetched", report->prefetched);
	output_put_count(object, "prefetch_used", report->prefetch_used);
	output_put_count(object, "evictions", report->evictions);
	output_put_real(object, "stall_seconds", report->stall_seconds);
	json_object_set_new(lookahead, "guessing",
			    report->lookahead.guessing < 0 ? json_null() : json_boolean(report->lookahead.guessing));
	output_put_real(lookahead, "with_seconds", report->lookahead.with_seconds);
	output_put_real(lookahead, "without_seconds", report->lookahead.without_seconds);
	json_object_set_new(object, "lookahead", lookahead);
}

static void put_threads(json_t *object, const weir_report *report)
{
	json_t *threads = json_object();

	output_put_count(threads, "most", report->threads.most);
	output_put_count(threads, "last", report->threads.last);
	output_put_real(threads, "mean", report->threads.mean);
	json_object_set_new(object, "threads", threads);
}

static void put_drive(json_t *object, const weir_report *report)
{
	json_t *io = json_object(), *bound = json_object(), *forecast = json_object();

	output_put_text(io, "method", report->io.method);
	output_put_count(io, "queue_depth", report->io.queue_depth);
	output_put_count(io, "read_bytes_typical", report->io.read_bytes_typical);
	output_put_real(io, "device_bytes_per_second", report->io.device_bytes_per_second);
	output_put_count(io, "page_cache_bytes", report->io.page_cache_bytes);
	json_object_set_new(object, "io", io);
	output_put_real(bound, "compute_seconds", report->bound.compute_seconds);
	output_put_real(bound, "io_seconds", report->bound.io_seconds);
	output_put_real(bound, "tokens_per_second", report->bound.tokens_per_second);
	output_put_real(bound, "ratio", report->bound.ratio);
	json_object_set_new(object, "bound", bound);
	output_put_real(forecast, "tokens_per_second", report->forecast.tokens_per_second);
	output_put_real(forecast, "error", report->forecast.error);
	json_object_set_new(object, "forecast", forecast);
}

json_t *weir_report_json(const weir_report *report)
{
	json_t *object = json_object();

	output_put_text(object, "weir_version", weir_version());
	output_put_text(object, "model", report->model);
	output_put_text(object, "architecture", report->architecture);
	output_put_count(object, "budget_bytes", report->budget_bytes);
	output_put_count(object, "peak_memory_bytes", report->peak_memory_bytes);
	put_memory(object, report);
	put_times(object, report);
	put_residency(object, report);
	put_threads(object, report);
	put_drive(object, report);
	output_put_text(object, "policy", report->policy);
	output_put_count(object, "counts_loaded", report->counts_loaded);
	output_put_text(object, "pack", report->pack);
	output_put_text(object, "logits_hash", report->logits_hash);
	json_object_set_new(object, "text", report->text ? output_json_string(report->text, report->text_bytes) : json_null());
	json_object_set_new(object, "exit", json_integer(report->exit));
	return object;
}

/* ---- for people ---- */

static void print_speed(const cli_common *common, const weir_report *report)
{
	bool bold = cli_colored(common, stderr);

	if (isfinite(report->load_seconds))
		fprintf(stderr, "loaded in %.2f s; ", report->load_seconds);
	if (report->prompt_tokens != OUTPUT_NONE)
		fprintf(stderr, "prompt: %llu token%s in %.2f s", (unsigned long long)report->prompt_tokens,
			cli_plural(report->prompt_tokens), report->prompt_seconds);
	if (isfinite(report->prompt_tokens_per_second))
		fprintf(stderr, " (%.1f/s)", report->prompt_tokens_per_second);
	if (report->tokens != OUTPUT_NONE)
		fprintf(stderr, "; generated %llu token%s", (unsigned long long)report->tokens, cli_plural(report->tokens));
	if (isfinite(report->tokens_per_second))
		fprintf(stderr, ", %s%.2f tokens/s%s", bold ? "\033[1m" : "", report->tokens_per_second, bold ? "\033[0m" : "");
	fputc('\n', stderr);
}

static void print_memory(const weir_report *report)
{
	char peak[CLI_BYTES_TEXT], budget[CLI_BYTES_TEXT], slots[CLI_BYTES_TEXT];

	if (report->peak_memory_bytes == OUTPUT_NONE)
		return;
	fprintf(stderr, "memory: peak %s", cli_bytes(report->peak_memory_bytes, peak));
	if (report->budget_bytes != OUTPUT_NONE)
		fprintf(stderr, " of %s", cli_bytes(report->budget_bytes, budget));
	if (report->slots.count != OUTPUT_NONE && report->slots.count)
		fprintf(stderr, "; %llu slots, %s", (unsigned long long)report->slots.count,
			cli_bytes(report->slots.bytes, slots));
	if (isfinite(report->hit_rate))
		fprintf(stderr, "; %.1f %% hits", 100 * report->hit_rate);
	fputc('\n', stderr);
}

static void print_drive(const weir_report *report)
{
	char bytes[CLI_BYTES_TEXT], rate[CLI_BYTES_TEXT], cached[CLI_BYTES_TEXT];

	if (!(report->bytes_per_token > 0))
		return;
	fprintf(stderr, "drive: %s a token", cli_bytes((uint64_t)report->bytes_per_token, bytes));
	if (report->io.page_cache_bytes != OUTPUT_NONE && report->io.page_cache_bytes)
		fprintf(stderr, "; %s in all from the page cache", cli_bytes(report->io.page_cache_bytes, cached));
	if (isfinite(report->stall_seconds))
		fprintf(stderr, "; waited %.2f s for it", report->stall_seconds);
	if (isfinite(report->io.device_bytes_per_second))
		fprintf(stderr, "; measured now: %s/s", cli_bytes((uint64_t)report->io.device_bytes_per_second, rate));
	if (isfinite(report->bound.ratio))
		fprintf(stderr, "; %.0f %% of what drive and processor allow", 100 * report->bound.ratio);
	fputc('\n', stderr);
}

static void print_lookahead(const weir_report *report)
{
	if (!(report->lookahead.with_seconds > 0 && report->lookahead.without_seconds > 0))
		return;
	fprintf(stderr, "look-ahead: a token took %.1f ms with it and %.1f ms without; it was %s at the end\n",
		1e3 * report->lookahead.with_seconds, 1e3 * report->lookahead.without_seconds,
		report->lookahead.guessing ? "on" : "off");
}

static void print_threads(const weir_report *report)
{
	if (report->threads.most != OUTPUT_NONE && report->threads.mean < (double)report->threads.most)
		fprintf(stderr, "threads: of %" PRIu64 ", %.1f on average computed a token\n", report->threads.most,
			report->threads.mean);
}

void weir_report_summary(const cli_common *common, const weir_report *report)
{
	if (common->quiet)
		return;
	print_speed(common, report);
	print_memory(report);
	print_drive(report);
	print_lookahead(report);
	print_threads(report);
}
