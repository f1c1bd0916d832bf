/*
 * speed.c - about how long computing a token will take, before any weight was read.
 *
 * A token multiplies its activations with every weight that it touches once.  So ggml's own kernel for each of the model's
 * types is timed for some milliseconds over memory of no interest, and the bytes of each type do the rest.  Attention and the
 * meeting of threads come on top as a share and a constant.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/engine_types.h"
#include "ggml/session.h"
#include "os/memory.h"

#define SAMPLE_BYTES ((size_t)4 << 20) /* more than a core's own caches */
#define SAMPLE_NS UINT64_C(15000000)
#define ROW_ELEMENTS 4096 /* a multiple of every type's block */
#define THREADS_THAT_ADD 8u /* beyond these, more threads hardly read memory faster */
#define OTHER_WORK_SHARE 0.75 /* attention, norms, routing, memory slower than caches: seen with the README's models */
#define TOKEN_SECONDS_LEAST 0.001 /* graph, threads meeting, sampling */

/* Bytes per second that one thread multiplies of this type; 0 when there is no kernel to time. */
static double kernel_rate(enum ggml_type type, unsigned char *memory)
{
	const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu(type);
	size_t row_bytes = ggml_row_size(type, ROW_ELEMENTS);
	size_t other_bytes = ggml_row_size(traits->vec_dot_type, ROW_ELEMENTS);
	unsigned char *first = memory + (other_bytes + 63) / 64 * 64;
	size_t rows = (SAMPLE_BYTES - (size_t)(first - memory)) / row_bytes;
	uint64_t began = weir_clock_ns(), now = began, bytes = 0;
	float result;

	if (!traits->vec_dot)
		return 0;
	while (now - began < SAMPLE_NS) {
		for (size_t row = 0; row < rows; row++)
			traits->vec_dot(ROW_ELEMENTS, &result, 0, first + row * row_bytes, 0, memory, 0, 1);
		bytes += rows * row_bytes;
		now = weir_clock_ns();
	}
	return (double)bytes * 1e9 / (double)(now - began);
}

/* Bytes of the weight that one token multiplies with. */
static uint64_t touched_bytes(const weir_weight *weight)
{
	if (weight->order == UINT64_MAX || weir_weights_is_rows(weight))
		return 0;
	if (weight->uses & USE_EXPERTS)
		return (uint64_t)weight->used_experts * weight->tensor->nb[2];
	return weight->bytes;
}

double weir_engine_estimate_token_seconds(const weir_engine *engine)
{
	uint64_t bytes[GGML_TYPE_COUNT] = {0};
	uint32_t threads = engine->threads < THREADS_THAT_ADD ? engine->threads : THREADS_THAT_ADD;
	unsigned char *memory = engine->session ? calloc(1, SAMPLE_BYTES) : NULL;
	double seconds = 0;

	if (!memory)
		return NAN;
	for (uint32_t i = 0; i < engine->session->weights_count; i++)
		bytes[engine->session->weights[i].tensor->type] += touched_bytes(&engine->session->weights[i]);
	for (int type = 0; type < GGML_TYPE_COUNT; type++) {
		double rate = bytes[type] ? kernel_rate((enum ggml_type)type, memory) : 0;

		if (rate > 0)
			seconds += (double)bytes[type] / rate;
	}
	free(memory);
	return seconds / threads * (1 + OTHER_WORK_SHARE) + TOKEN_SECONDS_LEAST;
}
