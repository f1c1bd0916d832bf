/*
 * safetensors_index.c - a sharded set: {"metadata": {...}, "weight_map": {TENSOR: SHARD}}.
 *
 * A shard is a plain file name beside the index (it may be a link: hub caches are made of them).  Refused: names with a
 * directory in them, shards that are missing, tensors that the map places in a shard that lacks them, tensors that two shards
 * hold.  "total_size" is not compared with anything: published models often have it wrong.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/json.h"
#include "format/locate.h"
#include "format/safetensors.h"

static int fail_index(const char *path, weir_error *error, const char *rule)
{
	return weir_fail(error, WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0, "%s", rule);
}

static int fail_memory(const char *path, weir_error *error)
{
	return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
}

static int read_json(const weir_checkpoint *checkpoint, const char *path, json_t **index, weir_error *error)
{
	weir_file file;
	char *text = NULL;
	int code = weir_file_open(path, &file, error);

	if (!code && file.identity.bytes > weir_safetensors_header_max(checkpoint))
		code = weir_fail(error, WEIR_EUNSUPPORTED, path, 0, 0, "the index has %llu bytes; the limit is %llu",
				 (unsigned long long)file.identity.bytes,
				 (unsigned long long)weir_safetensors_header_max(checkpoint));
	if (!code)
		code = weir_safetensors_read_text(&file, 0, file.identity.bytes, &text, error);
	if (!code)
		code = weir_json_parse(text, (size_t)file.identity.bytes, path, 0, index, error);
	free(text);
	weir_file_close(&file);
	return code;
}

static int check_shard_name(const char *path, const json_t *value, weir_error *error)
{
	const char *name = json_string_value(value);

	if (!name || !name[0] || strlen(name) != json_string_length(value))
		return fail_index(path, error, "\"weight_map\" must give a file name for each tensor");
	if (strpbrk(name, "/\\") || !strcmp(name, ".") || !strcmp(name, ".."))
		return weir_fail(error, WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0,
				 "shard '%.200s' must be a plain file name beside the index, without a directory", name);
	return WEIR_OK;
}

/* The names of the shards, each once: keys of `shards`, a JSON object used as a set. */
static int collect_shards(const char *path, json_t *map, json_t *shards, weir_error *error)
{
	const char *tensor;
	json_t *value;

	json_object_foreach(map, tensor, value)
	{
		int code = check_shard_name(path, value, error);

		if (code)
			return code;
		if (json_object_set_new(shards, json_string_value(value), json_true()))
			return fail_memory(path, error);
	}
	return WEIR_OK;
}

static int add_shard(weir_checkpoint *checkpoint, const char *path, const char *name, weir_error *error)
{
	char *shard = weir_path_beside(path, name);
	int code;

	if (!shard)
		return fail_memory(path, error);
	code = weir_safetensors_add_shard(checkpoint, shard, error);
	if (code == WEIR_ENOTFOUND)
		code = weir_fail(error, WEIR_EFORMAT, shard, WEIR_ERROR_NO_OFFSET, 0,
				 "this shard, which the index names, is missing: the set is not complete");
	free(shard);
	return code;
}

static int by_name(const void *a, const void *b)
{
	const char *const *left = a;
	const char *const *right = b;

	return strcmp(*left, *right);
}

static int add_shards(weir_checkpoint *checkpoint, const char *path, json_t *shards, weir_error *error)
{
	size_t count = 0;
	const char **names = malloc((json_object_size(shards) + 1) * sizeof *names);
	const char *name;
	json_t *value;
	int code = WEIR_OK;

	if (!names)
		return fail_memory(path, error);
	json_object_foreach(shards, name, value) names[count++] = name;
	qsort(names, count, sizeof *names, by_name);
	for (size_t i = 0; !code && i < count; i++)
		code = add_shard(checkpoint, path, names[i], error);
	free(names);
	return code;
}

static int check_map(const weir_checkpoint *checkpoint, const char *path, json_t *map, weir_error *error)
{
	const char *name;
	json_t *value;

	json_object_foreach(map, name, value)
	{
		const weir_tensor *tensor = weir_checkpoint_find(checkpoint, name);
		const char *shard = tensor ? strrchr(checkpoint->shards[tensor->shard].path, '/') : NULL;

		if (tensor && !shard)
			shard = checkpoint->shards[tensor->shard].path;
		else if (tensor)
			shard++;
		if (!tensor || strcmp(shard, json_string_value(value)) != 0)
			return weir_fail(error, WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0,
					 "tensor '%.100s' should be in shard '%.200s', which lacks it", name,
					 json_string_value(value));
	}
	return WEIR_OK;
}

/* The index's own metadata (total_size and the like), after those of the first shard. */
static int add_metadata(weir_checkpoint *checkpoint, const char *path, json_t *metadata, weir_error *error)
{
	weir_metadata_set *set = &checkpoint->metadata;
	const char *key;
	json_t *value;
	int code = WEIR_OK;

	json_object_foreach(metadata, key, value)
	{
		if (weir_metadata_set_find(set, key))
			continue;
		if (json_is_integer(value))
			code = weir_metadata_set_add_integer(set, key, json_integer_value(value));
		else if (json_is_string(value))
			code = weir_metadata_set_add_text(set, key, json_string_value(value), json_string_length(value));
		if (code)
			return fail_memory(path, error);
	}
	return WEIR_OK;
}

static int read_set(weir_checkpoint *checkpoint, const char *path, json_t *index, weir_error *error)
{
	json_t *map = json_object_get(index, "weight_map");
	json_t *shards = json_object();
	int code = shards ? WEIR_OK : fail_memory(path, error);

	if (!code && !json_is_object(map))
		code = fail_index(path, error, "the index has no \"weight_map\" object");
	if (!code && !json_object_size(map))
		code = fail_index(path, error, "the index names no tensor and no shard");
	if (!code)
		code = collect_shards(path, map, shards, error);
	if (!code)
		code = add_shards(checkpoint, path, shards, error);
	if (!code)
		code = check_map(checkpoint, path, map, error);
	if (!code)
		code = add_metadata(checkpoint, path, json_object_get(index, "metadata"), error);
	json_decref(shards);
	return code;
}

int weir_safetensors_open_index(weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	json_t *index = NULL;
	int code = read_json(checkpoint, path, &index, error);

	checkpoint->format = WEIR_FORMAT_SAFETENSORS;
	if (!code)
		code = read_set(checkpoint, path, index, error);
	json_decref(index);
	return code;
}
