/*
 * test_gguf.c - one GGUF file: its start and its tensors, and the rules that they must keep.
 */
#include "format_testing.h"

#include "format/dtype.h"

/* A header with one tensor info, cut short or followed by `data_bytes`. */
static bytes one_tensor(uint32_t type, uint64_t offset, uint32_t rank, const uint64_t *shape, size_t data_bytes)
{
	bytes file = {0};

	put_gguf_start(&file, 3, 1, 0);
	put_info(&file, "t", type, offset, rank, shape);
	put_padding(&file, 32);
	put_zeros(&file, data_bytes);
	return file;
}

static void expect_one_tensor_refused(uint32_t type, uint64_t offset, uint32_t rank, const uint64_t *shape, int code,
				      const char *part)
{
	bytes file = one_tensor(type, offset, rank, shape, 256);

	expect_refused_bytes(&file, "one.gguf", code, part);
}

static void expect_one_tensor(uint32_t type, uint32_t rank, const uint64_t *shape, uint64_t elements, uint64_t tensor_bytes)
{
	bytes file = one_tensor(type, 0, rank, shape, (size_t)tensor_bytes);
	weir_checkpoint *checkpoint;
	const weir_tensor *tensor;

	write_file("one.gguf", &file);
	checkpoint = open_valid("one.gguf");
	tensor = weir_checkpoint_find(checkpoint, "t");
	assert_non_null(tensor);
	assert_int_equal(tensor->rank, rank);
	assert_int_equal(tensor->elements, elements);
	assert_int_equal(tensor->bytes, tensor_bytes);
	weir_checkpoint_close(checkpoint);
}

static void reads_tensors(void **state)
{
	bytes file = sample_gguf();
	weir_checkpoint *checkpoint;
	const weir_tensor *tensor;

	(void)state;
	write_file("sample.gguf", &file);
	checkpoint = open_valid("sample.gguf");
	assert_int_equal(weir_checkpoint_format(checkpoint), WEIR_FORMAT_GGUF);
	assert_int_equal(weir_checkpoint_version(checkpoint), 3);
	assert_string_equal(weir_checkpoint_architecture(checkpoint), "llama");
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 2);
	assert_int_equal(weir_checkpoint_tensors_bytes(checkpoint), 8 + 18);
	assert_true(weir_checkpoint_aligned(checkpoint));
	tensor = weir_checkpoint_tensor(checkpoint, 1);
	assert_string_equal(tensor->name, "matrix");
	assert_string_equal(tensor->dtype_name, "Q4_0");
	assert_int_equal(tensor->dtype, WEIR_DTYPE_Q4_0);
	assert_int_equal(tensor->block_elements, 32);
	assert_int_equal(tensor->block_bytes, 18);
	assert_int_equal(tensor->shape[0], 32);
	assert_int_equal(tensor->shape[1], 1);
	assert_int_equal(tensor->shape[2], 1);
	assert_int_equal(tensor->offset + tensor->bytes, weir_checkpoint_shard_bytes(checkpoint, 0));
	assert_null(weir_checkpoint_tensor(checkpoint, 2));
	assert_null(weir_checkpoint_find(checkpoint, "absent"));
	weir_checkpoint_close(checkpoint);
}

static void knows_every_type_of_ggml(void **state)
{
	uint64_t shape[] = {256};
	unsigned known = 0;

	(void)state;
	for (uint32_t type = 0; type < 43; type++) {
		const weir_dtype_info *info = weir_dtype_of_ggml(type);

		if (!info)
			continue;
		known++;
		expect_one_tensor(type, 1, shape, 256, 256 / info->block_elements * info->block_bytes);
	}
	assert_int_equal(known, 43 - 8); /* 4, 5, 31, 32, 33, 36, 37 and 38 were removed */
}

static void element_counts_that_wrap(void **state)
{
	(void)state;
	expect_one_tensor_refused(F32, 0, 2, (uint64_t[]){1ull << 32, 1ull << 32}, WEIR_EFORMAT,
				  "product of its dimensions wraps");
	expect_one_tensor_refused(F32, 0, 3, (uint64_t[]){1ull << 40, 1ull << 40, 0}, WEIR_EFORMAT, "wraps");
	expect_one_tensor_refused(F32, 0, 3, (uint64_t[]){0, 1ull << 40, 1ull << 40}, WEIR_EFORMAT, "wraps");
	expect_one_tensor_refused(I8, 0, 1, (uint64_t[]){1ull << 63}, WEIR_EFORMAT, "wraps");
}

static void byte_sizes_that_wrap(void **state)
{
	(void)state;
	expect_one_tensor_refused(F32, 0, 1, (uint64_t[]){1ull << 62}, WEIR_EFORMAT, "wraps");
	expect_one_tensor_refused(28, 0, 1, (uint64_t[]){INT64_MAX}, WEIR_EFORMAT, "wraps");
}

static void offset_and_size_past_the_end_or_wrapping(void **state)
{
	(void)state;
	expect_one_tensor_refused(F32, 256, 1, (uint64_t[]){1}, WEIR_EFORMAT, "reaches past the end of the file");
	expect_one_tensor_refused(F32, 224, 1, (uint64_t[]){9}, WEIR_EFORMAT, "reaches past the end of the file");
	expect_one_tensor_refused(F32, UINT64_MAX - 31, 1, (uint64_t[]){1}, WEIR_EFORMAT, "offset wraps");
	expect_one_tensor_refused(F32, UINT64_MAX - 255, 1, (uint64_t[]){64}, WEIR_EFORMAT, "past the end");
	expect_one_tensor_refused(F32, 1ull << 63, 1, (uint64_t[]){1}, WEIR_EFORMAT, "past the end");
}

static void truncation_at_every_boundary(void **state)
{
	bytes file = sample_gguf();

	(void)state;
	for (size_t length = 0; length < file.count; length++) {
		write_bytes("cut.gguf", file.data, length);
		expect_refused("cut.gguf", WEIR_EFORMAT, "");
	}
	free(file.data);
}

static void mutations_do_no_harm(void **state)
{
	bytes file = sample_gguf();
	uint64_t seed = 1;

	(void)state;
	for (unsigned round = 0; round < 4000; round++) {
		unsigned char *copy = malloc(file.count);

		memcpy(copy, file.data, file.count);
		for (uint64_t i = next_random(&seed) % 4 + 1; i > 0; i--)
			copy[next_random(&seed) % file.count] = (unsigned char)(next_random(&seed) >> (next_random(&seed) % 8));
		write_bytes("mutated.gguf", copy, file.count);
		free(copy);
		expect_no_harm("mutated.gguf");
	}
	free(file.data);
}

static void lengths_larger_than_the_file(void **state)
{
	static const uint64_t lengths[] = {100, 1ull << 32, 1ull << 63, UINT64_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		bytes key = {0}, text = {0}, name = {0};

		put_gguf_start(&key, 3, 0, 1);
		put_u64(&key, lengths[i]);
		put_zeros(&key, 20);
		expect_refused_bytes(&key, "key.gguf", WEIR_EFORMAT, "a metadata key");
		put_gguf_start(&text, 3, 0, 1);
		put_string(&text, "text");
		put_u32(&text, WEIR_VALUE_STRING);
		put_u64(&text, lengths[i]);
		expect_refused_bytes(&text, "text.gguf", WEIR_EFORMAT, "the file ends inside a string");
		put_gguf_start(&name, 3, 1, 0);
		put_u64(&name, lengths[i]);
		put_zeros(&name, 40);
		expect_refused_bytes(&name, "name.gguf", WEIR_EFORMAT, "a tensor's name");
	}
}

static void zero_counts(void **state)
{
	bytes file = {0};
	weir_checkpoint *checkpoint;

	(void)state;
	put_gguf_start(&file, 3, 0, 0);
	write_file("empty.gguf", &file);
	checkpoint = open_valid("empty.gguf");
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 0);
	assert_int_equal(weir_checkpoint_metadata_count(checkpoint), 0);
	assert_null(weir_checkpoint_architecture(checkpoint));
	weir_checkpoint_close(checkpoint);
	put_gguf_start(&file, 3, 0, 1);
	put_array_start(&file, "none", WEIR_VALUE_STRING, 0);
	write_file("array.gguf", &file);
	checkpoint = open_valid("array.gguf");
	assert_int_equal(weir_checkpoint_metadata(checkpoint, 0)->count, 0);
	weir_checkpoint_close(checkpoint);
}

static void huge_counts(void **state)
{
	static const uint64_t counts[] = {1000, 1ull << 32, 1ull << 60, 1ull << 63, UINT64_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		bytes tensors = {0}, entries = {0};

		put_gguf_start(&tensors, 3, counts[i], 0);
		put_zeros(&tensors, 100);
		expect_refused_bytes(&tensors, "tensors.gguf", WEIR_EFORMAT, "tensors: a count of");
		put_gguf_start(&entries, 3, 0, counts[i]);
		put_zeros(&entries, 100);
		expect_refused_bytes(&entries, "entries.gguf", WEIR_EFORMAT, "metadata entries: a count of");
	}
}

/* A sparse file is as large as it likes to claim: then the limits hold. */
static void huge_counts_in_a_huge_sparse_file(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 1ull << 23, 0);
	write_file("sparse.gguf", &file);
	assert_int_equal(truncate("sparse.gguf", 1ll << 40), 0);
	expect_refused("sparse.gguf", WEIR_EUNSUPPORTED, "the limit is");
	put_gguf_start(&file, 3, 0, 1);
	put_string(&file, "text");
	put_u32(&file, WEIR_VALUE_STRING);
	put_u64(&file, 65ull << 20);
	write_file("sparse.gguf", &file);
	assert_int_equal(truncate("sparse.gguf", 1ll << 40), 0);
	expect_refused("sparse.gguf", WEIR_EUNSUPPORTED, "longer than the limit");
	put_gguf_start(&file, 3, 0, 1);
	put_array_start(&file, "numbers", WEIR_VALUE_UINT8, 1ull << 39);
	write_file("sparse.gguf", &file);
	assert_int_equal(truncate("sparse.gguf", 1ll << 40), 0);
	expect_refused("sparse.gguf", WEIR_EUNSUPPORTED, "the header is longer than the limit");
}

static void header_longer_than_the_limit(void **state)
{
	const weir_checkpoint_options options = {.header_bytes_max = 100};
	bytes file = sample_gguf();
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	write_file("sample.gguf", &file);
	assert_int_equal(weir_checkpoint_open("sample.gguf", &options, &checkpoint, &error), WEIR_EUNSUPPORTED);
	assert_non_null(strstr(error.message, "longer than the limit of 100 bytes"));
}

static void unknown_versions(void **state)
{
	static const uint32_t versions[] = {0, 1, 4, 0x10000000, 0xFFFFFFFF};

	(void)state;
	for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
		bytes file = {0};

		put_gguf_start(&file, versions[i], 0, 0);
		expect_refused_bytes(&file, "version.gguf", WEIR_EUNSUPPORTED,
				     versions[i] == 0x10000000 ? "big-endian" : "version");
	}
}

static void version_2_is_accepted(void **state)
{
	bytes file = {0};
	weir_checkpoint *checkpoint;

	(void)state;
	put_gguf_start(&file, 2, 0, 0);
	write_file("two.gguf", &file);
	checkpoint = open_valid("two.gguf");
	assert_int_equal(weir_checkpoint_version(checkpoint), 2);
	weir_checkpoint_close(checkpoint);
}

static void wrong_magic(void **state)
{
	(void)state;
	write_bytes("magic.gguf", "GGML\3\0\0\0", 8);
	expect_refused("magic.gguf", WEIR_EFORMAT, "does not begin with \"GGUF\"");
	write_bytes("page.gguf", "<html><body>404</body></html>", 29);
	expect_refused("page.gguf", WEIR_EFORMAT, "does not begin with \"GGUF\"");
}

static void big_endian_is_refused_with_a_clear_message(void **state)
{
	(void)state;
	write_bytes("big.gguf", "GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
	expect_refused("big.gguf", WEIR_EUNSUPPORTED, "big-endian");
}

static void unknown_and_removed_tensor_types(void **state)
{
	static const uint32_t types[] = {4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, 0xFFFFFFFF};

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		expect_one_tensor_refused(types[i], 0, 1, (uint64_t[]){256}, WEIR_EUNSUPPORTED, "tensor 't' has type");
}

static void duplicate_tensor_names(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 2, 0);
	put_info(&file, "twice", F32, 0, 1, (uint64_t[]){1});
	put_info(&file, "twice", F32, 32, 1, (uint64_t[]){1});
	put_padding(&file, 32);
	put_zeros(&file, 64);
	expect_refused_bytes(&file, "names.gguf", WEIR_EFORMAT, "tensor name 'twice' occurs twice");
}

static void names_that_contain_nul(void **state)
{
	bytes tensor = {0}, key = {0};

	(void)state;
	put_gguf_start(&tensor, 3, 1, 0);
	put_string_of(&tensor, "a\0b", 3);
	put_u32(&tensor, 0);
	put_u32(&tensor, F32);
	put_u64(&tensor, 0);
	put_padding(&tensor, 32);
	put_zeros(&tensor, 4);
	expect_refused_bytes(&tensor, "tensor.gguf", WEIR_EFORMAT, "NUL");
	put_gguf_start(&key, 3, 0, 1);
	put_string_of(&key, "a\0b", 3);
	put_u32(&key, WEIR_VALUE_UINT32);
	put_u32(&key, 0);
	expect_refused_bytes(&key, "key.gguf", WEIR_EFORMAT, "NUL");
}

static void names_that_are_not_utf8_or_hold_escapes(void **state)
{
	static const char *const names[] = {"\xff\xfe", "\x1b[2J", "a\nb", "\xc2\x9b", "слой.模型"};

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		bytes file = {0};
		weir_checkpoint *checkpoint;

		put_gguf_start(&file, 3, 1, 1);
		put_entry_text(&file, names[i], names[i]);
		put_info(&file, names[i], F32, 0, 0, NULL);
		put_padding(&file, 32);
		put_zeros(&file, 4);
		write_file("names.gguf", &file);
		checkpoint = open_valid("names.gguf");
		assert_non_null(weir_checkpoint_find(checkpoint, names[i]));
		assert_string_equal(weir_checkpoint_metadata_find(checkpoint, names[i])->values[0].text, names[i]);
		weir_checkpoint_close(checkpoint);
	}
}

static void a_tensor_without_dimensions_is_a_scalar(void **state)
{
	(void)state;
	expect_one_tensor(F32, 0, NULL, 1, 4);
}

static void a_dimension_of_zero(void **state)
{
	(void)state;
	expect_one_tensor(F32, 2, (uint64_t[]){0, 7}, 0, 0);
	expect_one_tensor(Q4_K, 2, (uint64_t[]){256, 0}, 0, 0);
}

static void metadata_without_tensors(void **state)
{
	bytes file = {0};
	weir_checkpoint *checkpoint;

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_entry_text(&file, "general.architecture", "clip");
	write_file("vocabulary.gguf", &file);
	checkpoint = open_valid("vocabulary.gguf");
	assert_string_equal(weir_checkpoint_architecture(checkpoint), "clip");
	weir_checkpoint_close(checkpoint);
}

static void too_many_dimensions(void **state)
{
	(void)state;
	expect_one_tensor_refused(F32, 0, 5, (uint64_t[]){1, 1, 1, 1, 1}, WEIR_EFORMAT, "5 dimensions");
}

static bytes aligned_to(uint32_t alignment)
{
	bytes file = {0};

	put_gguf_start(&file, 3, 2, 1);
	put_entry_u32(&file, "general.alignment", alignment);
	put_info(&file, "first", I8, 0, 1, (uint64_t[]){1});
	put_info(&file, "second", I8, alignment, 1, (uint64_t[]){1});
	return file;
}

static void alignment_other_than_32(void **state)
{
	static const uint32_t alignments[] = {1, 8, 64, 4096, 1u << 20};

	(void)state;
	for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
		bytes file = aligned_to(alignments[i]);
		weir_checkpoint *checkpoint;

		put_padding(&file, alignments[i]);
		put_zeros(&file, (size_t)alignments[i] + 1);
		write_file("aligned.gguf", &file);
		checkpoint = open_valid("aligned.gguf");
		assert_int_equal(weir_checkpoint_tensor(checkpoint, 1)->offset + 1, weir_checkpoint_shard_bytes(checkpoint, 0));
		assert_int_equal(weir_checkpoint_tensor(checkpoint, 0)->offset % alignments[i], 0);
		weir_checkpoint_close(checkpoint);
	}
}

static void alignment_must_be_a_power_of_two(void **state)
{
	static const uint32_t alignments[] = {0, 3, 33, 48, 0xFFFFFFFF};

	(void)state;
	for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
		bytes file = aligned_to(alignments[i]);

		expect_refused_bytes(&file, "aligned.gguf", WEIR_EFORMAT, "must be a power of two");
	}
}

static void offsets_must_be_multiples_of_the_alignment(void **state)
{
	(void)state;
	expect_one_tensor_refused(F32, 16, 1, (uint64_t[]){1}, WEIR_EFORMAT, "not a multiple of the alignment 32");
}

static void dimensions_must_be_multiples_of_the_block(void **state)
{
	(void)state;
	expect_one_tensor_refused(Q4_0, 0, 2, (uint64_t[]){16, 2}, WEIR_EFORMAT, "not a multiple of the 32 of a Q4_0 block");
	expect_one_tensor_refused(Q4_K, 0, 1, (uint64_t[]){32}, WEIR_EFORMAT, "not a multiple of the 256");
	expect_one_tensor_refused(Q4_0, 0, 0, NULL, WEIR_EFORMAT, "a row of 1 elements");
}

static void tensors_must_not_overlap(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 2, 0);
	put_info(&file, "second", F32, 32, 1, (uint64_t[]){1});
	put_info(&file, "first", F32, 0, 1, (uint64_t[]){9});
	put_padding(&file, 32);
	put_zeros(&file, 64);
	expect_refused_bytes(&file, "overlap.gguf", WEIR_EFORMAT, "tensors 'first' and 'second' overlap");
}

static void gaps_and_any_order_are_accepted(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 3, 0);
	put_info(&file, "last", F32, 320, 1, (uint64_t[]){1});
	put_info(&file, "first", F32, 64, 1, (uint64_t[]){9});
	put_info(&file, "nothing", F32, 64, 1, (uint64_t[]){0});
	put_padding(&file, 32);
	put_zeros(&file, 400);
	write_file("gaps.gguf", &file);
	weir_checkpoint_close(open_valid("gaps.gguf"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("tensors are read", reads_tensors),
		RULE("every type of ggml is known", knows_every_type_of_ggml),
		RULE("element counts that wrap (CVE-2025-53630)", element_counts_that_wrap),
		RULE("byte sizes that wrap (CVE-2026-33298)", byte_sizes_that_wrap),
		RULE("offset + size past the end or wrapping (CVE-2026-7482)", offset_and_size_past_the_end_or_wrapping),
		RULE("truncation at every boundary", truncation_at_every_boundary),
		RULE("mutations do no harm", mutations_do_no_harm),
		RULE("lengths larger than the file", lengths_larger_than_the_file),
		RULE("zero counts", zero_counts),
		RULE("huge counts", huge_counts),
		RULE("huge counts in a huge sparse file", huge_counts_in_a_huge_sparse_file),
		RULE("a header longer than the limit", header_longer_than_the_limit),
		RULE("unknown versions", unknown_versions),
		RULE("version 2 is accepted", version_2_is_accepted),
		RULE("wrong magic", wrong_magic),
		RULE("big-endian refused with a clear message", big_endian_is_refused_with_a_clear_message),
		RULE("unknown and removed types of tensors", unknown_and_removed_tensor_types),
		RULE("duplicate tensor names", duplicate_tensor_names),
		RULE("names that contain NUL", names_that_contain_nul),
		RULE("names that are not UTF-8, or contain terminal escapes; names in any script",
		     names_that_are_not_utf8_or_hold_escapes),
		RULE("legal: a tensor without dimensions (a scalar)", a_tensor_without_dimensions_is_a_scalar),
		RULE("legal: a dimension of zero", a_dimension_of_zero),
		RULE("legal: metadata without tensors", metadata_without_tensors),
		RULE("more than four dimensions", too_many_dimensions),
		RULE("legal: alignment other than 32", alignment_other_than_32),
		RULE("general.alignment must be a power of two", alignment_must_be_a_power_of_two),
		RULE("offsets must be multiples of the alignment", offsets_must_be_multiples_of_the_alignment),
		RULE("dimensions a multiple of the quant block", dimensions_must_be_multiples_of_the_block),
		RULE("tensors must not overlap", tensors_must_not_overlap),
		RULE("legal: gaps between tensors, any order", gaps_and_any_order_are_accepted),
	};

	return cmocka_run_group_tests_name("gguf", tests, NULL, NULL);
}
