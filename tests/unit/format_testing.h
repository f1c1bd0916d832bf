/*
 * format_testing.h - what the tests of src/format/ share: a folder for each test, files built byte by byte, and checks that a
 * file is accepted or refused with a rule.
 *
 * A test's name (RULE) is the rule that it holds the readers to.
 */
#ifndef FORMAT_TESTING_H
#define FORMAT_TESTING_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "format/catalog.h"
#include "weir/checkpoint.h"

#define RULE(text, function)                                                                                                   \
	{                                                                                                                      \
		(text), (function), enter_folder, leave_folder, NULL                                                           \
	}

/* ---- a folder for each test, which is also the working folder while it runs ---- */

static inline int enter_folder(void **state)
{
	char *folder = strdup("/tmp/weir-format-XXXXXX");

	*state = folder;
	return folder && mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
	(void)status, (void)type, (void)at;
	return remove(path);
}

static inline int leave_folder(void **state)
{
	int failed = chdir("/") || nftw(*state, remove_entry, 8, FTW_DEPTH | FTW_PHYS);

	free(*state);
	return failed;
}

/* ---- files, byte by byte ---- */

typedef struct bytes { /* all zero: empty; free(data) */
	unsigned char *data;
	size_t count, capacity;
} bytes;

static inline void put(bytes *to, const void *from, size_t count)
{
	if (to->count + count > to->capacity) {
		to->capacity = (to->count + count) * 2;
		to->data = realloc(to->data, to->capacity);
		assert_non_null(to->data);
	}
	if (count)
		memcpy(to->data + to->count, from, count);
	to->count += count;
}

static inline void put_number(bytes *to, uint64_t value, unsigned width)
{
	unsigned char raw[8];

	for (unsigned i = 0; i < width; i++)
		raw[i] = (unsigned char)(value >> 8 * i);
	put(to, raw, width);
}

static inline void put_u32(bytes *to, uint64_t value)
{
	put_number(to, value, 4);
}

static inline void put_u64(bytes *to, uint64_t value)
{
	put_number(to, value, 8);
}

static inline void put_zeros(bytes *to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put_number(to, 0, 1);
}

static inline void write_bytes(const char *path, const void *data, size_t count)
{
	FILE *file = fopen(path, "wb");

	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, count, file), count);
	assert_int_equal(fclose(file), 0);
}

/* Writes and frees. */
static inline void write_file(const char *path, bytes *content)
{
	write_bytes(path, content->data, content->count);
	free(content->data);
	*content = (bytes){0};
}

/* ---- GGUF ---- */

static inline void put_gguf_start(bytes *to, uint32_t version, uint64_t tensors, uint64_t entries)
{
	put(to, "GGUF", 4);
	put_u32(to, version);
	put_u64(to, tensors);
	put_u64(to, entries);
}

static inline void put_string_of(bytes *to, const char *text, size_t count)
{
	put_u64(to, count);
	put(to, text, count);
}

static inline void put_string(bytes *to, const char *text)
{
	put_string_of(to, text, strlen(text));
}

static inline void put_entry_number(bytes *to, const char *key, weir_value_type type, uint64_t value, unsigned width)
{
	put_string(to, key);
	put_u32(to, type);
	put_number(to, value, width);
}

static inline void put_entry_u32(bytes *to, const char *key, uint32_t value)
{
	put_entry_number(to, key, WEIR_VALUE_UINT32, value, 4);
}

static inline void put_entry_text(bytes *to, const char *key, const char *text)
{
	put_string(to, key);
	put_u32(to, WEIR_VALUE_STRING);
	put_string(to, text);
}

static inline void put_array_start(bytes *to, const char *key, uint32_t type, uint64_t count)
{
	put_string(to, key);
	put_u32(to, 9);
	put_u32(to, type);
	put_u64(to, count);
}

enum { F32 = 0, Q4_0 = 2, Q4_K = 12, I8 = 24 }; /* ggml's numbers */

static inline void put_info(bytes *to, const char *name, uint32_t type, uint64_t offset, uint32_t rank, const uint64_t *shape)
{
	put_string(to, name);
	put_u32(to, rank);
	for (uint32_t i = 0; i < rank; i++)
		put_u64(to, shape[i]);
	put_u32(to, type);
	put_u64(to, offset);
}

static inline void put_padding(bytes *to, size_t alignment)
{
	put_zeros(to, (alignment - to->count % alignment) % alignment);
}

/* A valid file with each kind of value, two tensors of 8 and 18 bytes, data[i] = i. */
static inline bytes sample_gguf(void)
{
	bytes file = {0};

	put_gguf_start(&file, 3, 2, 7);
	put_entry_text(&file, "general.architecture", "llama");
	put_entry_u32(&file, "llama.block_count", 7);
	put_entry_number(&file, "a.float", WEIR_VALUE_FLOAT32, 0x3FC00000, 4);
	put_entry_number(&file, "an.integer", WEIR_VALUE_INT16, 0xFFFE, 2);
	put_entry_number(&file, "a.flag", WEIR_VALUE_BOOL, 1, 1);
	put_array_start(&file, "words", WEIR_VALUE_STRING, 2);
	put_string(&file, "one");
	put_string(&file, "two");
	put_array_start(&file, "numbers", WEIR_VALUE_UINT64, 3);
	for (uint64_t i = 0; i < 3; i++)
		put_u64(&file, 1000 + i);
	put_info(&file, "norm", F32, 0, 1, (uint64_t[]){2});
	put_info(&file, "matrix", Q4_0, 32, 2, (uint64_t[]){32, 1});
	put_padding(&file, 32);
	for (unsigned i = 0; i < 32 + 18; i++)
		put_number(&file, i, 1);
	return file;
}

/* ---- safetensors ---- */

/* The file for a header and `data_bytes` of data, data[i] = i. */
static inline bytes safetensors_of(const char *json, size_t json_bytes, size_t data_bytes)
{
	bytes file = {0};

	put_u64(&file, json_bytes);
	put(&file, json, json_bytes);
	for (size_t i = 0; i < data_bytes; i++)
		put_number(&file, i, 1);
	return file;
}

static inline void write_safetensors(const char *path, const char *json, size_t data_bytes)
{
	bytes file = safetensors_of(json, strlen(json), data_bytes);

	write_file(path, &file);
}

/* ---- checks ---- */

/* Opens what must be valid; the caller closes. */
static inline weir_checkpoint *open_valid(const char *path)
{
	weir_checkpoint *checkpoint = NULL;
	weir_error error = {0};

	if (weir_checkpoint_open(path, NULL, &checkpoint, &error))
		fail_msg("%s should be accepted, but: %s", path, error.message);
	assert_null(weir_catalog_check(checkpoint));
	return checkpoint;
}

/* The file must be refused with this code, and the message must hold `part`. */
static inline void expect_refused(const char *path, int code, const char *part)
{
	weir_checkpoint *checkpoint = NULL;
	weir_error error = {0};
	int got = weir_checkpoint_open(path, NULL, &checkpoint, &error);

	if (got != code || !strstr(error.message, part))
		fail_msg("%s: expected %s with '%s', got %s with '%s'", path, weir_error_name(code), part, weir_error_name(got),
			 error.message);
	assert_int_equal(error.code, code);
	assert_null(checkpoint);
	assert_string_not_equal(error.file, "");
}

static inline void expect_refused_bytes(bytes *content, const char *path, int code, const char *part)
{
	write_file(path, content);
	expect_refused(path, code, part);
}

/* Whatever the bytes are, opening them ends with a checkpoint whose invariants hold, or with a code and a message. */
static inline void expect_no_harm(const char *path)
{
	weir_checkpoint *checkpoint = NULL;
	weir_error error = {0};

	if (weir_checkpoint_open(path, NULL, &checkpoint, &error)) {
		assert_true(error.code < 0);
		assert_string_not_equal(error.message, "");
		return;
	}
	assert_null(weir_catalog_check(checkpoint));
	weir_checkpoint_close(checkpoint);
}

/* A number from a seed; the same everywhere. */
static inline uint64_t next_random(uint64_t *state)
{
	*state += 0x9E3779B97F4A7C15u;
	uint64_t mixed = (*state ^ (*state >> 30)) * 0xBF58476D1CE4E5B9u;

	mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
	return mixed ^ (mixed >> 31);
}

#endif
