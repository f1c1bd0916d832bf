/*
 * test_gguf_split.c - split sets: complete, in order and consistent.
 */
#include "format_testing.h"

#define SHARD(number, count) "model-0000" #number "-of-0000" #count ".gguf"

typedef struct shard_facts {
	uint16_t number, count;
	int32_t tensors_count;
	const char *tensor; /* NULL: the shard has none */
	uint32_t version;
} shard_facts;

static void write_shard(const char *path, shard_facts facts)
{
	bytes file = {0};

	put_gguf_start(&file, facts.version ? facts.version : 3, facts.tensor ? 1 : 0, facts.number ? 3 : 4);
	put_entry_number(&file, "split.no", WEIR_VALUE_UINT16, facts.number, 2);
	put_entry_number(&file, "split.count", WEIR_VALUE_UINT16, facts.count, 2);
	put_entry_number(&file, "split.tensors.count", WEIR_VALUE_INT32, (uint32_t)facts.tensors_count, 4);
	if (!facts.number)
		put_entry_text(&file, "general.architecture", "llama");
	if (facts.tensor)
		put_info(&file, facts.tensor, I8, 0, 1, (uint64_t[]){10});
	put_padding(&file, 32);
	put_zeros(&file, 10);
	write_file(path, &file);
}

/* Shards 1 and 3 hold a tensor each, shard 2 none. */
static void write_set(void)
{
	write_shard(SHARD(1, 3), (shard_facts){0, 3, 2, "a", 0});
	write_shard(SHARD(2, 3), (shard_facts){1, 3, 2, NULL, 0});
	write_shard(SHARD(3, 3), (shard_facts){2, 3, 2, "b", 0});
}

static void expect_set(const char *path)
{
	weir_checkpoint *checkpoint = open_valid(path);

	assert_int_equal(weir_checkpoint_shards_count(checkpoint), 3);
	assert_int_equal(weir_checkpoint_tensors_count(checkpoint), 2);
	assert_int_equal(weir_checkpoint_find(checkpoint, "a")->shard, 0);
	assert_int_equal(weir_checkpoint_find(checkpoint, "b")->shard, 2);
	assert_string_equal(weir_checkpoint_architecture(checkpoint), "llama");
	assert_non_null(strstr(weir_checkpoint_shard_path(checkpoint, 1), SHARD(2, 3)));
	weir_checkpoint_close(checkpoint);
}

static void any_shard_opens_the_set(void **state)
{
	(void)state;
	write_set();
	expect_set(SHARD(1, 3));
	expect_set(SHARD(2, 3));
	expect_set("./" SHARD(3, 3));
	expect_set(".");
}

static void a_missing_shard_is_named(void **state)
{
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	write_set();
	assert_int_equal(unlink(SHARD(2, 3)), 0);
	assert_int_equal(weir_checkpoint_open(SHARD(3, 3), NULL, &checkpoint, &error), WEIR_EFORMAT);
	assert_string_equal(error.file, SHARD(2, 3));
	assert_non_null(strstr(error.message, "shard 2 of 3 is missing"));
}

static void a_shard_out_of_order(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(2, 3), (shard_facts){2, 3, 2, NULL, 0});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "split.no is 2 and should be 1");
	expect_refused(SHARD(2, 3), WEIR_EFORMAT, "it must be named PREFIX-00003-of-00003.gguf");
}

static void a_shard_of_another_count(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(3, 3), (shard_facts){2, 4, 2, "b", 0});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "split.count is 4 and should be 3");
}

static void shards_that_disagree_on_tensors(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(3, 3), (shard_facts){2, 3, 9, "b", 0});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "split.tensors.count is 9 and should be 2");
}

static void tensors_fewer_than_stated(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(3, 3), (shard_facts){2, 3, 2, NULL, 0});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "split.tensors.count is 2, the shards hold 1 tensors");
}

static void a_shard_of_another_version(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(3, 3), (shard_facts){2, 3, 2, "b", 2});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "the version is 2 and should be 3");
}

static void a_tensor_in_two_shards(void **state)
{
	(void)state;
	write_set();
	write_shard(SHARD(3, 3), (shard_facts){2, 3, 2, "a", 0});
	expect_refused(SHARD(1, 3), WEIR_EFORMAT, "tensor name 'a' occurs twice");
}

static void a_shard_under_another_name(void **state)
{
	(void)state;
	write_set();
	assert_int_equal(rename(SHARD(1, 3), "renamed.gguf"), 0);
	expect_refused("renamed.gguf", WEIR_EFORMAT, "it must be named PREFIX-00001-of-00003.gguf");
}

static void a_shard_that_is_a_link(void **state)
{
	(void)state;
	write_set();
	assert_int_equal(rename(SHARD(2, 3), "blob"), 0);
	assert_int_equal(symlink("blob", SHARD(2, 3)), 0);
	expect_set(SHARD(1, 3));
}

static void a_truncated_shard_is_named(void **state)
{
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	write_set();
	assert_int_equal(truncate(SHARD(3, 3), 165), 0);
	assert_int_equal(weir_checkpoint_open(SHARD(1, 3), NULL, &checkpoint, &error), WEIR_EFORMAT);
	assert_string_equal(error.file, SHARD(3, 3));
}

static void split_keys_must_be_numbers(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 1);
	put_entry_text(&file, "split.count", "3");
	expect_refused_bytes(&file, SHARD(1, 3), WEIR_EFORMAT, "'split.count' must be a number");
}

static void split_numbers_that_wrap(void **state)
{
	bytes file = {0};

	(void)state;
	put_gguf_start(&file, 3, 0, 2);
	put_entry_number(&file, "split.count", WEIR_VALUE_UINT64, UINT64_MAX, 8);
	put_entry_number(&file, "split.no", WEIR_VALUE_UINT64, UINT64_MAX - 1, 8);
	expect_refused_bytes(&file, SHARD(1, 3), WEIR_EFORMAT, "must be named");
}

static void a_set_of_one(void **state)
{
	weir_checkpoint *checkpoint;

	(void)state;
	write_shard("alone.gguf", (shard_facts){0, 1, 1, "a", 0});
	checkpoint = open_valid("alone.gguf");
	assert_int_equal(weir_checkpoint_shards_count(checkpoint), 1);
	weir_checkpoint_close(checkpoint);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("split sets: any shard opens the set", any_shard_opens_the_set),
		RULE("split sets complete: a missing shard is named", a_missing_shard_is_named),
		RULE("split sets in order", a_shard_out_of_order),
		RULE("split sets consistent: split.count", a_shard_of_another_count),
		RULE("split sets consistent: split.tensors.count", shards_that_disagree_on_tensors),
		RULE("split sets complete: as many tensors as stated", tensors_fewer_than_stated),
		RULE("split sets consistent: version", a_shard_of_another_version),
		RULE("duplicate tensor names over shards", a_tensor_in_two_shards),
		RULE("split sets: a shard under another name", a_shard_under_another_name),
		RULE("a shard that is a link is accepted (hub caches are made of links)", a_shard_that_is_a_link),
		RULE("a truncated shard is named", a_truncated_shard_is_named),
		RULE("split keys must be numbers", split_keys_must_be_numbers),
		RULE("split numbers that wrap", split_numbers_that_wrap),
		RULE("a set of one is a file", a_set_of_one),
	};

	return cmocka_run_group_tests_name("gguf_split", tests, NULL, NULL);
}
