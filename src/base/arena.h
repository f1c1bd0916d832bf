/*
 * arena.h - memory that grows piece by piece and is freed as a whole: names, keys and texts of a checkpoint.
 *
 * The owner of the arena owns everything in it.  One thread at a time.  Pieces are never given back one by one.
 */
#ifndef WEIR_BASE_ARENA_H
#define WEIR_BASE_ARENA_H

#include <stddef.h>

struct weir_arena_region;

typedef struct weir_arena { /* all zero: empty */
	struct weir_arena_region *regions;
	size_t used, capacity; /* of the newest region */
} weir_arena;

/* `bytes` of memory aligned for any value, not cleared; NULL when there is none. */
void *weir_arena_take(weir_arena *arena, size_t bytes);

/* A copy of text[0..bytes) with a NUL after it. */
char *weir_arena_text(weir_arena *arena, const char *text, size_t bytes);

void weir_arena_free(weir_arena *arena);

#endif
