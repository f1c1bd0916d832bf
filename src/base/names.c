/*
 * names.c - open addressing with linear probing, at most half full; see names.h.
 */
#include "base/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "weir/error.h"

enum { CAPACITY_LEAST = 64 };

struct weir_names_entry {
	const char *name; /* NULL: free */
	uint64_t hash;
	uint32_t number;
};

static uint64_t hash_of(const weir_names *names, const char *name)
{
	return XXH3_64bits_withSeed(name, strlen(name), names->seed);
}

/* Where the name is, or the free place where it belongs. */
static struct weir_names_entry *place(const weir_names *names, const char *name, uint64_t hash)
{
	const size_t mask = names->capacity - 1;
	size_t at = (size_t)hash & mask;

	while (names->entries[at].name) {
		if (names->entries[at].hash == hash && !strcmp(names->entries[at].name, name))
			break;
		at = (at + 1) & mask;
	}
	return &names->entries[at];
}

static void choose_seed(weir_names *names)
{
	if (getrandom(&names->seed, sizeof names->seed, GRND_NONBLOCK) != (ssize_t)sizeof names->seed)
		names->seed = (uint64_t)(uintptr_t)names->entries; /* early in boot: an address has to do */
}

static int grow(weir_names *names)
{
	const weir_names old = *names;

	names->capacity = old.capacity ? old.capacity * 2 : CAPACITY_LEAST;
	names->entries = calloc(names->capacity, sizeof *names->entries);
	if (!names->entries) {
		*names = old;
		return WEIR_ENOMEM;
	}
	if (!old.capacity)
		choose_seed(names);
	for (size_t i = 0; i < old.capacity; i++) {
		if (old.entries[i].name)
			*place(names, old.entries[i].name, old.entries[i].hash) = old.entries[i];
	}
	free(old.entries);
	return WEIR_OK;
}

int weir_names_add(weir_names *names, const char *name, uint32_t number)
{
	struct weir_names_entry *entry;
	uint64_t hash;
	int code = names->count < names->capacity / 2 ? WEIR_OK : grow(names);

	if (code)
		return code;
	hash = hash_of(names, name);
	entry = place(names, name, hash);
	if (entry->name)
		return WEIR_EINVAL;
	*entry = (struct weir_names_entry){.name = name, .hash = hash, .number = number};
	names->count++;
	return WEIR_OK;
}

uint32_t weir_names_find(const weir_names *names, const char *name)
{
	const struct weir_names_entry *entry;

	if (!names->count)
		return WEIR_NAMES_NONE;
	entry = place(names, name, hash_of(names, name));
	return entry->name ? entry->number : WEIR_NAMES_NONE;
}

void weir_names_free(weir_names *names)
{
	free(names->entries);
	*names = (weir_names){0};
}
