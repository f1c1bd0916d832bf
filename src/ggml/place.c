/*
 * place.c - deciding where each weight lives, and reading those that stay.
 *
 * Resident weights are read as images of the file runs they lie in: neighbours in the file are neighbours in memory, so that
 * one read brings many tensors, and every tensor keeps the alignment that the file gave it.
 *
 *   file:    ..[norm][attn_q][attn_k]......[experts]........[norm]..
 *   memory:    [norm][attn_q][attn_k]                       [norm]        each run starts at the same offset within a page
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/fail.h"
#include "ggml/experts.h"
#include "ggml/packed.h"
#include "ggml/ring.h"
#include "ggml/rows.h"
#include "ggml/session.h"
#include "os/memory.h"

#define PAGE_BYTES 4096u
#define RUN_GAP_BYTES 4096u /* reading through a gap this small is cheaper than a second run */

typedef struct run {
	uint32_t file;
	uint64_t start, end; /* page multiples in the file */
	uint64_t least; /* bytes from start that must arrive */
	uint64_t memory; /* offset in the resident area */
} run;

static int by_place_in_file(const void *a, const void *b)
{
	const weir_weight *x = *(const weir_weight *const *)a, *y = *(const weir_weight *const *)b;

	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int by_order(const void *a, const void *b)
{
	const weir_weight *x = *(const weir_weight *const *)a, *y = *(const weir_weight *const *)b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* Which of the dense weights stay is free to choose: those that stay are spread evenly over the token, so that the reads of
 * the others are too and the drive is never idle for long. */
static void choose_ring(weir_session *session, weir_weight **matrices, uint32_t count)
{
	uint64_t total = 0, stay = session->plan.dense_resident_bytes, kept = 0, seen = 0;

	for (uint32_t i = 0; i < count; i++)
		total += matrices[i]->bytes;
	if (!session->plan.ring_bytes || stay >= total) {
		for (uint32_t i = 0; i < count; i++)
			matrices[i]->place = PLACE_RESIDENT;
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint64_t due;

		seen += matrices[i]->bytes;
		due = (uint64_t)((double)stay * ((double)seen / (double)total));
		matrices[i]->place = kept + matrices[i]->bytes <= due ? PLACE_RESIDENT : PLACE_RING;
		if (matrices[i]->place == PLACE_RESIDENT)
			kept += matrices[i]->bytes;
	}
	for (uint32_t i = 0; i < count; i++) /* what rounding left over */
		if (matrices[i]->place == PLACE_RING && kept + matrices[i]->bytes <= stay) {
			matrices[i]->place = PLACE_RESIDENT;
			kept += matrices[i]->bytes;
		}
}

static void decide_one(const weir_session *session, weir_weight *weight)
{
	if (weight->order == UINT64_MAX)
		weight->place = PLACE_MAPPED;
	else if (session->plan.all_resident)
		weight->place = PLACE_RESIDENT;
	else if (weir_weights_is_expert(weight))
		weight->place = PLACE_SLOTS;
	else if (weir_weights_is_rows(weight))
		weight->place = PLACE_ROWS;
	else
		weight->place = PLACE_RESIDENT;
}

static int decide(weir_session *session)
{
	weir_weight **matrices = malloc((session->weights_count + 1) * sizeof *matrices);
	uint32_t count = 0;

	if (!matrices)
		return WEIR_ENOMEM;
	for (uint32_t i = 0; i < session->weights_count; i++) {
		weir_weight *weight = &session->weights[i];

		decide_one(session, weight);
		if (weight->place == PLACE_RESIDENT && !session->plan.all_resident && weir_weights_is_matrix(weight))
			matrices[count++] = weight;
	}
	qsort(matrices, count, sizeof *matrices, by_order);
	choose_ring(session, matrices, count);
	free(matrices);
	weir_packed_use(session);
	return 0;
}

static uint64_t page_down(uint64_t bytes)
{
	return bytes / PAGE_BYTES * PAGE_BYTES;
}

static uint64_t page_up(uint64_t bytes)
{
	return page_down(bytes + PAGE_BYTES - 1);
}

/* Lays out the resident weights (sorted by place in file) as runs; returns how many and the bytes they take. */
static uint32_t make_runs(weir_weight **weights, uint32_t count, run *runs, uint64_t *bytes)
{
	uint32_t made = 0;

	*bytes = 0;
	for (uint32_t i = 0; i < count; i++) {
		const weir_weight *w = weights[i];
		run *last = made ? &runs[made - 1] : NULL;

		if (!last || last->file != w->file || w->offset > last->start + last->least + RUN_GAP_BYTES) {
			last = &runs[made++];
			last->file = w->file;
			last->start = page_down(w->offset);
			last->least = 0;
		}
		if (w->offset + w->bytes - last->start > last->least)
			last->least = w->offset + w->bytes - last->start;
		last->end = page_up(last->start + last->least);
	}
	for (uint32_t i = 0; i < made; i++) {
		runs[i].memory = *bytes;
		*bytes += runs[i].end - runs[i].start;
	}
	return made;
}

static void point_weights(weir_session *session, weir_weight **weights, uint32_t count, const run *runs)
{
	for (uint32_t i = 0, r = 0; i < count; i++) {
		while (runs[r].file != weights[i]->file || weights[i]->offset >= runs[r].start + runs[r].least)
			r++;
		weights[i]->tensor->data = (char *)session->resident + runs[r].memory + (weights[i]->offset - runs[r].start);
	}
}

/* Tells how far reading has come; WEIR_EINTERRUPTED when that is not wanted any further. */
static int report_loading(const weir_session *session, uint64_t pieces_before, weir_error *error)
{
	double total = (double)session->resident_bytes, done;
	weir_io_stats stats;

	if (!session->options.progress)
		return 0;
	weir_io_get_stats(session->io, &stats);
	done = (double)(stats.pieces - pieces_before) * (double)weir_io_piece_bytes(session->io);
	if (session->options.progress(session->options.progress_user, done < total ? done / total : 1))
		return 0;
	return weir_fail(error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted while weights were read");
}

static int reap_all(weir_session *session, weir_error *error)
{
	weir_io_completion done[64];
	int count = weir_io_reap(session->io, done, 64);

	for (int i = 0; i < count; i++)
		if (done[i].code)
			return weir_fail(error, done[i].code, weir_io_file_path(session->io, done[i].file), done[i].offset,
					 done[i].sys_errno, "reading weights failed");
	return 0;
}

static int read_runs(weir_session *session, const run *runs, uint32_t count, weir_error *error)
{
	uint32_t submitted = 0;
	weir_io_stats before;
	int result = 0;

	weir_io_get_stats(session->io, &before);
	while (!result && (submitted < count || weir_io_pending(session->io))) {
		if (submitted < count) {
			const run *r = &runs[submitted];
			weir_io_request request = {.file = session->files[r->file].io,
						   .offset = r->start,
						   .bytes = r->end - r->start,
						   .least = r->least,
						   .buffer = (char *)session->resident + r->memory};
			int taken = weir_io_submit(session->io, &request, 1);

			if (taken < 0)
				return weir_fail(error, taken, session->files[r->file].path, r->start, 0,
						 "reading weights failed");
			submitted += (uint32_t)taken;
			session->start_bytes_read += taken ? r->least : 0;
			if (taken)
				continue;
		}
		weir_io_wait(session->io, UINT64_MAX);
		result = reap_all(session, error);
		if (!result)
			result = report_loading(session, before.pieces, error);
	}
	while (weir_io_pending(session->io)) { /* after a failure: the buffers must not be written to any more */
		weir_io_completion done[64];

		weir_io_wait(session->io, UINT64_MAX);
		weir_io_reap(session->io, done, 64);
	}
	return result;
}

/* Weights that lie in slices in their file follow the images of runs, each from a page on. */
static void point_sliced(weir_session *session, uint64_t at)
{
	for (uint32_t i = 0; i < session->weights_count; i++) {
		weir_weight *weight = &session->weights[i];

		if (weight->place != PLACE_RESIDENT || !weir_packed_is_sliced(weight))
			continue;
		weight->tensor->data = (char *)session->resident + at;
		at += page_up(weight->bytes);
	}
}

static int load_resident(weir_session *session, weir_weight **weights, run *runs, weir_error *error)
{
	uint64_t runs_bytes = 0, sliced_bytes = 0;
	uint32_t count = 0, runs_count;
	int result;

	for (uint32_t i = 0; i < session->weights_count; i++) {
		weir_weight *weight = &session->weights[i];

		if (weight->place != PLACE_RESIDENT || !weight->bytes)
			continue;
		if (weir_packed_is_sliced(weight))
			sliced_bytes += page_up(weight->bytes);
		else
			weights[count++] = weight;
	}
	qsort(weights, count, sizeof *weights, by_place_in_file);
	runs_count = make_runs(weights, count, runs, &runs_bytes);
	session->resident_bytes = runs_bytes + sliced_bytes;
	if (!session->resident_bytes)
		return 0;
	if (weir_memory_map(session->resident_bytes, true, &session->resident, error))
		return WEIR_ENOMEM;
	point_weights(session, weights, count, runs);
	point_sliced(session, runs_bytes);
	result = read_runs(session, runs, runs_count, error);
	if (!result && sliced_bytes)
		result = weir_packed_load(session, error);
	return result ? result : weir_packed_check_resident(session, error);
}

/* ---- opening the store beside the reads ---- */

/* Making its slab takes as long as reading the dense weights does. */
typedef struct store_opening {
	weir_session *session;
	pthread_t thread;
	bool threaded;
	int result;
	weir_error error;
} store_opening;

static void *open_store(void *user)
{
	store_opening *opening = user;

	opening->result = weir_experts_open(opening->session, &opening->error);
	return NULL;
}

static void begin_store(store_opening *opening, weir_session *session)
{
	*opening = (store_opening){.session = session};
	opening->threaded = pthread_create(&opening->thread, NULL, open_store, opening) == 0;
}

static int end_store(store_opening *opening, weir_error *error)
{
	if (opening->threaded)
		pthread_join(opening->thread, NULL);
	else
		open_store(opening);
	if (opening->result && error)
		*error = opening->error;
	return opening->result;
}

static int open_dense(weir_session *session, weir_weight **weights, run *runs, weir_error *error)
{
	int result = load_resident(session, weights, runs, error);

	if (!result && session->plan.ring_bytes)
		result = weir_ring_open(session, session->plan.ring_bytes, &session->ring, error);
	if (!result)
		result = weir_rows_open(session, &session->rows, error);
	return result;
}

int weir_place_weights(weir_session *session, weir_error *error)
{
	weir_weight **weights = malloc((session->weights_count + 1) * sizeof *weights);
	run *runs = malloc((session->weights_count + 1) * sizeof *runs);
	store_opening opening;
	int result = WEIR_ENOMEM, store_result;

	if (weights && runs)
		result = decide(session);
	if (result) {
		weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the list of weights");
	} else {
		begin_store(&opening, session);
		result = open_dense(session, weights, runs, error);
		store_result = end_store(&opening, result ? NULL : error);
		result = result ? result : store_result;
	}
	free(weights);
	free(runs);
	return result;
}
