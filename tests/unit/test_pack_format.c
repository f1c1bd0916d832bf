/*
 * test_pack_format.c - what the reader of packs accepts and refuses: each rule of docs/pack-format.md, broken one at a time.
 */
#include "pack_testing.h"

enum { SOURCE = 4096 + 16, TENSOR = SOURCE + 12 + 6 }; /* the model is called "m.gguf" */

static bytes whole; /* a valid pack */
static uint64_t index_bytes, sums_at, groups_at, members_at;

static int make_pack(void **state)
{
	weir_pack *pack;

	(void)state;
	if (enter_folder(state))
		return -1;
	write_model("m.gguf", 2, 3, 4, 1);
	pack_model("m.gguf", NULL);
	whole = load_file("m.weir");
	assert_int_equal(weir_pack_open_any("m.weir", &pack, NULL), 0);
	index_bytes = pack->header.index_bytes;
	sums_at = pack->sums_offset;
	members_at = 4096 + index_bytes - 24 * pack->members_count;
	groups_at = members_at - 24 * pack->groups_count;
	weir_pack_close(pack);
	return 0;
}

static int drop_pack(void **state)
{
	free(whole.data);
	whole = (bytes){0};
	return leave_folder(state);
}

static void set(unsigned char *at, uint64_t value, unsigned width)
{
	for (unsigned i = 0; i < width; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}

/* Makes the three hashes fit what the file says now. */
static void fit_hashes(unsigned char *file)
{
	uint64_t sums = weir_little_endian(file + 56, 8) * 8;

	if (sums_at + sums > whole.count)
		sums = 0;
	set(file + 96, weir_pack_hash(file + 4096, sums_at - 4096), 8);
	set(file + 104, weir_pack_hash(file + sums_at, sums), 8);
	set(file + 112, weir_pack_hash(file, 112), 8);
}

static void expect_pack_refused(const unsigned char *file, size_t count, int code, const char *part)
{
	weir_pack *pack = NULL;
	weir_error error = {0};
	int got;

	write_bytes("broken.weir", file, count);
	got = weir_pack_open("broken.weir", &pack, &error);
	if (got != code || !strstr(error.message, part))
		fail_msg("expected %s with '%s', got %s with '%s'", weir_error_name(code), part, weir_error_name(got),
			 error.message);
	assert_null(pack);
	assert_string_equal(error.file, "broken.weir");
}

/* The valid pack with one number changed, and hashes that fit. */
static void expect_rule(uint64_t at, unsigned width, uint64_t value, int code, const char *part)
{
	unsigned char *file = malloc(whole.count);

	assert_non_null(file);
	memcpy(file, whole.data, whole.count);
	set(file + at, value, width);
	fit_hashes(file);
	expect_pack_refused(file, whole.count, code, part);
	free(file);
}

static uint64_t number_at(uint64_t at, unsigned width)
{
	return weir_little_endian(whole.data + at, width);
}

static void a_written_pack_is_accepted(void **state)
{
	const weir_pack_tensor *up;
	weir_pack *pack;

	(void)state;
	assert_int_equal(weir_pack_open("m.weir", &pack, NULL), 0);
	assert_null(weir_pack_check(pack));
	assert_int_equal(weir_pack_bytes(pack), whole.count);
	assert_int_equal(weir_pack_tensors_count(pack), 9);
	assert_int_equal(weir_pack_sources_count(pack), 1);
	assert_string_equal(weir_pack_source_name(pack, 0), "m.gguf");
	assert_int_equal(weir_pack_chunks_count(pack), 3 + 2 * 3);
	assert_false(weir_pack_replaces(pack));
	up = weir_pack_find(pack, "blk.1.ffn_up_exps.weight");
	assert_non_null(up);
	assert_int_equal(up->slices_count, 3);
	assert_int_equal(up->slice_bytes, 64 * 4 * 4);
	assert_int_equal(up->stride_bytes, 3 * 4096);
	assert_int_equal(up->offset % 4096, 0);
	assert_null(weir_pack_find(pack, "no such"));
	assert_null(weir_pack_tensor_at(pack, 9));
	assert_int_equal(weir_pack_checksum(pack, 9, 0, 0), 0);
	weir_pack_close(pack);
	assert_true(weir_pack_recognize("m.weir"));
	assert_false(weir_pack_recognize("m.gguf"));
	assert_false(weir_pack_recognize("nothing"));
}

static void parts_of_an_expert_lie_side_by_side(void **state)
{
	static const char *const parts[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
					    "blk.0.ffn_down_exps.weight"};
	bytes model = load_file("m.gguf");
	const weir_pack_tensor *tensors[3];
	weir_pack *pack;

	(void)state;
	assert_int_equal(weir_pack_open("m.weir", &pack, NULL), 0);
	for (uint64_t i = 0; i < 3; i++) {
		tensors[i] = weir_pack_find(pack, parts[i]);
		assert_int_equal(tensors[i]->offset, tensors[0]->offset + i * 4096);
		for (uint32_t e = 0; e < 3; e++)
			assert_memory_equal(whole.data + tensors[i]->offset + e * tensors[i]->stride_bytes,
					    model.data + tensors[i]->source.offset + e * tensors[i]->slice_bytes,
					    tensors[i]->slice_bytes);
	}
	weir_pack_close(pack);
	free(model.data);
}

static void header_fields(void **state)
{
	(void)state;
	expect_rule(0, 8, 0x4b43415052494556, WEIR_EFORMAT, "no pack");
	expect_rule(8, 4, 0, WEIR_EUNSUPPORTED, "version 0");
	expect_rule(8, 4, 2, WEIR_EUNSUPPORTED, "version 2");
	expect_rule(12, 4, 512, WEIR_EFORMAT, "4096 bytes");
	expect_rule(16, 8, 2, WEIR_EUNSUPPORTED, "flags");
	expect_rule(24, 8, whole.count + 4096, WEIR_EFORMAT, "truncated");
	expect_rule(24, 8, UINT64_MAX, WEIR_EFORMAT, "truncated");
	expect_rule(32, 8, 0, WEIR_EFORMAT, "power of two");
	expect_rule(32, 8, 5000, WEIR_EFORMAT, "power of two");
	expect_rule(32, 8, 2048, WEIR_EFORMAT, "power of two");
	expect_rule(32, 8, 1ull << 40, WEIR_EFORMAT, "power of two");
	expect_rule(120, 1, 1, WEIR_ECHECKSUM, "must be zero");
	expect_rule(4095, 1, 1, WEIR_ECHECKSUM, "must be zero");
}

static void lengths_and_counts_of_the_header(void **state)
{
	(void)state;
	expect_rule(40, 8, UINT64_MAX, WEIR_EUNSUPPORTED, "limit");
	expect_rule(40, 8, whole.count, WEIR_EFORMAT, "past the end");
	expect_rule(40, 8, index_bytes - 1, WEIR_EFORMAT, "ends inside an entry");
	expect_rule(40, 8, index_bytes + 1, WEIR_EFORMAT, "longer than its entries");
	expect_rule(48, 8, UINT64_MAX, WEIR_EFORMAT, "more checksums");
	expect_rule(48, 8, number_at(48, 8) + 1, WEIR_EFORMAT, "not as many checksums");
	expect_rule(56, 8, number_at(48, 8) + 1, WEIR_EFORMAT, "more is done");
	expect_rule(56, 8, 3, WEIR_EFORMAT, "not finished");
}

static void counts_of_the_index(void **state)
{
	(void)state;
	expect_rule(4096, 4, 0, WEIR_EFORMAT, "beyond its limit");
	expect_rule(4096, 4, UINT32_MAX, WEIR_EFORMAT, "more than the index");
	expect_rule(4096 + 4, 4, UINT32_MAX, WEIR_EFORMAT, "more than the index");
	expect_rule(4096 + 4, 4, 8, WEIR_EFORMAT, "");
	expect_rule(4096 + 8, 4, UINT32_MAX, WEIR_EFORMAT, "more than the index");
	expect_rule(4096 + 8, 4, number_at(4096 + 8, 4) - 1, WEIR_EFORMAT, "");
	expect_rule(4096 + 12, 4, 1, WEIR_EFORMAT, "must be 0");
}

static void sources_and_tensors(void **state)
{
	(void)state;
	expect_rule(SOURCE, 8, 10, WEIR_EFORMAT, "past the end of its shard");
	expect_rule(SOURCE + 8, 4, UINT32_MAX, WEIR_EFORMAT, "name is longer");
	expect_rule(SOURCE + 12, 1, '/', WEIR_EFORMAT, "plain file name");
	expect_rule(SOURCE + 12, 1, 0, WEIR_EFORMAT, "NUL");
	expect_rule(TENSOR, 4, 1, WEIR_EFORMAT, "shard");
	expect_rule(TENSOR + 4, 4, 9999, WEIR_EFORMAT, "type");
	expect_rule(TENSOR + 8, 4, 9, WEIR_EFORMAT, "rank");
	expect_rule(TENSOR + 12, 8, UINT64_MAX, WEIR_EFORMAT, "64 bits");
	expect_rule(TENSOR + 12, 8, 1ull << 40, WEIR_EFORMAT, "past the end of its shard");
	expect_rule(TENSOR + 28, 8, UINT64_MAX, WEIR_EFORMAT, "past the end of its shard");
	expect_rule(TENSOR + 36, 4, 70000, WEIR_EFORMAT, "name is longer");
}

static void groups_and_members(void **state)
{
	uint64_t last = groups_at + 24 * 4; /* the last group: experts of layer 1 */

	(void)state;
	expect_rule(groups_at, 4, 0, WEIR_EFORMAT, "empty");
	expect_rule(groups_at, 4, 3, WEIR_EFORMAT, "slices");
	expect_rule(groups_at, 4, 2, WEIR_EFORMAT, "");
	expect_rule(groups_at + 4, 4, 0, WEIR_EFORMAT, "");
	expect_rule(groups_at + 4, 4, UINT32_MAX, WEIR_EFORMAT, "more members");
	expect_rule(groups_at + 8, 8, 0, WEIR_EFORMAT, "does not lie where");
	expect_rule(groups_at + 16, 8, 8192, WEIR_EFORMAT, "does not lie where");
	expect_rule(last + 8, 8, number_at(last + 8, 8) - 4096, WEIR_EFORMAT, "does not lie where");
	expect_rule(last + 16, 8, 0, WEIR_EFORMAT, "does not lie where");
	expect_rule(members_at, 4, 100, WEIR_EFORMAT, "no tensor");
	expect_rule(members_at + 24, 4, number_at(members_at, 4), WEIR_EFORMAT, "two places");
	expect_rule(members_at + 4, 4, 1, WEIR_EFORMAT, "must be 0");
	expect_rule(members_at + 8, 8, 4096, WEIR_EFORMAT, "does not lie where");
	expect_rule(members_at + 16, 8, 0, WEIR_EFORMAT, "checksum covers");
	expect_rule(members_at + 16, 8, 100, WEIR_EFORMAT, "checksum covers");
	expect_rule(members_at + 16, 8, UINT64_MAX, WEIR_EFORMAT, "checksum covers");
}

static void a_name_that_occurs_twice(void **state)
{
	unsigned char *file = malloc(whole.count), *first = NULL, *second = NULL;

	(void)state;
	assert_non_null(file);
	memcpy(file, whole.data, whole.count);
	first = memmem(file, whole.count, "blk.0.attn_norm", 15);
	second = memmem(file, whole.count, "blk.1.attn_norm", 15);
	assert_true(first && second);
	second[4] = '0';
	fit_hashes(file);
	expect_pack_refused(file, whole.count, WEIR_EFORMAT, "occurs twice");
	free(file);
}

static void hashes_that_do_not_match(void **state)
{
	static const struct {
		uint64_t at;
		const char *part;
	} cases[] = {{64, "header"}, {97, "header"}, {113, "header"}, {4200, "index"}};
	unsigned char *file = malloc(whole.count);

	(void)state;
	assert_non_null(file);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		memcpy(file, whole.data, whole.count);
		file[cases[i].at] ^= 0x40;
		expect_pack_refused(file, whole.count, WEIR_ECHECKSUM, cases[i].part);
	}
	memcpy(file, whole.data, whole.count);
	file[sums_at + 9] ^= 1;
	expect_pack_refused(file, whole.count, WEIR_ECHECKSUM, "table of checksums");
	free(file);
}

static void every_length_but_the_right_one(void **state)
{
	(void)state;
	for (size_t count = 0; count < whole.count; count += count < 200 ? 1 : 509) {
		weir_pack *pack = NULL;
		weir_error error = {0};

		write_bytes("cut.weir", whole.data, count);
		assert_true(weir_pack_open("cut.weir", &pack, &error) < 0);
		assert_string_not_equal(error.message, "");
		assert_null(pack);
	}
}

static void paths_beside_a_model(void **state)
{
	static const char *const cases[][2] = {{"m.gguf", "m.weir"},
					       {"/a/b.c/m.q4.gguf", "/a/b.c/m.q4.weir"},
					       {"d/m-00002-of-00003.gguf", "d/m.weir"},
					       {"d.e/model", "d.e/model.weir"},
					       {".gguf", ".gguf.weir"}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *path = weir_pack_path_beside(cases[i][0]);

		assert_string_equal(path, cases[i][1]);
		free(path);
	}
}

#define PACK_RULE(text, function)                                                                                              \
	{                                                                                                                      \
		(text), (function), make_pack, drop_pack, NULL                                                                 \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PACK_RULE("a pack that was written is accepted", a_written_pack_is_accepted),
		PACK_RULE("the parts of an expert lie side by side, unchanged", parts_of_an_expert_lie_side_by_side),
		PACK_RULE("header: magic, version, flags, alignment, padding", header_fields),
		PACK_RULE("header: lengths and counts", lengths_and_counts_of_the_header),
		PACK_RULE("index: counts fit", counts_of_the_index),
		PACK_RULE("index: sources and tensors", sources_and_tensors),
		PACK_RULE("index: every group and member lies where it must", groups_and_members),
		PACK_RULE("index: names occur once", a_name_that_occurs_twice),
		PACK_RULE("hashes match", hashes_that_do_not_match),
		PACK_RULE("a pack that is cut anywhere is refused", every_length_but_the_right_one),
		PACK_RULE("a pack's name follows from its model's", paths_beside_a_model),
	};

	return cmocka_run_group_tests_name("pack format", tests, NULL, NULL);
}
