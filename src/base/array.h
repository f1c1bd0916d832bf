/*
 * array.h - arrays that grow while a file is read.  The owner frees `items` with free(); one thread at a time.
 */
#ifndef WEIR_BASE_ARRAY_H
#define WEIR_BASE_ARRAY_H

#include <stddef.h>
#include <stdint.h>

/* Doubles an array of *capacity items (from 16 on).  The new array, or NULL, which leaves the old one valid. */
void *weir_array_grow(void *items, uint32_t *capacity, size_t item_bytes);

#endif
