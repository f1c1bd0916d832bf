/*
 * checked.h - arithmetic on counts and sizes from files: each operation says whether its result is true.
 *
 * Pure functions, any thread.  They return false, and leave *result undefined, when the exact result does not fit.
 */
#ifndef WEIR_BASE_CHECKED_H
#define WEIR_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool weir_checked_add(uint64_t a, uint64_t b, uint64_t *result)
{
	return !__builtin_add_overflow(a, b, result);
}

static inline bool weir_checked_multiply(uint64_t a, uint64_t b, uint64_t *result)
{
	return !__builtin_mul_overflow(a, b, result);
}

static inline bool weir_is_power_of_two(uint64_t value)
{
	return value && !(value & (value - 1));
}

/* The next multiple of `alignment`, a power of two. */
static inline bool weir_checked_align(uint64_t value, uint64_t alignment, uint64_t *result)
{
	if (!weir_checked_add(value, alignment - 1, result))
		return false;
	*result &= ~(alignment - 1);
	return true;
}

/* True when [offset, offset + bytes) lies within [0, whole). */
static inline bool weir_extent_within(uint64_t offset, uint64_t bytes, uint64_t whole)
{
	return offset <= whole && bytes <= whole - offset;
}

#endif
