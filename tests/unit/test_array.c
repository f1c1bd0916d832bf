/*
 * test_array.c - mappings as arrays: types and shapes elsewhere, DLPack structures, copies, references, writes that stay here.
 *
 * The structures of DLPack are declared here once more, as a library that takes them would: a wrong field in the export shows.
 */
#include "format_testing.h"

#include <pthread.h>

#include "weir/array.h"

typedef struct dl_tensor {
	void *data;
	struct {
		int32_t type, id;
	} device;
	int32_t ndim;
	struct {
		uint8_t code, bits;
		uint16_t lanes;
	} dtype;
	int64_t *shape, *strides;
	uint64_t byte_offset;
} dl_tensor;

typedef struct dl_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct dl_versioned *);
	uint64_t flags;
	dl_tensor tensor;
} dl_versioned;

typedef struct dl_unversioned {
	dl_tensor tensor;
	void *context;
	void (*deleter)(struct dl_unversioned *);
} dl_unversioned;

enum { FILE_BYTES = 10000 };

static void write_counting(const char *path)
{
	unsigned char data[FILE_BYTES];

	for (size_t i = 0; i < FILE_BYTES; i++)
		data[i] = (unsigned char)i;
	write_bytes(path, data, FILE_BYTES);
}

static weir_mapping *map(uint64_t offset, uint64_t count)
{
	weir_mapping *mapping = NULL;

	assert_int_equal(weir_mapping_open_extent("raw", offset, count, &mapping, NULL), WEIR_OK);
	return mapping;
}

static weir_array describe(weir_dtype dtype, uint32_t rank, const uint64_t *shape)
{
	weir_array array;

	assert_int_equal(weir_array_describe(dtype, rank, shape, &array, NULL), WEIR_OK);
	return array;
}

/* ---- types and shapes ---- */

static void plain_types_are_themselves(void **state)
{
	static const struct {
		weir_dtype dtype;
		weir_array_kind kind;
		uint32_t bits;
	} rows[] = {
		{WEIR_DTYPE_F32, WEIR_ARRAY_FLOAT, 32}, {WEIR_DTYPE_F16, WEIR_ARRAY_FLOAT, 16},
		{WEIR_DTYPE_F64, WEIR_ARRAY_FLOAT, 64}, {WEIR_DTYPE_I8, WEIR_ARRAY_INT, 8},
		{WEIR_DTYPE_I64, WEIR_ARRAY_INT, 64},	{WEIR_DTYPE_U32, WEIR_ARRAY_UINT, 32},
		{WEIR_DTYPE_BOOL, WEIR_ARRAY_BOOL, 8},	{WEIR_DTYPE_C64, WEIR_ARRAY_COMPLEX, 64},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		weir_array array = describe(rows[i].dtype, 2, (uint64_t[]){3, 5});

		assert_true(array.plain);
		assert_int_equal(array.kind, rows[i].kind);
		assert_int_equal(array.bits, rows[i].bits);
		assert_int_equal(array.rank, 2);
		assert_int_equal(array.bytes, 15 * rows[i].bits / 8);
	}
}

static void other_types_are_their_bits(void **state)
{
	weir_array array = describe(WEIR_DTYPE_BF16, 1, (uint64_t[]){7});

	(void)state;
	assert_false(array.plain);
	assert_int_equal(array.kind, WEIR_ARRAY_UINT);
	assert_int_equal(array.bits, 16);
	assert_int_equal(array.alignment_bytes, 2);
	array = describe(WEIR_DTYPE_F8_E4M3, 0, NULL);
	assert_int_equal(array.bits, 8);
	assert_int_equal(array.rank, 0);
	assert_int_equal(array.bytes, 1);
}

static void groups_are_rows_of_bytes(void **state)
{
	weir_array array = describe(WEIR_DTYPE_Q4_K, 3, (uint64_t[]){2, 4, 512});

	(void)state;
	assert_int_equal(array.rank, 3);
	assert_int_equal(array.shape[2], 288);
	assert_int_equal(array.bytes, 2 * 4 * 288);
	assert_int_equal(array.alignment_bytes, 1);
	array = describe(WEIR_DTYPE_F4, 2, (uint64_t[]){2, 3}); /* a row does not fill bytes, both do */
	assert_int_equal(array.rank, 1);
	assert_int_equal(array.shape[0], 3);
	assert_int_equal(array.shape[1], 1);
}

static void impossible_shapes_are_refused(void **state)
{
	const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40}, negative[] = {UINT64_MAX},
		       hidden[] = {0, UINT64_MAX, 2}, odd[] = {33}, many[WEIR_RANK_MAX + 1] = {1};
	weir_array array;
	weir_error error = {0};

	(void)state;
	assert_int_equal(weir_array_describe(WEIR_DTYPE_F32, 2, huge, &array, &error), WEIR_EINVAL);
	assert_non_null(strstr(error.message, "more elements"));
	assert_int_equal(weir_array_describe(WEIR_DTYPE_U8, 1, negative, &array, NULL), WEIR_EINVAL);
	assert_int_equal(weir_array_describe(WEIR_DTYPE_U8, 3, hidden, &array, NULL), WEIR_EINVAL);
	assert_int_equal(weir_array_describe(WEIR_DTYPE_Q4_0, 1, odd, &array, &error), WEIR_EINVAL);
	assert_non_null(strstr(error.message, "Q4_0"));
	assert_int_equal(weir_array_describe(WEIR_DTYPE_F32, WEIR_RANK_MAX + 1, many, &array, NULL), WEIR_EINVAL);
	assert_int_equal(weir_array_describe(WEIR_DTYPE_F32, 1, NULL, &array, NULL), WEIR_EINVAL);
	assert_int_equal(weir_array_describe((weir_dtype)9999, 0, NULL, &array, NULL), WEIR_EUNSUPPORTED);
}

/* ---- export ---- */

static void versioned_arrays_say_that_they_are_read_only(void **state)
{
	weir_array array = describe(WEIR_DTYPE_F32, 3, (uint64_t[]){2, 3, 4});
	weir_mapping *mapping;
	dl_versioned *managed;

	(void)state;
	write_counting("raw");
	mapping = map(8, array.bytes);
	assert_int_equal(weir_array_export(&array, mapping, false, (void **)&managed, NULL), WEIR_OK);
	assert_int_equal(managed->major, 1);
	assert_int_equal(managed->flags, 1);
	assert_ptr_equal(managed->tensor.data, weir_mapping_data(mapping));
	assert_int_equal(managed->tensor.device.type, 1);
	assert_int_equal(managed->tensor.ndim, 3);
	assert_int_equal(managed->tensor.dtype.code, 2);
	assert_int_equal(managed->tensor.dtype.bits, 32);
	assert_int_equal(managed->tensor.dtype.lanes, 1);
	assert_int_equal(managed->tensor.shape[1], 3);
	assert_int_equal(managed->tensor.strides[0], 12);
	assert_int_equal(managed->tensor.strides[2], 1);
	weir_mapping_close(mapping); /* the array keeps it */
	assert_int_equal(((unsigned char *)managed->tensor.data)[95], 8 + 95);
	managed->deleter(managed);
}

static void unversioned_arrays_are_the_same(void **state)
{
	weir_array array = describe(WEIR_DTYPE_I16, 1, (uint64_t[]){5});
	weir_mapping *mapping;
	dl_unversioned *managed;

	(void)state;
	write_counting("raw");
	mapping = map(2, array.bytes);
	assert_int_equal(weir_array_export_unversioned(&array, mapping, (void **)&managed, NULL), WEIR_OK);
	weir_mapping_close(mapping);
	assert_int_equal(managed->tensor.ndim, 1);
	assert_int_equal(managed->tensor.dtype.code, 0);
	assert_int_equal(((unsigned char *)managed->tensor.data)[9], 11);
	managed->deleter(managed);
}

static void arrays_that_do_not_fit_are_refused(void **state)
{
	weir_array array = describe(WEIR_DTYPE_F32, 1, (uint64_t[]){4});
	weir_mapping *small, *odd;
	weir_error error = {0};
	void *managed;

	(void)state;
	write_counting("raw");
	small = map(0, 15);
	odd = map(2, 16);
	assert_int_equal(weir_array_export(&array, small, false, &managed, &error), WEIR_EINVAL);
	assert_non_null(strstr(error.message, "16 bytes"));
	assert_int_equal(weir_array_export(&array, odd, false, &managed, &error), WEIR_EINVAL);
	assert_non_null(strstr(error.message, "multiple of 4"));
	weir_mapping_close(small);
	weir_mapping_close(odd);
}

static void *delete_elsewhere(void *managed)
{
	((dl_versioned *)managed)->deleter(managed);
	return NULL;
}

static void the_last_reference_may_go_in_another_thread(void **state)
{
	weir_array array = describe(WEIR_DTYPE_U8, 1, (uint64_t[]){FILE_BYTES});
	pthread_t threads[4];
	weir_mapping *mapping;
	void *managed;

	(void)state;
	write_counting("raw");
	for (int round = 0; round < 50; round++) {
		mapping = map(0, FILE_BYTES);
		for (int i = 0; i < 4; i++) {
			assert_int_equal(weir_array_export(&array, mapping, false, &managed, NULL), WEIR_OK);
			assert_int_equal(pthread_create(&threads[i], NULL, delete_elsewhere, managed), 0);
		}
		weir_mapping_close(mapping);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
}

/* ---- capsules, without an interpreter ---- */

typedef struct fake_capsule {
	void *pointer;
	const char *name;
	void (*destructor)(void *);
} fake_capsule;

static fake_capsule capsule;
static bool refuses;

static void *fake_new(void *pointer, const char *name, void (*destructor)(void *))
{
	capsule = (fake_capsule){pointer, name, destructor};
	return refuses ? NULL : &capsule;
}

static int fake_is_valid(void *self, const char *name)
{
	return !strcmp(((fake_capsule *)self)->name, name);
}

static void *fake_get_pointer(void *self, const char *name)
{
	assert_string_equal(((fake_capsule *)self)->name, name);
	return ((fake_capsule *)self)->pointer;
}

static const weir_capsule_calls fakes = {fake_new, fake_is_valid, fake_get_pointer};

/* Under the address sanitizer, a deleter that does not run is a leak and one that runs twice an error. */
static void capsules_delete_what_was_never_taken(void **state)
{
	weir_array array = describe(WEIR_DTYPE_U8, 1, (uint64_t[]){10});
	weir_mapping *mapping;
	void *managed;

	(void)state;
	write_counting("raw");
	mapping = map(0, 10);
	assert_int_equal(weir_array_export(&array, mapping, false, &managed, NULL), WEIR_OK);
	assert_ptr_equal(weir_array_capsule(&fakes, managed, true), &capsule);
	assert_string_equal(capsule.name, "dltensor_versioned");
	capsule.destructor(&capsule);
	assert_int_equal(weir_array_export_unversioned(&array, mapping, &managed, NULL), WEIR_OK);
	assert_non_null(weir_array_capsule(&fakes, managed, false));
	assert_string_equal(capsule.name, "dltensor");
	capsule.destructor(&capsule);
	weir_mapping_close(mapping);
}

static void capsules_leave_what_was_taken(void **state)
{
	weir_array array = describe(WEIR_DTYPE_U8, 1, (uint64_t[]){10});
	weir_mapping *mapping;
	void *managed;

	(void)state;
	write_counting("raw");
	mapping = map(0, 10);
	assert_int_equal(weir_array_export(&array, mapping, true, &managed, NULL), WEIR_OK);
	assert_int_equal(((dl_versioned *)managed)->flags, 0);
	assert_non_null(weir_array_capsule(&fakes, managed, true));
	capsule.name = "used_dltensor_versioned";
	capsule.destructor(&capsule);
	delete_elsewhere(managed);
	refuses = true;
	assert_int_equal(weir_array_export(&array, mapping, true, &managed, NULL), WEIR_OK);
	assert_null(weir_array_capsule(&fakes, managed, true)); /* deletes */
	refuses = false;
	weir_mapping_close(mapping);
}

/* ---- mappings ---- */

static void copies_are_aligned_and_outlive_the_file(void **state)
{
	weir_mapping *mapped = NULL, *copy = NULL;

	(void)state;
	write_counting("raw");
	mapped = map(4099, 100);
	assert_int_equal(weir_mapping_read_extent("raw", 4099, 100, &copy, NULL), WEIR_OK);
	assert_false(weir_mapping_copied(mapped));
	assert_true(weir_mapping_copied(copy));
	assert_int_equal((uintptr_t)weir_mapping_data(copy) % 64, 0);
	assert_memory_equal(weir_mapping_data(copy), weir_mapping_data(mapped), 100);
	assert_int_equal(truncate("raw", 0), 0);
	assert_int_equal(((const unsigned char *)weir_mapping_data(copy))[99], (4099 + 99) % 256);
	weir_mapping_close(mapped);
	weir_mapping_close(copy);
	assert_int_equal(weir_mapping_read_extent("raw", 0, 1, &copy, NULL), WEIR_EINVAL);
	assert_int_equal(weir_mapping_read_extent("raw", 0, 0, &copy, NULL), WEIR_OK);
	weir_mapping_close(copy);
}

static void tensors_are_copied_too(void **state)
{
	bytes file = sample_gguf();
	weir_checkpoint *checkpoint;
	weir_mapping *copy;

	(void)state;
	write_file("a.gguf", &file);
	checkpoint = open_valid("a.gguf");
	assert_int_equal(weir_mapping_read(checkpoint, 1, &copy, NULL), WEIR_OK);
	weir_checkpoint_close(checkpoint);
	assert_int_equal(weir_mapping_bytes(copy), 18);
	assert_int_equal(((const unsigned char *)weir_mapping_data(copy))[17], 32 + 17);
	weir_mapping_close(copy);
}

static void writes_stay_in_the_process(void **state)
{
	weir_mapping *mapping, *other, *empty;

	(void)state;
	write_counting("raw");
	mapping = map(0, FILE_BYTES);
	assert_int_equal(weir_mapping_allow_writes(mapping, NULL), WEIR_OK);
	memset((void *)(uintptr_t)weir_mapping_data(mapping), 0xEE, FILE_BYTES);
	other = map(0, FILE_BYTES);
	for (unsigned i = 0; i < FILE_BYTES; i++)
		assert_int_equal(((const unsigned char *)weir_mapping_data(other))[i], i % 256);
	empty = map(0, 0);
	assert_int_equal(weir_mapping_allow_writes(empty, NULL), WEIR_OK);
	weir_mapping_close(mapping);
	weir_mapping_close(other);
	weir_mapping_close(empty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("plain types are themselves", plain_types_are_themselves),
		RULE("other types are their bits", other_types_are_their_bits),
		RULE("groups are rows of bytes", groups_are_rows_of_bytes),
		RULE("impossible shapes are refused", impossible_shapes_are_refused),
		RULE("versioned arrays say that they are read-only", versioned_arrays_say_that_they_are_read_only),
		RULE("unversioned arrays are the same", unversioned_arrays_are_the_same),
		RULE("arrays that do not fit are refused", arrays_that_do_not_fit_are_refused),
		RULE("the last reference may go in another thread", the_last_reference_may_go_in_another_thread),
		RULE("capsules delete what was never taken", capsules_delete_what_was_never_taken),
		RULE("capsules leave what was taken", capsules_leave_what_was_taken),
		RULE("copies are aligned and outlive the file", copies_are_aligned_and_outlive_the_file),
		RULE("tensors are copied too", tensors_are_copied_too),
		RULE("writes stay in the process", writes_stay_in_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
