/*
 * decode.c - mul_mat_id for one token: one step, all threads, experts in the order in which they become ready.
 *
 * Each expert that the router picked is a job, cut into chunks of rows.  Threads take tickets: ticket t is chunk t % chunks of
 * job t / chunks.  Thread 0 publishes jobs, those in memory first; whoever holds a ticket of a job that is not published yet
 * waits for it, thread 0 by waiting for the drive, the others on a futex.
 *
 *     jobs:     [ hit ][ hit ][ arriving ]          published = 2
 *     tickets:   0 1 2  3 4 5  6 7 8                thread 1 holds 6: sleeps until published is 3
 *
 * A row's result is ggml's own vec_dot over the row and the quantized activations, which is what its mul_mat_id does when an
 * expert has one row of activations: the same bits.
 *
 * Gate and up, which have the same activations, share one step where nothing stands between them: the hits of both are worked
 * on before either's missing experts are waited for.
 *
 * The first tickets of a layer's first operation are the guess at the next layer's experts (lookahead.c): work to do while the
 * reads of this layer are on their way.
 *
 * Leases are held until the next operation begins, when all threads have left this one; with fewer slots than experts to a
 * token, those of finished jobs are released earlier.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ggml/decode.h"
#include "ggml/lookahead.h"
#include "os/futex.h"

/* About ten microseconds of work: little to wait for at the end, little to pay for a ticket. */
#define CHUNK_BYTES (96u << 10)
#define CHUNK_ROWS_LEAST 16
#define SPINS_BEFORE_SLEEP 400
#define PUBLISHED_FAILED UINT32_MAX

/* ---- thread 0: publishing ---- */

static void publish(weir_decode *decode, uint32_t published)
{
	atomic_store(&decode->published, published);
	if (atomic_load(&decode->sleepers))
		weir_futex_wake_all(&decode->published);
}

/* The activations of an expert's slot of top-k, in the type that the weights are multiplied with; gate and up have one row of
 * them for all experts. */
static const char *quantize(weir_expert_op *op, const pair *p)
{
	const struct ggml_tensor *source = op->node->src[1];
	const struct ggml_type_traits_cpu *traits = ggml_get_type_traits_cpu(op->weight->tensor->type);
	uint32_t row = (uint32_t)(p->slot % source->ne[1]);
	const char *from = (const char *)source->data + row * source->nb[1];
	char *to;

	if (source->type == traits->vec_dot_type)
		return from;
	to = op->experts->quantized + row * ggml_row_size(traits->vec_dot_type, source->ne[0]);
	if (op->decode.quantized_row != row)
		ggml_get_type_traits_cpu(traits->vec_dot_type)
			->from_float((const float *)(const void *)from, to, source->ne[0]);
	op->decode.quantized_row = row;
	return to;
}

static uint32_t release_finished(weir_expert_op *op)
{
	uint32_t published = atomic_load(&op->decode.published), released = 0;

	for (uint32_t i = 0; i < published; i++) {
		weir_decode_job *job = &op->decode.jobs[i];

		if (!job->op->leases[job->expert] || atomic_load(&job->chunks_done) < op->decode.chunks)
			continue;
		weir_experts_release(job->op, job->expert);
		released++;
	}
	return released;
}

/* Waits for the next expert; when this op's own leases hold all the slots, until one of its jobs is finished. */
static int wait_for_expert(weir_expert_op *op, weir_expert_op **member, uint32_t *expert, weir_error *error)
{
	weir_decode *decode = &op->decode;
	int result;

	while ((result = weir_experts_next(decode->members, decode->members_count, true, member, expert, error)) ==
	       WEIR_EBUSY) {
		if (!atomic_load(&decode->published))
			return result;
		while (!release_finished(op))
			sched_yield();
	}
	return result;
}

static int publish_next(weir_expert_op *op, bool wait, weir_error *error)
{
	weir_decode *decode = &op->decode;
	uint32_t published = atomic_load(&decode->published), expert;
	weir_decode_job *job = &decode->jobs[published];
	const route *r = &op->experts->route;
	weir_expert_op *member;
	const void *matrix;
	int result;

	if (wait)
		result = wait_for_expert(op, &member, &expert, error);
	else
		result = weir_experts_next(decode->members, decode->members_count, false, &member, &expert, error);
	if (!result)
		result = weir_lease_wait(member->leases[expert], &matrix, error);
	if (result)
		return result;
	job->op = member;
	job->expert = expert;
	job->matrix = matrix;
	job->activation = quantize(op, &r->pairs[r->start[expert]]);
	job->result =
		(float *)(void *)((char *)member->node->data + (size_t)r->pairs[r->start[expert]].slot * member->node->nb[1]);
	atomic_store(&job->chunks_done, 0);
	publish(decode, published + 1);
	return 0;
}

static void give_up(weir_expert_op *op, const weir_error *error)
{
	weir_session_set_error(op->experts->session, error);
	publish(&op->decode, PUBLISHED_FAILED);
}

static void end_previous(weir_expert_op *op)
{
	if (!op)
		return;
	for (uint32_t i = 0; i < op->decode.members_count; i++)
		weir_experts_release_all(op->decode.members[i]);
	weir_lookahead_rank(op); /* if another thread ended it last */
}

static void begin(weir_expert_op *op)
{
	weir_error error;
	int result = 0;

	end_previous(op->experts->decoded);
	op->experts->decoded = op;
	if (op->experts->session->failed) {
		publish(&op->decode, PUBLISHED_FAILED);
		return;
	}
	for (uint32_t i = 0; i < op->decode.members_count && !result; i++)
		result = weir_experts_begin_op(op->decode.members[i], &error);
	if (result)
		give_up(op, &error);
}

/* Publishes everything that is ready, and waits if the job at hand is not. */
static void publish_up_to(weir_expert_op *op, uint32_t job)
{
	weir_error error;
	int result = 0;

	while (!result && atomic_load(&op->decode.published) < op->decode.jobs_count)
		result = publish_next(op, atomic_load(&op->decode.published) <= job, &error);
	if (result && result != WEIR_EBUSY)
		give_up(op, &error);
	else if (result && atomic_load(&op->decode.published) <= job)
		give_up(op, &error);
}

/* ---- all threads ---- */

static void sleep_until_published(weir_decode *decode, uint32_t job)
{
	unsigned seen;

	for (int i = 0; i < SPINS_BEFORE_SLEEP && atomic_load(&decode->published) <= job; i++)
		weir_spin_pause();
	atomic_fetch_add(&decode->sleepers, 1);
	while ((seen = atomic_load(&decode->published)) <= job)
		weir_futex_wait(&decode->published, seen);
	atomic_fetch_sub(&decode->sleepers, 1);
}

static void multiply_chunk(const weir_expert_op *op, weir_decode_job *job, uint32_t chunk)
{
	const struct ggml_tensor *matrix = op->weight->tensor;
	ggml_vec_dot_t vec_dot = ggml_get_type_traits_cpu(matrix->type)->vec_dot;
	int64_t row = (int64_t)chunk * op->decode.chunk_rows, end = row + op->decode.chunk_rows;

	if (end > matrix->ne[1])
		end = matrix->ne[1];
	for (; row < end; row++)
		vec_dot((int)matrix->ne[0], &job->result[row], 0, job->matrix + (size_t)row * matrix->nb[1], 0, job->activation,
			0, 1);
	atomic_fetch_add(&job->chunks_done, 1);
}

static void run_decode(struct ggml_tensor *node, int thread, int threads, void *user)
{
	weir_expert_op *op = user;
	weir_decode *decode = &op->decode;
	uint32_t guess_chunks = weir_lookahead_chunks(op);

	(void)node;
	weir_step_enter(op->experts->session, thread, threads);
	if (thread == 0)
		begin(op);
	for (;;) {
		uint32_t ticket = atomic_fetch_add(&decode->ticket, 1), job;

		if (ticket < guess_chunks) {
			weir_lookahead_work(op, ticket);
			continue;
		}
		ticket -= guess_chunks;
		job = ticket / decode->chunks;
		if (thread == 0)
			weir_lookahead_rank(op);
		if (job >= decode->jobs_count) {
			/* The last jobs may be in others' hands, who wait for thread 0 to publish them. */
			if (thread == 0)
				publish_up_to(op, decode->jobs_count - 1);
			return;
		}
		if (thread == 0)
			publish_up_to(op, job);
		else if (atomic_load(&decode->published) <= job)
			sleep_until_published(decode, job);
		if (atomic_load(&decode->published) == PUBLISHED_FAILED)
			return;
		multiply_chunk(op, &decode->jobs[job], ticket % decode->chunks);
		if (thread == 0)
			weir_lookahead_pump(op->experts);
	}
}

/* ---- building ---- */

static int prepare_jobs(weir_decode *decode, uint32_t count)
{
	if (decode->jobs_capacity >= count)
		return 0;
	free(decode->jobs);
	decode->jobs = calloc(count, sizeof *decode->jobs);
	decode->jobs_capacity = decode->jobs ? count : 0;
	return decode->jobs ? 0 : WEIR_ENOMEM;
}

static bool is_no_work(const struct ggml_tensor *node)
{
	return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
	       node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

/* The op before this one in the list, when both can share one step: same ids, activations and kind of weight, and no work in
 * between, so that this op's result may be written as early as that one's. */
static weir_expert_op *find_partner(weir_steps *steps, const weir_expert_op *op)
{
	weir_expert_op *before = op->index ? steps->experts[op->index - 1] : NULL;
	const struct ggml_tensor *mine = op->weight->tensor, *theirs;
	uint32_t at = steps->nodes_count;

	while (at && is_no_work(steps->nodes[at - 1]))
		at--;
	if (!before || !at || steps->nodes[at - 1] != &before->decode.node || before->decode.members_count != 1)
		return NULL;
	theirs = before->weight->tensor;
	if (before->node->src[1] != op->node->src[1] || before->node->src[2] != op->node->src[2] ||
	    mine->type != theirs->type || mine->ne[0] != theirs->ne[0] || mine->ne[1] != theirs->ne[1] ||
	    mine->ne[2] != theirs->ne[2])
		return NULL;
	return before;
}

static int join(weir_expert_op *before, weir_expert_op *op)
{
	before->decode.members[before->decode.members_count++] = op;
	before->decode.jobs_count *= 2;
	op->decode.members_count = 0;
	return prepare_jobs(&before->decode, before->decode.jobs_count);
}

int weir_decode_append(weir_steps *steps, weir_expert_op *op)
{
	const struct ggml_tensor *matrix = op->weight->tensor;
	weir_expert_op *partner = find_partner(steps, op);
	weir_decode *decode = &op->decode;
	uint64_t rows = CHUNK_BYTES / matrix->nb[1] / CHUNK_ROWS_LEAST * CHUNK_ROWS_LEAST;

	if (partner)
		return join(partner, op);
	decode->members[0] = op;
	decode->members_count = 1;
	decode->jobs_count = (uint32_t)op->node->src[2]->ne[0];
	decode->chunk_rows = rows < CHUNK_ROWS_LEAST ? CHUNK_ROWS_LEAST : (uint32_t)rows;
	decode->chunks = (uint32_t)((matrix->ne[1] + decode->chunk_rows - 1) / decode->chunk_rows);
	decode->quantized_row = UINT32_MAX;
	atomic_store(&decode->published, 0);
	atomic_store(&decode->ticket, 0);
	atomic_store(&decode->sleepers, 0);
	weir_step_node(&decode->node, run_decode, op);
	if (prepare_jobs(decode, decode->jobs_count))
		return WEIR_ENOMEM;
	return weir_steps_add(steps, &decode->node);
}

void weir_decode_free(weir_expert_op *op)
{
	free(op->decode.jobs);
}
