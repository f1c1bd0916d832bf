/*
 * gguf.c - one GGUF file: start, tensor infos; see gguf.h.
 *
 * Refused: version 1 and versions unknown, big-endian files, types that ggml does not have (any more), rank above 4, dimensions
 * that do not fill quantisation blocks, offsets off the alignment, tensors that overlap or end past the file.  Accepted: any
 * order of tensors, gaps between them, rank 0, dimensions of 0, no tensors at all.
 */
#include "format/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/fail.h"
#include "format/dtype.h"

enum {
	RANK_MAX = 4,
	ALIGNMENT_DEFAULT = 32,
	ENTRY_BYTES_LEAST = 14, /* length, a key of one byte, type, a value of one byte */
	INFO_BYTES_LEAST = 24, /* length, rank, type, offset */
};

static int fail_at(const weir_gguf_header *header, int code, uint64_t offset, const char *rule)
{
	return weir_fail(header->reader.error, code, header->file.path, offset, 0, "%s", rule);
}

static int check_version(const weir_gguf_header *header)
{
	if (header->version == 2 || header->version == 3)
		return WEIR_OK;
	if (header->version && !(header->version & 0xFFFF))
		return fail_at(header, WEIR_EUNSUPPORTED, 4,
			       "the file is big-endian; weir reads little-endian GGUF (convert it with gguf-convert-endian)");
	return weir_fail(header->reader.error, WEIR_EUNSUPPORTED, header->file.path, 4, 0,
			 "GGUF version %u is not supported; 2 and 3 are", header->version);
}

/* A count that the rest of the header could not hold is refused before anything is done with it. */
static int check_count(const weir_gguf_header *header, uint64_t offset, uint64_t count, uint64_t count_max,
		       uint64_t bytes_least, const char *what)
{
	int code = weir_reader_expect(&header->reader, count, bytes_least, offset, what);

	if (code)
		return code;
	if (count > count_max)
		return weir_fail(header->reader.error, WEIR_EUNSUPPORTED, header->file.path, offset, 0,
				 "the header claims %llu %s; the limit is %llu", (unsigned long long)count, what,
				 (unsigned long long)count_max);
	return WEIR_OK;
}

static int read_start(weir_gguf_header *header)
{
	weir_reader *reader = &header->reader;
	char magic[4];
	int code = weir_reader_bytes(reader, magic, sizeof magic, "the magic number");

	if (!code && memcmp(magic, "GGUF", sizeof magic))
		code = fail_at(header, WEIR_EFORMAT, 0, "the file does not begin with \"GGUF\": it is no GGUF file");
	if (!code)
		code = weir_reader_u32(reader, &header->version, "the version");
	if (!code)
		code = check_version(header);
	if (!code)
		code = weir_reader_u64(reader, &header->tensors_count, "the tensor count");
	if (!code)
		code = weir_reader_u64(reader, &header->entries_count, "the metadata count");
	if (!code)
		code = check_count(header, 8, header->tensors_count, WEIR_TENSORS_MAX, INFO_BYTES_LEAST, "tensors");
	if (!code)
		code = check_count(header, 16, header->entries_count, WEIR_METADATA_MAX, ENTRY_BYTES_LEAST, "metadata entries");
	return code;
}

static int read_alignment(weir_gguf_header *header)
{
	const weir_metadata *entry = weir_metadata_set_find(&header->metadata, "general.alignment");

	header->alignment = ALIGNMENT_DEFAULT;
	if (!entry)
		return WEIR_OK;
	if (entry->is_array || entry->type != WEIR_VALUE_UINT32)
		return fail_at(header, WEIR_EFORMAT, WEIR_ERROR_NO_OFFSET, "general.alignment must be a uint32");
	header->alignment = entry->values[0].as.natural;
	if (weir_is_power_of_two(header->alignment))
		return WEIR_OK;
	return weir_fail(header->reader.error, WEIR_EFORMAT, header->file.path, WEIR_ERROR_NO_OFFSET, 0,
			 "general.alignment must be a power of two and is %llu", (unsigned long long)header->alignment);
}

int weir_gguf_open_header(weir_gguf_header *header, const char *path, const weir_checkpoint_options *options, weir_error *error)
{
	uint64_t bytes_max = options->header_bytes_max ? options->header_bytes_max : WEIR_GGUF_HEADER_BYTES_MAX;
	int code;

	*header = (weir_gguf_header){.file.descriptor = -1};
	code = weir_file_open(path, &header->file, error);
	if (!code)
		code = weir_reader_open(&header->reader, &header->file, bytes_max, error);
	if (!code)
		code = read_start(header);
	if (!code)
		code = weir_gguf_read_metadata(header, options);
	if (!code)
		code = read_alignment(header);
	return code;
}

void weir_gguf_close_header(weir_gguf_header *header)
{
	weir_metadata_set_free(&header->metadata);
	weir_reader_close(&header->reader);
	weir_file_close(&header->file);
}

int weir_gguf_read_name(weir_reader *reader, char *text, size_t *text_bytes, const char *what)
{
	uint64_t from = reader->position;
	uint64_t length;
	int code = weir_reader_u64(reader, &length, what);

	if (code)
		return code;
	if (length > WEIR_NAME_BYTES_MAX)
		return weir_fail(reader->error, WEIR_EFORMAT, reader->file->path, from, 0, "%s has %llu bytes; the limit is %u",
				 what, (unsigned long long)length, WEIR_NAME_BYTES_MAX);
	code = weir_reader_bytes(reader, text, length, what);
	text[code ? 0 : length] = '\0';
	*text_bytes = (size_t)length;
	return code;
}

static int read_shape(weir_reader *reader, weir_tensor *tensor, const char *name)
{
	uint64_t from = reader->position;
	int code = weir_reader_u32(reader, &tensor->rank, "a tensor's rank");

	if (!code && tensor->rank > RANK_MAX)
		return weir_fail(reader->error, WEIR_EFORMAT, reader->file->path, from, 0,
				 "tensor '%.100s' has %u dimensions; GGUF allows 4", name, tensor->rank);
	for (uint32_t i = 0; !code && i < tensor->rank; i++)
		code = weir_reader_u64(reader, &tensor->shape[i], "a tensor's dimensions");
	return code;
}

static int read_type(weir_reader *reader, const weir_dtype_info **info, const char *name)
{
	uint64_t from = reader->position;
	uint32_t type;
	int code = weir_reader_u32(reader, &type, "a tensor's type");

	if (code)
		return code;
	*info = weir_dtype_of_ggml(type);
	if (*info)
		return WEIR_OK;
	return weir_fail(reader->error, WEIR_EUNSUPPORTED, reader->file->path, from, 0,
			 "tensor '%.100s' has type %u, which ggml does not know or has removed", name, type);
}

/* Rows are stored in whole blocks: the innermost dimension must be a multiple of the block. */
static int measure(weir_reader *reader, uint64_t from, weir_tensor *tensor, const weir_dtype_info *info, const char *name)
{
	uint64_t row = tensor->rank ? tensor->shape[0] : 1;

	if (row % info->block_elements)
		return weir_fail(reader->error, WEIR_EFORMAT, reader->file->path, from, 0,
				 "tensor '%.100s': a row of %llu elements is not a multiple of the %u of a %s block", name,
				 (unsigned long long)row, info->block_elements, info->name);
	if (weir_tensor_measure(tensor, info))
		return WEIR_OK;
	return weir_fail(reader->error, WEIR_EFORMAT, reader->file->path, from, 0,
			 "tensor '%.100s': the product of its dimensions wraps", name);
}

/* One tensor info; tensor->offset is still relative to the start of data. */
static int read_info(weir_gguf_header *header, weir_tensor *tensor, char *name, size_t *name_bytes)
{
	weir_reader *reader = &header->reader;
	uint64_t from = reader->position;
	const weir_dtype_info *info = NULL;
	int code = weir_gguf_read_name(reader, name, name_bytes, "a tensor's name");

	if (!code)
		code = read_shape(reader, tensor, name);
	if (!code)
		code = read_type(reader, &info, name);
	if (!code)
		code = measure(reader, from, tensor, info, name);
	if (!code)
		code = weir_reader_u64(reader, &tensor->offset, "a tensor's offset");
	if (!code && tensor->offset % header->alignment)
		code = weir_fail(reader->error, WEIR_EFORMAT, reader->file->path, reader->position - 8, 0,
				 "tensor '%.100s': offset %llu is not a multiple of the alignment %llu", name,
				 (unsigned long long)tensor->offset, (unsigned long long)header->alignment);
	return code;
}

/* Infos come before the place where data starts is known: the names wait in `names`, the tensors in `tensors`. */
typedef struct info_list {
	weir_tensor *tensors;
	weir_arena names;
	size_t *name_bytes;
} info_list;

static int read_infos(weir_gguf_header *header, info_list *list, char *name)
{
	int code = WEIR_OK;

	for (uint64_t i = 0; !code && i < header->tensors_count; i++) {
		code = read_info(header, &list->tensors[i], name, &list->name_bytes[i]);
		if (code)
			break;
		list->tensors[i].name = weir_arena_text(&list->names, name, list->name_bytes[i]);
		if (!list->tensors[i].name)
			code = fail_at(header, WEIR_ENOMEM, WEIR_ERROR_NO_OFFSET, "out of memory");
	}
	return code;
}

static int add_infos(weir_gguf_header *header, const info_list *list, weir_checkpoint *checkpoint)
{
	weir_error *error = header->reader.error;
	uint32_t first = checkpoint->tensors_count;
	uint64_t data_from;
	int code = WEIR_OK;

	if (!weir_checked_align(header->reader.position, header->alignment, &data_from))
		return fail_at(header, WEIR_EFORMAT, header->reader.position, "the padding after the header wraps");
	for (uint64_t i = 0; !code && i < header->tensors_count; i++) {
		weir_tensor *tensor = &list->tensors[i];

		if (!weir_checked_add(data_from, tensor->offset, &tensor->offset))
			return weir_fail(error, WEIR_EFORMAT, header->file.path, tensor->offset, 0,
					 "tensor '%.100s': its offset wraps", tensor->name);
		code = weir_catalog_add_tensor(checkpoint, tensor, tensor->name, list->name_bytes[i], error);
	}
	return code ? code : weir_catalog_check_overlap(checkpoint, first, error);
}

int weir_gguf_read_tensors(weir_gguf_header *header, weir_checkpoint *checkpoint)
{
	size_t count = (size_t)header->tensors_count;
	info_list list = {.tensors = calloc(count + 1, sizeof *list.tensors),
			  .name_bytes = calloc(count + 1, sizeof *list.name_bytes)};
	char *name = malloc(WEIR_NAME_BYTES_MAX + 1);
	int code;

	if (list.tensors && list.name_bytes && name)
		code = weir_catalog_add_shard(checkpoint, &header->file, header->reader.error);
	else
		code = fail_at(header, WEIR_ENOMEM, WEIR_ERROR_NO_OFFSET, "out of memory");
	if (!code)
		code = read_infos(header, &list, name);
	if (!code)
		code = add_infos(header, &list, checkpoint);
	weir_arena_free(&list.names);
	free(list.tensors);
	free(list.name_bytes);
	free(name);
	return code;
}
