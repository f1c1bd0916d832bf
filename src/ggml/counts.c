/*
 * counts.c - see counts.h.
 */
#include "ggml/counts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "ggml/outfile.h"
#include "os/cache.h"

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

static bool is_streamed(const weir_weight *weight)
{
	return weight->place == PLACE_SLOTS;
}

static counts_weight describe(const weir_weight *weight)
{
	return (counts_weight){.name_hash = XXH3_64bits(weight->tensor->name, strlen(weight->tensor->name)),
			       .experts = (uint32_t)weight->tensor->ne[2]};
}

/* Of a model's expert weights, streamed or not. */
static uint64_t shape_hash(const weir_session *session, uint32_t *file)
{
	uint64_t hash = 0;

	*file = UINT32_MAX;
	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];
		counts_weight described = describe(weight);

		if (!weir_weights_is_expert(weight))
			continue;
		if (*file == UINT32_MAX)
			*file = weight->mapped_file;
		hash = XXH3_64bits_withSeed(&described, sizeof described, hash ^ weight->bytes);
	}
	return hash;
}

/* False where there is no place for it. */
static bool file_path(const weir_session *session, char path[PATH_MAX])
{
	char model[PATH_MAX], whole[PATH_MAX + 128], name[64];
	struct stat status;
	uint32_t file;
	uint64_t shapes = shape_hash(session, &file);
	int length;

	if (file == UINT32_MAX || !realpath(session->files[file].path, model) || stat(model, &status) < 0)
		return false;
	length = snprintf(whole, sizeof whole, "%s|%lld|%lld.%09ld|%016llx", model, (long long)status.st_size,
			  (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, (unsigned long long)shapes);
	snprintf(name, sizeof name, "models/%016llx.counts", (unsigned long long)XXH3_64bits(whole, (size_t)length));
	return weir_cache_path(path, PATH_MAX, name);
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

static uint64_t take_weight(const weir_session *session, const counts_weight *known, const uint32_t *from, uint32_t *counts)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];
		counts_weight described;

		if (!is_streamed(weight))
			continue;
		described = describe(weight);
		if (memcmp(&described, known, sizeof described) != 0)
			continue;
		for (uint32_t e = 0; e < known->experts; e++) {
			counts[weight->chunk_first + e] = from[e] < COUNT_MOST ? from[e] : COUNT_MOST;
			sum += counts[weight->chunk_first + e];
		}
	}
	return sum;
}

/* The sum of what was taken; 0 leaves `counts` of no use. */
static uint64_t take_file(const weir_session *session, const counts_header *header, const unsigned char *body, uint32_t *counts)
{
	const counts_weight *weights = (const void *)body;
	const uint32_t *from = (const void *)(weights + header->weights), *end = from + header->counts;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < header->weights; i++) {
		if (weights[i].experts > (uint64_t)(end - from))
			return 0;
		sum += take_weight(session, &weights[i], from, counts);
		from += weights[i].experts;
	}
	return from == end ? sum : 0;
}

static uint32_t count_chunks(const weir_session *session, uint32_t *weights)
{
	uint32_t chunks = 0;

	*weights = 0;
	for (uint32_t i = 0; i < session->weights_count; i++)
		if (is_streamed(&session->weights[i])) {
			chunks += (uint32_t)session->weights[i].tensor->ne[2];
			(*weights)++;
		}
	return chunks;
}

void weir_counts_load(weir_session *session)
{
	char path[PATH_MAX];
	counts_header header;
	unsigned char *body;
	uint32_t weights, chunks = count_chunks(session, &weights), *counts;

	session->counts_loaded = 0;
	session->counts_demanded = 0;
	if (session->options.no_counts || !session->store || !file_path(session, path))
		return;
	body = read_file(path, &header);
	counts = body ? calloc(chunks, sizeof *counts) : NULL;
	if (counts)
		session->counts_loaded = take_file(session, &header, body, counts);
	if (session->counts_loaded)
		weir_store_seed(session->store, counts);
	free(counts);
	free(body);
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

/* `counts` is by chunk, and so by weight: chunks are numbered weight by weight, in the same order. */
static void fill_body(const weir_session *session, counts_weight *weights, uint32_t *counts)
{
	for (uint32_t i = 0; i < session->weights_count; i++) {
		const weir_weight *weight = &session->weights[i];

		if (!is_streamed(weight))
			continue;
		*weights++ = describe(weight);
		halve_to_fit(counts + weight->chunk_first, (uint32_t)weight->tensor->ne[2]);
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

void weir_counts_save(weir_session *session)
{
	char path[PATH_MAX];
	counts_header header = {.magic = MAGIC};
	weir_store_stats stats;
	size_t bytes;
	counts_weight *body;

	if (session->options.no_counts || !session->store)
		return;
	weir_store_get_stats(session->store, &stats);
	if (stats.demanded == session->counts_demanded)
		return;
	session->counts_demanded = stats.demanded;
	header.counts = count_chunks(session, &header.weights);
	if (header.counts > COUNTS_MAX || header.weights > WEIGHTS_MAX || !file_path(session, path))
		return;
	bytes = (size_t)body_bytes(&header);
	body = malloc(bytes);
	if (!body)
		return;
	weir_store_get_counts(session->store, (uint32_t *)(void *)(body + header.weights));
	fill_body(session, body, (uint32_t *)(void *)(body + header.weights));
	header.hash = XXH3_64bits(body, bytes);
	write_file(path, &header, body, bytes);
	free(body);
}
