/*
 * metadata.c - see metadata.h; the public look at one entry.
 */
#include "format/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

const char *weir_value_type_name(weir_value_type type)
{
	static const char *const names[] = {"uint8",   "int8",	 "uint16", "int16",  "uint32", "int32",	 "float32",
					    "boolean", "string", "array",  "uint64", "int64",  "float64"};

	return (unsigned)type < sizeof names / sizeof names[0] ? names[type] : "unknown";
}

int weir_metadata_set_add(weir_metadata_set *set, const weir_metadata *entry)
{
	int code;

	if (set->count == set->capacity) {
		weir_metadata *grown = weir_array_grow(set->entries, &set->capacity, sizeof *grown);

		if (!grown)
			return WEIR_ENOMEM;
		set->entries = grown;
	}
	code = weir_names_add(&set->keys, entry->key, set->count);
	if (!code)
		set->entries[set->count++] = *entry;
	return code;
}

static int add_value(weir_metadata_set *set, const char *key, weir_value_type type, weir_value value)
{
	weir_metadata entry = {.type = type, .count = 1, .kept = 1};
	weir_value *values = weir_arena_take(&set->arena, sizeof *values);

	entry.key = weir_arena_text(&set->arena, key, strlen(key));
	if (!values || !entry.key)
		return WEIR_ENOMEM;
	*values = value;
	entry.values = values;
	return weir_metadata_set_add(set, &entry);
}

int weir_metadata_set_add_text(weir_metadata_set *set, const char *key, const char *text, size_t text_bytes)
{
	weir_value value = {.as.text_bytes = text_bytes, .text = weir_arena_text(&set->arena, text, text_bytes)};

	return value.text ? add_value(set, key, WEIR_VALUE_STRING, value) : WEIR_ENOMEM;
}

int weir_metadata_set_add_integer(weir_metadata_set *set, const char *key, int64_t integer)
{
	return add_value(set, key, WEIR_VALUE_INT64, (weir_value){.as.integer = integer});
}

const weir_metadata *weir_metadata_set_find(const weir_metadata_set *set, const char *key)
{
	uint32_t index = weir_names_find(&set->keys, key);

	return index == WEIR_NAMES_NONE ? NULL : &set->entries[index];
}

void weir_metadata_set_free(weir_metadata_set *set)
{
	weir_names_free(&set->keys);
	free(set->entries);
	weir_arena_free(&set->arena);
	*set = (weir_metadata_set){0};
}

int weir_metadata_natural(const weir_metadata *metadata, uint64_t index, uint64_t *natural)
{
	const weir_value *value;

	if (!metadata || index >= metadata->kept)
		return WEIR_ENOTFOUND;
	value = &metadata->values[index];
	switch (metadata->type) {
	case WEIR_VALUE_UINT8:
	case WEIR_VALUE_UINT16:
	case WEIR_VALUE_UINT32:
	case WEIR_VALUE_UINT64:
	case WEIR_VALUE_BOOL:
		*natural = value->as.natural;
		return WEIR_OK;
	case WEIR_VALUE_INT8:
	case WEIR_VALUE_INT16:
	case WEIR_VALUE_INT32:
	case WEIR_VALUE_INT64:
		*natural = (uint64_t)value->as.integer;
		return value->as.integer < 0 ? WEIR_EINVAL : WEIR_OK;
	default:
		return WEIR_EINVAL;
	}
}
