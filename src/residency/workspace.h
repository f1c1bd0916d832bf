/*
 * workspace.h - one allocation carved into arrays, so that a store's tables are allocated once and their size is known before.
 *
 * The same carving code runs twice: over a workspace without memory, which only adds up, and over the real one.
 *
 *   base ─► ┌────────┬─pad─┬──────────────┬─pad─┬──────┐
 *           │ chunks │     │ slots        │     │ ...  │   each array starts on a cache line
 *           └────────┴─────┴──────────────┴─────┴──────┘ ◄─ used ≤ capacity
 *
 * A workspace owns nothing: who allocated the memory frees it.  Not thread-safe; it is used while a store is being opened.
 */
#ifndef WEIR_RESIDENCY_WORKSPACE_H
#define WEIR_RESIDENCY_WORKSPACE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR_WORKSPACE_ALIGNMENT 64

typedef struct weir_workspace {
	unsigned char *base; /* NULL: measure only */
	size_t used; /* SIZE_MAX once a size has wrapped */
	size_t capacity;
} weir_workspace;

/* Takes room for `count` elements.  NULL while measuring. */
static inline void *weir_workspace_take(weir_workspace *workspace, size_t count, size_t element_bytes)
{
	size_t start = workspace->used;
	size_t bytes;

	if (__builtin_mul_overflow(count, element_bytes, &bytes) ||
	    __builtin_add_overflow(bytes, WEIR_WORKSPACE_ALIGNMENT - 1, &bytes) ||
	    __builtin_add_overflow(start, bytes & ~(size_t)(WEIR_WORKSPACE_ALIGNMENT - 1), &workspace->used)) {
		workspace->used = SIZE_MAX;
		return NULL;
	}
	if (!workspace->base)
		return NULL;
	assert(workspace->used <= workspace->capacity);
	return workspace->base + start;
}

#endif
