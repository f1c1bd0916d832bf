/*
 * engine.c - opening a model in libllama with all its weights on the weir device.
 */
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ggml-backend.h>

#include "base/fail.h"
#include "engine/engine_types.h"
#include "engine/giveup.h"
#include "ggml/preload/map_model.h"
#include "os/memory.h"
#include "residency/policy.h"
#include "weir/simulate.h"

#define DEFAULT_CTX 4096u
#define DEFAULT_BATCH 512u
#define ALL_LAYERS 10000

static char first_message[256];
static int log_verbosity;

/* libllama reports failures to a log.  The first error since an operation began is its cause, the others are what follows from
 * that: an error message of ours quotes the first. */
static void on_log(enum ggml_log_level level, const char *text, void *user)
{
	(void)user;
	if (log_verbosity > 0)
		fputs(text, stderr);
	if (level == GGML_LOG_LEVEL_ERROR && !first_message[0]) {
		snprintf(first_message, sizeof first_message, "%s", text);
		first_message[strcspn(first_message, "\n")] = '\0';
	}
}

void weir_engine_forget_message(void)
{
	first_message[0] = '\0';
}

const char *weir_engine_message(void)
{
	return first_message[0] ? first_message : "no reason given";
}

static bool should_abort(void *user)
{
	return ((weir_engine *)user)->interrupted != 0;
}

static uint32_t processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
		return (uint32_t)CPU_COUNT(&set);
	return (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
}

/* A plain run must not see the weir device at all: libllama offers weights to every accelerator, named or not. */
static void begin_backend(int verbosity, bool plain)
{
	static bool begun, registered;

	log_verbosity = verbosity;
	weir_engine_forget_message();
	if (!begun) {
		llama_log_set(on_log, NULL);
		llama_backend_init();
	}
	begun = true;
	if (!plain && !registered)
		ggml_backend_register(weir_backend_reg());
	registered = registered || !plain;
}

static int no_such_policy(const char *name, weir_error *error)
{
	char names[160] = "";
	const char *other;
	size_t used = 0;

	for (uint32_t i = 0; used < sizeof names && (other = weir_policy_name(i)); i++)
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", other);
	return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "there is no policy '%s': take one of %s", name,
			 names);
}

static int configure_backend(const weir_engine_options *options, uint32_t threads, weir_error *error)
{
	weir_backend_options backend = {.budget_bytes = options->budget_bytes,
					.io_method = options->io_method,
					.io_fault = options->io_fault,
					.policy = options->policy,
					.trace_path = options->trace_path,
					.pack_path = options->pack_path,
					.queue_depth = options->queue_depth,
					.piece_bytes = options->piece_bytes,
					.threads = threads,
					.threads_auto = !options->threads,
					.lookahead = options->lookahead,
					.no_counts = options->no_counts,
					.progress = options->progress,
					.progress_user = options->user,
					.bind_threads = true};

	if (!weir_policy_find(options->policy))
		return no_such_policy(options->policy, error);
	return weir_backend_configure(&backend, error);
}

bool weir_engine_lacks_resources(const char *message)
{
	static const int reasons[] = {ENOMEM, EMFILE, ENFILE, EIO, EACCES, EAGAIN};
	static const char *const words[] = {"allocate", "insufficient memory", "bad_alloc", "buffer != NULL"};

	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (strstr(message, words[i]))
			return true;
	for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
		if (strstr(message, strerror(reasons[i])))
			return true;
	return false;
}

static int fail_load(const weir_engine *engine, weir_error *error)
{
	const char *message = weir_engine_message();

	if (weir_engine_lacks_resources(message))
		return weir_fail(error, WEIR_EENGINE, engine->path, WEIR_ERROR_NO_OFFSET, 0,
				 "the engine cannot load it, memory or something else is short: %s", message);
	return weir_fail(error, WEIR_EUNSUPPORTED, engine->path, WEIR_ERROR_NO_OFFSET, 0, "the engine does not take it: %s",
			 message);
}

static int load_model(weir_engine *engine, const weir_engine_options *options, weir_error *error)
{
	ggml_backend_dev_t devices[2] = {options->plain ? NULL : ggml_backend_dev_by_name("WEIR0"), NULL};
	struct llama_model_params params = llama_model_default_params();

	weir_map_model_off = options->plain != NULL;
	params.devices = devices;
	params.n_gpu_layers = options->plain ? 0 : ALL_LAYERS;
	params.load_mode = options->plain && !strcmp(options->plain, "read") ? LLAMA_LOAD_MODE_NONE : LLAMA_LOAD_MODE_MMAP;
	params.lazy_mode = LLAMA_LAZY_MODE_OFF;
	params.use_extra_bufts = false; /* repacked weights are copies, and round differently */
	engine->model = llama_model_load_from_file(engine->path, params);
	if (!engine->model)
		return fail_load(engine, error);
	engine->vocab = llama_model_get_vocab(engine->model);
	engine->plain = options->plain != NULL;
	engine->session = engine->plain ? NULL : weir_backend_session();
	if (llama_model_meta_val_str(engine->model, "general.architecture", engine->architecture, sizeof engine->architecture) <
	    0)
		engine->architecture[0] = '\0';
	return 0;
}

static uint32_t trained_ctx(const struct llama_model *model)
{
	int32_t trained = llama_model_n_ctx_train(model);

	return trained > 0 ? (uint32_t)trained : 0;
}

static int make_context(weir_engine *engine, const weir_engine_options *options, weir_error *error)
{
	struct llama_context_params params = llama_context_default_params();
	uint32_t trained = trained_ctx(engine->model);

	engine->ctx = options->ctx ? options->ctx : DEFAULT_CTX;
	if (!options->ctx && trained && trained < engine->ctx)
		engine->ctx = trained;
	engine->batch = options->batch ? options->batch : DEFAULT_BATCH;
	params.n_ctx = engine->ctx;
	params.n_batch = engine->batch;
	params.n_ubatch = engine->batch;
	params.n_outputs_max = 1; /* only the last token's logits are wanted: no buffer for those of a whole batch */
	params.n_threads = params.n_threads_batch = (int32_t)engine->threads;
	params.abort_callback = should_abort;
	params.abort_callback_data = engine;
	engine->context = llama_init_from_model(engine->model, params);
	if (!engine->context)
		return weir_fail(error, WEIR_EENGINE, engine->path, WEIR_ERROR_NO_OFFSET, 0, "no context of %u tokens: %s",
				 engine->ctx, weir_engine_message());
	engine->ctx = llama_n_ctx(engine->context);
	engine->batch = llama_n_batch(engine->context); /* libllama lowers it to a small context */
	return 0;
}

int weir_engine_open(const weir_engine_options *options, weir_engine **engine, weir_error *error)
{
	weir_engine *self;
	int result;

	if (options->device && strcmp(options->device, "cpu") != 0)
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "device %s: only cpu computes so far",
				 options->device);
	self = calloc(1, sizeof *self);
	if (!self || !(self->path = strdup(options->model))) {
		free(self);
		return weir_fail(error, WEIR_ENOMEM, options->model, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	}
	self->opened_ns = weir_clock_ns();
	self->threads = options->threads ? options->threads : processors();
	begin_backend(options->verbosity, options->plain != NULL);
	result = options->plain ? 0 : configure_backend(options, self->threads, error);
	if (!result)
		result = load_model(self, options, error);
	if (!result)
		result = make_context(self, options, error);
	if (result) {
		weir_engine_close(self);
		return result;
	}
	self->load_ns = weir_clock_ns() - self->opened_ns;
	*engine = self;
	return 0;
}

void weir_engine_close(weir_engine *engine)
{
	if (!engine)
		return;
	if (engine->context)
		llama_free(engine->context);
	if (engine->model)
		llama_model_free(engine->model);
	free(engine->path);
	free(engine);
}

int weir_engine_plan(weir_engine *engine, double device_bytes_per_second, double compute_tokens_per_second,
		     uint64_t prompt_tokens, weir_plan *plan, weir_plan_facts *facts, weir_error *error)
{
	weir_plan_facts own;
	int result;

	if (!facts)
		facts = &own;
	if (!engine->session)
		return weir_fail(error, WEIR_EENGINE, engine->path, WEIR_ERROR_NO_OFFSET, 0, "no weight came to the device");
	result = weir_session_facts(engine->session, facts, error);
	if (result)
		return result;
	facts->device_bytes_per_second = device_bytes_per_second;
	facts->compute_tokens_per_second = compute_tokens_per_second;
	facts->prompt_tokens = prompt_tokens;
	return weir_plan_make(facts, plan, error);
}

int weir_engine_start(weir_engine *engine, weir_error *error)
{
	uint64_t began = weir_clock_ns();
	int result;

	if (engine->plain) /* it was read when it was opened */
		return 0;
	if (!engine->session)
		return weir_fail(error, WEIR_EENGINE, engine->path, WEIR_ERROR_NO_OFFSET, 0, "no weight came to the device");
	result = weir_session_start(engine->session, error);
	engine->load_ns += weir_clock_ns() - began;
	return result;
}

const char *weir_engine_pack(const weir_engine *engine, weir_error *notice)
{
	notice->code = 0;
	return engine->session ? weir_session_pack(engine->session, notice) : NULL;
}

const char *weir_engine_architecture(const weir_engine *engine)
{
	return engine->architecture;
}

uint32_t weir_engine_ctx(const weir_engine *engine)
{
	return engine->ctx;
}

uint32_t weir_engine_ctx_trained(const weir_engine *engine)
{
	return trained_ctx(engine->model);
}

void weir_engine_interrupt(weir_engine *engine)
{
	engine->interrupted = 1;
}

void weir_engine_abandon_outputs(void)
{
	weir_backend_abandon_outputs();
}
