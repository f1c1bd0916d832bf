/*
 * pack_testing.h - what the tests of packs share: a small model with experts, and files as bytes.
 */
#ifndef PACK_TESTING_H
#define PACK_TESTING_H

#include "format_testing.h"

#include "format/pack.h"
#include "format/reader.h"
#include "weir/pack.h"

/* A GGUF of F32 tensors: a table, and for each of `layers` layers a norm and the gate, up and down of `experts` experts, each
 * of `rows` × 64.  Data are random, from `seed`. */
static inline void write_model(const char *path, uint32_t layers, uint32_t experts, uint32_t rows, uint64_t seed)
{
	static const char *const parts[] = {"gate", "up", "down"};
	const uint64_t matrix = (uint64_t)rows * 64 * 4 * experts;
	uint64_t at = 0;
	bytes file = {0};
	char name[64];

	put_gguf_start(&file, 3, 1 + layers * 4, 1);
	put_entry_text(&file, "general.architecture", "test");
	put_info(&file, "token_embd.weight", F32, at, 2, (uint64_t[]){64, 5});
	at += 64 * 5 * 4;
	for (uint32_t layer = 0; layer < layers; layer++) {
		snprintf(name, sizeof name, "blk.%u.attn_norm.weight", layer);
		put_info(&file, name, F32, at, 1, (uint64_t[]){64});
		at += 64 * 4;
		for (int part = 0; part < 3; part++) {
			snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.weight", layer, parts[part]);
			put_info(&file, name, F32, at, 3, (uint64_t[]){64, rows, experts});
			at += matrix;
		}
	}
	put_padding(&file, 32);
	for (uint64_t i = 0; i < at / 8; i++)
		put_u64(&file, next_random(&seed));
	write_file(path, &file);
}

static inline bytes load_file(const char *path)
{
	FILE *file = fopen(path, "rb");
	bytes content = {0};
	unsigned char part[65536];
	size_t count;

	assert_non_null(file);
	while ((count = fread(part, 1, sizeof part, file)) > 0)
		put(&content, part, count);
	fclose(file);
	return content;
}

static inline bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

static inline void expect_same_file(const char *path, const bytes *expected)
{
	bytes found = load_file(path);

	assert_int_equal(found.count, expected->count);
	assert_memory_equal(found.data, expected->data, expected->count);
	free(found.data);
}

static inline void pack_model(const char *path, const weir_pack_options *options)
{
	weir_error error = {0};

	if (weir_pack_write(path, options, NULL, &error))
		fail_msg("%s should be packed, but: %s", path, error.message);
}

#endif
