/*
 * test_safetensors_index.c - sharded safetensors: the index, its shards, and the rules that they must keep.
 */
#include "format_testing.h"

#define INDEX "model.safetensors.index.json"

static void write_text(const char *path, const char *text)
{
	write_bytes(path, text, strlen(text));
}

static void write_shard(const char *path, const char *tensor)
{
	char json[128];

	snprintf(json, sizeof json,
		 "{\"__metadata__\":{\"of\":\"%s\"},\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", tensor,
		 tensor);
	write_safetensors(path, json, 4);
}

static void write_set(const char *index)
{
	write_shard("one.safetensors", "a");
	write_shard("two.safetensors", "b");
	write_text(INDEX, index);
}

#define MAP_OF_BOTH "\"weight_map\":{\"b\":\"two.safetensors\",\"a\":\"one.safetensors\"}"

static void refuse(const char *index, int code, const char *part)
{
	write_set(index);
	expect_refused(INDEX, code, part);
}

static void accept_set(const char *path)
{
	weir_checkpoint *checkpoint = open_valid(path);

	assert_int_equal(weir_checkpoint_format(checkpoint), WEIR_FORMAT_SAFETENSORS);
	assert_int_equal(weir_checkpoint_shards_count(checkpoint), 2);
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 2);
	assert_int_equal(weir_checkpoint_find(checkpoint, "a")->shard, 0);
	assert_int_equal(weir_checkpoint_find(checkpoint, "b")->shard, 1);
	assert_string_equal(weir_checkpoint_metadata_find(checkpoint, "of")->values[0].text, "a");
	weir_checkpoint_close(checkpoint);
}

static void a_set_opens_by_index_or_directory(void **state)
{
	char path[256];

	write_set("{" MAP_OF_BOTH "}");
	accept_set(INDEX);
	accept_set(".");
	snprintf(path, sizeof path, "%s/", (char *)*state);
	accept_set(path);
	snprintf(path, sizeof path, "%s/%s", (char *)*state, INDEX);
	accept_set(path);
}

static void total_size_may_be_wrong(void **state)
{
	weir_checkpoint *checkpoint;
	uint64_t natural;

	(void)state;
	write_set("{\"metadata\":{\"total_size\":123456789,\"of\":\"index\",\"odd\":[1]}," MAP_OF_BOTH "}");
	accept_set(INDEX);
	checkpoint = open_valid(INDEX);
	assert_int_equal(weir_metadata_natural(weir_checkpoint_metadata_find(checkpoint, "total_size"), 0, &natural), WEIR_OK);
	assert_int_equal(natural, 123456789);
	weir_checkpoint_close(checkpoint);
}

static void names_with_a_directory(void **state)
{
	static const char *const names[] = {"sub/one.safetensors", "../one.safetensors", "/etc/passwd", "..", ".", "a\\\\b",
					    "./one.safetensors"};
	char index[256];

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"%s\"}}", names[i]);
		refuse(index, WEIR_EFORMAT, "must be a plain file name beside the index");
	}
}

static void names_that_are_no_names(void **state)
{
	static const char *const values[] = {"\"\"", "1", "null", "[\"one.safetensors\"]", "\"one.safetensors\\u0000\""};
	char index[256];

	(void)state;
	for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
		snprintf(index, sizeof index, "{\"weight_map\":{\"a\":%s}}", values[i]);
		refuse(index, WEIR_EFORMAT, "must give a file name for each tensor");
	}
}

static void a_plain_name_that_is_a_link(void **state)
{
	(void)state;
	write_set("{" MAP_OF_BOTH "}");
	assert_int_equal(mkdir("blobs", 0700), 0);
	assert_int_equal(rename("two.safetensors", "blobs/0123"), 0);
	assert_int_equal(symlink("blobs/0123", "two.safetensors"), 0);
	accept_set(INDEX);
}

static void a_missing_shard(void **state)
{
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	write_set("{" MAP_OF_BOTH "}");
	assert_int_equal(unlink("two.safetensors"), 0);
	assert_int_equal(weir_checkpoint_open(INDEX, NULL, &checkpoint, &error), WEIR_EFORMAT);
	assert_string_equal(error.file, "two.safetensors");
	assert_non_null(strstr(error.message, "is missing"));
}

static void a_map_naming_tensors_that_a_shard_lacks(void **state)
{
	(void)state;
	refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"}}", WEIR_EFORMAT,
	       "tensor 'c' should be in shard 'two.safetensors', which lacks it");
	refuse("{\"weight_map\":{\"a\":\"two.safetensors\",\"b\":\"one.safetensors\"}}", WEIR_EFORMAT, "which lacks it");
}

static void a_tensor_in_two_shards(void **state)
{
	(void)state;
	write_set("{" MAP_OF_BOTH "}");
	write_shard("two.safetensors", "a");
	expect_refused(INDEX, WEIR_EFORMAT, "tensor name 'a' occurs twice");
}

static void an_invalid_shard_is_named(void **state)
{
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	write_set("{" MAP_OF_BOTH "}");
	assert_int_equal(truncate("two.safetensors", 80), 0);
	assert_int_equal(weir_checkpoint_open(INDEX, NULL, &checkpoint, &error), WEIR_EFORMAT);
	assert_string_equal(error.file, "two.safetensors");
}

static void an_index_that_is_none(void **state)
{
	(void)state;
	refuse("{}", WEIR_EFORMAT, "no \"weight_map\" object");
	refuse("{\"weight_map\":[]}", WEIR_EFORMAT, "no \"weight_map\" object");
	refuse("{\"weight_map\":{}}", WEIR_EFORMAT, "names no tensor");
	refuse("[]", WEIR_EFORMAT, "must begin with '{'");
	refuse("", WEIR_EFORMAT, "must begin with '{'");
	refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"}}", WEIR_EFORMAT, "duplicate");
}

static void truncation_at_every_boundary(void **state)
{
	const char *index = "{\"metadata\":{\"total_size\":8}," MAP_OF_BOTH "}";

	(void)state;
	write_set("");
	for (size_t length = 0; length < strlen(index); length++) {
		write_bytes(INDEX, index, length);
		expect_refused(INDEX, WEIR_EFORMAT, "");
	}
}

static void a_shard_that_is_a_fifo(void **state)
{
	(void)state;
	write_set("{" MAP_OF_BOTH "}");
	assert_int_equal(unlink("two.safetensors"), 0);
	assert_int_equal(mkfifo("two.safetensors", 0600), 0);
	expect_refused(INDEX, WEIR_ENOTREGULAR, "this is a FIFO");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("a set opens by its index or its directory", a_set_opens_by_index_or_directory),
		RULE("total_size is often wrong in published models", total_size_may_be_wrong),
		RULE("a name with a directory in it, absolute or with .. is refused", names_with_a_directory),
		RULE("names that are no names", names_that_are_no_names),
		RULE("a plain name that is a link is accepted (hub caches are made of links)", a_plain_name_that_is_a_link),
		RULE("missing shards", a_missing_shard),
		RULE("a map naming tensors that a shard lacks", a_map_naming_tensors_that_a_shard_lacks),
		RULE("duplicate tensor names over shards", a_tensor_in_two_shards),
		RULE("an invalid shard is named", an_invalid_shard_is_named),
		RULE("an index that is none", an_index_that_is_none),
		RULE("truncation at every boundary", truncation_at_every_boundary),
		RULE("a shard that is a FIFO", a_shard_that_is_a_fifo),
	};

	return cmocka_run_group_tests_name("safetensors_index", tests, NULL, NULL);
}
