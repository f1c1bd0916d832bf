/*
 * array.c - see array.h.
 */
#include "base/array.h"

#include <stdlib.h>

void *weir_array_grow(void *items, uint32_t *capacity, size_t item_bytes)
{
	uint32_t wanted = *capacity ? *capacity * 2 : 16;
	void *grown;

	if (wanted < *capacity || wanted > SIZE_MAX / item_bytes)
		return NULL;
	grown = realloc(items, wanted * item_bytes);
	if (grown)
		*capacity = wanted;
	return grown;
}
