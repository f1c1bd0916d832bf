/*
 * store_fixture.h - files with known contents and stores over them, for the tests of src/residency/.
 *
 * Two files of random bytes lie in a temporary folder and in memory.  The chunks have three sizes that are no multiple of any
 * alignment, start at odd places, and the last one of each file ends with the file.
 */
#ifndef WEIR_TESTS_STORE_FIXTURE_H
#define WEIR_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "residency/residency_types.h"

#define FIXTURE_FILES 2
#define FIXTURE_GROUPS 6 /* per file: small, middle, large, and one group of small and middle chunks */
#define FIXTURE_PER_GROUP 16
#define FIXTURE_CHUNKS (FIXTURE_GROUPS * FIXTURE_PER_GROUP)
#define SMALL_BYTES 2999
#define MIDDLE_BYTES 20011
#define LARGE_BYTES 70001

typedef struct store_fixture {
	char folder[64];
	char paths[FIXTURE_FILES][96];
	const char *path_list[FIXTURE_FILES];
	unsigned char *contents[FIXTURE_FILES];
	uint64_t file_bytes[FIXTURE_FILES];
	weir_chunk chunks[FIXTURE_CHUNKS];
	weir_store_options options;
} store_fixture;

/* xorshift: the same sequence everywhere. */
static inline uint32_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 16);
}

static inline uint64_t fixture_chunk_bytes(uint32_t chunk)
{
	static const uint64_t bytes[3] = {SMALL_BYTES, MIDDLE_BYTES, LARGE_BYTES};
	uint32_t kind = chunk / FIXTURE_PER_GROUP % 3;

	if (kind == 0 && chunk % 4 == 3) /* a group of two sizes */
		return MIDDLE_BYTES;
	return bytes[kind];
}

static inline void fixture_place_chunks(store_fixture *fixture)
{
	for (uint32_t i = 0; i < FIXTURE_CHUNKS; i++) {
		uint32_t file = i / (FIXTURE_CHUNKS / FIXTURE_FILES);

		fixture->chunks[i] = (weir_chunk){
			.file = file,
			.group = i / FIXTURE_PER_GROUP,
			.offset = fixture->file_bytes[file] + i % 3 * 7,
			.bytes = fixture_chunk_bytes(i),
		};
		fixture->file_bytes[file] = fixture->chunks[i].offset + fixture->chunks[i].bytes;
	}
}

static inline void fixture_write_file(store_fixture *fixture, uint32_t file, uint64_t *random)
{
	FILE *stream;

	snprintf(fixture->paths[file], sizeof fixture->paths[file], "%s/part%u", fixture->folder, file);
	fixture->path_list[file] = fixture->paths[file];
	fixture->contents[file] = malloc(fixture->file_bytes[file]);
	assert_non_null(fixture->contents[file]);
	for (uint64_t i = 0; i < fixture->file_bytes[file]; i++)
		fixture->contents[file][i] = (unsigned char)next_random(random);
	stream = fopen(fixture->paths[file], "wb");
	assert_non_null(stream);
	assert_int_equal(fwrite(fixture->contents[file], 1, fixture->file_bytes[file], stream), fixture->file_bytes[file]);
	assert_int_equal(fclose(stream), 0);
}

static inline int fixture_setup(void **state)
{
	store_fixture *fixture = calloc(1, sizeof *fixture);
	const char *parent = getenv("TMPDIR");
	uint64_t random = 88172645463325252u;

	assert_non_null(fixture);
	snprintf(fixture->folder, sizeof fixture->folder, "%s/weir-store-XXXXXX",
		 parent && strlen(parent) < 40 ? parent : "/tmp");
	assert_non_null(mkdtemp(fixture->folder));
	fixture_place_chunks(fixture);
	for (uint32_t file = 0; file < FIXTURE_FILES; file++)
		fixture_write_file(fixture, file, &random);
	fixture->options = (weir_store_options){
		.paths = fixture->path_list,
		.paths_count = FIXTURE_FILES,
		.chunks = fixture->chunks,
		.chunks_count = FIXTURE_CHUNKS,
		.budget_bytes = 1u << 20,
		.leases_max = 64,
		.queue_depth = 8,
		.piece_bytes = 16384,
	};
	*state = fixture;
	return 0;
}

static inline int fixture_teardown(void **state)
{
	store_fixture *fixture = *state;

	for (uint32_t file = 0; file < FIXTURE_FILES; file++) {
		unlink(fixture->paths[file]);
		free(fixture->contents[file]);
	}
	rmdir(fixture->folder);
	free(fixture);
	return 0;
}

static inline void assert_store_sound(const weir_store *store)
{
	const char *broken = weir_store_broken(store);

	if (broken)
		fail_msg("invariant does not hold: %s", broken);
}

static inline bool chunk_is_right(const store_fixture *fixture, uint32_t chunk, const void *data)
{
	const weir_chunk *extent = &fixture->chunks[chunk];

	return memcmp(data, fixture->contents[extent->file] + extent->offset, extent->bytes) == 0;
}

static inline weir_store *fixture_open(const store_fixture *fixture)
{
	weir_store *store = NULL;
	weir_error error;

	if (weir_store_open(&fixture->options, &store, &error) != 0)
		fail_msg("cannot open: %s: %s", error.file, error.message);
	assert_store_sound(store);
	return store;
}

/* Makes `count` chunks of one size, `per_group` to a group, that share `slots` slots. */
static inline void fixture_use_small(store_fixture *fixture, uint32_t count, uint32_t per_group, uint32_t slots)
{
	uint64_t all;

	assert_true(count <= FIXTURE_CHUNKS && (uint64_t)count * 4096 <= fixture->file_bytes[0]);
	for (uint32_t i = 0; i < count; i++)
		fixture->chunks[i] = (weir_chunk){.group = i / per_group, .offset = (uint64_t)i * 4096, .bytes = SMALL_BYTES};
	fixture->options.chunks_count = count;
	assert_int_equal(weir_store_sizes(&fixture->options, slots, &fixture->options.budget_bytes, &all), 0);
}

/* Acquires one chunk, which must succeed. */
static inline weir_lease *acquire_one(weir_store *store, uint32_t chunk)
{
	weir_lease *lease = NULL;

	assert_int_equal(weir_store_acquire(store, &chunk, 1, &lease, NULL), 1);
	assert_non_null(lease);
	assert_store_sound(store);
	return lease;
}

/* Acquires, waits, looks at the bytes and releases. */
static inline void touch(const store_fixture *fixture, weir_store *store, uint32_t chunk)
{
	weir_lease *lease = acquire_one(store, chunk);
	const void *data = NULL;

	assert_int_equal(weir_lease_wait(lease, &data, NULL), 0);
	assert_true(chunk_is_right(fixture, chunk, data));
	weir_lease_release(lease);
	assert_store_sound(store);
}

static inline weir_store_stats stats_of(weir_store *store)
{
	weir_store_stats stats;

	weir_store_get_stats(store, &stats);
	return stats;
}

#endif
