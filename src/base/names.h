/*
 * names.h - a hash table from names to numbers: finds a tensor by its name, and a name that occurs twice.
 *
 * Names are kept by pointer and must outlive the table.  The hash is seeded for each table, so that a file cannot be made whose
 * names all fall together.  One thread may add; any number may find when none adds.
 */
#ifndef WEIR_BASE_NAMES_H
#define WEIR_BASE_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define WEIR_NAMES_NONE UINT32_MAX

struct weir_names_entry;

typedef struct weir_names { /* all zero: empty.  count ≤ capacity / 2, capacity is 0 or a power of two */
	struct weir_names_entry *entries;
	size_t capacity, count;
	uint64_t seed;
} weir_names;

/* Adds a name.  0; WEIR_EINVAL when it is there already; WEIR_ENOMEM. */
int weir_names_add(weir_names *names, const char *name, uint32_t number);

/* The number that was added with this name, or WEIR_NAMES_NONE. */
uint32_t weir_names_find(const weir_names *names, const char *name);

void weir_names_free(weir_names *names);

#endif
