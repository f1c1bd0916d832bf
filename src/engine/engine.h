/*
 * engine.h - libllama behind a small interface: open a model, plan, start, generate (internal; the programs use it).
 *
 * An engine belongs to one thread, but weir_engine_interrupt may be called from a signal handler.  Nothing but headers and
 * the vocabulary is read before weir_engine_start.
 */
#ifndef WEIR_ENGINE_ENGINE_H
#define WEIR_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/error.h"
#include "weir/plan.h"

typedef struct weir_engine weir_engine;

typedef struct weir_engine_options {
	const char *model;
	uint64_t budget_bytes; /* of the whole process; 0: everything resident */
	uint32_t ctx; /* tokens; 0: 4096, or what the model was trained for if that is less */
	uint32_t threads; /* 0: one per processor this process may use, and fewer for a token when that is as fast */
	uint32_t batch; /* tokens of a prompt worked on together; 0: 512 */
	const char *io_method; /* "auto", "uring", "threads", "mmap" */
	const char *policy; /* "auto" or a name */
	bool lookahead;
	bool no_counts; /* keep no counts between runs, and use none */
	const char *io_fault; /* for tests; NULL for none */
	const char *trace_path; /* routing trace to write, or NULL */
	const char *pack_path; /* pack of the model; "": none; NULL: beside the model's file, if there is one */
	const char *device; /* where compute runs: NULL or "cpu" */
	uint32_t queue_depth; /* 0: the default */
	uint32_t piece_bytes; /* 0: the default */
	const char *plain; /* "mmap" or "read": llama.cpp by itself, its weights mapped or read into memory, if it
			    * is the first engine of the process; NULL: weir */
	int verbosity; /* > 0: the engine's own messages go to standard error */
	bool (*progress)(void *user, double fraction); /* while weights are read; false interrupts; or NULL */
	void *user;
} weir_engine_options;

typedef struct weir_engine_generate {
	const int32_t *prompt;
	uint32_t prompt_count;
	uint32_t tokens_max;
	float temp; /* 0: always the likeliest token */
	int32_t top_k;
	float top_p;
	uint32_t seed;
	bool ignore_eos;
	bool logits_hash; /* XXH3-64 over the raw logits that each token was picked from */
	int (*on_text)(void *user, const char *piece, uint32_t bytes); /* non-zero stops */
	void (*on_prompt)(void *user, uint32_t done, uint32_t total);
	/* After each token is picked: the time since the one before (the first: since the prompt began), and, with logits_hash,
	 * the hash over the logits so far. */
	void (*on_token)(void *user, double seconds, uint64_t logits_hash);
	void *user;
} weir_engine_generate;

typedef struct weir_engine_result {
	uint32_t prompt_tokens, tokens;
	double prompt_seconds;
	double seconds; /* generation after the first token */
	double first_token_seconds; /* from weir_engine_open to the first token */
	double load_seconds; /* opening and starting */
	uint64_t bytes_read; /* while generating, after the first token */
	uint64_t page_cache_bytes; /* of bytes_read, what came from the page cache */
	uint64_t prompt_bytes_read;
	uint64_t total_bytes_read; /* resident weights included */
	uint64_t demanded, hits, joined, misses, prefetched, prefetch_used, evictions; /* while generating */
	double stall_seconds; /* while generating */
	bool lookahead; /* experts were guessed at when the run ended */
	double lookahead_with_seconds, lookahead_without_seconds; /* a token's time in the last trial; 0: none ended */
	double prompt_stall_seconds;
	uint32_t threads; /* of prompts, and at most of a token */
	uint32_t threads_last; /* that computed the last token */
	double threads_mean; /* of the generated tokens after the first */
	uint64_t logits_hash;
	bool has_logits_hash;
	uint64_t memory_dense, memory_experts, memory_kv, memory_compute, memory_other;
	uint64_t slots_count, slots_bytes;
	char io_method[16];
	uint32_t queue_depth;
	uint64_t read_bytes_typical;
	char policy[24];
	uint64_t counts_loaded; /* demands that earlier runs have counted; 0: none */
	uint64_t major_faults_decode;
	bool ended; /* the model ended its text */
	bool stopped; /* on_text asked for it */
} weir_engine_result;

/* Headers, vocabulary and context; no weight is read.  WEIR_EUNSUPPORTED when libllama does not take the model. */
int weir_engine_open(const weir_engine_options *options, weir_engine **engine, weir_error *error);
void weir_engine_close(weir_engine *engine);

/* The plan for the engine's budget at these rates (0: unknown).  WEIR_EBUDGET with plan->least_budget_bytes set. */
int weir_engine_plan(weir_engine *engine, double device_bytes_per_second, double compute_tokens_per_second,
		     uint64_t prompt_tokens, weir_plan *plan, weir_plan_facts *facts, weir_error *error);

/* About how long computing one token will take with every weight in memory, from the speed of ggml's kernels here; takes some
 * milliseconds and 4 MiB.  NAN when it cannot be told. */
double weir_engine_estimate_token_seconds(const weir_engine *engine);

/* Divides the budget and reads the weights that stay. */
int weir_engine_start(weir_engine *engine, weir_error *error);

/* The pack that weights are read from, or NULL; `notice` says why one that is there is not used (code 0: there is none).
 * Known after weir_engine_start, also after one that failed. */
const char *weir_engine_pack(const weir_engine *engine, weir_error *notice);

const char *weir_engine_architecture(const weir_engine *engine);
uint32_t weir_engine_ctx(const weir_engine *engine);
uint32_t weir_engine_ctx_trained(const weir_engine *engine); /* what the model states; 0: nothing */

/* Tokens of a text, through the model's chat template unless `raw`; free() them. */
int weir_engine_tokenize(weir_engine *engine, const char *text, bool raw, int32_t **tokens, uint32_t *count, weir_error *error);

/* Works the prompt through and generates.  On failure `result` holds what was done so far. */
int weir_engine_run(weir_engine *engine, const weir_engine_generate *generate, weir_engine_result *result, weir_error *error);

/* Async-signal-safe: the run in progress ends with WEIR_EINTERRUPTED. */
void weir_engine_interrupt(weir_engine *engine);

/* Removes what a routing trace has written so far, for a process that ends at once.  Async-signal-safe, any thread. */
void weir_engine_abandon_outputs(void);

#endif
