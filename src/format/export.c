/*
 * export.c - what an extent is as an array of another library, and the structures of DLPack that hand it over.
 *
 *   exported ┬ DLManagedTensorVersioned or DLManagedTensor: what the other library sees
 *            ├ mapping: a reference, dropped by the deleter
 *            └ shape[], strides[]: what the tensor points to
 *
 * One allocation, freed by its deleter and nowhere else.  The deleters call nothing but weir_mapping_close and free, so they
 * may run in any thread.  The structures are DLPack's binary interface (dlpack.h of version 1.0), written down here: Debian's
 * copy of that header is older.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/fail.h"
#include "weir/array.h"

enum { DLPACK_MAJOR = 1, DLPACK_MINOR = 0, DLPACK_CPU = 1, DLPACK_READ_ONLY = 1 };

static const char versioned_name[] = "dltensor_versioned", unversioned_name[] = "dltensor";

typedef struct dl_tensor {
	void *data;
	int32_t device_type, device_id;
	int32_t rank;
	uint8_t type_code, type_bits;
	uint16_t type_lanes;
	int64_t *shape, *strides;
	uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
	dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_managed_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dl_managed_versioned *);
	uint64_t flags;
	dl_tensor tensor;
} dl_managed_versioned;

typedef struct exported {
	union {
		dl_managed_versioned versioned;
		dl_managed unversioned;
	} as; /* first: a pointer to it is a pointer to the whole */
	weir_mapping *mapping;
	int64_t shape[WEIR_RANK_MAX], strides[WEIR_RANK_MAX];
} exported;

/* ---- types and sizes ---- */

static const struct {
	weir_dtype dtype;
	weir_array_kind kind;
	bool plain;
} kinds[] = {
	{WEIR_DTYPE_F16, WEIR_ARRAY_FLOAT, true},   {WEIR_DTYPE_F32, WEIR_ARRAY_FLOAT, true},
	{WEIR_DTYPE_F64, WEIR_ARRAY_FLOAT, true},   {WEIR_DTYPE_I8, WEIR_ARRAY_INT, true},
	{WEIR_DTYPE_I16, WEIR_ARRAY_INT, true},	    {WEIR_DTYPE_I32, WEIR_ARRAY_INT, true},
	{WEIR_DTYPE_I64, WEIR_ARRAY_INT, true},	    {WEIR_DTYPE_U8, WEIR_ARRAY_UINT, true},
	{WEIR_DTYPE_U16, WEIR_ARRAY_UINT, true},    {WEIR_DTYPE_U32, WEIR_ARRAY_UINT, true},
	{WEIR_DTYPE_U64, WEIR_ARRAY_UINT, true},    {WEIR_DTYPE_BOOL, WEIR_ARRAY_BOOL, true},
	{WEIR_DTYPE_C64, WEIR_ARRAY_COMPLEX, true}, {WEIR_DTYPE_BF16, WEIR_ARRAY_UINT, false},
};

/* What one element, or one byte of a group, is. */
static void describe_element(const weir_dtype_info *info, weir_array *array)
{
	array->dtype = info->dtype;
	array->kind = WEIR_ARRAY_UINT;
	array->bits = info->block_elements > 1 ? 8 : 8 * info->block_bytes;
	array->alignment_bytes = info->block_elements > 1 ? 1 : info->alignment_bytes;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (kinds[i].dtype == info->dtype) {
			array->kind = kinds[i].kind;
			array->plain = kinds[i].plain;
		}
	}
}

/* Product of the dimensions, and the same with 1 for those that are 0: strides come from that one. */
static bool count_elements(uint32_t rank, const uint64_t *shape, uint64_t *count, uint64_t *span)
{
	bool fits = true;

	*span = 1;
	for (uint32_t i = 0; i < rank; i++)
		fits = fits && weir_checked_multiply(*span, shape[i] ? shape[i] : 1, span);
	*count = *span;
	for (uint32_t i = 0; i < rank; i++)
		*count = shape[i] ? *count : 0;
	return fits;
}

/* The last dimension in bytes, or everything in one row. */
static bool group(const weir_dtype_info *info, uint64_t count, weir_array *array)
{
	uint64_t *last = array->rank ? &array->shape[array->rank - 1] : NULL;

	if (last && *last % info->block_elements == 0) {
		*last = *last / info->block_elements * info->block_bytes;
		return true;
	}
	for (uint32_t i = 0; i < WEIR_RANK_MAX; i++)
		array->shape[i] = 1;
	array->rank = 1;
	array->shape[0] = count / info->block_elements * info->block_bytes;
	return count % info->block_elements == 0;
}

int weir_array_describe(weir_dtype dtype, uint32_t rank, const uint64_t *shape, weir_array *array, weir_error *error)
{
	const weir_dtype_info *info = weir_dtype_describe(dtype);
	uint64_t count, span, span_bytes;

	if (!array || (rank && !shape))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "shape and array must be given");
	if (!info)
		return weir_fail(error, WEIR_EUNSUPPORTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "%d is no element type", (int)dtype);
	if (rank > WEIR_RANK_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "an array has at most %d dimensions, and this shape has %u", WEIR_RANK_MAX, rank);
	if (!count_elements(rank, shape, &count, &span) || !weir_checked_multiply(span, info->block_bytes, &span_bytes) ||
	    span_bytes > INT64_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the shape has more elements than memory has addresses: check it");
	*array = (weir_array){.rank = rank};
	describe_element(info, array);
	for (uint32_t i = 0; i < WEIR_RANK_MAX; i++)
		array->shape[i] = i < rank ? shape[i] : 1;
	array->bytes = count / info->block_elements * info->block_bytes;
	if (info->block_elements > 1 && !group(info, count, array))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "%s is stored in groups of %u elements, which %llu elements do not fill", info->name,
				 info->block_elements, (unsigned long long)count);
	return WEIR_OK;
}

/* ---- export ---- */

static void delete_versioned(dl_managed_versioned *managed)
{
	exported *self = managed->context;

	weir_mapping_close(self->mapping);
	free(self);
}

static void delete_unversioned(dl_managed *managed)
{
	exported *self = managed->context;

	weir_mapping_close(self->mapping);
	free(self);
}

static void fill_tensor(const weir_array *array, exported *self, dl_tensor *tensor)
{
	int64_t stride = 1;

	for (uint32_t i = array->rank; i-- > 0;) {
		self->shape[i] = (int64_t)array->shape[i];
		self->strides[i] = stride;
		stride *= self->shape[i] ? self->shape[i] : 1;
	}
	*tensor = (dl_tensor){
		.data = (void *)(uintptr_t)weir_mapping_data(self->mapping),
		.device_type = DLPACK_CPU,
		.rank = (int32_t)array->rank,
		.type_code = (uint8_t)array->kind,
		.type_bits = (uint8_t)array->bits,
		.type_lanes = 1,
		.shape = self->shape,
		.strides = self->strides,
	};
}

static int new_exported(const weir_array *array, weir_mapping *mapping, exported **self, weir_error *error)
{
	if (array->bytes > weir_mapping_bytes(mapping))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the array has %llu bytes and the mapping %llu", (unsigned long long)array->bytes,
				 (unsigned long long)weir_mapping_bytes(mapping));
	if (array->bytes && (uintptr_t)weir_mapping_data(mapping) % array->alignment_bytes)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "the data does not begin at a multiple of %u bytes, as %s needs: read a copy",
				 array->alignment_bytes, weir_dtype_describe(array->dtype)->name);
	*self = calloc(1, sizeof **self);
	if (!*self)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	(*self)->mapping = weir_mapping_retain(mapping);
	return WEIR_OK;
}

int weir_array_export(const weir_array *array, weir_mapping *mapping, bool writable, void **managed, weir_error *error)
{
	exported *self;
	int code = new_exported(array, mapping, &self, error);

	if (code)
		return code;
	self->as.versioned = (dl_managed_versioned){
		.major = DLPACK_MAJOR,
		.minor = DLPACK_MINOR,
		.context = self,
		.deleter = delete_versioned,
		.flags = writable ? 0 : DLPACK_READ_ONLY,
	};
	fill_tensor(array, self, &self->as.versioned.tensor);
	*managed = &self->as.versioned;
	return WEIR_OK;
}

int weir_array_export_unversioned(const weir_array *array, weir_mapping *mapping, void **managed, weir_error *error)
{
	exported *self;
	int code = new_exported(array, mapping, &self, error);

	if (code)
		return code;
	self->as.unversioned = (dl_managed){.context = self, .deleter = delete_unversioned};
	fill_tensor(array, self, &self->as.unversioned.tensor);
	*managed = &self->as.unversioned;
	return WEIR_OK;
}

/* ---- capsules ---- */

static weir_capsule_calls python; /* written and read under the interpreter's lock */

static void delete_managed(void *managed, bool versioned)
{
	if (versioned)
		((dl_managed_versioned *)managed)->deleter(managed);
	else
		((dl_managed *)managed)->deleter(managed);
}

/* A library that takes the array over renames the capsule; what still has our name was never taken. */
static void destroy_capsule(void *capsule)
{
	if (python.capsule_is_valid(capsule, versioned_name))
		delete_managed(python.capsule_get_pointer(capsule, versioned_name), true);
	else if (python.capsule_is_valid(capsule, unversioned_name))
		delete_managed(python.capsule_get_pointer(capsule, unversioned_name), false);
}

void *weir_array_capsule(const weir_capsule_calls *calls, void *managed, bool versioned)
{
	void *capsule;

	python = *calls;
	capsule = python.capsule_new(managed, versioned ? versioned_name : unversioned_name, destroy_capsule);
	if (!capsule)
		delete_managed(managed, versioned);
	return capsule;
}
