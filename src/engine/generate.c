/*
 * generate.c - tokens in, tokens out, and what that cost.
 *
 * The figures of the prompt and of the generation are kept apart: the counters are read before the prompt, after the first
 * token and at the end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/fail.h"
#include "engine/engine_types.h"
#include "os/memory.h"
#include "os/process.h"

#define NS_PER_SECOND 1e9
#define PIECE_BYTES 256

typedef struct generation {
	weir_engine *engine;
	const weir_engine_generate *wanted;
	weir_engine_result *result;
	weir_error *error;
	struct llama_sampler *sampler;
	XXH3_state_t *hash;
	double *token_seconds; /* of each generated token after the first */
	uint64_t first_token_ns;
	weir_session_stats before, after_first;
	uint64_t faults_after_first;
} generation;

/* ---- text to tokens ---- */

static char *apply_template(const weir_engine *engine, const char *text)
{
	const char *chat = llama_model_chat_template(engine->model, NULL);
	struct llama_chat_message message = {"user", text};
	size_t capacity = strlen(text) * 2 + 4096;
	char *out;
	int32_t length;

	if (!chat)
		return NULL;
	out = malloc(capacity);
	if (!out)
		return NULL;
	length = llama_chat_apply_template(chat, &message, 1, true, out, (int32_t)capacity);
	if (length < 0 || (size_t)length >= capacity) {
		free(out);
		return NULL;
	}
	out[length] = '\0';
	return out;
}

/* libllama aborts when it is asked for the text of such a model's tokens. */
static bool has_vocabulary(const weir_engine *engine)
{
	return llama_vocab_type(engine->vocab) != LLAMA_VOCAB_TYPE_NONE;
}

int weir_engine_tokenize(weir_engine *engine, const char *text, bool raw, int32_t **tokens, uint32_t *count, weir_error *error)
{
	char *templated = raw ? NULL : apply_template(engine, text);
	const char *source = templated ? templated : text;
	int32_t bytes = (int32_t)strlen(source), capacity, made;

	*tokens = NULL;
	if (!has_vocabulary(engine)) {
		free(templated);
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the model has no vocabulary: it takes token ids only (--prompt-tokens)");
	}
	/* A template spells out its special tokens; text as it is gets the model's own beginning.  Without room libllama only
	 * counts: vocabularies without a token for a character take several, one for each of its bytes. */
	capacity = -llama_tokenize(engine->vocab, source, bytes, NULL, 0, true, templated != NULL);
	*tokens = malloc((size_t)(capacity > 0 ? capacity : 1) * sizeof **tokens);
	if (!*tokens) {
		free(templated);
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the prompt");
	}
	made = llama_tokenize(engine->vocab, source, bytes, *tokens, capacity, true, templated != NULL);
	free(templated);
	if (made <= 0) {
		free(*tokens);
		*tokens = NULL;
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the prompt has no tokens in this vocabulary");
	}
	*count = (uint32_t)made;
	return 0;
}

/* ---- decoding ---- */

static int decode(generation *g, const int32_t *tokens, uint32_t count)
{
	weir_engine *engine = g->engine;
	/* llama_batch_get_one takes a pointer it does not write to. */
	struct llama_batch batch = llama_batch_get_one((int32_t *)(uintptr_t)tokens, (int32_t)count);
	const weir_error *failure;
	int status;

	weir_engine_forget_message();
	status = llama_decode(engine->context, batch);
	if (status == 0)
		return 0;
	if (engine->interrupted)
		return weir_fail(g->error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted");
	failure = engine->session ? weir_session_error(engine->session) : NULL;
	if (failure && failure->code) {
		if (g->error)
			*g->error = *failure;
		return failure->code;
	}
	return weir_fail(g->error, WEIR_EENGINE, engine->path, WEIR_ERROR_NO_OFFSET, 0, "decoding failed (%d): %s", status,
			 weir_engine_message());
}

/* All zero for llama.cpp by itself. */
static void read_stats(const generation *g, weir_session_stats *stats)
{
	*stats = (weir_session_stats){0};
	if (g->engine->session)
		weir_session_get_stats(g->engine->session, stats);
}

static int decode_prompt(generation *g)
{
	const weir_engine_generate *wanted = g->wanted;
	uint32_t done = 0;

	while (done < wanted->prompt_count) {
		uint32_t left = wanted->prompt_count - done;
		uint32_t count = left < g->engine->batch ? left : g->engine->batch;
		int result = decode(g, wanted->prompt + done, count);

		if (result)
			return result;
		done += count;
		g->result->prompt_tokens = done;
		if (wanted->on_prompt)
			wanted->on_prompt(wanted->user, done, wanted->prompt_count);
	}
	return 0;
}

static int32_t sample(generation *g)
{
	const float *logits;

	if (g->hash) {
		logits = llama_get_logits_ith(g->engine->context, -1);
		XXH3_64bits_update(g->hash, logits, (size_t)llama_vocab_n_tokens(g->engine->vocab) * sizeof *logits);
	}
	return llama_sampler_sample(g->sampler, g->engine->context, -1);
}

static int emit(generation *g, int32_t token)
{
	char piece[PIECE_BYTES];
	int32_t length;

	if (!g->wanted->on_text || !has_vocabulary(g->engine))
		return 0;
	length = llama_token_to_piece(g->engine->vocab, token, piece, sizeof piece, 0, false);
	if (length <= 0)
		return 0;
	return g->wanted->on_text(g->wanted->user, piece, (uint32_t)length);
}

static void note_first_token(generation *g, uint64_t began)
{
	weir_process_faults faults;

	g->first_token_ns = weir_clock_ns();
	g->result->prompt_seconds = (double)(g->first_token_ns - began) / NS_PER_SECOND;
	g->result->first_token_seconds = (double)(g->first_token_ns - g->engine->opened_ns) / NS_PER_SECOND;
	read_stats(g, &g->after_first);
	weir_process_faults_read(&faults);
	g->faults_after_first = faults.major_count;
}

/* A token was picked `seconds` after the one before. */
static void note_token(generation *g, double seconds)
{
	const weir_engine_generate *wanted = g->wanted;

	if (g->result->tokens)
		g->token_seconds[g->result->tokens - 1] = seconds;
	if (wanted->on_token)
		wanted->on_token(wanted->user, seconds, g->hash ? XXH3_64bits_digest(g->hash) : 0);
}

static int generate_tokens(generation *g, uint64_t began)
{
	weir_engine_result *result = g->result;
	uint64_t previous = began;

	while (result->tokens < g->wanted->tokens_max) {
		int32_t token = sample(g);
		uint64_t now;
		int failed;

		if (!result->tokens)
			note_first_token(g, began);
		now = weir_clock_ns();
		if (!g->wanted->ignore_eos && llama_vocab_is_eog(g->engine->vocab, token)) {
			result->ended = true;
			return 0;
		}
		note_token(g, (double)(now - previous) / NS_PER_SECOND);
		previous = now;
		result->tokens++;
		if (emit(g, token)) {
			result->stopped = true;
			return 0;
		}
		if (result->tokens == g->wanted->tokens_max)
			return 0;
		failed = decode(g, &token, 1);
		if (failed)
			return failed;
	}
	return 0;
}

/* ---- figures ---- */

static uint64_t bytes_of(const weir_session_stats *stats)
{
	return stats->experts.bytes_read + stats->dense_bytes_read;
}

static uint64_t stall_of(const weir_session_stats *stats)
{
	return stats->experts.stall_ns + stats->dense_stall_ns;
}

static void fill_reads(generation *g, const weir_session_stats *now)
{
	weir_engine_result *r = g->result;
	const weir_store_stats *last = &g->after_first.experts, *end = &now->experts;

	r->total_bytes_read = now->start_bytes_read + bytes_of(now);
	if (!r->tokens) { /* the prompt was not finished */
		r->prompt_bytes_read = bytes_of(now) - bytes_of(&g->before);
		return;
	}
	r->bytes_read = bytes_of(now) - bytes_of(&g->after_first);
	r->page_cache_bytes = now->page_cache_bytes - g->after_first.page_cache_bytes;
	if (r->page_cache_bytes > r->bytes_read) /* read as soon as it is copied, not with the rest of its request */
		r->page_cache_bytes = r->bytes_read;
	r->prompt_bytes_read = bytes_of(&g->after_first) - bytes_of(&g->before);
	r->stall_seconds = (double)(stall_of(now) - stall_of(&g->after_first)) / NS_PER_SECOND;
	r->prompt_stall_seconds = (double)(stall_of(&g->after_first) - stall_of(&g->before)) / NS_PER_SECOND;
	r->demanded = end->demanded - last->demanded;
	r->hits = end->hits - last->hits;
	r->joined = end->joined - last->joined;
	r->misses = end->misses - last->misses;
	r->prefetched = end->prefetched - last->prefetched;
	r->prefetch_used = end->prefetch_used - last->prefetch_used;
	r->evictions = end->evictions - last->evictions;
}

static void fill_memory(weir_engine_result *r, const weir_plan *plan, const weir_session_stats *now)
{
	r->memory_dense = plan->memory_dense_bytes;
	r->memory_experts = plan->memory_experts_bytes;
	r->memory_kv = plan->memory_kv_bytes;
	r->memory_compute = plan->memory_compute_bytes;
	r->memory_other = plan->memory_other_bytes;
	r->slots_count = now->slots_count;
	r->slots_bytes = now->slots_bytes;
}

static void fill_threads(generation *g, const weir_session_stats *now)
{
	weir_engine_result *r = g->result;
	uint64_t tokens = now->threads_tokens - g->after_first.threads_tokens;

	r->threads = g->engine->threads;
	r->threads_last = r->threads;
	r->threads_mean = r->threads;
	if (!r->tokens || !tokens || now->threads_most < 2)
		return;
	r->threads_last = now->threads_last;
	r->threads_mean = (double)(now->threads_sum - g->after_first.threads_sum) / (double)tokens;
}

static void fill_result(generation *g)
{
	weir_engine_result *r = g->result;
	weir_session_stats now;
	weir_process_faults faults;
	uint32_t timed = r->tokens ? r->tokens - 1 : 0;

	read_stats(g, &now);
	weir_process_faults_read(&faults);
	r->load_seconds = (double)g->engine->load_ns / NS_PER_SECOND;
	for (uint32_t i = 0; i < timed; i++)
		r->seconds += g->token_seconds[i];
	if (r->tokens)
		r->major_faults_decode = faults.major_count - g->faults_after_first;
	fill_reads(g, &now);
	fill_threads(g, &now);
	if (g->engine->session && weir_session_plan(g->engine->session))
		fill_memory(r, weir_session_plan(g->engine->session), &now);
	snprintf(r->io_method, sizeof r->io_method, "%s", now.io_method ? now.io_method : "");
	snprintf(r->policy, sizeof r->policy, "%s", now.policy ? now.policy : "");
	r->counts_loaded = now.counts_loaded;
	r->queue_depth = now.queue_depth;
	r->lookahead = now.lookahead;
	r->lookahead_with_seconds = (double)now.lookahead_with_ns / NS_PER_SECOND;
	r->lookahead_without_seconds = (double)now.lookahead_without_ns / NS_PER_SECOND;
	r->read_bytes_typical = now.read_bytes_typical;
	if (g->hash) {
		r->logits_hash = XXH3_64bits_digest(g->hash);
		r->has_logits_hash = true;
	}
}

/* ---- a run ---- */

static struct llama_sampler *make_sampler(const weir_engine_generate *wanted)
{
	struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());

	if (!chain)
		return NULL;
	if (wanted->temp <= 0) {
		llama_sampler_chain_add(chain, llama_sampler_init_greedy());
		return chain;
	}
	if (wanted->top_k > 0)
		llama_sampler_chain_add(chain, llama_sampler_init_top_k(wanted->top_k));
	if (wanted->top_p < 1)
		llama_sampler_chain_add(chain, llama_sampler_init_top_p(wanted->top_p, 1));
	llama_sampler_chain_add(chain, llama_sampler_init_temp(wanted->temp));
	llama_sampler_chain_add(chain, llama_sampler_init_dist(wanted->seed));
	return chain;
}

static int check_prompt(const generation *g)
{
	const weir_engine_generate *wanted = g->wanted;
	int32_t vocabulary = llama_vocab_n_tokens(g->engine->vocab);

	if (!wanted->prompt_count)
		return weir_fail(g->error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "the prompt is empty");
	if (wanted->prompt_count + (uint64_t)wanted->tokens_max > g->engine->ctx)
		return weir_fail(
			g->error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
			"%u prompt tokens and %u to generate are more than the context of %u; raise --ctx or lower --tokens",
			wanted->prompt_count, wanted->tokens_max, g->engine->ctx);
	for (uint32_t i = 0; i < wanted->prompt_count; i++)
		if (wanted->prompt[i] < 0 || wanted->prompt[i] >= vocabulary)
			return weir_fail(g->error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
					 "token %d is not in the vocabulary of %d", wanted->prompt[i], vocabulary);
	return 0;
}

static int prepare(generation *g)
{
	int result = weir_engine_start(g->engine, g->error);

	if (result)
		return result;
	g->sampler = make_sampler(g->wanted);
	g->token_seconds = calloc((size_t)g->wanted->tokens_max + 1, sizeof *g->token_seconds);
	if (g->wanted->logits_hash) {
		g->hash = XXH3_createState();
		if (g->hash)
			XXH3_64bits_reset(g->hash);
	}
	if (!g->sampler || !g->token_seconds || (g->wanted->logits_hash && !g->hash))
		return weir_fail(g->error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for a run");
	llama_memory_clear(llama_get_memory(g->engine->context), true);
	read_stats(g, &g->before);
	return 0;
}

int weir_engine_run(weir_engine *engine, const weir_engine_generate *wanted, weir_engine_result *result, weir_error *error)
{
	generation g = {.engine = engine, .wanted = wanted, .result = result, .error = error};
	uint64_t began;
	int code, traced;

	memset(result, 0, sizeof *result);
	code = check_prompt(&g);
	if (!code)
		code = prepare(&g);
	began = weir_clock_ns();
	if (!code)
		code = decode_prompt(&g);
	if (!code)
		code = generate_tokens(&g, began);
	if (g.token_seconds)
		fill_result(&g);
	if (g.sampler)
		llama_sampler_free(g.sampler);
	XXH3_freeState(g.hash);
	free(g.token_seconds);
	traced = engine->session ? weir_session_end_trace(engine->session, code ? NULL : error) : 0;
	return code ? code : traced;
}
