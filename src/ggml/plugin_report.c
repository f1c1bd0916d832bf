/*
 * plugin_report.c - the report of a session in a program that is not weir's: what the backend knows by itself.
 *
 * One JSON object with the fields of weir's own report, in its order.  What only the program could tell (how many tokens, how
 * long they took, what text) is null.  Counts are of the whole session, its start and its prompts included; memory{} and
 * slots{} hold nulls when the session never started.
 *
 * It is written when the model is freed, or when the process exits without that: exit() runs the destructor below, a signal
 * does not.  Several models in one process write to the same file: the last one that did something remains.
 *
 * Threads: whoever ends the session.  At exit, threads that still compute may move the counts on while they are read.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "ggml/packed.h"
#include "ggml/plugin.h"
#include "ggml/plugin_report.h"
#include "os/outfile.h"
#include "os/process.h"
#include "weir/version.h"

#define NS_PER_SECOND 1e9

static bool any_written;

/* ---- values ---- */

/* Text of any bytes, made safe to show. */
static json_t *text_or_null(const char *text)
{
	size_t bytes = text ? strlen(text) : 0, room = weir_text_escape(text ? text : "", bytes, NULL, 0) + 1;
	char *safe = text ? malloc(room) : NULL;
	json_t *value;

	if (!safe)
		return json_null();
	weir_text_escape(text, bytes, safe, room);
	value = json_string(safe);
	free(safe);
	return value;
}

static json_t *count_if(bool known, uint64_t count)
{
	return known ? json_integer((json_int_t)count) : json_null();
}

static void put_nulls(json_t *object, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		json_object_set_new(object, names[i], json_null());
}

#define PUT_NULLS(object, ...)                                                                                                 \
	put_nulls(object, (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* ---- fields ---- */

static void put_memory(json_t *object, const weir_session *session, const weir_session_stats *stats)
{
	json_t *memory = json_object(), *slots = json_object();
	const weir_plan *plan = &session->plan;
	bool known = session->started;
	weir_process_memory process;
	bool measured = weir_process_memory_read(&process, NULL) == 0;

	json_object_set_new(object, "budget_bytes", count_if(session->options.budget_bytes, session->options.budget_bytes));
	json_object_set_new(object, "peak_memory_bytes", count_if(measured, measured ? process.rss_peak_bytes : 0));
	json_object_set_new(memory, "dense", count_if(known, plan->memory_dense_bytes));
	json_object_set_new(memory, "experts", count_if(known, plan->memory_experts_bytes));
	json_object_set_new(memory, "kv", count_if(known, plan->memory_kv_bytes));
	json_object_set_new(memory, "compute", count_if(known, plan->memory_compute_bytes));
	json_object_set_new(memory, "other", count_if(known, plan->memory_other_bytes));
	json_object_set_new(object, "memory", memory);
	json_object_set_new(slots, "count", count_if(known, stats->slots_count));
	json_object_set_new(slots, "bytes", count_if(known, stats->slots_bytes));
	json_object_set_new(object, "slots", slots);
}

static void put_time(json_t *object, const char *name, uint64_t ns)
{
	json_object_set_new(object, name, ns ? json_real((double)ns / NS_PER_SECOND) : json_null());
}

static void put_residency(json_t *object, bool known, const weir_session_stats *stats)
{
	const weir_store_stats *experts = &stats->experts;
	uint64_t read = stats->start_bytes_read + stats->dense_bytes_read + experts->bytes_read;
	double stall_ns = (double)experts->stall_ns + (double)stats->dense_stall_ns;
	json_t *lookahead = json_object(), *threads = json_object();

	json_object_set_new(object, "bytes_read", count_if(known, read));
	PUT_NULLS(object, "bytes_per_token");
	json_object_set_new(object, "demanded", count_if(known, experts->demanded));
	json_object_set_new(object, "hits", count_if(known, experts->hits));
	json_object_set_new(object, "joined", count_if(known, experts->joined));
	json_object_set_new(object, "misses", count_if(known, experts->misses));
	json_object_set_new(object, "hit_rate",
			    experts->demanded ? json_real((double)experts->hits / (double)experts->demanded) : json_null());
	json_object_set_new(object, "prefetched", count_if(known, experts->prefetched));
	json_object_set_new(object, "prefetch_used", count_if(known, experts->prefetch_used));
	json_object_set_new(object, "evictions", count_if(known, experts->evictions));
	json_object_set_new(lookahead, "guessing", experts->demanded ? json_boolean(stats->lookahead) : json_null());
	put_time(lookahead, "with_seconds", stats->lookahead_with_ns);
	put_time(lookahead, "without_seconds", stats->lookahead_without_ns);
	json_object_set_new(object, "lookahead", lookahead);
	PUT_NULLS(threads, "most", "last", "mean");
	json_object_set_new(object, "threads", threads);
	json_object_set_new(object, "stall_seconds", known ? json_real(stall_ns / NS_PER_SECOND) : json_null());
}

static void put_drive(json_t *object, const weir_session_stats *stats)
{
	json_t *io = json_object(), *bound = json_object(), *forecast = json_object();

	json_object_set_new(io, "method", text_or_null(stats->io_method));
	json_object_set_new(io, "queue_depth", count_if(stats->io_method, stats->queue_depth));
	json_object_set_new(io, "read_bytes_typical", count_if(stats->io_method, stats->read_bytes_typical));
	PUT_NULLS(io, "device_bytes_per_second");
	json_object_set_new(io, "page_cache_bytes", count_if(stats->io_method, stats->page_cache_bytes));
	PUT_NULLS(bound, "compute_seconds", "io_seconds", "tokens_per_second", "ratio");
	PUT_NULLS(forecast, "tokens_per_second", "error");
	json_object_set_new(object, "io", io);
	json_object_set_new(object, "bound", bound);
	json_object_set_new(object, "forecast", forecast);
}

static json_t *make_report(const weir_session *session)
{
	json_t *object = json_object();
	weir_session_stats stats;

	weir_session_get_stats(session, &stats);
	json_object_set_new(object, "weir_version", text_or_null(weir_version()));
	json_object_set_new(object, "model", text_or_null(session->files_count ? session->files[0].path : NULL));
	PUT_NULLS(object, "architecture");
	put_memory(object, session, &stats);
	PUT_NULLS(object, "prompt_tokens", "prompt_seconds", "prompt_tokens_per_second", "tokens", "seconds",
		  "tokens_per_second", "first_token_seconds", "load_seconds");
	put_residency(object, session->started, &stats);
	put_drive(object, &stats);
	json_object_set_new(object, "policy", text_or_null(stats.policy));
	json_object_set_new(object, "counts_loaded", count_if(stats.policy, stats.counts_loaded));
	json_object_set_new(object, "pack", text_or_null(weir_packed_path(session->packed)));
	PUT_NULLS(object, "logits_hash", "text", "exit");
	return object;
}

/* ---- writing ---- */

static int write_text(const char *path, const char *text, weir_error *error)
{
	weir_outfile file;
	int result = weir_outfile_open(path, &file, error);

	if (result)
		return result;
	fprintf(file.stream, "%s\n", text); /* a failure stays with the stream: finishing sees it */
	return weir_outfile_finish(&file, error);
}

static int write_report(const weir_session *session, const char *path, weir_error *error)
{
	json_t *object = make_report(session);
	char *text = json_dumps(object, JSON_INDENT(2));
	int result;

	json_decref(object);
	if (!text)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory for the report");
	result = write_text(path, text, error);
	free(text);
	return result;
}

int weir_plugin_report_write(weir_session *session, weir_error *error)
{
	bool tried = session->started || session->start_error.code;
	const char *path = session->options.report_path;

	if (!path || session->reported || (!tried && any_written))
		return 0;
	session->reported = any_written = true;
	return write_report(session, path, error);
}

int weir_plugin_write_report(const char *path, weir_error *error)
{
	weir_session *session = weir_backend_session();

	if (!session)
		return weir_fail(error, WEIR_ENOTFOUND, NULL, WEIR_ERROR_NO_OFFSET, 0, "no model is loaded");
	return write_report(session, path, error);
}

/* A program may exit with its models still loaded. */
__attribute__((destructor)) static void at_exit(void)
{
	for (weir_session *session = weir_backend_session(); session; session = session->next)
		weir_session_hand_over(session);
}
