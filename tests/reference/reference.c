/*
 * reference.c - the engine without weir: what every streamed run must equal, bit for bit.
 *
 * Loads a model with libllama alone (CPU, mapped file, no weight repacking), decodes a prompt of token ids in chunks of the
 * batch size, then picks the most likely token N times.  Prints one JSON line:
 *
 *   {"tokens":[...], "logits_hash":"16 hex digits", "load_seconds":..., "prompt_seconds":..., "seconds":...,
 *    "tokens_per_second":...}
 *
 * The hash is XXH3-64 over the raw logits, one row of floats per generated token, in order: the row that the token was picked
 * from.  `seconds` and `tokens_per_second` count the tokens after the first.  A token that ends the text does not end the run.
 *
 * One thread calls libllama; main owns the model, the context and the token list.  It refuses a prompt that does not fit the
 * context, and ids that the vocabulary does not have.  Exit codes: 0 done, 1 failed, 2 usage.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <ggml-backend.h>
#include <llama.h>
#include <xxhash.h>

static const char usage[] = "usage: reference MODEL --tokens \"1,2,3\" [-n N] [-t THREADS] [--ctx C] [--batch B] [--load "
			    "mmap|read] [--repack] [-v]\n"
			    "  --load read  copies the weights into memory of the process instead of mapping the file\n"
			    "  --repack     lets the engine repack weights: faster prompts, other rounding; for timings only\n";

typedef struct options {
	const char *model;
	const char *tokens;
	int32_t count;
	int32_t threads;
	int32_t ctx;
	int32_t batch;
	bool read;
	bool repack;
	bool verbose;
} options;

typedef struct run {
	llama_token *prompt;
	int32_t prompt_count;
	llama_token *made;
	int32_t made_count;
	double load_seconds;
	double prompt_seconds;
	double seconds;
	uint64_t hash;
} run;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what, const char *detail)
{
	fprintf(stderr, "reference: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
	return 1;
}

static bool number(const char *text, int32_t least, int32_t *value)
{
	char *end;
	errno = 0;
	long parsed = strtol(text, &end, 10);
	if (errno || end == text || *end || parsed < least || parsed > INT32_MAX)
		return false;
	*value = (int32_t)parsed;
	return true;
}

static bool load_kind(const char *text, options *o)
{
	o->read = strcmp(text, "read") == 0;
	return o->read || strcmp(text, "mmap") == 0;
}

/* One option with a value.  False when the name or the value is wrong. */
static bool option(options *o, const char *name, const char *value)
{
	if (!strcmp(name, "--tokens")) {
		o->tokens = value;
		return true;
	}
	if (!strcmp(name, "-n"))
		return number(value, 1, &o->count);
	if (!strcmp(name, "-t"))
		return number(value, 1, &o->threads);
	if (!strcmp(name, "--ctx"))
		return number(value, 1, &o->ctx);
	if (!strcmp(name, "--batch"))
		return number(value, 1, &o->batch);
	if (!strcmp(name, "--load"))
		return load_kind(value, o);
	return false;
}

static bool parse(int argc, char **argv, options *o)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--repack"))
			o->repack = true;
		else if (!strcmp(argv[i], "-v"))
			o->verbose = true;
		else if (argv[i][0] != '-' && !o->model)
			o->model = argv[i];
		else if (i + 1 >= argc || !option(o, argv[i], argv[i + 1]))
			return false;
		else
			i++;
	}
	return o->model && o->tokens;
}

/* Reads "1,2,3" into r->prompt.  False on anything else, or an id outside the vocabulary. */
static bool parse_tokens(const char *text, int32_t vocab_count, run *r)
{
	int32_t capacity = 1;
	for (const char *c = text; *c; c++)
		capacity += *c == ',';
	r->prompt = calloc((size_t)capacity, sizeof(*r->prompt));
	while (r->prompt) {
		char *end;
		errno = 0;
		long id = strtol(text, &end, 10);
		if (errno || end == text || id < 0 || id >= vocab_count || (*end && *end != ','))
			return false;
		r->prompt[r->prompt_count++] = (llama_token)id;
		if (!*end)
			return true;
		text = end + 1;
	}
	return false;
}

static void log_errors(enum ggml_log_level level, const char *text, void *verbose)
{
	if (verbose || level == GGML_LOG_LEVEL_ERROR)
		fputs(text, stderr);
}

static struct llama_model *load(const options *o)
{
	static ggml_backend_dev_t none[] = {NULL};
	struct llama_model_params params = llama_model_default_params();
	params.devices = none;
	params.n_gpu_layers = 0;
	params.use_extra_bufts = o->repack;
	params.load_mode = o->read ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
	return llama_model_load_from_file(o->model, params);
}

static struct llama_context *make_context(struct llama_model *model, const options *o, int32_t tokens)
{
	struct llama_context_params params = llama_context_default_params();
	params.n_ctx = (uint32_t)(o->ctx ? o->ctx : tokens);
	params.n_batch = params.n_ubatch = (uint32_t)o->batch;
	params.n_threads = params.n_threads_batch = o->threads;
	params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_AUTO;
	return llama_init_from_model(model, params);
}

static llama_token most_likely(const float *logits, int32_t count)
{
	llama_token best = 0;
	for (llama_token i = 1; i < count; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

/* llama_batch_get_one asks for the logits of the last token only. */
static bool prefill(struct llama_context *context, const run *r, int32_t batch)
{
	for (int32_t at = 0; at < r->prompt_count; at += batch) {
		int32_t count = r->prompt_count - at < batch ? r->prompt_count - at : batch;
		if (llama_decode(context, llama_batch_get_one(r->prompt + at, count)) != 0)
			return false;
	}
	return true;
}

static bool generate(struct llama_context *context, int32_t vocab_count, int32_t count, run *r)
{
	XXH3_state_t *hash = XXH3_createState();
	bool good = hash && XXH3_64bits_reset(hash) == XXH_OK;
	double start = now();
	while (good && r->made_count < count) {
		const float *logits = llama_get_logits_ith(context, -1);
		if (!logits)
			break;
		XXH3_64bits_update(hash, logits, (size_t)vocab_count * sizeof(*logits));
		r->made[r->made_count] = most_likely(logits, vocab_count);
		r->made_count++;
		if (r->made_count < count)
			good = llama_decode(context, llama_batch_get_one(r->made + r->made_count - 1, 1)) == 0;
	}
	r->seconds = now() - start;
	r->hash = good ? XXH3_64bits_digest(hash) : 0;
	XXH3_freeState(hash);
	return good && r->made_count == count;
}

static void print(const run *r)
{
	printf("{\"tokens\":[");
	for (int32_t i = 0; i < r->made_count; i++)
		printf("%s%d", i ? "," : "", r->made[i]);
	double rate = r->made_count > 1 && r->seconds > 0 ? (r->made_count - 1) / r->seconds : 0;
	printf("],\"logits_hash\":\"%016llx\",\"load_seconds\":%.6f,\"prompt_seconds\":%.6f,\"seconds\":%.6f,"
	       "\"tokens_per_second\":%.4f}\n",
	       (unsigned long long)r->hash, r->load_seconds, r->prompt_seconds, r->seconds, rate);
}

static int run_model(struct llama_model *model, const options *o, run *r)
{
	int32_t vocab_count = llama_vocab_n_tokens(llama_model_get_vocab(model));
	if (!parse_tokens(o->tokens, vocab_count, r))
		return fail("--tokens wants ids below the vocabulary's size, with commas", NULL);
	if (o->count > INT32_MAX - r->prompt_count || (o->ctx && o->ctx < r->prompt_count + o->count))
		return fail("prompt and tokens do not fit the context", NULL);
	r->made = calloc((size_t)o->count, sizeof(*r->made));
	struct llama_context *context = make_context(model, o, r->prompt_count + o->count);
	if (!r->made || !context) {
		llama_free(context);
		return fail("no memory for a context", NULL);
	}
	double start = now();
	bool good = prefill(context, r, o->batch);
	r->prompt_seconds = now() - start;
	good = good && generate(context, vocab_count, o->count, r);
	llama_free(context);
	if (!good)
		return fail("decoding failed", o->model);
	print(r);
	return 0;
}

int main(int argc, char **argv)
{
	options o = {.count = 16, .threads = 1, .batch = 512};
	run r = {0};
	if (!parse(argc, argv, &o)) {
		fputs(usage, stderr);
		return 2;
	}
	llama_log_set(log_errors, o.verbose ? &o : NULL);
	llama_backend_init();
	double start = now();
	struct llama_model *model = load(&o);
	r.load_seconds = now() - start;
	int code = model ? run_model(model, &o, &r) : fail("cannot load", o.model);
	llama_model_free(model);
	llama_backend_free();
	free(r.prompt);
	free(r.made);
	return code;
}
