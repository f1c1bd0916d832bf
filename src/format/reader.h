/*
 * reader.h - reading a header front to back through a small buffer.
 *
 * The reader's owner owns file and error; one thread at a time.  It refuses to pass `end`: the end of the file, or the limit on
 * the length of headers, whichever comes first.  Numbers are little-endian.
 */
#ifndef WEIR_FORMAT_READER_H
#define WEIR_FORMAT_READER_H

#include <stddef.h>
#include <stdint.h>

#include "os/file.h"

typedef struct weir_reader {
	const weir_file *file;
	weir_error *error; /* filled by each call that fails; may be NULL */
	uint64_t position; /* of the next byte */
	uint64_t end; /* position ≤ end ≤ file's bytes */
	unsigned char *buffer;
	uint64_t buffer_from; /* buffer holds [buffer_from, buffer_from + buffer_bytes) of the file */
	size_t buffer_bytes;
} weir_reader;

int weir_reader_open(weir_reader *reader, const weir_file *file, uint64_t bytes_max, weir_error *error);
void weir_reader_close(weir_reader *reader);

/* Bytes left before `end`. */
uint64_t weir_reader_left(const weir_reader *reader);

/* `what` names the thing read, for the message when the header ends before it does. */
int weir_reader_bytes(weir_reader *reader, void *to, uint64_t bytes, const char *what);
int weir_reader_skip(weir_reader *reader, uint64_t bytes, const char *what);
int weir_reader_u32(weir_reader *reader, uint32_t *value, const char *what);
int weir_reader_u64(weir_reader *reader, uint64_t *value, const char *what);

/* Refuses a count of things, each of at least `bytes_least` bytes, that cannot follow before `end`; `from` is where the count
 * stands. */
int weir_reader_expect(const weir_reader *reader, uint64_t count, uint64_t bytes_least, uint64_t from, const char *what);

/* A number of `bytes` (1, 2, 4 or 8) at `from`. */
uint64_t weir_little_endian(const unsigned char *from, size_t bytes);

#endif
