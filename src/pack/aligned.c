/*
 * aligned.c - a safetensors file written anew, so that its tensors can be mapped in place.
 *
 *   [u64 length][header, padded with spaces to a page][tensors whose bytes fill pages][those of 2048s][1024s] ... [odd ones]
 *
 * The format allows no holes, so what follows a tensor begins where it ends.  Sorted by the largest power of two that divides
 * their size (at most a page), each tensor begins at a multiple of that power, and so of its elements.  Everything else of
 * the header stays as it was.  A sharded set is written shard by shard into a folder, with a copy of its index.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "format/json.h"
#include "format/locate.h"
#include "format/reader.h"
#include "format/safetensors.h"
#include "pack/walk.h"

#define PAGE_BYTES 4096u
#define LENGTH_BYTES 8u
#define STEP_BYTES ((uint64_t)4 << 20) /* items do not cross multiples of this, so that jobs can be cut there */

typedef struct shard_writer {
	const weir_checkpoint *checkpoint;
	const weir_pack_options *options;
	uint32_t shard;
	const weir_tensor **tensors; /* in the order of the output */
	uint64_t *offsets; /* of each, from the start of data */
	uint32_t count;
	char *header; /* with its length and padding */
	uint64_t header_bytes, data_bytes;
	weir_work_item *items;
	uint64_t items_count;
	weir_part part;
} shard_writer;

static int no_memory(const shard_writer *self, weir_error *error)
{
	return weir_fail(error, WEIR_ENOMEM, self->checkpoint->shards[self->shard].path, WEIR_ERROR_NO_OFFSET, 0,
			 "out of memory");
}

/* ---- order ---- */

static uint64_t alignment_of(const weir_tensor *tensor)
{
	uint64_t power = tensor->bytes & (~tensor->bytes + 1);

	return !tensor->bytes || power > PAGE_BYTES ? PAGE_BYTES : power;
}

static int by_alignment(const void *a, const void *b)
{
	const weir_tensor *const *x = a, *const *y = b;
	uint64_t left = alignment_of(*x), right = alignment_of(*y);

	if (left != right)
		return left > right ? -1 : 1;
	return (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static int order_tensors(shard_writer *self, weir_error *error)
{
	const weir_checkpoint *checkpoint = self->checkpoint;

	self->tensors = calloc((size_t)checkpoint->tensors_count + 1, sizeof(const weir_tensor *));
	self->offsets = calloc((size_t)checkpoint->tensors_count + 1, sizeof *self->offsets);
	if (!self->tensors || !self->offsets)
		return no_memory(self, error);
	for (uint32_t i = 0; i < checkpoint->tensors_count; i++)
		if (checkpoint->tensors[i].shard == self->shard)
			self->tensors[self->count++] = &checkpoint->tensors[i];
	qsort(self->tensors, self->count, sizeof(const weir_tensor *), by_alignment);
	for (uint32_t i = 0; i < self->count; i++) {
		self->offsets[i] = self->data_bytes;
		self->data_bytes += self->tensors[i]->bytes; /* their sum was checked when the checkpoint was opened */
	}
	return 0;
}

/* ---- header ---- */

static int read_header(const shard_writer *self, json_t **header, weir_error *error)
{
	unsigned char raw[LENGTH_BYTES];
	uint64_t length = 0;
	char *text = NULL;
	weir_file file;
	int code = weir_pack_open_shard(self->checkpoint, self->shard, &file, error);

	if (code)
		return code;
	code = weir_file_read(&file, 0, raw, sizeof raw, error);
	if (!code)
		length = weir_little_endian(raw, sizeof raw);
	if (!code && !weir_extent_within(LENGTH_BYTES, length, file.identity.bytes))
		code = weir_fail(error, WEIR_ECHANGED, file.path, 0, 0, "the header changed since it was read");
	if (!code)
		code = weir_safetensors_read_text(&file, LENGTH_BYTES, LENGTH_BYTES + length, &text, error);
	if (!code)
		code = weir_json_parse(text, (size_t)length, file.path, LENGTH_BYTES, header, error);
	free(text);
	weir_file_close(&file);
	return code;
}

static int set_offsets(const shard_writer *self, json_t *header)
{
	for (uint32_t i = 0; i < self->count; i++) {
		const weir_tensor *tensor = self->tensors[i];
		json_t *entry = json_object_get(header, tensor->name);
		json_t *offsets =
			json_pack("[II]", (json_int_t)self->offsets[i], (json_int_t)(self->offsets[i] + tensor->bytes));

		if (!entry || json_object_set_new(entry, "data_offsets", offsets))
			return WEIR_ENOMEM;
	}
	return 0;
}

/* The length, the text, and spaces up to a page. */
static int compose_header(shard_writer *self, const json_t *header, weir_error *error)
{
	char *text = json_dumps(header, JSON_COMPACT);
	uint64_t bytes = text ? strlen(text) : 0, whole = 0;

	if (text && weir_checked_align(LENGTH_BYTES + bytes, PAGE_BYTES, &whole))
		self->header = malloc(whole);
	if (!self->header) {
		free(text);
		return no_memory(self, error);
	}
	self->header_bytes = whole;
	memset(self->header, ' ', whole);
	for (unsigned i = 0; i < LENGTH_BYTES; i++)
		self->header[i] = (char)(unsigned char)((whole - LENGTH_BYTES) >> 8 * i);
	memcpy(self->header + LENGTH_BYTES, text, bytes);
	free(text);
	return 0;
}

static int make_header(shard_writer *self, weir_error *error)
{
	json_t *header = NULL;
	int code = read_header(self, &header, error);

	if (!code && set_offsets(self, header))
		code = no_memory(self, error);
	if (!code)
		code = compose_header(self, header, error);
	json_decref(header);
	return code;
}

/* ---- data ---- */

static uint64_t step_end(uint64_t at)
{
	return (at / STEP_BYTES + 1) * STEP_BYTES;
}

static void put_items(shard_writer *self, uint32_t index)
{
	const weir_tensor *tensor = self->tensors[index];

	for (uint64_t done = 0; done < tensor->bytes;) {
		uint64_t at = self->header_bytes + self->offsets[index] + done, room = step_end(at) - at;
		uint64_t bytes = tensor->bytes - done < room ? tensor->bytes - done : room;

		self->items[self->items_count++] = (weir_work_item){
			.offset = at, .source_offset = tensor->offset + done, .bytes = bytes, .source = tensor->shard};
		done += bytes;
	}
}

static int make_items(shard_writer *self, weir_error *error)
{
	uint64_t most = self->count + (self->header_bytes + self->data_bytes) / STEP_BYTES + 2;

	self->items = calloc(most, sizeof *self->items);
	if (!self->items)
		return no_memory(self, error);
	for (uint32_t i = 0; i < self->count; i++)
		put_items(self, i);
	return 0;
}

static int copy_data(shard_writer *self, weir_error *error)
{
	const weir_pack_options *options = self->options;
	uint64_t end = self->header_bytes + self->data_bytes;
	weir_work work = {.mode = WEIR_WORK_COPY,
			  .items = self->items,
			  .items_count = self->items_count,
			  .end = end,
			  .output = {.file = {.descriptor = -1}},
			  .alignment = PAGE_BYTES,
			  .threads = options->threads,
			  .stage = "packing",
			  .progress = options->progress,
			  .user = options->user};
	int code = weir_walk_open_output(&work, self->part.part, true, error);

	if (!code)
		code = weir_walk_open_sources(&work, self->checkpoint, error);
	if (!code && work.items_count)
		code = weir_work_run(&work, error);
	weir_walk_close_sources(&work);
	weir_file_close(&work.output.file);
	if (!code && ftruncate(self->part.fd, (off_t)end) < 0) /* the last write was a whole page */
		code = weir_fail(error, weir_code_of_errno(errno), self->part.part, end, errno, "cannot cut");
	return code;
}

/* ---- a shard ---- */

static int write_shard(shard_writer *self, const char *path, weir_error *error)
{
	int code = order_tensors(self, error);

	if (!code)
		code = make_header(self, error);
	if (!code)
		code = make_items(self, error);
	if (!code)
		code = weir_part_open(&self->part, path, error);
	if (code)
		return code;
	code = weir_part_reserve(&self->part, self->header_bytes + self->data_bytes, error);
	if (!code)
		code = weir_part_write(&self->part, 0, self->header, self->header_bytes, error);
	if (!code)
		code = copy_data(self, error);
	if (!code)
		code = weir_checkpoint_check_unchanged(self->checkpoint, error);
	if (!code)
		code = weir_part_finish(&self->part, error);
	if (code)
		weir_part_remove(&self->part);
	return code;
}

static void close_shard(shard_writer *self)
{
	weir_part_close(&self->part);
	free(self->tensors);
	free(self->offsets);
	free(self->header);
	free(self->items);
}

static int pack_shard(const weir_checkpoint *checkpoint, uint32_t shard, const char *path, const weir_pack_options *options,
		      weir_pack_result *result, weir_error *error)
{
	shard_writer self = {.checkpoint = checkpoint, .options = options, .shard = shard, .part = {.fd = -1}};
	int code = write_shard(&self, path, error);

	if (!code) {
		result->output_bytes += self.header_bytes + self.data_bytes;
		result->written_bytes += self.header_bytes + self.data_bytes;
	}
	close_shard(&self);
	return code;
}

/* ---- a set ---- */

static char *join(const char *folder, const char *name)
{
	size_t bytes = strlen(folder) + strlen(name) + 2;
	char *path = malloc(bytes);

	if (path)
		snprintf(path, bytes, "%s/%s", folder, name);
	return path;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static bool same_file(const char *a, const char *b)
{
	struct stat first, second;

	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

static int check_target(const weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	for (uint32_t i = 0; i < checkpoint->shards_count; i++)
		if (same_file(path, checkpoint->shards[i].path))
			return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0,
					 "is the model itself and is not written over");
	return 0;
}

static int pack_into(const weir_checkpoint *checkpoint, uint32_t shard, const char *folder, const weir_pack_options *options,
		     weir_pack_result *result, weir_error *error)
{
	char *path = join(folder, name_of(checkpoint->shards[shard].path));
	int code = path ? check_target(checkpoint, path, error)
			: weir_fail(error, WEIR_ENOMEM, folder, WEIR_ERROR_NO_OFFSET, 0, "out of memory");

	if (!code)
		code = pack_shard(checkpoint, shard, path, options, result, error);
	free(path);
	return code;
}

/* Which tensor lies in which shard has not changed: the index is copied as it is. */
static int copy_index(const char *index_path, const char *folder, weir_error *error)
{
	char *path = join(folder, name_of(index_path)), *text = NULL;
	weir_part part = {.fd = -1};
	weir_file file = {.descriptor = -1};
	int code = path ? weir_file_open(index_path, &file, error)
			: weir_fail(error, WEIR_ENOMEM, folder, WEIR_ERROR_NO_OFFSET, 0, "out of memory");

	if (!code)
		code = weir_safetensors_read_text(&file, 0, file.identity.bytes, &text, error);
	if (!code)
		code = weir_part_open(&part, path, error);
	if (!code) {
		code = weir_part_reserve(&part, file.identity.bytes, error);
		if (!code)
			code = weir_part_write(&part, 0, text, file.identity.bytes, error);
		if (!code)
			code = weir_part_finish(&part, error);
		if (code)
			weir_part_remove(&part);
	}
	weir_part_close(&part);
	weir_file_close(&file);
	free(text);
	free(path);
	return code;
}

static int pack_set(const weir_checkpoint *checkpoint, const char *index_path, const weir_pack_options *options,
		    weir_pack_result *result, weir_error *error)
{
	int code = 0;

	if (mkdir(options->output, 0777) < 0 && errno != EEXIST)
		return weir_fail(error, weir_code_of_errno(errno), options->output, WEIR_ERROR_NO_OFFSET, errno,
				 "cannot make the folder for a sharded set");
	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++)
		code = pack_into(checkpoint, i, options->output, options, result, error);
	return code ? code : copy_index(index_path, options->output, error);
}

static int pack_located(const weir_checkpoint *checkpoint, const char *located, weir_kind kind,
			const weir_pack_options *options, weir_pack_result *result, weir_error *error)
{
	struct stat status;
	int code;

	if (kind == WEIR_KIND_INDEX)
		return pack_set(checkpoint, located, options, result, error);
	if (stat(options->output, &status) == 0 && S_ISDIR(status.st_mode))
		return pack_into(checkpoint, 0, options->output, options, result, error);
	code = check_target(checkpoint, options->output, error);
	return code ? code : pack_shard(checkpoint, 0, options->output, options, result, error);
}

int weir_pack_write_aligned(const weir_checkpoint *checkpoint, const char *model_path, const weir_pack_options *options,
			    weir_pack_result *result, weir_error *error)
{
	char *located;
	weir_kind kind;
	int code;

	if (!options->output || !options->output[0])
		return weir_fail(error, WEIR_EINVAL, model_path, WEIR_ERROR_NO_OFFSET, 0,
				 "safetensors are written to a file of their own: name it with -o");
	if (options->replace)
		return weir_fail(
			error, WEIR_EINVAL, model_path, WEIR_ERROR_NO_OFFSET, 0,
			"the aligned copy of a safetensors file is whole: there is nothing to free, remove the original");
	code = weir_locate(model_path, &located, &kind, error);
	if (code)
		return code;
	snprintf(result->output, sizeof result->output, "%s", options->output);
	code = pack_located(checkpoint, located, kind, options, result, error);
	free(located);
	return code;
}
