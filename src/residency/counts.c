/*
 * counts.c - how often each chunk was demanded, kept between runs of a model: see weir/store.h.
 *
 * One small file for each model, ${XDG_CACHE_HOME:-~/.cache}/weir/models/KEY.counts.  KEY is a hash of the model's path, size,
 * time of change, and its weights' names and shapes.  Byte order is the machine's:
 *
 *     "WEIRCNT1"   u32 weights   u32 counts   u64 XXH3-64 of what follows
 *     for each weight:    u64 XXH3-64 of its name   u32 experts   u32 0
 *     for each of its experts, in the same order:   u32 count ≤ 65535
 *
 * The file is read as untrusted input: one that breaks a rule is as good as none, and replaced.
 *
 * Threads: as the store's; the file is written beside and renamed, so that of several runs the last one's counts stay.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "os/cache.h"
#include "os/outfile.h"
#include "residency/residency_types.h"

#define MAGIC "WEIRCNT1"
#define COUNT_MOST 65535U /* halved when they reach it, so that many old runs do not drown a new one */
#define WEIGHTS_MAX 8192U
#define COUNTS_MAX (1U << 18) /* with those the file stays below 1.2 MB */

typedef struct counts_header {
	char magic[8];
	uint32_t weights, counts;
	uint64_t hash;
} counts_header;

typedef struct counts_weight {
	uint64_t name_hash;
	uint32_t experts, zero;
} counts_weight;

/* Of a list of weights: what the file holds of them. */
typedef struct counted {
	const weir_counted_weight *weights;
	uint32_t count;
} counted;

static counts_weight describe(const weir_counted_weight *weight)
{
	return (counts_weight){.name_hash = XXH3_64bits(weight->name, strlen(weight->name)), .experts = weight->experts};
}

static uint64_t shape_hash(const counted *list)
{
	uint64_t hash = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		counts_weight described = describe(&list->weights[i]);

		hash = XXH3_64bits_withSeed(&described, sizeof described, hash ^ list->weights[i].bytes);
	}
	return hash;
}

/* False where there is no place for it. */
static bool file_path(const char *model, const counted *list, char path[PATH_MAX])
{
	char real[PATH_MAX], whole[PATH_MAX + 128], name[64];
	struct stat status;
	int length;

	if (!realpath(model, real) || stat(real, &status) < 0)
		return false;
	length = snprintf(whole, sizeof whole, "%s|%lld|%lld.%09ld|%016llx", real, (long long)status.st_size,
			  (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, (unsigned long long)shape_hash(list));
	snprintf(name, sizeof name, "models/%016llx.counts", (unsigned long long)XXH3_64bits(whole, (size_t)length));
	return weir_cache_path(path, PATH_MAX, name);
}

/* Experts that are streamed, and their weights; 0 when there are none, or too many, or chunks that the store does not have. */
static uint32_t count_streamed(const weir_store *store, const counted *list, uint32_t *weights)
{
	uint64_t experts = 0;

	*weights = 0;
	for (uint32_t i = 0; i < list->count; i++) {
		const weir_counted_weight *weight = &list->weights[i];

		if (!weight->chunks)
			continue;
		for (uint32_t e = 0; e < weight->experts; e++)
			if (weight->chunks[e] >= store->chunks_count)
				return 0;
		experts += weight->experts;
		(*weights)++;
	}
	return experts <= COUNTS_MAX && *weights <= WEIGHTS_MAX ? (uint32_t)experts : 0;
}

/* ---- reading ---- */

static uint64_t body_bytes(const counts_header *header)
{
	return header->weights * sizeof(counts_weight) + header->counts * sizeof(uint32_t);
}

/* Whether a file of this size can have this header. */
static bool is_sound(const counts_header *header, uint64_t file_bytes)
{
	return memcmp(header->magic, MAGIC, sizeof header->magic) == 0 && header->weights <= WEIGHTS_MAX &&
	       header->counts <= COUNTS_MAX && file_bytes == sizeof *header + body_bytes(header);
}

/* What follows the header, or NULL. */
static unsigned char *read_body(FILE *stream, counts_header *header)
{
	unsigned char *body;
	struct stat status;
	size_t bytes;

	if (fstat(fileno(stream), &status) < 0 || fread(header, sizeof *header, 1, stream) != 1 ||
	    !is_sound(header, (uint64_t)status.st_size))
		return NULL;
	bytes = (size_t)body_bytes(header);
	body = malloc(bytes);
	if (body && fread(body, 1, bytes, stream) == bytes && XXH3_64bits(body, bytes) == header->hash)
		return body;
	free(body);
	return NULL;
}

/* Something else stands there: opening a pipe would wait. */
static bool is_no_file(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static unsigned char *read_file(const char *path, counts_header *header)
{
	unsigned char *body;
	FILE *stream = is_no_file(path) ? NULL : fopen(path, "rbe");

	if (!stream)
		return NULL;
	body = read_body(stream, header);
	fclose(stream);
	return body;
}

static uint64_t take_weight(const counted *list, const counts_weight *known, const uint32_t *from, uint32_t *counts)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < list->count; i++) {
		const weir_counted_weight *weight = &list->weights[i];
		counts_weight described;

		if (!weight->chunks)
			continue;
		described = describe(weight);
		if (memcmp(&described, known, sizeof described) != 0)
			continue;
		for (uint32_t e = 0; e < known->experts; e++) {
			uint32_t count = from[e] < COUNT_MOST ? from[e] : COUNT_MOST;

			counts[weight->chunks[e]] = count;
			sum += count;
		}
	}
	return sum;
}

/* The sum of what was taken; 0 leaves `counts` of no use. */
static uint64_t take_file(const counted *list, const counts_header *header, const unsigned char *body, uint32_t *counts)
{
	const counts_weight *weights = (const void *)body;
	const uint32_t *from = (const void *)(weights + header->weights), *end = from + header->counts;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < header->weights; i++) {
		if (weights[i].experts > (uint64_t)(end - from))
			return 0;
		sum += take_weight(list, &weights[i], from, counts);
		from += weights[i].experts;
	}
	return from == end ? sum : 0;
}

uint64_t weir_store_load_counts(weir_store *store, const char *model, const weir_counted_weight *weights,
				uint32_t weights_count)
{
	counted list = {weights, weights_count};
	char path[PATH_MAX];
	counts_header header;
	unsigned char *body;
	uint32_t streamed, *counts;
	uint64_t sum = 0;

	if (!count_streamed(store, &list, &streamed) || !file_path(model, &list, path))
		return 0;
	body = read_file(path, &header);
	counts = body ? calloc(store->chunks_count, sizeof *counts) : NULL;
	if (counts)
		sum = take_file(&list, &header, body, counts);
	if (sum)
		weir_store_seed(store, counts);
	free(counts);
	free(body);
	return sum;
}

/* ---- writing ---- */

static void halve_to_fit(uint32_t *counts, uint32_t experts)
{
	uint32_t most = 0, halvings = 0;

	for (uint32_t e = 0; e < experts; e++)
		most = counts[e] > most ? counts[e] : most;
	while (most >> halvings > COUNT_MOST)
		halvings++;
	for (uint32_t e = 0; e < experts; e++)
		counts[e] >>= halvings;
}

static void fill_body(const counted *list, const uint32_t *by_chunk, counts_weight *weights, uint32_t *counts)
{
	for (uint32_t i = 0; i < list->count; i++) {
		const weir_counted_weight *weight = &list->weights[i];

		if (!weight->chunks)
			continue;
		*weights++ = describe(weight);
		for (uint32_t e = 0; e < weight->experts; e++)
			counts[e] = by_chunk[weight->chunks[e]];
		halve_to_fit(counts, weight->experts);
		counts += weight->experts;
	}
}

static void write_file(const char *path, const counts_header *header, const void *body, size_t bytes)
{
	weir_outfile file;

	weir_cache_make_folders(path);
	if (is_no_file(path) || weir_outfile_open(path, &file, NULL) != 0)
		return;
	if (fwrite(header, sizeof *header, 1, file.stream) != 1 || fwrite(body, bytes, 1, file.stream) != 1)
		weir_outfile_discard(&file);
	else
		weir_outfile_finish(&file, NULL);
}

void weir_store_save_counts(weir_store *store, const char *model, const weir_counted_weight *weights, uint32_t weights_count)
{
	counted list = {weights, weights_count};
	char path[PATH_MAX];
	counts_header header = {.magic = MAGIC};
	uint32_t *by_chunk;
	counts_weight *body;

	header.counts = count_streamed(store, &list, &header.weights);
	if (!header.counts || !file_path(model, &list, path))
		return;
	by_chunk = malloc(store->chunks_count * sizeof *by_chunk);
	body = malloc((size_t)body_bytes(&header));
	if (by_chunk && body) {
		weir_store_get_counts(store, by_chunk);
		fill_body(&list, by_chunk, body, (uint32_t *)(void *)(body + header.weights));
		header.hash = XXH3_64bits(body, (size_t)body_bytes(&header));
		write_file(path, &header, body, (size_t)body_bytes(&header));
	}
	free(by_chunk);
	free(body);
}
