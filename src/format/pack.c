/*
 * pack.c - a pack as structs: places, and the bytes of header and index; see pack.h.  pack_read.c reads them.
 */
#include "format/pack.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/checked.h"
#include "format/catalog.h"

weir_pack *weir_pack_new(const char *path)
{
	weir_pack *pack = calloc(1, sizeof *pack);

	if (!pack)
		return NULL;
	pack->path = strdup(path);
	if (pack->path)
		return pack;
	free(pack);
	return NULL;
}

void weir_pack_close(weir_pack *pack)
{
	if (!pack)
		return;
	weir_names_free(&pack->names);
	weir_arena_free(&pack->arena);
	free(pack->sources);
	free(pack->tensors);
	free(pack->groups);
	free(pack->members);
	free(pack->tensor_member);
	free(pack->sums);
	free(pack->path);
	free(pack);
}

int weir_pack_reserve(weir_pack *pack, uint32_t sources, uint32_t tensors, uint32_t groups, uint32_t members)
{
	pack->sources = calloc((size_t)sources + 1, sizeof *pack->sources);
	pack->tensors = calloc((size_t)tensors + 1, sizeof *pack->tensors);
	pack->groups = calloc((size_t)groups + 1, sizeof *pack->groups);
	pack->members = calloc((size_t)members + 1, sizeof *pack->members);
	pack->tensor_member = malloc(((size_t)tensors + 1) * sizeof *pack->tensor_member);
	if (!pack->sources || !pack->tensors || !pack->groups || !pack->members || !pack->tensor_member)
		return WEIR_ENOMEM;
	memset(pack->tensor_member, 0xff, ((size_t)tensors + 1) * sizeof *pack->tensor_member);
	pack->sources_count = sources;
	pack->tensors_count = tensors;
	pack->groups_count = groups;
	pack->members_count = members;
	return WEIR_OK;
}

bool weir_pack_is_expert(const weir_tensor *tensor)
{
	return tensor->rank == 3 && tensor->shape[2] > 1 && tensor->shape[2] <= UINT32_MAX && tensor->bytes &&
	       strstr(tensor->name, "exps.");
}

/* ---- places ---- */

uint64_t weir_pack_member_units(const weir_pack_member *member)
{
	return member->bytes ? (member->bytes - 1) / member->unit_bytes + 1 : 0;
}

static const char *measure_member(weir_pack *pack, const weir_pack_group *group, uint32_t index)
{
	weir_pack_member *member = &pack->members[index];
	uint64_t bytes;

	if (member->tensor >= pack->tensors_count)
		return "a member is no tensor of the pack";
	if (pack->tensor_member[member->tensor] != UINT32_MAX)
		return "a tensor lies in two places";
	pack->tensor_member[member->tensor] = index;
	bytes = pack->tensors[member->tensor].source.bytes;
	if (bytes % group->count)
		return "a tensor cannot be cut into that many slices";
	member->bytes = bytes / group->count;
	if (!member->bytes)
		return member->unit_bytes ? "a tensor without bytes has checksums" : NULL;
	if (!member->unit_bytes || member->unit_bytes > member->bytes ||
	    (member->unit_bytes != member->bytes && member->unit_bytes % pack->header.alignment))
		return "the length that a checksum covers is neither that of the slice nor aligned";
	return NULL;
}

/* Sizes and units of a group; its offset comes later, because the table of checksums lies before all data. */
static const char *measure_group(weir_pack *pack, weir_pack_group *group)
{
	const char *broken = NULL;
	uint64_t units = 0, at = 0;

	if (!group->count || !group->members_count)
		return "a group is empty";
	for (uint32_t i = 0; i < group->members_count && !broken; i++) {
		weir_pack_member *member = &pack->members[group->members_first + i];

		broken = measure_member(pack, group, group->members_first + i);
		member->offset = at;
		member->units_first = units;
		if (broken)
			return broken;
		units += weir_pack_member_units(member);
		if (!weir_checked_add(at, member->bytes, &at) || !weir_checked_align(at, pack->header.alignment, &at))
			return "the size of a chunk wraps";
	}
	group->stride = at;
	group->units_first = pack->header.units_count;
	group->units_per_chunk = units;
	if (units > WEIR_PACK_UNITS_MAX || units * group->count > WEIR_PACK_UNITS_MAX - pack->header.units_count)
		return "there are more checksums than the limit allows";
	pack->header.units_count += units * group->count;
	pack->chunks_count += group->count;
	return NULL;
}

static const char *place_groups(weir_pack *pack)
{
	uint64_t at = pack->data_offset, bytes;

	for (uint32_t i = 0; i < pack->groups_count; i++) {
		weir_pack_group *group = &pack->groups[i];

		group->offset = at;
		if (!weir_checked_multiply(group->stride, group->count, &bytes) || !weir_checked_add(at, bytes, &at) ||
		    at > INT64_MAX)
			return "the size of the pack wraps";
	}
	pack->header.file_bytes = at;
	return NULL;
}

static void describe_tensors(weir_pack *pack)
{
	for (uint32_t i = 0; i < pack->groups_count; i++) {
		const weir_pack_group *group = &pack->groups[i];

		for (uint32_t m = 0; m < group->members_count; m++) {
			const weir_pack_member *member = &pack->members[group->members_first + m];
			weir_pack_tensor *tensor = &pack->tensors[member->tensor];

			tensor->group = i;
			tensor->offset = group->offset + member->offset;
			tensor->slice_bytes = member->bytes;
			tensor->slices_count = group->count;
			tensor->stride_bytes = group->count > 1 ? group->stride : 0;
			tensor->unit_bytes = member->unit_bytes;
		}
	}
}

const char *weir_pack_place(weir_pack *pack)
{
	const uint64_t alignment = pack->header.alignment;
	const char *broken = NULL;
	uint64_t end;

	pack->header.units_count = pack->chunks_count = pack->tensors_bytes = 0;
	memset(pack->tensor_member, 0xff, ((size_t)pack->tensors_count + 1) * sizeof *pack->tensor_member);
	for (uint32_t i = 0; i < pack->groups_count && !broken; i++)
		broken = measure_group(pack, &pack->groups[i]);
	for (uint32_t i = 0; i < pack->tensors_count && !broken; i++) {
		if (pack->tensor_member[i] == UINT32_MAX)
			broken = "a tensor lies nowhere";
		else if (!weir_checked_add(pack->tensors_bytes, pack->tensors[i].source.bytes, &pack->tensors_bytes))
			broken = "the sizes of all tensors together wrap";
	}
	if (broken)
		return broken;
	if (!weir_checked_align(WEIR_PACK_HEADER_BYTES + pack->header.index_bytes, alignment, &pack->sums_offset) ||
	    !weir_checked_add(pack->sums_offset, pack->header.units_count * sizeof *pack->sums, &end) ||
	    !weir_checked_align(end, alignment, &pack->data_offset))
		return "the size of the index wraps";
	broken = place_groups(pack);
	if (!broken)
		describe_tensors(pack);
	return broken;
}

/* ---- bytes ---- */

static unsigned char *put(unsigned char *to, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = (unsigned char)(value >> 8 * i);
	return to + bytes;
}

static unsigned char *put_text(unsigned char *to, const char *text)
{
	size_t bytes = strlen(text);

	to = put(to, bytes, 4);
	memcpy(to, text, bytes);
	return to + bytes;
}

uint64_t weir_pack_index_bytes(const weir_pack *pack)
{
	uint64_t bytes = 16 + 24 * (uint64_t)pack->groups_count + 24 * (uint64_t)pack->members_count;

	for (uint32_t i = 0; i < pack->sources_count; i++)
		bytes += 12 + strlen(pack->sources[i].name);
	for (uint32_t i = 0; i < pack->tensors_count; i++)
		bytes += 24 + 8 * (uint64_t)pack->tensors[i].source.rank + strlen(pack->tensors[i].source.name);
	return bytes;
}

static unsigned char *put_tensor(unsigned char *to, const weir_tensor *tensor)
{
	to = put(to, tensor->shard, 4);
	to = put(to, (uint64_t)tensor->dtype, 4);
	to = put(to, tensor->rank, 4);
	for (uint32_t i = 0; i < tensor->rank; i++)
		to = put(to, tensor->shape[i], 8);
	to = put(to, tensor->offset, 8);
	return put_text(to, tensor->name);
}

unsigned char *weir_pack_encode_index(const weir_pack *pack, uint64_t *bytes)
{
	unsigned char *index, *to;

	*bytes = weir_pack_index_bytes(pack);
	index = to = malloc(*bytes);
	if (!index)
		return NULL;
	to = put(to, pack->sources_count, 4);
	to = put(to, pack->tensors_count, 4);
	to = put(to, pack->groups_count, 4);
	to = put(to, 0, 4);
	for (uint32_t i = 0; i < pack->sources_count; i++)
		to = put_text(put(to, pack->sources[i].bytes, 8), pack->sources[i].name);
	for (uint32_t i = 0; i < pack->tensors_count; i++)
		to = put_tensor(to, &pack->tensors[i].source);
	for (uint32_t i = 0; i < pack->groups_count; i++) {
		to = put(to, pack->groups[i].count, 4);
		to = put(to, pack->groups[i].members_count, 4);
		to = put(to, pack->groups[i].offset, 8);
		to = put(to, pack->groups[i].stride, 8);
	}
	for (uint32_t i = 0; i < pack->members_count; i++) {
		to = put(to, pack->members[i].tensor, 4);
		to = put(to, 0, 4);
		to = put(to, pack->members[i].offset, 8);
		to = put(to, pack->members[i].unit_bytes, 8);
	}
	return index;
}

uint64_t weir_pack_hash(const void *data, size_t bytes)
{
	return XXH3_64bits(data, bytes);
}

uint64_t weir_pack_hash_index(const unsigned char *index, uint64_t bytes, uint64_t padded_bytes)
{
	static const unsigned char zeros[4096];
	XXH3_state_t *state = XXH3_createState();
	uint64_t hash;

	if (!state)
		return 0; /* matches nothing that was written */
	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, index, bytes);
	for (uint64_t left = padded_bytes - bytes; left;) {
		size_t count = left < sizeof zeros ? (size_t)left : sizeof zeros;

		XXH3_64bits_update(state, zeros, count);
		left -= count;
	}
	hash = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	return hash;
}

void weir_pack_encode_header(weir_pack *pack, unsigned char block[WEIR_PACK_HEADER_BYTES])
{
	weir_pack_header *header = &pack->header;
	unsigned char *to = block;

	header->sums_hash = weir_pack_hash(pack->sums, header->units_done * sizeof *pack->sums);
	memset(block, 0, WEIR_PACK_HEADER_BYTES);
	memcpy(to, WEIR_PACK_MAGIC, 8);
	to = put(to + 8, WEIR_PACK_VERSION, 4);
	to = put(to, WEIR_PACK_HEADER_BYTES, 4);
	to = put(to, header->flags, 8);
	to = put(to, header->file_bytes, 8);
	to = put(to, header->alignment, 8);
	to = put(to, header->index_bytes, 8);
	to = put(to, header->units_count, 8);
	to = put(to, header->units_done, 8);
	for (int i = 0; i < 2; i++)
		to = put(to, header->fingerprint.kept[i], 8);
	for (int i = 0; i < 2; i++)
		to = put(to, header->fingerprint.moved[i], 8);
	to = put(to, header->index_hash, 8);
	to = put(to, header->sums_hash, 8);
	put(to, weir_pack_hash(block, (size_t)(to - block)), 8);
}

/* ---- questions ---- */

const char *weir_pack_file(const weir_pack *pack)
{
	return pack->path;
}

uint32_t weir_pack_version(const weir_pack *pack)
{
	(void)pack; /* others are not opened */
	return WEIR_PACK_VERSION;
}

uint64_t weir_pack_bytes(const weir_pack *pack)
{
	return pack->header.file_bytes;
}

uint64_t weir_pack_alignment(const weir_pack *pack)
{
	return pack->header.alignment;
}

bool weir_pack_replaces(const weir_pack *pack)
{
	return pack->header.flags & WEIR_PACK_REPLACES;
}

uint32_t weir_pack_sources_count(const weir_pack *pack)
{
	return pack->sources_count;
}

const char *weir_pack_source_name(const weir_pack *pack, uint32_t shard)
{
	return shard < pack->sources_count ? pack->sources[shard].name : NULL;
}

uint64_t weir_pack_source_bytes(const weir_pack *pack, uint32_t shard)
{
	return shard < pack->sources_count ? pack->sources[shard].bytes : 0;
}

uint32_t weir_pack_tensors_count(const weir_pack *pack)
{
	return pack->tensors_count;
}

uint64_t weir_pack_tensors_bytes(const weir_pack *pack)
{
	return pack->tensors_bytes;
}

uint64_t weir_pack_chunks_count(const weir_pack *pack)
{
	return pack->chunks_count;
}

const weir_pack_tensor *weir_pack_tensor_at(const weir_pack *pack, uint32_t index)
{
	return index < pack->tensors_count ? &pack->tensors[index] : NULL;
}

const weir_pack_tensor *weir_pack_find(const weir_pack *pack, const char *name)
{
	return weir_pack_tensor_at(pack, weir_names_find(&pack->names, name));
}

uint64_t weir_pack_checksum(const weir_pack *pack, uint32_t tensor, uint32_t slice, uint64_t unit)
{
	const weir_pack_member *member;
	const weir_pack_group *group;

	if (tensor >= pack->tensors_count || slice >= pack->tensors[tensor].slices_count)
		return 0;
	group = &pack->groups[pack->tensors[tensor].group];
	member = &pack->members[pack->tensor_member[tensor]];
	if (unit >= weir_pack_member_units(member))
		return 0;
	return pack->sums[group->units_first + slice * group->units_per_chunk + member->units_first + unit];
}

static const char *check_tensor(const weir_pack *pack, uint32_t index)
{
	const weir_pack_tensor *tensor = &pack->tensors[index];
	uint64_t last;

	if (weir_names_find(&pack->names, tensor->source.name) != index)
		return "a tensor is not found by its name";
	if (tensor->source.shard >= pack->sources_count)
		return "a tensor comes from no shard";
	if (tensor->slice_bytes * tensor->slices_count != tensor->source.bytes)
		return "a tensor's slices are not all of it";
	last = tensor->offset + (tensor->slices_count - 1) * tensor->stride_bytes;
	if (!weir_extent_within(last, tensor->slice_bytes, pack->header.file_bytes))
		return "a tensor reaches past the end of the pack";
	return NULL;
}

const char *weir_pack_check(const weir_pack *pack)
{
	uint64_t bytes = 0, at = pack->data_offset;

	for (uint32_t i = 0; i < pack->tensors_count; i++) {
		const char *broken = check_tensor(pack, i);

		if (broken)
			return broken;
		bytes += pack->tensors[i].source.bytes;
	}
	for (uint32_t i = 0; i < pack->groups_count; i++) {
		if (pack->groups[i].offset != at)
			return "a group does not begin where the one before it ends";
		at += pack->groups[i].stride * pack->groups[i].count;
	}
	if (bytes != pack->tensors_bytes)
		return "tensors_bytes is not the sum";
	if (at != pack->header.file_bytes || pack->header.units_done > pack->header.units_count)
		return "the totals are not those of the groups";
	return NULL;
}
