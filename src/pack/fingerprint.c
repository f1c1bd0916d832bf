/*
 * fingerprint.c - what a checkpoint is known by, so that a pack is never used for another.
 *
 *   kept    for every shard: its size and everything before its data; and samples of up to 32 dense tensors
 *   moved   samples of up to 32 expert tensors
 *
 * Two models with the same shapes and names differ in every tensor that was trained, so samples spread over the file tell
 * them apart; time stamps, which copying changes, count for nothing.  A sample is 4 KiB at the start of a tensor, and 4 KiB
 * from its middle.  `moved` stands apart because those bytes are gone once the pack replaces them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/fail.h"
#include "pack/pack_internal.h"

#define SAMPLES_MAX 32
#define SAMPLE_BYTES 4096
#define HEADER_STEP_BYTES ((size_t)1 << 20)

typedef struct taking {
	const weir_checkpoint *checkpoint;
	XXH3_state_t *state;
	unsigned char *buffer;
	weir_error *error;
	weir_file file;
	uint32_t shard; /* the open one, or UINT32_MAX */
} taking;

int weir_pack_open_shard(const weir_checkpoint *checkpoint, uint32_t shard, weir_file *file, weir_error *error)
{
	const weir_shard *wanted = &checkpoint->shards[shard];
	int code = weir_file_open(wanted->path, file, error);

	if (code || weir_file_same(&file->identity, &wanted->identity))
		return code;
	weir_file_close(file);
	return weir_fail(error, WEIR_ECHANGED, wanted->path, WEIR_ERROR_NO_OFFSET, 0,
			 "the file was changed or replaced since it was opened: start again");
}

static int use_shard(taking *in, uint32_t shard)
{
	int code;

	if (in->shard == shard)
		return 0;
	weir_file_close(&in->file);
	in->shard = UINT32_MAX;
	code = weir_pack_open_shard(in->checkpoint, shard, &in->file, in->error);
	if (code)
		return code;
	in->shard = shard;
	(void)posix_fadvise(in->file.descriptor, 0, 0, POSIX_FADV_RANDOM); /* nothing beyond the samples into the page cache */
	return 0;
}

static int take(taking *in, uint32_t shard, uint64_t offset, uint64_t bytes)
{
	int code = use_shard(in, shard);

	while (!code && bytes) {
		size_t count = bytes < HEADER_STEP_BYTES ? (size_t)bytes : HEADER_STEP_BYTES;

		code = weir_file_read(&in->file, offset, in->buffer, count, in->error);
		if (!code)
			XXH3_128bits_update(in->state, in->buffer, count);
		offset += count;
		bytes -= count;
	}
	return code;
}

static void take_number(taking *in, uint64_t number)
{
	unsigned char raw[8];

	for (int i = 0; i < 8; i++)
		raw[i] = (unsigned char)(number >> 8 * i);
	XXH3_128bits_update(in->state, raw, sizeof raw);
}

/* Everything before the first tensor's data. */
static uint64_t header_bytes(const weir_checkpoint *checkpoint, uint32_t shard)
{
	uint64_t bytes = checkpoint->shards[shard].identity.bytes;

	for (uint32_t i = 0; i < checkpoint->tensors_count; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];

		if (tensor->shard == shard && tensor->bytes && tensor->offset < bytes)
			bytes = tensor->offset;
	}
	return bytes;
}

static int take_headers(taking *in)
{
	const weir_checkpoint *checkpoint = in->checkpoint;
	int code = 0;

	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++) {
		uint64_t bytes = header_bytes(checkpoint, i);

		take_number(in, checkpoint->shards[i].identity.bytes);
		take_number(in, bytes);
		code = take(in, i, 0, bytes);
	}
	return code;
}

static int take_sample(taking *in, const weir_tensor *tensor)
{
	uint64_t first = tensor->bytes < SAMPLE_BYTES ? tensor->bytes : SAMPLE_BYTES;
	uint64_t middle = tensor->bytes / 2, left = tensor->bytes - middle;
	int code = take(in, tensor->shard, tensor->offset, first);

	if (!code)
		code = take(in, tensor->shard, tensor->offset + middle, left < SAMPLE_BYTES ? left : SAMPLE_BYTES);
	return code;
}

static uint32_t count_kind(const weir_checkpoint *checkpoint, bool expert)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < checkpoint->tensors_count; i++)
		count += weir_pack_is_expert(&checkpoint->tensors[i]) == expert;
	return count;
}

/* Every so many tensors of a kind, the first one included. */
static int take_samples(taking *in, bool expert)
{
	const weir_checkpoint *checkpoint = in->checkpoint;
	uint32_t count = count_kind(checkpoint, expert), step = (count + SAMPLES_MAX - 1) / SAMPLES_MAX, seen = 0;
	int code = 0;

	for (uint32_t i = 0; i < checkpoint->tensors_count && !code; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];

		if (weir_pack_is_expert(tensor) == expert && seen++ % step == 0)
			code = take_sample(in, tensor);
	}
	return code;
}

static void finish(const taking *in, uint64_t numbers[2])
{
	XXH128_hash_t hash = XXH3_128bits_digest(in->state);

	numbers[0] = hash.low64;
	numbers[1] = hash.high64;
}

static int take_all(taking *in, bool moved, weir_pack_fingerprint *fingerprint)
{
	int code;

	XXH3_128bits_reset(in->state);
	code = take_headers(in);
	if (!code)
		code = take_samples(in, false);
	finish(in, fingerprint->kept);
	if (code || !moved)
		return code;
	XXH3_128bits_reset(in->state);
	code = take_samples(in, true);
	finish(in, fingerprint->moved);
	return code;
}

int weir_pack_read_fingerprint(const weir_checkpoint *checkpoint, bool moved, weir_pack_fingerprint *fingerprint,
			       weir_error *error)
{
	taking in = {.checkpoint = checkpoint, .error = error, .shard = UINT32_MAX, .file = {.descriptor = -1}};
	int code = WEIR_ENOMEM;

	*fingerprint = (weir_pack_fingerprint){0};
	in.state = XXH3_createState();
	in.buffer = malloc(HEADER_STEP_BYTES);
	if (in.state && in.buffer)
		code = take_all(&in, moved, fingerprint);
	else
		weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for a fingerprint");
	weir_file_close(&in.file);
	free(in.buffer);
	XXH3_freeState(in.state);
	return code;
}

/* ---- does a pack belong to a checkpoint? ---- */

static int fail_match(const weir_pack *pack, weir_error *error, const char *difference)
{
	return weir_fail(error, WEIR_ECHANGED, pack->path, WEIR_ERROR_NO_OFFSET, 0, "the pack was made from another model: %s",
			 difference);
}

static bool same_tensor(const weir_tensor *a, const weir_tensor *b)
{
	return a->shard == b->shard && a->offset == b->offset && a->bytes == b->bytes && a->dtype == b->dtype &&
	       a->rank == b->rank && !memcmp(a->shape, b->shape, sizeof a->shape);
}

static int compare_catalogs(const weir_pack *pack, const weir_checkpoint *checkpoint, weir_error *error)
{
	if (pack->sources_count != checkpoint->shards_count || pack->tensors_count != checkpoint->tensors_count)
		return fail_match(pack, error, "it has another number of shards or tensors");
	for (uint32_t i = 0; i < pack->sources_count; i++)
		if (pack->sources[i].bytes != checkpoint->shards[i].identity.bytes)
			return fail_match(pack, error, "a shard has another size");
	for (uint32_t i = 0; i < checkpoint->tensors_count; i++) {
		const weir_pack_tensor *packed = weir_pack_find(pack, checkpoint->tensors[i].name);

		if (!packed || !same_tensor(&packed->source, &checkpoint->tensors[i]))
			return fail_match(pack, error, "a tensor has another shape or place");
	}
	return 0;
}

int weir_pack_matches(const weir_pack *pack, const weir_checkpoint *checkpoint, weir_error *error)
{
	const weir_pack_fingerprint *ours = &pack->header.fingerprint;
	bool moved = !weir_pack_replaces(pack);
	weir_pack_fingerprint theirs;
	int code = compare_catalogs(pack, checkpoint, error);

	if (!code)
		code = weir_pack_read_fingerprint(checkpoint, moved, &theirs, error);
	if (code)
		return code;
	if (memcmp(ours->kept, theirs.kept, sizeof ours->kept) != 0)
		return fail_match(pack, error, "its header or weights differ");
	if (moved && memcmp(ours->moved, theirs.moved, sizeof ours->moved) != 0)
		return fail_match(pack, error, "its experts differ");
	return 0;
}
