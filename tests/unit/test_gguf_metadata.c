/*
 * test_gguf_metadata.c - the metadata of one GGUF file: what is read, and the rules that it must keep.
 */
#include "format_testing.h"

static void reads_metadata(void **state)
{
	bytes file = sample_gguf();
	weir_checkpoint *checkpoint;
	const weir_metadata *entry;
	uint64_t natural;

	(void)state;
	write_file("sample.gguf", &file);
	checkpoint = open_valid("sample.gguf");
	assert_int_equal(weir_checkpoint_metadata_count(checkpoint), 7);
	assert_string_equal(weir_checkpoint_metadata(checkpoint, 0)->values[0].text, "llama");
	assert_int_equal(weir_metadata_natural(weir_checkpoint_metadata(checkpoint, 1), 0, &natural), WEIR_OK);
	assert_int_equal(natural, 7);
	assert_true(weir_checkpoint_metadata_find(checkpoint, "a.float")->values[0].as.real == 1.5);
	entry = weir_checkpoint_metadata_find(checkpoint, "an.integer");
	assert_int_equal(entry->values[0].as.integer, -2);
	assert_int_equal(weir_metadata_natural(entry, 0, &natural), WEIR_EINVAL);
	entry = weir_checkpoint_metadata_find(checkpoint, "words");
	assert_true(entry->is_array);
	assert_int_equal(entry->count, 2);
	assert_string_equal(entry->values[1].text, "two");
	assert_int_equal(weir_metadata_natural(entry, 0, &natural), WEIR_EINVAL);
	entry = weir_checkpoint_metadata_find(checkpoint, "numbers");
	assert_int_equal(entry->values[2].as.natural, 1002);
	assert_int_equal(weir_metadata_natural(entry, 3, &natural), WEIR_ENOTFOUND);
	assert_null(weir_checkpoint_metadata_find(checkpoint, "absent"));
	weir_checkpoint_close(checkpoint);
}

static void keeps_first_elements_of_long_arrays(void **state)
{
	const weir_checkpoint_options options = {.array_numbers_kept = 5, .array_strings_kept = 2};
	bytes file = {0};
	weir_checkpoint *checkpoint;
	const weir_metadata *entry;

	(void)state;
	put_gguf_start(&file, 3, 0, 3);
	put_array_start(&file, "tokens", WEIR_VALUE_STRING, 1000);
	for (unsigned i = 0; i < 1000; i++)
		put_string(&file, i % 2 ? "odd" : "");
	put_array_start(&file, "scores", WEIR_VALUE_INT8, 1000);
	put_zeros(&file, 1000);
	put_entry_u32(&file, "after", 1);
	write_file("long.gguf", &file);
	assert_int_equal(weir_checkpoint_open("long.gguf", &options, &checkpoint, NULL), WEIR_OK);
	entry = weir_checkpoint_metadata_find(checkpoint, "tokens");
	assert_int_equal(entry->count, 1000);
	assert_int_equal(entry->kept, 2);
	assert_string_equal(entry->values[1].text, "odd");
	entry = weir_checkpoint_metadata_find(checkpoint, "scores");
	assert_int_equal(entry->count, 1000);
	assert_int_equal(entry->kept, 5);
	assert_non_null(weir_checkpoint_metadata_find(checkpoint, "after"));
	weir_checkpoint_close(checkpoint);
}

static void array_counts_in_metadata(void **state)
{
	static const uint64_t counts[] = {3, 1ull << 32, 1ull << 61, UINT64_MAX / 8 + 2, UINT64_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		for (uint32_t type = 0; type < 13; type++) {
			bytes file = {0};

			if (type == 9)
				continue;
			put_gguf_start(&file, 3, 0, 1);
			put_array_start(&file, "array", type, counts[i]);
			put_number(&file, 0, 2);
			expect_refused_bytes(&file, "array.gguf", WEIR_EFORMAT, "more than the file could hold");
		}
	}
}

static void unknown_value_types(void **state)
{
	static const uint32_t types[] = {13, 255, 0xFFFFFFFF};

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		bytes scalar = {0}, array = {0};

		put_gguf_start(&scalar, 3, 0, 1);
		put_entry_number(&scalar, "key", (weir_value_type)types[i], 0, 8);
		expect_refused_bytes(&scalar, "scalar.gguf", WEIR_EFORMAT, "is unknown");
		put_gguf_start(&array, 3, 0, 1);
		put_array_start(&array, "key", types[i], 0);
		expect_refused_bytes(&array, "array.gguf", WEIR_EFORMAT, "is unknown");
	}
}

static void nested_arrays(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_array_start(&file, "nested", 9, 1);
	put_u32(&file, WEIR_VALUE_UINT8);
	put_u64(&file, 0);
	expect_refused_bytes(&file, "nested.gguf", WEIR_EUNSUPPORTED, "arrays of arrays");
}

static void booleans_other_than_0_and_1(void **state)
{
	bytes scalar = {0}, array = {0};

	(void)state;
	put_gguf_start(&scalar, 3, 0, 1);
	put_entry_number(&scalar, "flag", WEIR_VALUE_BOOL, 2, 1);
	put_zeros(&scalar, 8);
	expect_refused_bytes(&scalar, "scalar.gguf", WEIR_EFORMAT, "must be 0 or 1");
	put_gguf_start(&array, 3, 0, 1);
	put_array_start(&array, "flags", WEIR_VALUE_BOOL, 2000);
	put_zeros(&array, 1999);
	put_number(&array, 7, 1);
	expect_refused_bytes(&array, "array.gguf", WEIR_EFORMAT, "must be 0 or 1");
}

static void duplicate_keys(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 2);
	put_entry_u32(&file, "twice", 1);
	put_entry_text(&file, "twice", "a");
	expect_refused_bytes(&file, "keys.gguf", WEIR_EFORMAT, "metadata key 'twice': it occurs twice");
}

static void empty_keys(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_entry_u32(&file, "", 0);
	expect_refused_bytes(&file, "key.gguf", WEIR_EFORMAT, "a key must not be empty");
}

static void texts_may_contain_nul(void **state)
{
	bytes file = {0};
	weir_checkpoint *checkpoint;

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_string(&file, "text");
	put_u32(&file, WEIR_VALUE_STRING);
	put_string_of(&file, "a\0b", 3);
	write_file("text.gguf", &file);
	checkpoint = open_valid("text.gguf");
	assert_int_equal(weir_checkpoint_metadata(checkpoint, 0)->values[0].as.text_bytes, 3);
	assert_memory_equal(weir_checkpoint_metadata(checkpoint, 0)->values[0].text, "a\0b", 4);
	weir_checkpoint_close(checkpoint);
}

static void architecture_must_be_a_string(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_entry_u32(&file, "general.architecture", 1);
	expect_refused_bytes(&file, "architecture.gguf", WEIR_EFORMAT, "general.architecture must be a string");
}

static void alignment_must_be_a_uint32(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_entry_text(&file, "general.alignment", "32");
	expect_refused_bytes(&file, "aligned.gguf", WEIR_EFORMAT, "general.alignment must be a uint32");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("metadata is read", reads_metadata),
		RULE("of long arrays the first elements are kept", keeps_first_elements_of_long_arrays),
		RULE("array counts in GGUF metadata (CVE-2026-27940)", array_counts_in_metadata),
		RULE("unknown types of values", unknown_value_types),
		RULE("nested arrays", nested_arrays),
		RULE("booleans other than 0 and 1", booleans_other_than_0_and_1),
		RULE("duplicate keys", duplicate_keys),
		RULE("empty keys", empty_keys),
		RULE("texts may contain NUL", texts_may_contain_nul),
		RULE("general.architecture must be a string", architecture_must_be_a_string),
		RULE("general.alignment must be a uint32", alignment_must_be_a_uint32),
	};

	return cmocka_run_group_tests_name("gguf_metadata", tests, NULL, NULL);
}
