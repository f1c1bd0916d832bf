/*
 * textsink.c - see textsink.h.
 */
#include "textsink.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define ESCAPED_CHUNK 1024 /* characters are escaped in runs of at most this many bytes */
#define ESCAPE_GROWTH 6 /* one byte becomes at most "\u0080" */

void textsink_open(textsink *sink, FILE *stream, bool escape)
{
	memset(sink, 0, sizeof *sink);
	sink->stream = stream;
	sink->escape = escape;
}

void textsink_close(textsink *sink)
{
	free(sink->text);
	sink->text = NULL;
}

static bool keep(textsink *sink, const char *piece, size_t bytes)
{
	size_t capacity = sink->capacity ? sink->capacity : 4096;
	char *grown;

	while (capacity - sink->text_bytes <= bytes)
		capacity *= 2;
	if (capacity != sink->capacity) {
		grown = realloc(sink->text, capacity);
		if (!grown)
			return false;
		sink->text = grown;
		sink->capacity = capacity;
	}
	memcpy(sink->text + sink->text_bytes, piece, bytes);
	sink->text_bytes += bytes;
	sink->text[sink->text_bytes] = '\0';
	return true;
}

static size_t character_bytes(unsigned char first)
{
	return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
}

/* Bytes at the end that begin a character which is not complete. */
static size_t incomplete_tail(const char *text, size_t bytes)
{
	for (size_t tail = 1; tail <= 3 && tail <= bytes; tail++) {
		unsigned char byte = (unsigned char)text[bytes - tail];

		if ((byte & 0xC0) != 0x80)
			return character_bytes(byte) > tail ? tail : 0;
	}
	return 0;
}

static bool write_escaped(FILE *stream, const char *text, size_t bytes)
{
	char out[ESCAPED_CHUNK * ESCAPE_GROWTH + 1];
	size_t run;

	while (bytes) {
		for (run = 0; run < bytes && run < ESCAPED_CHUNK - 4 && text[run] != '\n' && text[run] != '\t';)
			run++;
		if (run < bytes)
			run -= incomplete_tail(text, run);
		if (!run && (*text == '\n' || *text == '\t')) {
			fputc(*text, stream);
			run = 1;
		} else {
			if (!run)
				run = 1;
			weir_text_escape(text, run, out, sizeof out);
			fputs(out, stream);
		}
		text += run;
		bytes -= run;
	}
	return !ferror(stream);
}

/* Sends out everything up to `end`. */
static bool send_out(textsink *sink, size_t end)
{
	const char *from = sink->text + sink->written;
	size_t bytes = end - sink->written;
	bool good = true;

	if (!sink->stream || !bytes)
		return true;
	sink->written = end;
	if (sink->escape)
		good = write_escaped(sink->stream, from, bytes);
	else
		good = fwrite(from, 1, bytes, sink->stream) == bytes;
	return fflush(sink->stream) == 0 && good;
}

bool textsink_add(textsink *sink, const char *piece, size_t bytes)
{
	if (sink->failed || !bytes)
		return !sink->failed;
	sink->failed = !keep(sink, piece, bytes) ||
		       !send_out(sink, sink->text_bytes -
					       incomplete_tail(sink->text + sink->written, sink->text_bytes - sink->written));
	return !sink->failed;
}

bool textsink_finish(textsink *sink)
{
	if (sink->failed || !sink->stream || !sink->text_bytes)
		return !sink->failed;
	sink->failed = !send_out(sink, sink->text_bytes);
	if (!sink->failed && sink->text[sink->text_bytes - 1] != '\n')
		sink->failed = fputc('\n', sink->stream) == EOF || fflush(sink->stream) != 0;
	return !sink->failed;
}
