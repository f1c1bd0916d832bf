/*
 * test_safetensors.c - one safetensors file: what is read from it, and the rules that it must keep.
 */
#include "format_testing.h"

#include "format/dtype.h"

#define FILE_NAME "model.safetensors"
#define A "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"
#define B "\"b\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[4,8]}"

static void refuse(const char *json, size_t data_bytes, int code, const char *part)
{
	write_safetensors(FILE_NAME, json, data_bytes);
	expect_refused(FILE_NAME, code, part);
}

static void refuse_raw(const void *content, size_t count, int code, const char *part)
{
	write_bytes(FILE_NAME, content, count);
	expect_refused(FILE_NAME, code, part);
}

static weir_checkpoint *accept_json(const char *json, size_t data_bytes)
{
	write_safetensors(FILE_NAME, json, data_bytes);
	return open_valid(FILE_NAME);
}

static void reads_tensors_in_order_of_offsets(void **state)
{
	weir_checkpoint *checkpoint = accept_json("{" B "," A "}", 8);
	const weir_tensor *tensor;

	(void)state;
	assert_int_equal(weir_checkpoint_format(checkpoint), WEIR_FORMAT_SAFETENSORS);
	assert_int_equal(weir_checkpoint_version(checkpoint), 0);
	assert_null(weir_checkpoint_architecture(checkpoint));
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 2);
	assert_string_equal(weir_checkpoint_tensor(checkpoint, 0)->name, "a");
	tensor = weir_checkpoint_tensor(checkpoint, 1);
	assert_string_equal(tensor->name, "b");
	assert_int_equal(tensor->rank, 2);
	assert_int_equal(tensor->shape[1], 2);
	assert_int_equal(tensor->bytes, 4);
	assert_int_equal(tensor->offset + 4, weir_checkpoint_shard_bytes(checkpoint, 0));
	weir_checkpoint_close(checkpoint);
}

static void reads_metadata(void **state)
{
	weir_checkpoint *checkpoint = accept_json("{\"__metadata__\":{\"format\":\"pt\",\"nul\":\"a\\u0000b\"}," A "}", 4);
	const weir_metadata *entry = weir_checkpoint_metadata_find(checkpoint, "format");

	(void)state;
	assert_int_equal(weir_checkpoint_metadata_count(checkpoint), 2);
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 1);
	assert_int_equal(entry->type, WEIR_VALUE_STRING);
	assert_string_equal(entry->values[0].text, "pt");
	assert_int_equal(weir_checkpoint_metadata_find(checkpoint, "nul")->values[0].as.text_bytes, 3);
	weir_checkpoint_close(checkpoint);
}

static void knows_every_type(void **state)
{
	static const struct {
		const char *name;
		unsigned bits;
	} types[] = {{"BOOL", 8},    {"U8", 8},	  {"I8", 8},	      {"U16", 16},	 {"I16", 16},	 {"U32", 32},
		     {"I32", 32},    {"U64", 64}, {"I64", 64},	      {"F16", 16},	 {"BF16", 16},	 {"F32", 32},
		     {"F64", 64},    {"C64", 64}, {"F8_E4M3", 8},     {"F8_E5M2", 8},	 {"F8_E8M0", 8}, {"F6_E2M3", 6},
		     {"F6_E3M2", 6}, {"F4", 4},	  {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		weir_checkpoint *checkpoint;
		char json[128];

		snprintf(json, sizeof json, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%u]}}", types[i].name,
			 types[i].bits);
		checkpoint = accept_json(json, types[i].bits);
		assert_string_equal(weir_checkpoint_tensor(checkpoint, 0)->dtype_name, types[i].name);
		weir_checkpoint_close(checkpoint);
	}
}

static void unknown_dtypes(void **state)
{
	(void)state;
	refuse("{\"a\":{\"dtype\":\"F128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16, WEIR_EUNSUPPORTED,
	       "tensor 'a': dtype 'F128' is unknown");
	refuse("{\"a\":{\"dtype\":\"Q4_K\",\"shape\":[256],\"data_offsets\":[0,144]}}", 144, WEIR_EUNSUPPORTED, "is unknown");
	refuse("{\"a\":{\"dtype\":\"U8\\u0000\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEIR_EUNSUPPORTED, "is unknown");
	refuse("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, WEIR_EFORMAT, "\"dtype\"");
}

static void types_below_a_byte_must_fill_bytes(void **state)
{
	(void)state;
	refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, WEIR_EFORMAT, "no whole number of bytes");
	refuse("{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, WEIR_EFORMAT,
	       "no whole number of bytes");
}

static void header_starts_with_a_brace(void **state)
{
	(void)state;
	refuse(" {" A "}", 4, WEIR_EFORMAT, "must begin with '{'");
	refuse("[]", 0, WEIR_EFORMAT, "must begin with '{'");
	refuse("", 0, WEIR_EFORMAT, "must begin with '{'");
}

static void header_is_valid_utf8(void **state)
{
	(void)state;
	refuse("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT, "not valid UTF-8");
	refuse("{\"\xed\xa0\x80\":{}}", 0, WEIR_EFORMAT, "not valid UTF-8");
}

static void header_is_valid_json(void **state)
{
	static const char *const wrong[] = {"{",
					    "{" A,
					    "{" A "},",
					    "{" A "}{}",
					    "{'a':1}",
					    "{\"a\":NaN}",
					    "{\"a\" 1}",
					    "{" A "}\0",
					    "{\"a\":01}",
					    "{\"a\":\"\\x\"}",
					    "{\"a\":\"line\nbreak\"}",
					    "{\"a\":\"\\ud800\"}"};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		bytes file = safetensors_of(wrong[i], strlen(wrong[i]) + (i == 7), 4); /* the eighth with its NUL */

		expect_refused_bytes(&file, FILE_NAME, WEIR_EFORMAT, "not valid JSON");
	}
}

static void deep_json_does_no_harm(void **state)
{
	enum { DEPTH = 200000 };
	char *json = malloc(5 + DEPTH + 1);

	(void)state;
	memcpy(json, "{\"a\":", 5);
	memset(json + 5, '[', DEPTH);
	json[5 + DEPTH] = '\0';
	refuse(json, 0, WEIR_EFORMAT, "not valid JSON");
	free(json);
}

static void more_values_than_a_header_can_need(void **state)
{
	enum { BYTES = 20 << 20 };
	char *json = malloc(BYTES + 1);

	(void)state;
	memcpy(json, "{\"a\":[", 6);
	for (size_t i = 6; i < BYTES; i++)
		json[i] = i % 2 ? ',' : '0';
	json[BYTES] = '\0';
	refuse(json, 0, WEIR_EUNSUPPORTED, "values");
	free(json);
}

static void duplicate_keys(void **state)
{
	(void)state;
	refuse("{" A "," A "}", 4, WEIR_EFORMAT, "duplicate");
	refuse("{" A ",\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}", 8, WEIR_EFORMAT, "duplicate");
	refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT,
	       "duplicate");
	refuse("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," A "}", 4, WEIR_EFORMAT, "duplicate");
}

static void offsets_begin_at_0(void **state)
{
	(void)state;
	refuse("{" B "}", 8, WEIR_EFORMAT, "tensor 'b' leaves a hole before it: its data should begin at 0");
}

static void offsets_leave_no_holes(void **state)
{
	(void)state;
	refuse("{" A ",\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}", 6, WEIR_EFORMAT,
	       "tensor 'c' leaves a hole before it: its data should begin at 4");
}

static void offsets_do_not_overlap(void **state)
{
	(void)state;
	refuse("{" A ",\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[3,6]}}", 6, WEIR_EFORMAT,
	       "tensor 'c' overlaps the one before it");
	refuse("{" A ",\"c\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT, "overlaps");
}

static void data_covers_the_file_exactly(void **state)
{
	(void)state;
	refuse("{" A "}", 5, WEIR_EFORMAT, "should end with the file, which has 66 bytes (something follows them)");
	refuse("{" A "}", 3, WEIR_EFORMAT, "truncated?");
	refuse("{}", 1, WEIR_EFORMAT, "should end with the file");
}

static void offsets_that_end_before_they_begin(void **state)
{
	(void)state;
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4, WEIR_EFORMAT, "ends before it begins");
}

static void shape_times_dtype_equals_the_length(void **state)
{
	(void)state;
	refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT,
	       "tensor 'a': its data has 4 bytes, shape and dtype make 8");
}

static void counts_and_sizes_that_wrap(void **state)
{
	static const char *const shapes[] = {"4294967296,4294967296", "4294967296,4294967296,0", "0,4294967296,4294967296",
					     "4611686018427387904", "9223372036854775807,9223372036854775807"};
	char json[160];

	(void)state;
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[0,0]}}", shapes[i]);
		refuse(json, 0, WEIR_EFORMAT, "fits 64 bits");
	}
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}", 0, WEIR_EFORMAT,
	       "integer");
}

static void offsets_past_the_end(void **state)
{
	(void)state;
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,9223372036854775807]}}", 4,
	       WEIR_EFORMAT, "truncated?");
}

static void numbers_that_are_no_counts(void **state)
{
	static const char *const wrong[] = {"-1", "1.0", "\"4\"", "null", "true", "1e0", "[4]"};
	char json[128];

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,4]}}", wrong[i]);
		refuse(json, 4, WEIR_EFORMAT, "a dimension is no whole number");
		snprintf(json, sizeof json, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,%s]}}", wrong[i]);
		refuse(json, 4, WEIR_EFORMAT, "data_offsets");
	}
}

static void entries_that_lack_something(void **state)
{
	(void)state;
	refuse("{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT, "\"dtype\"");
	refuse("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT, "\"shape\"");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, WEIR_EFORMAT, "\"data_offsets\"");
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,8]}}", 4, WEIR_EFORMAT, "\"data_offsets\"");
	refuse("{\"a\":[]}", 0, WEIR_EFORMAT, "no object");
}

static void metadata_that_is_no_text(void **state)
{
	(void)state;
	refuse("{\"__metadata__\":{\"k\":1}," A "}", 4, WEIR_EFORMAT, "the value of 'k' is no text");
	weir_checkpoint_close(accept_json("{\"__metadata__\":null," A "}", 4)); /* as MLX writes it */
	refuse("{\"__metadata__\":[]," A "}", 4, WEIR_EFORMAT, "must be an object of texts");
}

static void more_dimensions_than_supported(void **state)
{
	weir_checkpoint_close(accept_json("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}}", 4));
	(void)state;
	refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}}", 4, WEIR_EUNSUPPORTED,
	       "more than 8 dimensions");
}

static void names_with_nul(void **state)
{
	(void)state;
	refuse("{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, WEIR_EFORMAT, "NUL");
}

static void truncation_at_every_boundary(void **state)
{
	bytes file = safetensors_of("{" A "," B "}", strlen("{" A "," B "}"), 8);

	(void)state;
	for (size_t length = 0; length < file.count; length++)
		refuse_raw(file.data, length, WEIR_EFORMAT, "truncated?");
	free(file.data);
}

static void lengths_larger_than_the_file(void **state)
{
	(void)state;
	refuse_raw("\x03\0\0\0\0\0\0\0{}", 10, WEIR_EFORMAT, "should have 3 bytes, more than the file");
	refuse_raw("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, WEIR_EFORMAT, "more than the file");
	refuse_raw("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10, WEIR_EFORMAT, "more than the file");
	refuse_raw("", 0, WEIR_EFORMAT, "too few");
}

static void headers_above_the_limit(void **state)
{
	bytes file = safetensors_of("{}", 2, 0);

	(void)state;
	file.data[4] = 1; /* 4 GiB and 2 bytes */
	write_file(FILE_NAME, &file);
	assert_int_equal(truncate(FILE_NAME, 1ll << 40), 0);
	expect_refused(FILE_NAME, WEIR_EUNSUPPORTED, "the limit is 100000000");
}

static void mutations_do_no_harm(void **state)
{
	const char *json = "{\"__metadata__\":{\"k\":\"v\"}," A "," B "}  ";
	bytes file = safetensors_of(json, strlen(json), 8);
	uint64_t seed = 2;

	(void)state;
	for (unsigned round = 0; round < 4000; round++) {
		unsigned char *copy = malloc(file.count);

		memcpy(copy, file.data, file.count);
		for (uint64_t i = next_random(&seed) % 3 + 1; i > 0; i--)
			copy[next_random(&seed) % file.count] = (unsigned char)(next_random(&seed) >> (next_random(&seed) % 8));
		write_bytes(FILE_NAME, copy, file.count);
		free(copy);
		expect_no_harm(FILE_NAME);
	}
	free(file.data);
}

static void a_scalar_and_a_dimension_of_zero(void **state)
{
	weir_checkpoint *checkpoint = accept_json("{\"s\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
						  "\"z\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[4,4]},"
						  "\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
						  4);

	(void)state;
	assert_int_equal(weir_checkpoint_find(checkpoint, "s")->rank, 0);
	assert_int_equal(weir_checkpoint_find(checkpoint, "s")->elements, 1);
	assert_int_equal(weir_checkpoint_find(checkpoint, "z")->bytes, 0);
	assert_int_equal(weir_checkpoint_find(checkpoint, "y")->elements, 0);
	weir_checkpoint_close(checkpoint);
}

static void header_padding_with_spaces(void **state)
{
	weir_checkpoint_close(accept_json("{" A "}                 ", 4));
	(void)state;
}

static void metadata_without_tensors(void **state)
{
	weir_checkpoint *checkpoint = accept_json("{\"__metadata__\":{\"k\":\"v\"}}", 0);

	(void)state;
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 0);
	weir_checkpoint_close(checkpoint);
	weir_checkpoint_close(accept_json("{}", 0));
}

static void names_in_any_script(void **state)
{
	weir_checkpoint *checkpoint =
		accept_json("{\"слой.模型.\\u00e9\\u001b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);

	(void)state;
	assert_non_null(weir_checkpoint_find(checkpoint, "слой.模型.é\x1b"));
	weir_checkpoint_close(checkpoint);
}

static void misaligned_tensors_are_legal(void **state)
{
	weir_checkpoint *checkpoint = accept_json("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
						  "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
						  5);

	(void)state;
	assert_false(weir_checkpoint_aligned(checkpoint));
	weir_checkpoint_close(checkpoint);
	checkpoint = accept_json("{" A "}", 4);
	assert_true(weir_checkpoint_aligned(checkpoint));
	weir_checkpoint_close(checkpoint);
}

static void entries_may_say_more(void **state)
{
	weir_checkpoint_close(
		accept_json("{\"a\":{\"note\":[1,{}],\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4));
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("tensors are read, offsets are ordered", reads_tensors_in_order_of_offsets),
		RULE("metadata is read", reads_metadata),
		RULE("every dtype of safetensors is known", knows_every_type),
		RULE("unknown dtypes", unknown_dtypes),
		RULE("types below a byte must fill bytes", types_below_a_byte_must_fill_bytes),
		RULE("header starts with {", header_starts_with_a_brace),
		RULE("header is valid UTF-8", header_is_valid_utf8),
		RULE("header is valid JSON", header_is_valid_json),
		RULE("deep JSON does no harm", deep_json_does_no_harm),
		RULE("more values than a header can need", more_values_than_a_header_can_need),
		RULE("JSON without duplicates", duplicate_keys),
		RULE("offsets begin at 0", offsets_begin_at_0),
		RULE("offsets leave no holes", offsets_leave_no_holes),
		RULE("offsets do not overlap", offsets_do_not_overlap),
		RULE("data covers the file exactly", data_covers_the_file_exactly),
		RULE("offsets that end before they begin", offsets_that_end_before_they_begin),
		RULE("shape × dtype equals the length", shape_times_dtype_equals_the_length),
		RULE("counts and products that wrap", counts_and_sizes_that_wrap),
		RULE("offset + size past the end", offsets_past_the_end),
		RULE("numbers that are no counts", numbers_that_are_no_counts),
		RULE("entries that lack something", entries_that_lack_something),
		RULE("metadata that is no text", metadata_that_is_no_text),
		RULE("more dimensions than supported", more_dimensions_than_supported),
		RULE("names that contain NUL", names_with_nul),
		RULE("truncation at every boundary", truncation_at_every_boundary),
		RULE("lengths larger than the file", lengths_larger_than_the_file),
		RULE("headers above the limit", headers_above_the_limit),
		RULE("mutations do no harm", mutations_do_no_harm),
		RULE("legal: a tensor without dimensions, a dimension of zero", a_scalar_and_a_dimension_of_zero),
		RULE("legal: header padding with spaces", header_padding_with_spaces),
		RULE("legal: metadata without tensors", metadata_without_tensors),
		RULE("legal: names in any script", names_in_any_script),
		RULE("legal: misaligned tensors", misaligned_tensors_are_legal),
		RULE("legal: entries that say more", entries_may_say_more),
	};

	return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
