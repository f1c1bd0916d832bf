/*
 * gguf_metadata.c - the metadata entries of one GGUF file.
 *
 * Every entry is walked; of arrays only the first values are kept.  Refused: empty keys, keys with NUL, keys that occur twice,
 * unknown value types, arrays in arrays, booleans other than 0 and 1, counts that the file could not hold.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "format/gguf.h"

enum { TYPE_ARRAY = 9, TYPES_COUNT = 13, STRING_BYTES_LEAST = 8 };

/* Bytes of one value; 0: not of fixed size. */
static const uint8_t value_bytes[TYPES_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct walk {
	weir_reader *reader;
	const weir_checkpoint_options *options;
	weir_metadata_set *set;
	const char *key;
} walk;

static int fail_key(const walk *at, int code, uint64_t offset, const char *rule)
{
	return weir_fail(at->reader->error, code, at->reader->file->path, offset, 0, "metadata key '%.100s': %s", at->key,
			 rule);
}

static int fail_memory(const walk *at)
{
	return fail_key(at, WEIR_ENOMEM, WEIR_ERROR_NO_OFFSET, "out of memory");
}

static double real_of(uint64_t bits, size_t bytes)
{
	float single;
	double real;
	uint32_t low = (uint32_t)bits;

	if (bytes == sizeof single) {
		memcpy(&single, &low, sizeof single);
		return (double)single;
	}
	memcpy(&real, &bits, sizeof real);
	return real;
}

static int64_t sign_extend(uint64_t bits, size_t bytes)
{
	unsigned unused = 64 - 8 * (unsigned)bytes;

	return (int64_t)(bits << unused) >> unused;
}

static int read_number(const walk *at, weir_value_type type, weir_value *value)
{
	unsigned char raw[8];
	size_t bytes = value_bytes[type];
	uint64_t from = at->reader->position;
	uint64_t bits;
	int code = weir_reader_bytes(at->reader, raw, bytes, "a metadata value");

	if (code)
		return code;
	*value = (weir_value){0};
	bits = weir_little_endian(raw, bytes);
	switch (type) {
	case WEIR_VALUE_INT8:
	case WEIR_VALUE_INT16:
	case WEIR_VALUE_INT32:
	case WEIR_VALUE_INT64:
		value->as.integer = sign_extend(bits, bytes);
		break;
	case WEIR_VALUE_FLOAT32:
	case WEIR_VALUE_FLOAT64:
		value->as.real = real_of(bits, bytes);
		break;
	default:
		value->as.natural = bits;
	}
	if (type == WEIR_VALUE_BOOL && bits > 1)
		return fail_key(at, WEIR_EFORMAT, from, "a boolean must be 0 or 1");
	return WEIR_OK;
}

static int read_string(const walk *at, weir_value *value)
{
	uint64_t from = at->reader->position;
	uint64_t bytes;
	char *text;
	int code = weir_reader_u64(at->reader, &bytes, "a string's length");

	if (code)
		return code;
	if (bytes > weir_reader_left(at->reader))
		return weir_reader_skip(at->reader, bytes, "a string");
	if (bytes > WEIR_STRING_BYTES_MAX)
		return fail_key(at, WEIR_EUNSUPPORTED, from, "a string is longer than the limit of 64 MiB");
	text = weir_arena_take(&at->set->arena, (size_t)bytes + 1);
	if (!text)
		return fail_memory(at);
	code = weir_reader_bytes(at->reader, text, bytes, "a string");
	text[bytes] = '\0';
	*value = (weir_value){.as.text_bytes = bytes, .text = text};
	return code;
}

static int read_value(const walk *at, weir_value_type type, weir_value *value)
{
	return type == WEIR_VALUE_STRING ? read_string(at, value) : read_number(at, type, value);
}

static int skip_strings(const walk *at, uint64_t count)
{
	uint64_t bytes;
	int code = WEIR_OK;

	while (!code && count--) {
		code = weir_reader_u64(at->reader, &bytes, "a string's length");
		if (!code)
			code = weir_reader_skip(at->reader, bytes, "a string");
	}
	return code;
}

static int skip_values(const walk *at, weir_value_type type, uint64_t count)
{
	weir_value value;
	int code = WEIR_OK;

	if (type == WEIR_VALUE_STRING)
		return skip_strings(at, count);
	if (type != WEIR_VALUE_BOOL) /* the product fits: check_array compared it with the file */
		return weir_reader_skip(at->reader, count * value_bytes[type], "an array");
	while (!code && count--)
		code = read_number(at, type, &value);
	return code;
}

static int check_type(const walk *at, uint32_t type, uint64_t offset)
{
	if (type < TYPES_COUNT && type != TYPE_ARRAY)
		return WEIR_OK;
	if (type == TYPE_ARRAY)
		return fail_key(at, WEIR_EUNSUPPORTED, offset, "arrays of arrays are not supported");
	return weir_fail(at->reader->error, WEIR_EFORMAT, at->reader->file->path, offset, 0,
			 "metadata key '%.100s': value type %u is unknown", at->key, type);
}

static int check_array(const walk *at, uint32_t type, uint64_t count, uint64_t offset)
{
	uint64_t bytes_least = type == WEIR_VALUE_STRING ? STRING_BYTES_LEAST : value_bytes[type];
	char what[128];

	snprintf(what, sizeof what, "metadata key '%.100s'", at->key);
	return weir_reader_expect(at->reader, count, bytes_least, offset, what);
}

static int read_array_start(const walk *at, weir_metadata *entry)
{
	uint64_t from = at->reader->position;
	uint32_t type;
	uint64_t kept_max;
	int code = weir_reader_u32(at->reader, &type, "an array's type");

	if (!code)
		code = check_type(at, type, from);
	if (!code)
		code = weir_reader_u64(at->reader, &entry->count, "an array's count");
	if (!code)
		code = check_array(at, type, entry->count, from + 4);
	if (code)
		return code;
	entry->type = (weir_value_type)type;
	kept_max = type == WEIR_VALUE_STRING ? at->options->array_strings_kept : at->options->array_numbers_kept;
	entry->kept = entry->count < kept_max ? entry->count : kept_max;
	return WEIR_OK;
}

static int read_values(const walk *at, weir_metadata *entry)
{
	weir_value *values = weir_arena_take(&at->set->arena, (size_t)entry->kept * sizeof *values);
	int code = values ? WEIR_OK : fail_memory(at);

	for (uint64_t i = 0; !code && i < entry->kept; i++)
		code = read_value(at, entry->type, &values[i]);
	entry->values = values;
	return code ? code : skip_values(at, entry->type, entry->count - entry->kept);
}

static int add_entry(const walk *at, const weir_metadata *entry, uint64_t offset)
{
	int code = weir_metadata_set_add(at->set, entry);

	if (code == WEIR_EINVAL)
		return fail_key(at, WEIR_EFORMAT, offset, "it occurs twice");
	return code ? fail_memory(at) : WEIR_OK;
}

static int read_key(walk *at, char *buffer)
{
	uint64_t from = at->reader->position;
	size_t bytes;
	int code = weir_gguf_read_name(at->reader, buffer, &bytes, "a metadata key");

	if (code)
		return code;
	at->key = weir_arena_text(&at->set->arena, buffer, bytes);
	if (!at->key) {
		at->key = buffer;
		return fail_memory(at);
	}
	if (!bytes)
		return fail_key(at, WEIR_EFORMAT, from, "a key must not be empty");
	if (memchr(buffer, '\0', bytes))
		return fail_key(at, WEIR_EFORMAT, from, "a key must not contain a NUL byte");
	return WEIR_OK;
}

static int read_entry(walk *at, char *buffer)
{
	weir_metadata entry = {.count = 1, .kept = 1};
	uint64_t from = at->reader->position;
	uint64_t type_from;
	uint32_t type = 0;
	int code = read_key(at, buffer);

	type_from = at->reader->position;
	if (!code)
		code = weir_reader_u32(at->reader, &type, "a metadata type");
	entry.key = at->key;
	entry.type = (weir_value_type)type;
	entry.is_array = type == TYPE_ARRAY;
	if (!code)
		code = entry.is_array ? read_array_start(at, &entry) : check_type(at, type, type_from);
	if (!code)
		code = read_values(at, &entry);
	return code ? code : add_entry(at, &entry, from);
}

int weir_gguf_read_metadata(weir_gguf_header *header, const weir_checkpoint_options *options)
{
	walk at = {.reader = &header->reader, .options = options, .set = &header->metadata, .key = ""};
	char *buffer = malloc(WEIR_NAME_BYTES_MAX + 1);
	int code = buffer ? WEIR_OK : fail_memory(&at);

	for (uint64_t i = 0; !code && i < header->entries_count; i++)
		code = read_entry(&at, buffer);
	free(buffer);
	return code;
}
