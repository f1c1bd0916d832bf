/*
 * reader.c - see reader.h.
 */
#include "format/reader.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"

enum { BUFFER_BYTES = 256 * 1024 };

int weir_reader_open(weir_reader *reader, const weir_file *file, uint64_t bytes_max, weir_error *error)
{
	*reader = (weir_reader){.file = file, .error = error};
	reader->end = file->identity.bytes < bytes_max ? file->identity.bytes : bytes_max;
	reader->buffer = malloc(BUFFER_BYTES);
	if (!reader->buffer)
		return weir_fail(error, WEIR_ENOMEM, file->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	return WEIR_OK;
}

void weir_reader_close(weir_reader *reader)
{
	free(reader->buffer);
	reader->buffer = NULL;
}

uint64_t weir_reader_left(const weir_reader *reader)
{
	return reader->end - reader->position;
}

static int check_left(weir_reader *reader, uint64_t bytes, const char *what)
{
	const weir_file *file = reader->file;

	if (bytes <= weir_reader_left(reader))
		return WEIR_OK;
	if (reader->end < file->identity.bytes)
		return weir_fail(reader->error, WEIR_EUNSUPPORTED, file->path, reader->position, 0,
				 "the header is longer than the limit of %llu bytes (%s)", (unsigned long long)reader->end,
				 what);
	return weir_fail(reader->error, WEIR_EFORMAT, file->path, reader->position, 0,
			 "the file ends inside %s: %llu bytes wanted, %llu left (truncated?)", what, (unsigned long long)bytes,
			 (unsigned long long)weir_reader_left(reader));
}

int weir_reader_expect(const weir_reader *reader, uint64_t count, uint64_t bytes_least, uint64_t from, const char *what)
{
	const weir_file *file = reader->file;
	bool limited = reader->end < file->identity.bytes;

	if (count <= weir_reader_left(reader) / bytes_least)
		return WEIR_OK;
	if (limited && count <= (file->identity.bytes - reader->position) / bytes_least)
		return weir_fail(reader->error, WEIR_EUNSUPPORTED, file->path, from, 0,
				 "%s: the header is longer than the limit of %llu bytes", what,
				 (unsigned long long)reader->end);
	return weir_fail(reader->error, WEIR_EFORMAT, file->path, from, 0,
			 "%s: a count of %llu is more than the file could hold", what, (unsigned long long)count);
}

static int fill(weir_reader *reader)
{
	uint64_t left = weir_reader_left(reader);
	size_t bytes = left < BUFFER_BYTES ? (size_t)left : BUFFER_BYTES;
	int code = weir_file_read(reader->file, reader->position, reader->buffer, bytes, reader->error);

	reader->buffer_from = reader->position;
	reader->buffer_bytes = code ? 0 : bytes;
	return code;
}

int weir_reader_bytes(weir_reader *reader, void *to, uint64_t bytes, const char *what)
{
	unsigned char *out = to;
	int code = check_left(reader, bytes, what);

	while (!code && bytes) {
		uint64_t at = reader->position - reader->buffer_from;
		size_t count;

		if (reader->position < reader->buffer_from || at >= reader->buffer_bytes) {
			code = fill(reader);
			continue;
		}
		count = reader->buffer_bytes - (size_t)at;
		if (count > bytes)
			count = (size_t)bytes;
		memcpy(out, reader->buffer + at, count);
		out += count;
		bytes -= count;
		reader->position += count;
	}
	return code;
}

int weir_reader_skip(weir_reader *reader, uint64_t bytes, const char *what)
{
	int code = check_left(reader, bytes, what);

	if (!code)
		reader->position += bytes;
	return code;
}

uint64_t weir_little_endian(const unsigned char *from, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = bytes; i-- > 0;)
		value = value << 8 | from[i];
	return value;
}

int weir_reader_u32(weir_reader *reader, uint32_t *value, const char *what)
{
	unsigned char bytes[4];
	int code = weir_reader_bytes(reader, bytes, sizeof bytes, what);

	if (!code)
		*value = (uint32_t)weir_little_endian(bytes, sizeof bytes);
	return code;
}

int weir_reader_u64(weir_reader *reader, uint64_t *value, const char *what)
{
	unsigned char bytes[8];
	int code = weir_reader_bytes(reader, bytes, sizeof bytes, what);

	if (!code)
		*value = weir_little_endian(bytes, sizeof bytes);
	return code;
}
