/*
 * pack_read.c - opening a pack: header, index, checksums; see pack.h and docs/pack-format.md.
 *
 * Nothing of the file is believed before its hash has matched, and nothing is believed because of that: a hash keeps
 * accidents out, the rules keep out what was made to harm.  Counts are bounded by the bytes that are there before memory is
 * taken for them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"
#include "format/catalog.h"
#include "format/pack.h"
#include "format/reader.h"

enum {
	FIELDS_BYTES = 112, /* of the header, up to its own hash */
	SOURCE_BYTES_LEAST = 13,
	TENSOR_BYTES_LEAST = 24,
	GROUP_BYTES = 24,
	MEMBER_BYTES = 24,
	SOURCES_MAX = 99999
};

typedef struct cursor {
	const weir_pack *pack;
	weir_error *error;
	const unsigned char *index;
	uint64_t position, end;
	const char *broken; /* the rule that an entry broke; numbers are 0 from then on */
} cursor;

static int fail_at(const weir_pack *pack, int code, uint64_t offset, weir_error *error, const char *rule)
{
	return weir_fail(error, code, pack->path, offset, 0, "%s", rule);
}

static int no_memory(const weir_pack *pack, weir_error *error)
{
	return fail_at(pack, WEIR_ENOMEM, WEIR_ERROR_NO_OFFSET, error, "out of memory");
}

/* ---- header ---- */

static void decode_header(weir_pack_header *header, const unsigned char *block)
{
	uint64_t *const fields[] = {&header->flags,
				    &header->file_bytes,
				    &header->alignment,
				    &header->index_bytes,
				    &header->units_count,
				    &header->units_done,
				    &header->fingerprint.kept[0],
				    &header->fingerprint.kept[1],
				    &header->fingerprint.moved[0],
				    &header->fingerprint.moved[1],
				    &header->index_hash,
				    &header->sums_hash};

	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		*fields[i] = weir_little_endian(block + 16 + 8 * i, 8);
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (bytes[i])
			return false;
	return true;
}

/* Magic and version first: they say best what is wrong with another kind of file. */
static int check_start(const weir_pack *pack, const unsigned char *block, weir_error *error)
{
	uint32_t version = (uint32_t)weir_little_endian(block + 8, 4);

	if (memcmp(block, WEIR_PACK_MAGIC, 8) != 0)
		return fail_at(pack, WEIR_EFORMAT, 0, error, "the file does not begin with \"WEIRPACK\": it is no pack");
	if (version != WEIR_PACK_VERSION)
		return weir_fail(error, WEIR_EUNSUPPORTED, pack->path, 8, 0, "pack version %u is not supported; %u is", version,
				 WEIR_PACK_VERSION);
	if (weir_little_endian(block + FIELDS_BYTES, 8) != weir_pack_hash(block, FIELDS_BYTES))
		return fail_at(pack, WEIR_ECHECKSUM, 0, error,
			       "the header is not what was written: its checksum does not match");
	if (weir_little_endian(block + 12, 4) != WEIR_PACK_HEADER_BYTES)
		return fail_at(pack, WEIR_EFORMAT, 12, error, "the header of version 1 has 4096 bytes");
	if (!is_zero(block + FIELDS_BYTES + 8, WEIR_PACK_HEADER_BYTES - FIELDS_BYTES - 8))
		return fail_at(pack, WEIR_ECHECKSUM, FIELDS_BYTES + 8, error, "the rest of the header must be zero");
	return WEIR_OK;
}

static int check_fields(const weir_pack *pack, weir_error *error)
{
	const weir_pack_header *header = &pack->header;

	if (header->flags & ~WEIR_PACK_REPLACES)
		return fail_at(pack, WEIR_EUNSUPPORTED, 16, error, "the pack has flags that this version does not know");
	if (!weir_is_power_of_two(header->alignment) || header->alignment < WEIR_PACK_ALIGNMENT ||
	    header->alignment > WEIR_PACK_ALIGNMENT_MAX)
		return fail_at(pack, WEIR_EFORMAT, 32, error, "the alignment must be a power of two from 4096 to 2097152");
	if (header->file_bytes != pack->identity.bytes)
		return weir_fail(error, WEIR_EFORMAT, pack->path, 24, 0,
				 "the pack should have %llu bytes and has %llu (truncated?)",
				 (unsigned long long)header->file_bytes, (unsigned long long)pack->identity.bytes);
	if (header->index_bytes > WEIR_PACK_INDEX_BYTES_MAX)
		return fail_at(pack, WEIR_EUNSUPPORTED, 40, error, "the index is longer than the limit of 256 MiB");
	if (!weir_extent_within(WEIR_PACK_HEADER_BYTES, header->index_bytes, pack->identity.bytes))
		return fail_at(pack, WEIR_EFORMAT, 40, error, "the index reaches past the end of the file");
	if (header->units_count > WEIR_PACK_UNITS_MAX || header->units_count > pack->identity.bytes / 8)
		return fail_at(pack, WEIR_EFORMAT, 48, error, "there are more checksums than the file could hold");
	if (header->units_done > header->units_count)
		return fail_at(pack, WEIR_EFORMAT, 56, error, "more is done than there is to do");
	return WEIR_OK;
}

static int read_header(weir_pack *pack, const weir_file *file, weir_error *error)
{
	unsigned char block[WEIR_PACK_HEADER_BYTES] = {0};
	size_t bytes = file->identity.bytes < sizeof block ? (size_t)file->identity.bytes : sizeof block;
	int code = weir_file_read(file, 0, block, bytes, error);

	if (!code && bytes < sizeof block && bytes >= 8 && memcmp(block, WEIR_PACK_MAGIC, 8) == 0)
		code = fail_at(pack, WEIR_EFORMAT, bytes, error, "the file ends inside the header (truncated?)");
	if (!code)
		code = check_start(pack, block, error);
	if (code)
		return code;
	decode_header(&pack->header, block);
	return check_fields(pack, error);
}

/* ---- index ---- */

static uint64_t number(cursor *in, size_t bytes)
{
	uint64_t value;

	if (!in->broken && bytes > in->end - in->position)
		in->broken = "the index ends inside an entry";
	if (in->broken)
		return 0;
	value = weir_little_endian(in->index + in->position, bytes);
	in->position += bytes;
	return value;
}

static int fail_index(const cursor *in, const char *rule)
{
	return fail_at(in->pack, WEIR_EFORMAT, WEIR_PACK_HEADER_BYTES + in->position, in->error,
		       in->broken ? in->broken : rule);
}

/* A text without NUL; NULL when in->broken says why there is none, or when memory is out. */
static const char *text(cursor *in, weir_arena *arena)
{
	uint64_t bytes = number(in, 4);
	const char *from = (const char *)in->index + in->position;

	if (!in->broken && (bytes > WEIR_NAME_BYTES_MAX || bytes > in->end - in->position))
		in->broken = "a name is longer than its limit";
	else if (!in->broken && memchr(from, '\0', bytes))
		in->broken = "a name contains a NUL byte";
	if (in->broken)
		return NULL;
	in->position += bytes;
	return weir_arena_text(arena, from, bytes);
}

static int read_counts(cursor *in, weir_pack *pack)
{
	uint64_t sources = number(in, 4), tensors = number(in, 4), groups = number(in, 4), left;

	if (number(in, 4) || in->broken)
		return fail_index(in, "the fourth number of the index must be 0");
	left = in->end - in->position;
	if (sources > left / SOURCE_BYTES_LEAST || tensors > left / TENSOR_BYTES_LEAST || groups > left / GROUP_BYTES)
		return fail_index(in, "a count is more than the index could hold");
	if (!sources || sources > SOURCES_MAX || tensors > WEIR_TENSORS_MAX || groups > tensors)
		return fail_index(in, "a count is beyond its limit");
	if (weir_pack_reserve(pack, (uint32_t)sources, (uint32_t)tensors, (uint32_t)groups, (uint32_t)tensors))
		return no_memory(pack, in->error);
	return WEIR_OK;
}

static int read_source(cursor *in, weir_pack *pack, weir_pack_source *source)
{
	source->bytes = number(in, 8);
	source->name = text(in, &pack->arena);
	if (!source->name && !in->broken)
		return no_memory(pack, in->error);
	if (in->broken || !source->name[0] || strchr(source->name, '/') || !strcmp(source->name, ".") ||
	    !strcmp(source->name, ".."))
		return fail_index(in, "a shard of the checkpoint must be a plain file name without a directory");
	return WEIR_OK;
}

static int name_tensor(cursor *in, weir_pack *pack, uint32_t index)
{
	const char *name = text(in, &pack->arena);
	int code;

	if (!name)
		return in->broken ? fail_index(in, "") : no_memory(pack, in->error);
	pack->tensors[index].source.name = name;
	code = weir_names_add(&pack->names, name, index);
	if (code == WEIR_EINVAL)
		return fail_index(in, "a tensor's name occurs twice");
	return code ? no_memory(pack, in->error) : WEIR_OK;
}

static int read_tensor(cursor *in, weir_pack *pack, uint32_t index)
{
	weir_tensor *tensor = &pack->tensors[index].source;
	const weir_dtype_info *info;

	tensor->shard = (uint32_t)number(in, 4);
	info = weir_dtype_describe((weir_dtype)number(in, 4));
	tensor->rank = (uint32_t)number(in, 4);
	if (in->broken || tensor->shard >= pack->sources_count || tensor->rank > WEIR_RANK_MAX)
		return fail_index(in, "a tensor's shard or rank is beyond its limit");
	if (!info)
		return fail_index(in, "a tensor's type is unknown");
	for (uint32_t i = 0; i < tensor->rank; i++)
		tensor->shape[i] = number(in, 8);
	tensor->offset = number(in, 8);
	if (in->broken || !weir_tensor_measure(tensor, info))
		return fail_index(in, "a tensor's shape and type make no size that fits 64 bits");
	if (!weir_extent_within(tensor->offset, tensor->bytes, pack->sources[tensor->shard].bytes))
		return fail_index(in, "a tensor reaches past the end of its shard of the checkpoint");
	return name_tensor(in, pack, index);
}

/* Offsets and strides as the file states them, to be compared with what they must be. */
typedef struct stated {
	uint64_t *group_offsets, *group_strides, *member_offsets;
} stated;

static int read_groups(cursor *in, weir_pack *pack, stated *said)
{
	uint32_t members = 0;

	for (uint32_t i = 0; i < pack->groups_count; i++) {
		weir_pack_group *group = &pack->groups[i];

		group->count = (uint32_t)number(in, 4);
		group->members_first = members;
		group->members_count = (uint32_t)number(in, 4);
		said->group_offsets[i] = number(in, 8);
		said->group_strides[i] = number(in, 8);
		if (in->broken || group->members_count > pack->members_count - members)
			return fail_index(in, "the groups have more members than there are tensors");
		members += group->members_count;
	}
	if (members != pack->members_count)
		return fail_index(in, "the groups have fewer members than there are tensors");
	for (uint32_t i = 0; i < pack->members_count; i++) {
		weir_pack_member *member = &pack->members[i];

		member->tensor = (uint32_t)number(in, 4);
		if (number(in, 4))
			return fail_index(in, "the second number of a member must be 0");
		said->member_offsets[i] = number(in, 8);
		member->unit_bytes = number(in, 8);
	}
	if (in->broken || in->position != in->end)
		return fail_index(in, "the index is longer than its entries");
	return WEIR_OK;
}

static int compare_places(const cursor *in, const weir_pack *pack, const stated *said, uint64_t units)
{
	for (uint32_t i = 0; i < pack->groups_count; i++) {
		if (said->group_offsets[i] != pack->groups[i].offset || said->group_strides[i] != pack->groups[i].stride)
			return fail_index(in, "a group does not lie where the sizes before it put it");
	}
	for (uint32_t i = 0; i < pack->members_count; i++) {
		if (said->member_offsets[i] != pack->members[i].offset)
			return fail_index(in, "a tensor does not lie where the sizes before it put it");
	}
	if (pack->header.units_count != units)
		return fail_at(pack, WEIR_EFORMAT, 48, in->error, "there are not as many checksums as the tensors need");
	if (pack->header.file_bytes != pack->identity.bytes)
		return fail_at(pack, WEIR_EFORMAT, 24, in->error, "the pack does not end where its last tensor ends");
	return WEIR_OK;
}

static int read_entries(cursor *in, weir_pack *pack, stated *said)
{
	const uint64_t units = pack->header.units_count;
	const char *broken;
	int code = WEIR_OK;

	for (uint32_t i = 0; i < pack->sources_count && !code; i++)
		code = read_source(in, pack, &pack->sources[i]);
	for (uint32_t i = 0; i < pack->tensors_count && !code; i++)
		code = read_tensor(in, pack, i);
	if (!code)
		code = read_groups(in, pack, said);
	if (code)
		return code;
	broken = weir_pack_place(pack);
	return broken ? fail_index(in, broken) : compare_places(in, pack, said, units);
}

static int read_counted(cursor *in, weir_pack *pack)
{
	stated said = {.group_offsets = calloc((size_t)pack->groups_count + 1, sizeof(uint64_t)),
		       .group_strides = calloc((size_t)pack->groups_count + 1, sizeof(uint64_t)),
		       .member_offsets = calloc((size_t)pack->members_count + 1, sizeof(uint64_t))};
	int code;

	if (said.group_offsets && said.group_strides && said.member_offsets)
		code = read_entries(in, pack, &said);
	else
		code = no_memory(pack, in->error);
	free(said.group_offsets);
	free(said.group_strides);
	free(said.member_offsets);
	return code;
}

/* Reads [from, to) of the file; *bytes is malloc'ed. */
static int read_region(const weir_file *file, uint64_t from, uint64_t to, unsigned char **bytes, weir_error *error)
{
	*bytes = malloc(to - from + 1);
	if (!*bytes)
		return weir_fail(error, WEIR_ENOMEM, file->path, from, 0, "no memory for the index");
	return weir_file_read(file, from, *bytes, to - from, error);
}

static int read_index(weir_pack *pack, const weir_file *file, weir_error *error)
{
	cursor in = {.pack = pack, .error = error, .end = pack->header.index_bytes};
	unsigned char *index = NULL;
	uint64_t padded;
	int code;

	if (!weir_checked_align(WEIR_PACK_HEADER_BYTES + in.end, pack->header.alignment, &padded) ||
	    padded > pack->identity.bytes)
		return fail_at(pack, WEIR_EFORMAT, 40, error, "the index reaches past the end of the file");
	code = read_region(file, WEIR_PACK_HEADER_BYTES, padded, &index, error);
	padded -= WEIR_PACK_HEADER_BYTES;
	if (!code && !is_zero(index + in.end, padded - in.end))
		code = fail_at(pack, WEIR_ECHECKSUM, WEIR_PACK_HEADER_BYTES + in.end, error,
			       "the padding after the index must be zero");
	if (!code && weir_pack_hash_index(index, in.end, padded) != pack->header.index_hash)
		code = fail_at(pack, WEIR_ECHECKSUM, WEIR_PACK_HEADER_BYTES, error,
			       "the index is not what was written: its checksum does not match");
	in.index = index;
	if (!code)
		code = read_counts(&in, pack);
	if (!code)
		code = read_counted(&in, pack);
	free(index);
	return code;
}

/* ---- checksums ---- */

static int read_sums(weir_pack *pack, const weir_file *file, weir_error *error)
{
	const weir_pack_header *header = &pack->header;
	uint64_t bytes = pack->data_offset - pack->sums_offset, used = header->units_count * sizeof *pack->sums;
	unsigned char *raw = NULL;
	int code;

	pack->sums = malloc(used + 1);
	if (!pack->sums)
		return no_memory(pack, error);
	code = read_region(file, pack->sums_offset, pack->sums_offset + bytes, &raw, error);
	if (!code && !is_zero(raw + used, bytes - used))
		code = fail_at(pack, WEIR_ECHECKSUM, pack->sums_offset + used, error,
			       "the padding after the checksums must be zero");
	for (uint64_t i = 0; i < header->units_count && !code; i++)
		pack->sums[i] = weir_little_endian(raw + 8 * i, 8);
	if (!code && weir_pack_hash(raw, header->units_done * 8) != header->sums_hash)
		code = fail_at(pack, WEIR_ECHECKSUM, pack->sums_offset, error,
			       "the table of checksums is not what was written: its own does not match");
	free(raw);
	return code;
}

static int read_pack(weir_pack *pack, weir_error *error)
{
	weir_file file;
	int code = weir_file_open(pack->path, &file, error);

	if (!code) {
		pack->identity = file.identity;
		code = read_header(pack, &file, error);
	}
	if (!code)
		code = read_index(pack, &file, error);
	if (!code)
		code = read_sums(pack, &file, error);
	weir_file_close(&file);
	return code;
}

int weir_pack_open_any(const char *path, weir_pack **pack, weir_error *error)
{
	weir_pack *made;
	int code;

	if (!path || !path[0] || !pack)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "path and pack must be given");
	*pack = NULL;
	made = weir_pack_new(path);
	if (!made)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	code = read_pack(made, error);
	if (code)
		weir_pack_close(made);
	else
		*pack = made;
	return code;
}

int weir_pack_open(const char *path, weir_pack **pack, weir_error *error)
{
	int code = weir_pack_open_any(path, pack, error);
	const weir_pack_header *header;

	if (code)
		return code;
	header = &(*pack)->header;
	if (header->units_done == header->units_count)
		return WEIR_OK;
	weir_fail(error, WEIR_EFORMAT, path, 56, 0,
		  "the pack is not finished (%llu of %llu checksums): weir pack goes on with it",
		  (unsigned long long)header->units_done, (unsigned long long)header->units_count);
	weir_pack_close(*pack);
	*pack = NULL;
	return WEIR_EFORMAT;
}

bool weir_pack_recognize(const char *path)
{
	char start[8];
	weir_file file;
	bool is_pack = !weir_file_open(path, &file, NULL) && file.identity.bytes >= sizeof start &&
		       !weir_file_read(&file, 0, start, sizeof start, NULL) &&
		       memcmp(start, WEIR_PACK_MAGIC, sizeof start) == 0;

	weir_file_close(&file);
	return is_pack;
}
