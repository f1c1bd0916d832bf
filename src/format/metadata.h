/*
 * metadata.h - a set of metadata entries under construction: what the format readers fill and a checkpoint keeps.
 *
 * A set owns its keys and values.  One thread at a time until it is complete.  It refuses a key that it holds already.
 */
#ifndef WEIR_FORMAT_METADATA_H
#define WEIR_FORMAT_METADATA_H

#include "base/arena.h"
#include "base/names.h"
#include "weir/checkpoint.h"

typedef struct weir_metadata_set { /* all zero: empty */
	weir_arena arena;
	weir_metadata *entries; /* entries[0..count); keys maps each key to its index */
	uint32_t count, capacity;
	weir_names keys;
} weir_metadata_set;

/* Adds *entry, whose key and values lie in set->arena.  0, WEIR_EINVAL (key is there already), WEIR_ENOMEM. */
int weir_metadata_set_add(weir_metadata_set *set, const weir_metadata *entry);

/* Adds a text, copied. */
int weir_metadata_set_add_text(weir_metadata_set *set, const char *key, const char *text, size_t text_bytes);
int weir_metadata_set_add_integer(weir_metadata_set *set, const char *key, int64_t integer);

const weir_metadata *weir_metadata_set_find(const weir_metadata_set *set, const char *key);
void weir_metadata_set_free(weir_metadata_set *set);

#endif
