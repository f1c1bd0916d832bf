/*
 * backend.h - what the engine and the plugin see of the ggml backend "weir": configure it, then let ggml drive it.
 *
 * One process has one device, WEIR0.  Each model that is loaded onto it makes a session: the weights it recorded, the plan,
 * the memory.  Nothing but headers is read until a session starts, which happens on request or at the first graph that is
 * computed.
 *
 * Threads: configure before the first model is loaded.  A session is used by the thread that computes its graphs.
 */
#ifndef WEIR_GGML_BACKEND_H
#define WEIR_GGML_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"
#include "weir/plan.h"
#include "weir/store.h"

struct ggml_backend_reg;
typedef struct weir_session weir_session;

typedef struct weir_backend_options {
	uint64_t budget_bytes; /* of the whole process; 0: no limit, everything resident */
	const char *io_method; /* io.h; NULL is "auto" */
	const char *io_fault; /* fault.h; NULL for none */
	const char *policy; /* store.h; NULL is "auto" */
	const char *trace_path; /* routing trace to write, or NULL */
	const char *report_path; /* written when a session ends, or NULL */
	const char *pack_path; /* pack of the model; "": none; NULL: beside the model's file, if there is one */
	uint32_t queue_depth; /* 0: this and the next as found best for the drive (weir/disk.h), else the defaults */
	uint32_t piece_bytes; /* 0: the default */
	uint32_t threads; /* compute threads, for the size of work buffers; 0: one per processor */
	bool no_counts; /* keep no counts of demands between runs, and use none (counts.h) */
	bool threads_auto; /* fewer of them may compute a token when that is as fast */
	bool lookahead; /* read experts before their router has spoken */
	/* Called while weights that stay are read, with 0..1; false stops the start with WEIR_EINTERRUPTED.  NULL for none. */
	bool (*progress)(void *user, double fraction);
	void *progress_user;
	bool bind_threads; /* bind each compute thread to a processor: for programs of our own only */
} weir_backend_options;

typedef struct weir_session_stats {
	weir_store_stats experts; /* zeroes where all of them stay: then there is no store */
	uint64_t slots_count, slots_bytes; /* of the store, or, where all experts stay, a place for each as in the plan */
	uint64_t dense_bytes_read; /* through the ring, rows included */
	uint64_t start_bytes_read; /* resident weights, read once */
	uint64_t page_cache_bytes; /* of all that was read, what the page cache held */
	uint64_t dense_stall_ns;
	uint32_t threads_last, threads_most; /* that computed the last token, and at most; 0: not judged */
	uint64_t threads_tokens, threads_sum; /* tokens judged, and the threads that they had, added up */
	uint32_t queue_depth;
	uint64_t read_bytes_typical;
	const char *io_method;
	const char *policy;
	uint64_t counts_loaded; /* demands that earlier runs have counted; 0: none */
	bool lookahead; /* experts are guessed at now */
	uint64_t lookahead_with_ns, lookahead_without_ns; /* a token's time in the last trial, median; 0: none has ended */
} weir_session_stats;

/* Sets the options (copied, strings too) for sessions that begin later. */
int weir_backend_configure(const weir_backend_options *options, weir_error *error);

/* The registry entry to hand to ggml_backend_register. */
struct ggml_backend_reg *weir_backend_reg(void);

/* The session of the model that was loaded last, or NULL. */
weir_session *weir_backend_session(void);

/* What the plan is made from; complete once a context exists.  Rates and prompt length are left at 0. */
int weir_session_facts(weir_session *session, weir_plan_facts *facts, weir_error *error);

/* Divides the budget and reads what stays resident.  WEIR_EBUDGET when it cannot hold.  Does nothing the second time. */
int weir_session_start(weir_session *session, weir_error *error);

/* The pack that weights are read from, or NULL; and why one that is there is not used (code 0: there is none).  Known once the
 * session was started. */
const char *weir_session_pack(const weir_session *session, weir_error *notice);

/* The plan in force; NULL before the start. */
const weir_plan *weir_session_plan(const weir_session *session);
void weir_session_get_stats(const weir_session *session, weir_session_stats *stats);

/* Puts the routing trace in place, whole, or leaves nothing of it when the last graph failed; nothing is traced after that.  A
 * session that is freed does it too, but has nowhere to say that it failed. */
int weir_session_end_trace(weir_session *session, weir_error *error);

/* Removes what outputs have written so far, for a process that ends at once.  Async-signal-safe, any thread. */
void weir_backend_abandon_outputs(void);

/* The error that made the last graph fail; code 0 when none did. */
const weir_error *weir_session_error(const weir_session *session);

#endif
