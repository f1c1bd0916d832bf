/*
 * checkpoint.c - the public face of a catalog: open, look, map.  See weir/checkpoint.h for the rules.
 */
#include "weir/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/catalog.h"
#include "format/gguf.h"
#include "format/locate.h"
#include "format/safetensors.h"
#include "os/holes.h"
#include "os/mapping.h"

enum { ARRAY_NUMBERS_KEPT = 1024, ARRAY_STRINGS_KEPT = 8 };

const char *weir_format_name(weir_format format)
{
	switch (format) {
	case WEIR_FORMAT_GGUF:
		return "gguf";
	case WEIR_FORMAT_SAFETENSORS:
		return "safetensors";
	default:
		return "unknown";
	}
}

static weir_checkpoint *new_checkpoint(const weir_checkpoint_options *options)
{
	weir_checkpoint *made = calloc(1, sizeof *made);

	if (!made)
		return NULL;
	if (options)
		made->options = *options;
	if (!made->options.array_numbers_kept)
		made->options.array_numbers_kept = ARRAY_NUMBERS_KEPT;
	if (!made->options.array_strings_kept)
		made->options.array_strings_kept = ARRAY_STRINGS_KEPT;
	return made;
}

static int read_kind(weir_checkpoint *checkpoint, const char *path, weir_kind kind, weir_error *error)
{
	switch (kind) {
	case WEIR_KIND_GGUF:
		return weir_gguf_open(checkpoint, path, error);
	case WEIR_KIND_SAFETENSORS:
		return weir_safetensors_open(checkpoint, path, error);
	default:
		return weir_safetensors_open_index(checkpoint, path, error);
	}
}

static int read_located(weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	weir_kind kind;
	char *found;
	int code = weir_locate(path, &found, &kind, error);

	if (!code)
		code = read_kind(checkpoint, found, kind, error);
	free(found);
	return code;
}

int weir_checkpoint_open(const char *path, const weir_checkpoint_options *options, weir_checkpoint **checkpoint,
			 weir_error *error)
{
	weir_checkpoint *made;
	int code;

	if (!path || !path[0] || !checkpoint)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "path and checkpoint must be given");
	*checkpoint = NULL;
	made = new_checkpoint(options);
	if (!made)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	code = read_located(made, path, error);
	if (code)
		weir_checkpoint_close(made);
	else
		*checkpoint = made;
	return code;
}

void weir_checkpoint_close(weir_checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	weir_metadata_set_free(&checkpoint->metadata);
	weir_names_free(&checkpoint->names);
	weir_arena_free(&checkpoint->arena);
	free(checkpoint->tensors);
	free(checkpoint->shards);
	free(checkpoint);
}

weir_format weir_checkpoint_format(const weir_checkpoint *checkpoint)
{
	return checkpoint->format;
}

uint32_t weir_checkpoint_version(const weir_checkpoint *checkpoint)
{
	return checkpoint->version;
}

const char *weir_checkpoint_architecture(const weir_checkpoint *checkpoint)
{
	return checkpoint->architecture;
}

bool weir_checkpoint_aligned(const weir_checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < checkpoint->tensors_count; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];

		if (tensor->offset % weir_dtype_describe(tensor->dtype)->alignment_bytes)
			return false;
	}
	return true;
}

uint32_t weir_checkpoint_shards_count(const weir_checkpoint *checkpoint)
{
	return checkpoint->shards_count;
}

const char *weir_checkpoint_shard_path(const weir_checkpoint *checkpoint, uint32_t shard)
{
	return shard < checkpoint->shards_count ? checkpoint->shards[shard].path : NULL;
}

uint64_t weir_checkpoint_shard_bytes(const weir_checkpoint *checkpoint, uint32_t shard)
{
	return shard < checkpoint->shards_count ? checkpoint->shards[shard].identity.bytes : 0;
}

uint32_t weir_checkpoint_tensors_count(const weir_checkpoint *checkpoint)
{
	return checkpoint->tensors_count;
}

uint64_t weir_checkpoint_tensors_bytes(const weir_checkpoint *checkpoint)
{
	return checkpoint->tensors_bytes;
}

const weir_tensor *weir_checkpoint_tensor(const weir_checkpoint *checkpoint, uint32_t index)
{
	return index < checkpoint->tensors_count ? &checkpoint->tensors[index] : NULL;
}

uint32_t weir_checkpoint_index(const weir_checkpoint *checkpoint, const char *name)
{
	return weir_names_find(&checkpoint->names, name);
}

const weir_tensor *weir_checkpoint_find(const weir_checkpoint *checkpoint, const char *name)
{
	return weir_checkpoint_tensor(checkpoint, weir_checkpoint_index(checkpoint, name));
}

void weir_tensor_shape_row_major(const weir_checkpoint *checkpoint, const weir_tensor *tensor, uint64_t shape[WEIR_RANK_MAX])
{
	bool reversed = checkpoint->format == WEIR_FORMAT_GGUF;

	for (uint32_t i = 0; i < WEIR_RANK_MAX; i++)
		shape[i] = i < tensor->rank ? tensor->shape[reversed ? tensor->rank - 1 - i : i] : 1;
}

uint32_t weir_checkpoint_metadata_count(const weir_checkpoint *checkpoint)
{
	return checkpoint->metadata.count;
}

const weir_metadata *weir_checkpoint_metadata(const weir_checkpoint *checkpoint, uint32_t index)
{
	return index < checkpoint->metadata.count ? &checkpoint->metadata.entries[index] : NULL;
}

const weir_metadata *weir_checkpoint_metadata_find(const weir_checkpoint *checkpoint, const char *key)
{
	return weir_metadata_set_find(&checkpoint->metadata, key);
}

int weir_checkpoint_check_unchanged(const weir_checkpoint *checkpoint, weir_error *error)
{
	int code = WEIR_OK;

	for (uint32_t i = 0; !code && i < checkpoint->shards_count; i++)
		code = weir_file_check(checkpoint->shards[i].path, &checkpoint->shards[i].identity, error);
	return code;
}

/* Opens a shard again, and makes sure that the descriptor is of the very file that was read. */
static int reopen(const weir_shard *shard, weir_file *file, weir_error *error)
{
	int code = weir_file_open(shard->path, file, error);

	if (code || weir_file_same(&file->identity, &shard->identity))
		return code;
	return weir_fail(error, WEIR_ECHANGED, shard->path, WEIR_ERROR_NO_OFFSET, 0,
			 "the file was changed or replaced since the checkpoint was opened: open it again");
}

/* A tensor that was moved to a pack would be mapped as zeros. */
static int check_written(const weir_file *file, const weir_tensor *tensor, weir_error *error)
{
	uint64_t at;

	if (!weir_holes_spoil(file->descriptor, tensor->offset, tensor->offset + tensor->bytes, &at))
		return WEIR_OK;
	return weir_fail(error, WEIR_EUNSUPPORTED, file->path, at, 0,
			 "tensor '%.100s' is not there: the file has a hole (its weights were moved to a pack by 'weir pack "
			 "--replace', or never written)",
			 tensor->name);
}

static int open_tensor(const weir_checkpoint *checkpoint, uint32_t tensor, bool copy, weir_mapping **mapping, weir_error *error)
{
	const weir_tensor *wanted = weir_checkpoint_tensor(checkpoint, tensor);
	weir_file file;
	int code;

	*mapping = NULL;
	if (!wanted)
		return weir_fail(error, WEIR_EINVAL, checkpoint->shards_count ? checkpoint->shards[0].path : NULL,
				 WEIR_ERROR_NO_OFFSET, 0, "there is no tensor %u: the checkpoint has %u", tensor,
				 checkpoint->tensors_count);
	code = reopen(&checkpoint->shards[wanted->shard], &file, error);
	if (!code)
		code = check_written(&file, wanted, error);
	if (!code)
		code = weir_mapping_of_file(&file, wanted->bytes ? wanted->offset : 0, wanted->bytes, copy, mapping, error);
	weir_file_close(&file);
	return code;
}

int weir_mapping_open(const weir_checkpoint *checkpoint, uint32_t tensor, weir_mapping **mapping, weir_error *error)
{
	return open_tensor(checkpoint, tensor, false, mapping, error);
}

int weir_mapping_read(const weir_checkpoint *checkpoint, uint32_t tensor, weir_mapping **mapping, weir_error *error)
{
	return open_tensor(checkpoint, tensor, true, mapping, error);
}
