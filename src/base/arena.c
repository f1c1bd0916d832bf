/*
 * arena.c - regions of at least REGION_BYTES, linked newest first; see arena.h.
 */
#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REGION_BYTES = 64 * 1024 };

struct weir_arena_region {
	struct weir_arena_region *next;
	alignas(max_align_t) unsigned char bytes[];
};

static int add_region(weir_arena *arena, size_t bytes)
{
	size_t capacity = bytes > REGION_BYTES ? bytes : REGION_BYTES;
	struct weir_arena_region *region;

	if (capacity > SIZE_MAX - sizeof *region)
		return -1;
	region = malloc(sizeof *region + capacity);
	if (!region)
		return -1;
	region->next = arena->regions;
	arena->regions = region;
	arena->capacity = capacity;
	arena->used = 0;
	return 0;
}

void *weir_arena_take(weir_arena *arena, size_t bytes)
{
	const size_t unit = alignof(max_align_t);
	void *piece;

	if (bytes > SIZE_MAX - unit)
		return NULL;
	bytes = (bytes + unit - 1) / unit * unit;
	if (bytes > arena->capacity - arena->used && add_region(arena, bytes))
		return NULL;
	if (!arena->regions && add_region(arena, bytes))
		return NULL;
	piece = arena->regions->bytes + arena->used;
	arena->used += bytes;
	return piece;
}

char *weir_arena_text(weir_arena *arena, const char *text, size_t bytes)
{
	char *copy = bytes < SIZE_MAX ? weir_arena_take(arena, bytes + 1) : NULL;

	if (!copy)
		return NULL;
	if (bytes)
		memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	return copy;
}

void weir_arena_free(weir_arena *arena)
{
	while (arena->regions) {
		struct weir_arena_region *region = arena->regions;

		arena->regions = region->next;
		free(region);
	}
	*arena = (weir_arena){0};
}
