/*
 * gguf_split.c - one file or a whole set, from whichever shard is named.
 *
 *   PREFIX-00002-of-00003.gguf ──► split.count = 3 ──► PREFIX-00001-of-00003.gguf, ...-00002-..., ...-00003-...
 *
 * A set must be complete and consistent: each shard's split.no is its place, all agree on split.count, split.tensors.count and
 * the version, and the tensors together are as many as split.tensors.count says.  Metadata is that of the first shard.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/gguf.h"

enum { SUFFIX_BYTES = 20, SHARDS_MAX = 99999 }; /* "-00001-of-00003.gguf" */

static int fail_set(const weir_gguf_header *header, int code, const char *rule, uint64_t found, uint64_t wanted)
{
	return weir_fail(header->reader.error, code, header->file.path, WEIR_ERROR_NO_OFFSET, 0,
			 "split set is not consistent: %s is %llu and should be %llu", rule, (unsigned long long)found,
			 (unsigned long long)wanted);
}

/* Reads a key of the set; `otherwise` when the file has none. */
static int read_key(const weir_gguf_header *header, const char *key, uint64_t otherwise, uint64_t *value)
{
	const weir_metadata *entry = weir_metadata_set_find(&header->metadata, key);

	*value = otherwise;
	if (!entry || (!entry->is_array && !weir_metadata_natural(entry, 0, value)))
		return WEIR_OK;
	return weir_fail(header->reader.error, WEIR_EFORMAT, header->file.path, WEIR_ERROR_NO_OFFSET, 0,
			 "metadata key '%s' must be a number that is not negative", key);
}

int weir_gguf_read_split(const weir_gguf_header *header, weir_gguf_split *split)
{
	int code = read_key(header, "split.count", 0, &split->count);

	if (!code)
		code = read_key(header, "split.no", UINT64_MAX, &split->number);
	if (!code)
		code = read_key(header, "split.tensors.count", UINT64_MAX, &split->tensors_count);
	return code;
}

/* Length of the name before "-NNNNN-of-NNNNN.gguf" when it ends so with these numbers, or 0. */
static size_t prefix_length(const char *path, uint64_t number, uint64_t count)
{
	char suffix[SUFFIX_BYTES + 1];
	size_t length = strlen(path);

	snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", (unsigned)(number + 1), (unsigned)count);
	if (length < SUFFIX_BYTES || strcmp(path + length - SUFFIX_BYTES, suffix) != 0)
		return 0;
	return length - SUFFIX_BYTES;
}

static char *shard_path(const char *path, size_t prefix_bytes, uint64_t number, uint64_t count)
{
	size_t capacity = prefix_bytes + SUFFIX_BYTES + 1;
	char *made = malloc(capacity);

	if (!made)
		return NULL;
	memcpy(made, path, prefix_bytes);
	snprintf(made + prefix_bytes, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (unsigned)(number + 1), (unsigned)count);
	return made;
}

/* Hands a header's metadata to the checkpoint: those of a file of its own, or of a set's first shard. */
static int keep_metadata(weir_gguf_header *header, weir_checkpoint *checkpoint)
{
	const weir_metadata *architecture;

	checkpoint->format = WEIR_FORMAT_GGUF;
	checkpoint->version = header->version;
	checkpoint->metadata = header->metadata;
	header->metadata = (weir_metadata_set){0};
	architecture = weir_metadata_set_find(&checkpoint->metadata, "general.architecture");
	if (!architecture)
		return WEIR_OK;
	if (architecture->is_array || architecture->type != WEIR_VALUE_STRING)
		return weir_fail(header->reader.error, WEIR_EFORMAT, header->file.path, WEIR_ERROR_NO_OFFSET, 0,
				 "general.architecture must be a string");
	checkpoint->architecture = architecture->values[0].text;
	return WEIR_OK;
}

static int check_shard(const weir_gguf_header *header, const weir_checkpoint *checkpoint, const weir_gguf_split *whole,
		       uint64_t number)
{
	weir_gguf_split split;
	int code = weir_gguf_read_split(header, &split);

	if (code)
		return code;
	if (split.count != whole->count)
		return fail_set(header, WEIR_EFORMAT, "split.count", split.count, whole->count);
	if (split.number != number)
		return fail_set(header, WEIR_EFORMAT, "split.no", split.number, number);
	if (split.tensors_count != whole->tensors_count)
		return fail_set(header, WEIR_EFORMAT, "split.tensors.count", split.tensors_count, whole->tensors_count);
	if (number && header->version != checkpoint->version)
		return fail_set(header, WEIR_EFORMAT, "the version", header->version, checkpoint->version);
	return WEIR_OK;
}

static int open_shard(weir_gguf_header *header, weir_checkpoint *checkpoint, const char *path, const weir_gguf_split *whole,
		      uint64_t number, weir_error *error)
{
	int code = weir_gguf_open_header(header, path, &checkpoint->options, error);

	if (code == WEIR_ENOTFOUND)
		return weir_fail(error, WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0,
				 "shard %llu of %llu is missing: the set is not complete", (unsigned long long)number + 1,
				 (unsigned long long)whole->count);
	return code;
}

static int read_shard(weir_checkpoint *checkpoint, const char *path, const weir_gguf_split *whole, uint64_t number,
		      weir_error *error)
{
	weir_gguf_header header;
	int code = open_shard(&header, checkpoint, path, whole, number, error);

	if (!code)
		code = check_shard(&header, checkpoint, whole, number);
	if (!code)
		code = weir_gguf_read_tensors(&header, checkpoint);
	if (!code && !number)
		code = keep_metadata(&header, checkpoint);
	weir_gguf_close_header(&header);
	return code;
}

static int read_set(weir_checkpoint *checkpoint, const char *path, const weir_gguf_split *whole, weir_error *error)
{
	size_t prefix_bytes = whole->count <= SHARDS_MAX && whole->number < whole->count
				      ? prefix_length(path, whole->number, whole->count)
				      : 0;
	int code = WEIR_OK;

	if (!prefix_bytes)
		return weir_fail(
			error, WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0,
			"the file says that it is shard %llu of %llu, so it must be named PREFIX-%05llu-of-%05llu.gguf",
			(unsigned long long)whole->number + 1, (unsigned long long)whole->count,
			(unsigned long long)whole->number + 1, (unsigned long long)whole->count);
	for (uint64_t number = 0; !code && number < whole->count; number++) {
		char *name = shard_path(path, prefix_bytes, number, whole->count);

		if (name)
			code = read_shard(checkpoint, name, whole, number, error);
		else
			code = weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
		free(name);
	}
	if (!code && checkpoint->tensors_count != whole->tensors_count)
		return weir_fail(error, WEIR_EFORMAT, checkpoint->shards[0].path, WEIR_ERROR_NO_OFFSET, 0,
				 "split set is not consistent: split.tensors.count is %llu, the shards hold %u tensors",
				 (unsigned long long)whole->tensors_count, checkpoint->tensors_count);
	return code;
}

static int read_single(weir_gguf_header *header, weir_checkpoint *checkpoint)
{
	int code = weir_gguf_read_tensors(header, checkpoint);

	return code ? code : keep_metadata(header, checkpoint);
}

int weir_gguf_open(weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	weir_gguf_header header;
	weir_gguf_split whole = {0};
	int code = weir_gguf_open_header(&header, path, &checkpoint->options, error);

	if (!code)
		code = weir_gguf_read_split(&header, &whole);
	if (!code && whole.count <= 1)
		code = read_single(&header, checkpoint);
	weir_gguf_close_header(&header);
	if (!code && whole.count > 1)
		code = read_set(checkpoint, path, &whole, error);
	return code;
}
