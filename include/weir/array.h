/*
 * array.h - a mapping as an array of another library: what type and shape it has there, and handing it over without a copy.
 *
 *   dtype, shape ──► weir_array_describe ──► weir_array {kind, bits, shape, bytes}
 *   weir_mapping ──► weir_array_export ────► DLManagedTensorVersioned (DLPack 1.0): NumPy, PyTorch, JAX...
 *
 * An exported array holds a reference to its mapping, which its deleter drops: in native code, in whatever thread the other
 * library calls it, without the lock of an interpreter.
 *
 * Not every element type is one elsewhere.  BF16 and the types of 8-bit floating point are exported as the unsigned integers
 * of their size, bit for bit; types that are stored in groups (those of 4 and 6 bits, ggml's quantised ones) as the bytes that
 * they are stored in.  `plain` says which were exported as themselves.
 *
 * Threads: all functions may be called from any thread, except that capsules are made under the interpreter's lock.
 */
#ifndef WEIR_ARRAY_H
#define WEIR_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/checkpoint.h"
#include "weir/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an element is; the numbers are those of DLPack. */
typedef enum weir_array_kind {
	WEIR_ARRAY_INT = 0,
	WEIR_ARRAY_UINT = 1,
	WEIR_ARRAY_FLOAT = 2,
	WEIR_ARRAY_COMPLEX = 5,
	WEIR_ARRAY_BOOL = 6
} weir_array_kind;

typedef struct weir_array {
	weir_dtype dtype; /* of the file */
	weir_array_kind kind; /* of an element of the array ... */
	uint32_t bits; /* ... and its size */
	bool plain; /* the array's elements are the file's; false: unsigned integers that hold their bits */
	uint32_t alignment_bytes; /* that an address needs to be read as such elements */
	uint32_t rank;
	uint64_t shape[WEIR_RANK_MAX]; /* outermost first, in elements of the array; 1 beyond the rank */
	uint64_t bytes; /* of all of it */
} weir_array;

/*
 * What an array of `dtype` with this shape is elsewhere.  `shape`: outermost first, in elements of the file's type, `rank` of
 * them (0: a scalar; NULL is allowed then).  Where elements are stored in groups, the last dimension becomes bytes; when it
 * does not divide into groups, the array is one row of bytes.  WEIR_EINVAL: rank above WEIR_RANK_MAX, a size that wraps, a
 * count that does not divide into groups.  WEIR_EUNSUPPORTED: `dtype` is none.
 */
int weir_array_describe(weir_dtype dtype, uint32_t rank, const uint64_t *shape, weir_array *array, weir_error *error);

/*
 * Makes *managed a DLManagedTensorVersioned (DLPack 1.0, in main memory, C order) over the mapping's bytes, flagged read-only
 * unless `writable`; whoever owns it calls its deleter, once.  The mapping stays the caller's, who may close it.
 * WEIR_EINVAL: the mapping does not hold `array->bytes` bytes, or its address is not aligned for them (see weir_mapping_read).
 */
int weir_array_export(const weir_array *array, weir_mapping *mapping, bool writable, void **managed, weir_error *error);

/* The same as a DLManagedTensor, as DLPack had it before 1.0, which cannot say that it is read-only. */
int weir_array_export_unversioned(const weir_array *array, weir_mapping *mapping, void **managed, weir_error *error);

/* What a capsule needs of CPython: the addresses of the functions PyCapsule_New, PyCapsule_IsValid, PyCapsule_GetPointer. */
typedef struct weir_capsule_calls {
	void *(*capsule_new)(void *pointer, const char *name, void (*destructor)(void *capsule));
	int (*capsule_is_valid)(void *capsule, const char *name);
	void *(*capsule_get_pointer)(void *capsule, const char *name);
} weir_capsule_calls;

/*
 * A new PyObject reference to a capsule named "dltensor_versioned" (or "dltensor") that owns `managed`, which an export
 * function made.  Its destructor runs the deleter unless a library has taken the array over.  NULL with Python's exception set
 * on failure; `managed` is deleted then.  Under the interpreter's lock.  `calls` are kept: they must be the same in every call.
 */
void *weir_array_capsule(const weir_capsule_calls *calls, void *managed, bool versioned);

#ifdef __cplusplus
}
#endif
#endif
