/*
 * disk_load.c - see disk_load.h.
 *
 * As soon as a read is done the next one, elsewhere in the file, is submitted, into the slot of the memory that was used
 * longest ago:
 *
 *     slots (a ring)   [ 4 | - | - | 1 | 2 | 3 ]      slots_count = 6, two in flight: 5 and 0
 *                            ^end      ^first, the next to be used
 */
#include "io/disk_load.h"

#include <stdlib.h>

#include "base/fail.h"
#include "os/memory.h"

#define SLOTS_MAX 1024u
#define OFFSET_UNIT_BYTES 4096u /* at least: offsets as a page or a drive's sector would have them */

/* ---- memory ---- */

int weir_disk_memory_map(uint64_t bytes, weir_disk_memory *memory, weir_error *error)
{
	void *base;
	int code = weir_memory_map(bytes, true, &base, error);

	*memory = (weir_disk_memory){.bytes = 0};
	if (code != 0)
		return code;
	(void)weir_memory_advise(base, bytes, WEIR_ADVICE_POPULATE); /* else the first reads pay for the pages */
	*memory = (weir_disk_memory){.base = base, .bytes = bytes};
	return 0;
}

void weir_disk_memory_unmap(weir_disk_memory *memory)
{
	weir_memory_unmap(memory->base, memory->bytes);
	*memory = (weir_disk_memory){.bytes = 0};
}

uint64_t weir_disk_memory_wanted(uint32_t queue_depth, uint32_t piece_bytes)
{
	return (uint64_t)queue_depth * ((uint64_t)piece_bytes + WEIR_DISK_ALIGNMENT_MAX);
}

/* ---- opening ---- */

static uint64_t next_random(void)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = weir_clock_ns() | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

void weir_disk_load_close(weir_disk_load *load)
{
	weir_io_close(load->io);
	free(load->completions);
	free(load->slots);
	*load = (weir_disk_load){.io = NULL};
}

static int divide_memory(weir_disk_load *load, const weir_disk_memory *memory, weir_error *error)
{
	uint32_t alignment = weir_io_memory_alignment(load->io);

	load->slot_bytes = ((uint64_t)load->piece_bytes + alignment - 1) / alignment * alignment;
	if (load->slot_bytes > memory->bytes / load->queue_depth)
		return weir_fail(error, WEIR_EINVAL, load->target->name, WEIR_ERROR_NO_OFFSET, 0,
				 "the memory is too small for %u reads of %u bytes", load->queue_depth, load->piece_bytes);
	load->memory = memory->base;
	load->slots_count = (uint32_t)(memory->bytes / load->slot_bytes);
	if (load->slots_count > SLOTS_MAX)
		load->slots_count = load->queue_depth > SLOTS_MAX ? load->queue_depth : SLOTS_MAX;
	load->completions = calloc(load->queue_depth, sizeof *load->completions);
	load->slots = calloc(load->slots_count, sizeof *load->slots);
	if (!load->completions || !load->slots)
		return weir_fail(error, WEIR_ENOMEM, load->target->name, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	for (uint32_t i = 0; i < load->slots_count; i++)
		load->slots[i] = i;
	return weir_io_add_buffer(load->io, load->memory, load->slot_bytes * load->slots_count);
}

int weir_disk_load_open(weir_disk_load *load, const weir_disk_target *target, const weir_disk_point *point,
			const weir_disk_memory *memory, weir_error *error)
{
	weir_io_options options = {
		.method = point->method,
		.queue_depth = point->queue_depth,
		.piece_bytes = point->piece_bytes,
		.requests_max = point->queue_depth,
	};
	int code;

	*load = (weir_disk_load){.target = target, .queue_depth = point->queue_depth};
	code = weir_io_open(&options, &load->io, error);
	if (code == 0)
		code = weir_io_add_file(load->io, target->path, &load->file, error);
	if (code == 0) {
		load->piece_bytes = weir_io_piece_bytes(load->io);
		load->unit_bytes = weir_io_offset_alignment(load->io);
		if (load->unit_bytes < OFFSET_UNIT_BYTES)
			load->unit_bytes = OFFSET_UNIT_BYTES;
		code = divide_memory(load, memory, error);
	}
	if (code != 0)
		weir_disk_load_close(load);
	return code;
}

/* ---- reading ---- */

/* A whole piece at a random place; in a file smaller than a piece, all of it. */
static weir_io_request choose_extent(const weir_disk_load *load, uint32_t slot)
{
	uint64_t file_bytes = load->target->bytes, places = 1;
	weir_io_request request = {.file = load->file, .bytes = load->piece_bytes, .tag = slot};

	if (file_bytes > load->piece_bytes)
		places = (file_bytes - load->piece_bytes) / load->unit_bytes + 1;
	request.offset = next_random() % places * load->unit_bytes;
	request.least = file_bytes - request.offset;
	if (request.least > request.bytes)
		request.least = request.bytes;
	request.buffer = load->memory + slot * load->slot_bytes;
	return request;
}

static int submit_read(weir_disk_load *load, weir_error *error)
{
	weir_io_request request = choose_extent(load, load->slots[load->slots_first]);

	load->slots_first = (load->slots_first + 1) % load->slots_count;
	if (weir_io_submit(load->io, &request, 1) == 1)
		return 0;
	return weir_fail(error, WEIR_EIO, load->target->name, request.offset, 0, "the read was not taken");
}

static int take_completion(weir_disk_load *load, const weir_io_completion *completion, weir_error *error)
{
	uint64_t file_bytes = load->target->bytes;

	if (completion->code != 0)
		return weir_fail(error, completion->code, load->target->name, completion->offset, completion->sys_errno,
				 completion->sys_errno ? "read failed" : "the file ended early");
	load->slots[load->slots_end] = (uint32_t)completion->tag;
	load->slots_end = (load->slots_end + 1) % load->slots_count;
	load->completed_count++;
	load->completed_bytes += file_bytes < load->piece_bytes ? file_bytes : load->piece_bytes;
	return 0;
}

/* Waits for completions; `refill`: replaces each by a new read. */
static int turn_over(weir_disk_load *load, bool refill, weir_error *error)
{
	int count, i, code = 0;

	while ((count = weir_io_reap(load->io, load->completions, load->queue_depth)) == 0)
		(void)weir_io_wait(load->io, UINT64_MAX);
	for (i = 0; i < count && code == 0; i++) {
		code = take_completion(load, &load->completions[i], error);
		if (code == 0 && refill)
			code = submit_read(load, error);
	}
	return code;
}

static int run_dry(weir_disk_load *load, int code, weir_error *error)
{
	while (weir_io_pending(load->io)) {
		int failed = turn_over(load, false, code ? NULL : error);

		code = code ? code : failed;
	}
	return code;
}

static int fill_queue(weir_disk_load *load, weir_error *error)
{
	uint64_t until = load->completed_count + load->queue_depth;
	int code = 0;

	for (uint32_t i = 0; i < load->queue_depth && code == 0; i++)
		code = submit_read(load, error);
	while (code == 0 && load->completed_count < until)
		code = turn_over(load, true, error);
	return code;
}

int weir_disk_load_run(weir_disk_load *load, double seconds, double *bytes_per_second, weir_error *error)
{
	int code = fill_queue(load, error);
	uint64_t start_ns = weir_clock_ns(), start_bytes = load->completed_bytes, now_ns;

	do {
		if (code == 0)
			code = turn_over(load, true, error);
		now_ns = weir_clock_ns();
	} while (code == 0 && (double)(now_ns - start_ns) < seconds * 1e9);
	if (code == 0)
		*bytes_per_second = (double)(load->completed_bytes - start_bytes) / ((double)(now_ns - start_ns) / 1e9);
	return run_dry(load, code, error);
}

int weir_disk_load_burst(weir_disk_load *load, uint32_t pieces, double *seconds, uint64_t *bytes, weir_error *error)
{
	uint64_t start_ns = weir_clock_ns(), start_bytes = load->completed_bytes;
	int code = 0;

	for (uint32_t i = 0; i < pieces && i < load->queue_depth && code == 0; i++)
		code = submit_read(load, error);
	code = run_dry(load, code, error);
	*seconds = (double)(weir_clock_ns() - start_ns) / 1e9;
	*bytes = load->completed_bytes - start_bytes;
	return code;
}
