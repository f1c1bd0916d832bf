/*
 * session.c - the life of a session: what it needs (facts), its start, its figures, its end.
 *
 * The budget is the whole process, so the facts are taken from the kernel: what is resident now, less the engine's buffers
 * that happen to be, is the program itself; the engine's buffers count in full, since all of them will be touched.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "ggml/buffer.h"
#include "ggml/config.h"
#include "ggml/counts.h"
#include "ggml/experts.h"
#include "ggml/packed.h"
#include "ggml/plugin_report.h"
#include "ggml/ring.h"
#include "ggml/rows.h"
#include "ggml/session.h"
#include "ggml/trace.h"
#include "os/memory.h"
#include "os/outfile.h"
#include "os/process.h"
#include "weir/disk.h"

#define MARGIN_BYTES (12u << 20) /* allocator slack, sampling */
#define THREAD_BYTES (16u << 10) /* what a compute thread touches of its stack */
#define MARGIN_SHARE 512 /* page tables: 8 bytes for each page of 4 KiB; by the model, so that the least budget ... */
#define MARGIN_MAX_BYTES (48u << 20) /* ... does not depend on the budget asked for */
#define SLOT_ALIGNMENT_BYTES 4096
#define SMALL_READS_DEPTH 32 /* reads in flight at most where bytes are what is limited */
#define PARTS_OF_A_LAYER 3 /* gate, up, down: asked for together */
#define RING_AHEAD_BYTES (28u << 20) /* what keeps the drive's queue full while parts are worked on */
#define HEADER_READAHEAD_BYTES (16u << 20)

static uint64_t slot_bytes_of(const weir_weight *weight)
{
	uint64_t bytes = weight->tensor->nb[2] + 2 * 512;

	return (bytes + SLOT_ALIGNMENT_BYTES - 1) / SLOT_ALIGNMENT_BYTES * SLOT_ALIGNMENT_BYTES;
}

static int add_class(weir_plan_facts *facts, const weir_weight *weight)
{
	uint64_t slot_bytes = slot_bytes_of(weight), experts = (uint64_t)weight->tensor->ne[2];
	weir_plan_class *class;
	uint32_t i = 0;

	while (i < facts->classes_count && facts->classes[i].slot_bytes != slot_bytes)
		i++;
	if (i == WEIR_PLAN_CLASSES_MAX)
		return WEIR_ELIMIT;
	class = &facts->classes[i];
	if (i == facts->classes_count) {
		facts->classes_count++;
		class->slot_bytes = slot_bytes;
	}
	if (class->chunk_bytes < weight->tensor->nb[2])
		class->chunk_bytes = weight->tensor->nb[2];
	class->chunks_count += experts;
	class->chunks_per_token += weight->used_experts;
	if (class->slots_least < PARTS_OF_A_LAYER * (uint64_t)weight->used_experts)
		class->slots_least = PARTS_OF_A_LAYER * (uint64_t)weight->used_experts;
	if (class->slots_least > class->chunks_count)
		class->slots_least = class->chunks_count;
	return 0;
}

/* A layer's experts share a name up to its second dot, "blk.7.", and follow each other. */
static bool is_of_layer(const weir_weight *weight, const weir_weight *other)
{
	const char *name = weight->tensor->name, *dot = strchr(name, '.');

	dot = dot ? strchr(dot + 1, '.') : NULL;
	return other && dot && strncmp(name, other->tensor->name, (size_t)(dot - name) + 1) == 0;
}

static void count_layers(const weir_session *session, weir_plan_facts *facts)
{
	const weir_weight *last = NULL;
	uint64_t picks = 0;

	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];

		if (weight->order == UINT64_MAX || !weir_weights_is_expert(weight))
			continue;
		if (!is_of_layer(weight, last)) {
			facts->expert_layers_count++;
			picks += weight->used_experts;
		}
		last = weight;
	}
	if (facts->expert_layers_count)
		facts->experts_per_layer = (uint32_t)(picks / facts->expert_layers_count);
}

static int add_weight(weir_plan_facts *facts, const weir_weight *weight)
{
	if (weight->order == UINT64_MAX)
		return 0;
	if (weir_weights_is_expert(weight))
		return add_class(facts, weight);
	if (weir_weights_is_rows(weight)) {
		facts->rows_bytes += weight->bytes;
		facts->rows_per_token_bytes += weight->tensor->nb[1];
	} else if (weir_weights_is_matrix(weight)) {
		facts->dense_stream_bytes += weight->bytes;
		if (facts->dense_largest_bytes < weir_ring_largest_part(weight))
			facts->dense_largest_bytes = weir_ring_largest_part(weight);
	} else {
		facts->dense_fixed_bytes += weight->bytes;
	}
	return 0;
}

static weir_io_options io_options(const weir_session *session)
{
	return (weir_io_options){.method = session->options.io_method,
				 .queue_depth = session->options.queue_depth,
				 .piece_bytes = session->options.piece_bytes,
				 .in_flight_bytes = session->in_flight_bytes,
				 .page_cache = session->page_cache,
				 .fault = session->options.io_fault};
}

/* What can be counted: two readers, of dense weights and of experts, and the stacks of compute threads. */
static uint64_t counted_bytes(const weir_session *session)
{
	const weir_io_options io = io_options(session);

	return 2 * weir_io_memory_bytes(&io) + (uint64_t)session->options.threads * THREAD_BYTES;
}

static uint64_t margin_bytes(const weir_session *session)
{
	uint64_t margin = MARGIN_BYTES;

	for (uint32_t i = 0; i < session->weights_count; i++)
		margin += session->weights[i].bytes / MARGIN_SHARE;
	return (margin < MARGIN_MAX_BYTES ? margin : MARGIN_MAX_BYTES) + counted_bytes(session);
}

/* Reading as was found best for the drive, unless the options say how.  What was found is bytes in flight as much as a depth:
 * of reads that are smaller than the largest, more are begun at once.  io_uring stays "auto": it may be forbidden here
 * although it was allowed where the drive was measured. */
static void tune_reads(weir_session *session)
{
	weir_backend_options *options = &session->options;
	weir_disk_point tuned;

	if (options->queue_depth || options->piece_bytes || !session->files_count)
		return;
	if (weir_disk_tuned(session->files[0].path, options->io_method, &tuned) != 0)
		return;
	session->tuned_depth = tuned.queue_depth;
	session->in_flight_bytes = (uint64_t)tuned.queue_depth * tuned.piece_bytes;
	options->queue_depth = tuned.queue_depth > SMALL_READS_DEPTH ? tuned.queue_depth : SMALL_READS_DEPTH;
	options->piece_bytes = tuned.piece_bytes;
	if (strcmp(tuned.method, "threads") == 0)
		options->io_method = "threads";
}

int weir_session_facts(weir_session *session, weir_plan_facts *facts, weir_error *error)
{
	weir_process_memory memory;
	uint64_t touched;
	int result;

	tune_reads(session);
	memset(facts, 0, sizeof *facts);
	facts->hit_rate_hint = -1;
	facts->budget_bytes = session->options.budget_bytes ? session->options.budget_bytes : UINT64_MAX / 4;
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (add_weight(facts, &session->weights[i]))
			return weir_fail(error, WEIR_ELIMIT, session->files[session->weights[i].file].path,
					 session->weights[i].offset, 0, "more than %d sizes of experts", WEIR_PLAN_CLASSES_MAX);
	count_layers(session, facts);
	weir_buffer_sizes(&facts->kv_bytes, &facts->compute_bytes, &touched);
	facts->compute_bytes += session->work_bytes + weir_experts_scratch_bytes(&session->scratch);
	facts->rows_least_bytes = weir_rows_bytes(session);
	facts->ring_least_bytes = weir_ring_least_bytes(facts->dense_largest_bytes);
	if (facts->ring_least_bytes)
		facts->ring_wanted_bytes = facts->ring_least_bytes + RING_AHEAD_BYTES;
	result = weir_process_memory_read(&memory, error);
	if (result)
		return result;
	facts->program_bytes = memory.rss_bytes > touched ? memory.rss_bytes - touched : 0;
	facts->margin_bytes = margin_bytes(session);
	return 0;
}

/* Reading the headers left pages in the page cache that a memory cgroup charges to this process: give them back. */
static void drop_header_pages(const weir_session *session)
{
	for (uint32_t i = 0; i < session->files_count; i++) {
		int fd = open(session->files[i].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd < 0)
			continue;
		posix_fadvise(fd, 0, HEADER_READAHEAD_BYTES, POSIX_FADV_DONTNEED);
		close(fd);
	}
}

static int open_io(weir_session *session, weir_error *error)
{
	const weir_io_options options = io_options(session);
	int result = weir_io_open(&options, &session->io, error);

	for (uint32_t i = 0; i < session->files_count && !result; i++)
		result = weir_io_add_file(session->io, session->files[i].path, &session->files[i].io, error);
	return result;
}

static int start(weir_session *session, weir_error *error)
{
	weir_plan_facts facts;
	int result = weir_session_facts(session, &facts, error);

	if (!result)
		result = weir_plan_make(&facts, &session->plan, error);
	if (!result)
		result = weir_buffer_populate(error);
	if (!result)
		result = open_io(session, error);
	if (!result)
		result = weir_place_weights(session, error);
	if (!result && !session->trace)
		result = weir_trace_open(session, error);
	return result;
}

/* A start that failed leaves what it had opened to the session's end; it is not tried again, unless contexts changed. */
int weir_session_start(weir_session *session, weir_error *error)
{
	int result;

	if (session->started)
		return 0;
	if (session->start_error.code) {
		if (error)
			*error = session->start_error;
		return session->start_error.code;
	}
	result = weir_packed_open(session, &session->start_error);
	drop_header_pages(session);
	if (!result)
		result = start(session, &session->start_error);
	if (result) {
		session->start_error.code = result;
		if (error)
			*error = session->start_error;
		return result;
	}
	session->scratch_placed = session->scratch;
	session->generation = weir_buffer_generation();
	session->started = true;
	return 0;
}

static void close_parts(weir_session *session)
{
	weir_counts_save(session);
	weir_steps_free(session->steps);
	weir_experts_close(session->experts);
	weir_rows_close(session->rows);
	weir_ring_close(session->ring);
	weir_store_close(session->store);
	weir_io_close(session->io);
	weir_memory_unmap(session->resident, session->resident_bytes);
	session->steps = NULL;
	session->experts = NULL;
	session->rows = NULL;
	session->ring = NULL;
	session->store = NULL;
	session->io = NULL;
	session->resident = NULL;
	session->resident_bytes = 0;
}

/* Back to how it was before the start: weights in the mapping, no memory taken.  Counts begin again. */
static void stop(weir_session *session)
{
	close_parts(session);
	session->start_bytes_read = 0;
	for (uint32_t i = 0; i < session->weights_count; i++) {
		session->weights[i].tensor->data = session->weights[i].mapped;
		session->weights[i].place = PLACE_MAPPED;
		session->weights[i].file = session->weights[i].mapped_file;
		session->weights[i].offset = session->weights[i].mapped_offset;
		session->weights[i].stride = session->weights[i].tensor->nb[2];
	}
	session->start_error.code = 0;
	session->started = false;
}

static bool has_outgrown(const weir_session *session)
{
	uint64_t kv_bytes, compute_bytes, touched;

	if (memcmp(&session->scratch, &session->scratch_placed, sizeof session->scratch) != 0)
		return true;
	weir_buffer_sizes(&kv_bytes, &compute_bytes, &touched);
	compute_bytes += session->work_bytes + weir_experts_scratch_bytes(&session->scratch);
	return kv_bytes + compute_bytes > session->plan.memory_kv_bytes + session->plan.memory_compute_bytes;
}

void weir_session_adapt(weir_session *session, struct ggml_cgraph *graph)
{
	uint64_t generation = weir_buffer_generation();

	if (session->generation == generation)
		return;
	session->generation = generation;
	if (session->started)
		weir_weights_learn(session, graph);
	if (session->start_error.code || (session->started && has_outgrown(session)))
		stop(session);
}

const weir_plan *weir_session_plan(const weir_session *session)
{
	return session->started ? &session->plan : NULL;
}

const char *weir_session_pack(const weir_session *session, weir_error *notice)
{
	*notice = *weir_packed_notice(session->packed);
	return weir_packed_path(session->packed);
}

const weir_error *weir_session_error(const weir_session *session)
{
	return &session->error;
}

void weir_session_set_error(weir_session *session, const weir_error *error)
{
	if (session->failed)
		return;
	session->error = *error;
	session->failed = true;
}

static void fill_slots(const weir_session *session, weir_session_stats *stats)
{
	bool all_stay = session->started && session->plan.all_resident;

	stats->slots_count = all_stay ? session->plan.slots_count : stats->experts.slots_count;
	stats->slots_bytes = all_stay ? session->plan.slots_bytes : stats->experts.slab_bytes;
}

void weir_session_get_stats(const weir_session *session, weir_session_stats *stats)
{
	weir_io_stats io;

	memset(stats, 0, sizeof *stats);
	stats->start_bytes_read = session->start_bytes_read;
	stats->threads_last = session->threads.last;
	stats->threads_most = session->threads.most;
	stats->threads_tokens = session->threads.tokens;
	stats->threads_sum = session->threads.threads_sum;
	if (session->store) {
		weir_store_get_stats(session->store, &stats->experts);
		stats->policy = weir_store_policy(session->store);
		stats->counts_loaded = session->counts_loaded;
		weir_experts_add_stats(session->experts, stats);
	}
	fill_slots(session, stats);
	if (session->ring)
		weir_ring_add_stats(session->ring, stats);
	if (session->rows)
		weir_rows_add_stats(session->rows, stats);
	if (session->io) {
		weir_io_get_stats(session->io, &io);
		stats->page_cache_bytes = io.page_cache_bytes + stats->experts.page_cache_bytes;
		stats->io_method = weir_io_method(session->io);
		stats->queue_depth = session->tuned_depth ? session->tuned_depth : weir_io_queue_depth(session->io);
		stats->read_bytes_typical = weir_io_piece_bytes(session->io);
	}
}

int weir_session_end_trace(weir_session *session, weir_error *error)
{
	weir_trace *trace = session->trace;

	session->trace = NULL;
	return weir_trace_close(trace, !session->failed, error);
}

void weir_backend_abandon_outputs(void)
{
	weir_outfile_abandon_all();
}

void weir_session_hand_over(weir_session *session)
{
	weir_error error;

	weir_counts_save(session);
	if (weir_session_end_trace(session, &error))
		weir_config_complain(&error);
	if (weir_plugin_report_write(session, &error))
		weir_config_complain(&error);
}

void weir_session_free(weir_session *session)
{
	if (!session)
		return;
	weir_session_hand_over(session);
	close_parts(session);
	for (uint32_t i = 0; i < session->files_count; i++)
		free(session->files[i].path);
	free(session->files);
	weir_weights_free(session);
	weir_packed_close(session->packed);
	free(session);
}
