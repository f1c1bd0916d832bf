/*
 * write.c - writing a pack so that a kill at any moment leaves either nothing or something to go on with.
 *
 *   OUTPUT.part   reserved at its full size; header with units_done = 0 and index are written first
 *                 then data in any order; now and then the checksums of all units up to one, then the header with units_done
 *                 at the end everything is made safe and renamed to OUTPUT
 *
 * The header covers only checksums that were written before it, and those cover data that was: what the header says is done
 * can be checked.  Going on reads it back and keeps what is right, so that it does not matter in which order a drive that lost
 * power had written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/memory.h"
#include "pack/walk.h"

#define NOTES 64 /* how often a whole pack's progress is noted ... */
#define NOTE_BYTES_LEAST (1u << 20) /* ... but not for less than this */

typedef struct writer {
	const weir_checkpoint *checkpoint;
	const weir_pack_options *options;
	weir_pack *pack;
	weir_part part;
	weir_work_item *items;
	uint64_t noted; /* units that the file says are done */
} writer;

/* ---- what is there already ---- */

static bool same_file(const char *a, const char *b)
{
	struct stat first, second;

	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static int check_output(const weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	struct stat status;

	for (uint32_t i = 0; i < checkpoint->shards_count; i++)
		if (same_file(path, checkpoint->shards[i].path))
			return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0,
					 "is the model itself and is not written over");
	if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "is a directory");
	if (stat(path, &status) == 0 && status.st_size > 0 && !weir_pack_recognize(path))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0,
				 "is there and is no pack: it is not written over");
	return 0;
}

static bool is_up_to_date(const weir_checkpoint *checkpoint, const char *path)
{
	weir_pack *pack;
	bool matches;

	if (weir_pack_open(path, &pack, NULL))
		return false;
	matches = !weir_pack_matches(pack, checkpoint, NULL);
	weir_pack_close(pack);
	return matches;
}

/* ---- the partial file ---- */

static int write_header(writer *self, uint64_t units_done, weir_error *error)
{
	unsigned char block[WEIR_PACK_HEADER_BYTES];

	self->pack->header.units_done = units_done;
	weir_pack_encode_header(self->pack, block);
	return weir_part_write(&self->part, 0, block, sizeof block, error);
}

static int note_done(uint64_t units_done, void *user, weir_error *error)
{
	writer *self = user;
	const uint64_t *sums = self->pack->sums;
	int code;

	if (units_done <= self->noted)
		return 0;
	code = weir_part_write(&self->part, self->pack->sums_offset + self->noted * sizeof *sums, sums + self->noted,
			       (units_done - self->noted) * sizeof *sums, error);
	if (!code)
		code = write_header(self, units_done, error);
	if (!code)
		self->noted = units_done;
	return code;
}

/* Space, index, zeros up to the data. */
static int begin(writer *self, weir_error *error)
{
	weir_pack *pack = self->pack;
	uint64_t bytes, head_bytes = pack->data_offset - WEIR_PACK_HEADER_BYTES;
	unsigned char *index = weir_pack_encode_index(pack, &bytes), *head = calloc(1, head_bytes + 1);
	int code = weir_part_reserve(&self->part, pack->header.file_bytes, error);

	if (!code && (!index || !head))
		code = weir_fail(error, WEIR_ENOMEM, self->part.part, WEIR_ERROR_NO_OFFSET, 0, "no memory for the index");
	if (!code) {
		memcpy(head, index, bytes);
		code = weir_part_write(&self->part, WEIR_PACK_HEADER_BYTES, head, head_bytes, error);
	}
	if (!code)
		code = write_header(self, 0, error);
	free(index);
	free(head);
	return code;
}

static bool same_plan(const weir_pack *a, const weir_pack *b)
{
	return a->header.index_hash == b->header.index_hash && a->header.file_bytes == b->header.file_bytes &&
	       a->header.units_count == b->header.units_count &&
	       !memcmp(&a->header.fingerprint, &b->header.fingerprint, sizeof a->header.fingerprint);
}

static weir_work work_of(const writer *self, weir_work_mode mode, const char *stage)
{
	return (weir_work){.mode = mode,
			   .items = self->items,
			   .items_count = self->pack->header.units_count,
			   .end = self->pack->header.file_bytes,
			   .sums = self->pack->sums,
			   .output = {.file = {.descriptor = -1}},
			   .alignment = (uint32_t)self->pack->header.alignment,
			   .threads = self->options->threads,
			   .stage = stage,
			   .progress = self->options->progress,
			   .user = self->options->user};
}

/* Of an earlier run's units, how many are right; their checksums are taken over.  A failure to read them is no error: they are
 * written again. */
static int check_earlier(writer *self, const weir_pack *earlier, weir_error *error)
{
	weir_work work = work_of(self, WEIR_WORK_CHECK_OUTPUT, "checking");
	uint64_t done = earlier->header.units_done;
	int code;

	if (!done)
		return 0;
	memcpy(self->pack->sums, earlier->sums, done * sizeof *earlier->sums);
	work.items_count = done;
	if (done < self->pack->header.units_count)
		work.end = self->items[done].offset;
	code = weir_walk_open_output(&work, self->part.part, false, error);
	if (!code)
		code = weir_work_run(&work, error);
	weir_file_close(&work.output.file);
	if (code == WEIR_ECHECKSUM || code == WEIR_EIO) {
		done = work.failed_item;
		code = 0;
	}
	self->noted = done;
	return code;
}

/* Begins, or goes on from what an earlier run left. */
static int prepare(writer *self, weir_error *error)
{
	weir_pack *earlier = NULL;
	int code;

	if (!weir_pack_open_any(self->part.part, &earlier, NULL) && same_plan(earlier, self->pack))
		code = check_earlier(self, earlier, error);
	else
		code = begin(self, error);
	weir_pack_close(earlier);
	return code;
}

static int check_shards(const weir_checkpoint *checkpoint, weir_error *error)
{
	return weir_checkpoint_check_unchanged(checkpoint, error);
}

static int copy_units(writer *self, weir_error *error)
{
	weir_work work = work_of(self, WEIR_WORK_COPY, "packing");
	int code = weir_walk_open_output(&work, self->part.part, true, error);

	work.first = self->noted;
	work.note_every_bytes = self->pack->header.file_bytes / NOTES;
	if (work.note_every_bytes < NOTE_BYTES_LEAST)
		work.note_every_bytes = NOTE_BYTES_LEAST;
	work.note_done = note_done;
	work.note_user = self;
	if (!code)
		code = weir_walk_open_sources(&work, self->checkpoint, error);
	if (!code && work.first < work.items_count)
		code = weir_work_run(&work, error);
	if (!code)
		code = check_shards(self->checkpoint, error);
	weir_walk_close_sources(&work);
	weir_file_close(&work.output.file);
	return code;
}

/* What is left behind when it failed: nothing when nothing was done or the space is gone, else something to go on with. */
static void clean_up(writer *self, int code)
{
	if (code == WEIR_ENOSPACE || code == WEIR_ECHANGED || (code && code != WEIR_EBUSY && !self->noted))
		weir_part_remove(&self->part);
}

static int write_part(writer *self, weir_pack_result *result, weir_error *error)
{
	int code = prepare(self, error);
	uint64_t resumed = self->noted;

	if (!code)
		code = copy_units(self, error);
	if (!code)
		code = note_done(self->pack->header.units_count, self, error);
	if (!code)
		code = write_header(self, self->pack->header.units_count, error);
	if (!code)
		code = weir_part_finish(&self->part, error);
	if (code) {
		clean_up(self, code);
		return code;
	}
	for (uint64_t i = 0; i < self->pack->header.units_count; i++)
		*(i < resumed ? &result->resumed_bytes : &result->written_bytes) += self->items[i].bytes;
	return 0;
}

/* ---- all of it ---- */

static int plan_pack(writer *self, const char *path, weir_error *error)
{
	int code = weir_pack_layout(self->checkpoint, path, &self->pack, error);
	unsigned char *index;
	uint64_t bytes;

	if (!code)
		code = weir_pack_read_fingerprint(self->checkpoint, true, &self->pack->header.fingerprint, error);
	if (code)
		return code;
	self->items = weir_walk_items(self->pack);
	index = weir_pack_encode_index(self->pack, &bytes);
	if (index)
		self->pack->header.index_hash =
			weir_pack_hash_index(index, bytes, self->pack->sums_offset - WEIR_PACK_HEADER_BYTES);
	if (!index || !self->items)
		code = weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory for the plan of a pack");
	free(index);
	return code;
}

static int write_pack(const weir_checkpoint *checkpoint, const char *path, const weir_pack_options *options,
		      weir_pack_result *result, weir_error *error)
{
	writer self = {.checkpoint = checkpoint, .options = options, .part = {.fd = -1}};
	int code = weir_checkpoint_check_holes(checkpoint, error);

	if (!code)
		code = plan_pack(&self, path, error);
	if (!code)
		code = weir_part_open(&self.part, path, error);
	if (!code)
		code = write_part(&self, result, error);
	weir_part_close(&self.part);
	free(self.items);
	weir_pack_close(self.pack);
	return code;
}

/* Reads the pack back from the drive before anything of the checkpoint is given up. */
static int replace(const weir_checkpoint *checkpoint, const char *path, const weir_pack_options *options,
		   weir_pack_result *result, weir_error *error)
{
	const weir_verify_options verify = {.threads = options->threads, .progress = options->progress, .user = options->user};
	weir_pack *pack;
	int code = weir_pack_open(path, &pack, error);

	if (code)
		return code;
	code = weir_pack_matches(pack, checkpoint, error);
	if (!code)
		code = weir_walk_check_pack(pack, &verify, error);
	weir_pack_close(pack);
	return code ? code : weir_pack_replace(checkpoint, path, &result->freed_bytes, error);
}

static int pack_gguf(const weir_checkpoint *checkpoint, const char *path, const weir_pack_options *options,
		     weir_pack_result *result, weir_error *error)
{
	struct stat status;
	int code = check_output(checkpoint, path, error);

	if (code)
		return code;
	result->up_to_date = !options->force && is_up_to_date(checkpoint, path);
	if (!result->up_to_date)
		code = write_pack(checkpoint, path, options, result, error);
	if (!code && options->replace)
		code = replace(checkpoint, path, options, result, error);
	if (!code && stat(path, &status) == 0)
		result->output_bytes = (uint64_t)status.st_size;
	return code;
}

/* A model that is named by its folder has its pack beside the file in it. */
static char *output_path(const weir_checkpoint *checkpoint, const char *model_path, const weir_pack_options *options)
{
	struct stat status;

	if (options->output)
		return strdup(options->output);
	if (stat(model_path, &status) == 0 && S_ISDIR(status.st_mode))
		model_path = checkpoint->shards[0].path;
	return weir_pack_path_beside(model_path);
}

static int pack_checkpoint(const weir_checkpoint *checkpoint, const char *model_path, const weir_pack_options *options,
			   weir_pack_result *result, weir_error *error)
{
	char *path;
	int code;

	if (checkpoint->format == WEIR_FORMAT_SAFETENSORS)
		return weir_pack_write_aligned(checkpoint, model_path, options, result, error);
	path = output_path(checkpoint, model_path, options);
	if (!path)
		return weir_fail(error, WEIR_ENOMEM, model_path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	snprintf(result->output, sizeof result->output, "%s", path);
	code = pack_gguf(checkpoint, path, options, result, error);
	free(path);
	return code;
}

/* Trying whether space can be freed sets the file's time, so it is opened again after that. */
static int open_checkpoint(const char *path, const weir_pack_options *options, weir_checkpoint **checkpoint, weir_error *error)
{
	int code = weir_checkpoint_open(path, NULL, checkpoint, error);

	if (code || !options->replace || (*checkpoint)->format != WEIR_FORMAT_GGUF)
		return code;
	code = weir_pack_check_replace(*checkpoint, error);
	weir_checkpoint_close(*checkpoint);
	return code ? code : weir_checkpoint_open(path, NULL, checkpoint, error);
}

int weir_pack_write(const char *model_path, const weir_pack_options *options, weir_pack_result *result, weir_error *error)
{
	static const weir_pack_options defaults;
	const uint64_t began_ns = weir_clock_ns();
	weir_checkpoint *checkpoint;
	weir_pack_result own;
	int code;

	options = options ? options : &defaults;
	result = result ? result : &own;
	*result = (weir_pack_result){0};
	code = open_checkpoint(model_path, options, &checkpoint, error);
	if (code)
		return code;
	code = pack_checkpoint(checkpoint, model_path, options, result, error);
	result->seconds = (double)(weir_clock_ns() - began_ns) / 1e9;
	weir_checkpoint_close(checkpoint);
	return code;
}
