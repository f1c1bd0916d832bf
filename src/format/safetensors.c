/*
 * safetensors.c - one safetensors file; see safetensors.h.
 *
 * Refused: a header that does not begin with '{', is no valid JSON or UTF-8, or has duplicate keys; unknown types; lengths that
 * are not those of shape and type; data that does not begin at 0, leaves holes, overlaps, or does not reach the end of the file
 * exactly.  Accepted: any order of keys, rank 0, dimensions of 0, spaces after the header, offsets that suit no alignment.
 */
#include "format/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "format/dtype.h"
#include "format/json.h"
#include "format/reader.h"

enum { LENGTH_BYTES = 8 };

static const char metadata_key[] = "__metadata__";

typedef struct item {
	const char *name; /* the JSON's */
	weir_tensor tensor; /* offset is absolute */
} item;

typedef struct context {
	weir_checkpoint *checkpoint;
	const weir_file *file;
	weir_error *error;
	uint64_t data_from;
	item *items;
	size_t items_count;
} context;

static int fail_tensor(const context *in, int code, const char *name, const char *rule)
{
	return weir_fail(in->error, code, in->file->path, WEIR_ERROR_NO_OFFSET, 0, "tensor '%.100s': %s", name, rule);
}

static int fail_memory(const context *in)
{
	return weir_fail(in->error, WEIR_ENOMEM, in->file->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
}

uint64_t weir_safetensors_header_max(const weir_checkpoint *checkpoint)
{
	uint64_t asked = checkpoint->options.header_bytes_max;

	return asked ? asked : WEIR_SAFETENSORS_HEADER_BYTES_MAX;
}

int weir_safetensors_read_text(const weir_file *file, uint64_t from, uint64_t to, char **text, weir_error *error)
{
	size_t bytes = (size_t)(to - from);
	int code;

	*text = malloc(bytes + 1);
	if (!*text)
		return weir_fail(error, WEIR_ENOMEM, file->path, from, 0, "no memory for %zu bytes of header", bytes);
	code = weir_file_read(file, from, *text, bytes, error);
	(*text)[bytes] = '\0';
	return code;
}

/* A number of the JSON that is not negative. */
static bool natural_of(const json_t *value, uint64_t *natural)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*natural = (uint64_t)json_integer_value(value);
	return true;
}

static int read_shape(const context *in, const char *name, const json_t *shape, weir_tensor *tensor)
{
	if (!json_is_array(shape))
		return fail_tensor(in, WEIR_EFORMAT, name, "it has no \"shape\" array");
	if (json_array_size(shape) > WEIR_RANK_MAX)
		return fail_tensor(in, WEIR_EUNSUPPORTED, name, "it has more than 8 dimensions");
	tensor->rank = (uint32_t)json_array_size(shape);
	for (uint32_t i = 0; i < tensor->rank; i++) {
		if (!natural_of(json_array_get(shape, i), &tensor->shape[i]))
			return fail_tensor(in, WEIR_EFORMAT, name, "a dimension is no whole number from 0 on");
	}
	return WEIR_OK;
}

static int read_type(const context *in, const char *name, const json_t *dtype, weir_tensor *tensor)
{
	const weir_dtype_info *info;

	if (!json_is_string(dtype))
		return fail_tensor(in, WEIR_EFORMAT, name, "it has no \"dtype\" text");
	info = strlen(json_string_value(dtype)) == json_string_length(dtype)
		       ? weir_dtype_of_safetensors(json_string_value(dtype))
		       : NULL; /* a NUL inside */
	if (!info)
		return weir_fail(in->error, WEIR_EUNSUPPORTED, in->file->path, WEIR_ERROR_NO_OFFSET, 0,
				 "tensor '%.100s': dtype '%.60s' is unknown", name, json_string_value(dtype));
	if (!weir_tensor_measure(tensor, info))
		return fail_tensor(in, WEIR_EFORMAT, name, "shape and dtype make no whole number of bytes that fits 64 bits");
	return WEIR_OK;
}

static int read_offsets(const context *in, const char *name, const json_t *offsets, weir_tensor *tensor)
{
	uint64_t from, to;

	if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !natural_of(json_array_get(offsets, 0), &from) ||
	    !natural_of(json_array_get(offsets, 1), &to))
		return fail_tensor(in, WEIR_EFORMAT, name, "it has no \"data_offsets\" array of two whole numbers from 0 on");
	if (to < from)
		return fail_tensor(in, WEIR_EFORMAT, name, "its data ends before it begins");
	if (to - from != tensor->bytes)
		return weir_fail(in->error, WEIR_EFORMAT, in->file->path, WEIR_ERROR_NO_OFFSET, 0,
				 "tensor '%.100s': its data has %llu bytes, shape and dtype make %llu", name,
				 (unsigned long long)(to - from), (unsigned long long)tensor->bytes);
	if (!weir_checked_add(in->data_from, from, &tensor->offset))
		return fail_tensor(in, WEIR_EFORMAT, name, "its offset wraps");
	return WEIR_OK;
}

static int read_item(context *in, const char *name, const json_t *value)
{
	weir_tensor *tensor = &in->items[in->items_count].tensor;
	int code;

	if (!json_is_object(value))
		return fail_tensor(in, WEIR_EFORMAT, name, "its entry in the header is no object");
	code = read_shape(in, name, json_object_get(value, "shape"), tensor);
	if (!code)
		code = read_type(in, name, json_object_get(value, "dtype"), tensor);
	if (!code)
		code = read_offsets(in, name, json_object_get(value, "data_offsets"), tensor);
	if (!code)
		in->items[in->items_count++].name = name;
	return code;
}

static int read_items(context *in, json_t *header)
{
	const char *name;
	json_t *value;
	int code;

	json_object_foreach(header, name, value)
	{
		if (!strcmp(name, metadata_key))
			continue;
		code = read_item(in, name, value);
		if (code)
			return code;
	}
	return WEIR_OK;
}

/* Only the first shard's metadata are kept; those of all are checked. */
static int read_metadata(const context *in, json_t *metadata)
{
	weir_metadata_set *set = &in->checkpoint->metadata;
	bool keep = in->checkpoint->shards_count == 1;
	const char *key;
	json_t *value;

	if (json_is_null(metadata)) /* MLX writes this where it has none */
		return WEIR_OK;
	if (metadata && !json_is_object(metadata))
		return weir_fail(in->error, WEIR_EFORMAT, in->file->path, WEIR_ERROR_NO_OFFSET, 0,
				 "\"__metadata__\" must be an object of texts");
	json_object_foreach(metadata, key, value)
	{
		if (!json_is_string(value))
			return weir_fail(in->error, WEIR_EFORMAT, in->file->path, WEIR_ERROR_NO_OFFSET, 0,
					 "\"__metadata__\": the value of '%.100s' is no text", key);
		if (keep && weir_metadata_set_add_text(set, key, json_string_value(value), json_string_length(value)))
			return fail_memory(in);
	}
	return WEIR_OK;
}

static int by_extent(const void *a, const void *b)
{
	const weir_tensor *left = &((const item *)a)->tensor;
	const weir_tensor *right = &((const item *)b)->tensor;

	if (left->offset != right->offset)
		return left->offset < right->offset ? -1 : 1;
	return (left->bytes > right->bytes) - (left->bytes < right->bytes);
}

/* Data must begin at 0 and go on without hole or overlap to the end of the file.  items[] are in order. */
static int check_cover(const context *in)
{
	uint64_t expected = in->data_from;

	for (size_t i = 0; i < in->items_count; i++) {
		const weir_tensor *tensor = &in->items[i].tensor;

		if (tensor->offset != expected)
			return weir_fail(in->error, WEIR_EFORMAT, in->file->path, tensor->offset, 0,
					 "tensor '%.100s' %s: its data should begin at %llu", in->items[i].name,
					 tensor->offset < expected ? "overlaps the one before it" : "leaves a hole before it",
					 (unsigned long long)(expected - in->data_from));
		if (!weir_checked_add(expected, tensor->bytes, &expected))
			return fail_tensor(in, WEIR_EFORMAT, in->items[i].name, "offset and length wrap");
	}
	if (expected == in->file->identity.bytes)
		return WEIR_OK;
	return weir_fail(in->error, WEIR_EFORMAT, in->file->path, expected, 0,
			 "the tensors' data should end with the file, which has %llu bytes%s",
			 (unsigned long long)in->file->identity.bytes,
			 expected > in->file->identity.bytes ? " (truncated?)" : " (something follows them)");
}

static int add_items(const context *in)
{
	int code;

	qsort(in->items, in->items_count, sizeof *in->items, by_extent);
	code = check_cover(in);
	for (size_t i = 0; !code && i < in->items_count; i++)
		code = weir_catalog_add_tensor(in->checkpoint, &in->items[i].tensor, in->items[i].name,
					       strlen(in->items[i].name), in->error);
	return code;
}

static int read_header(context *in, json_t *header)
{
	int code = json_object_size(header) > WEIR_TENSORS_MAX ? WEIR_EUNSUPPORTED : WEIR_OK;

	if (code)
		return weir_fail(in->error, code, in->file->path, LENGTH_BYTES, 0, "the header has more than %u tensors",
				 WEIR_TENSORS_MAX);
	in->items = calloc(json_object_size(header) + 1, sizeof *in->items);
	if (!in->items)
		return fail_memory(in);
	code = weir_catalog_add_shard(in->checkpoint, in->file, in->error);
	if (!code)
		code = read_metadata(in, json_object_get(header, metadata_key));
	if (!code)
		code = read_items(in, header);
	if (!code)
		code = add_items(in);
	free(in->items);
	return code;
}

static int read_length(context *in)
{
	unsigned char raw[LENGTH_BYTES];
	uint64_t file_bytes = in->file->identity.bytes;
	uint64_t header_max = weir_safetensors_header_max(in->checkpoint);
	uint64_t length;
	int code;

	if (file_bytes < sizeof raw)
		return weir_fail(in->error, WEIR_EFORMAT, in->file->path, 0, 0,
				 "the file has %llu bytes, too few for safetensors (truncated?)",
				 (unsigned long long)file_bytes);
	code = weir_file_read(in->file, 0, raw, sizeof raw, in->error);
	if (code)
		return code;
	length = weir_little_endian(raw, sizeof raw);
	if (length > file_bytes - sizeof raw)
		return weir_fail(in->error, WEIR_EFORMAT, in->file->path, 0, 0,
				 "the header should have %llu bytes, more than the file (truncated?)",
				 (unsigned long long)length);
	if (length > header_max)
		return weir_fail(in->error, WEIR_EUNSUPPORTED, in->file->path, 0, 0,
				 "the header has %llu bytes; the limit is %llu", (unsigned long long)length,
				 (unsigned long long)header_max);
	in->data_from = sizeof raw + length;
	return WEIR_OK;
}

static int read_file(weir_checkpoint *checkpoint, const weir_file *file, weir_error *error)
{
	context in = {.checkpoint = checkpoint, .file = file, .error = error};
	json_t *header = NULL;
	char *text = NULL;
	int code = read_length(&in);

	if (!code)
		code = weir_safetensors_read_text(file, LENGTH_BYTES, in.data_from, &text, error);
	if (!code)
		code = weir_json_parse(text, (size_t)(in.data_from - LENGTH_BYTES), file->path, LENGTH_BYTES, &header, error);
	free(text);
	if (!code)
		code = read_header(&in, header);
	json_decref(header);
	return code;
}

int weir_safetensors_add_shard(weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	weir_file file;
	int code = weir_file_open(path, &file, error);

	if (!code)
		code = read_file(checkpoint, &file, error);
	weir_file_close(&file);
	return code;
}

int weir_safetensors_open(weir_checkpoint *checkpoint, const char *path, weir_error *error)
{
	checkpoint->format = WEIR_FORMAT_SAFETENSORS;
	return weir_safetensors_add_shard(checkpoint, path, error);
}
