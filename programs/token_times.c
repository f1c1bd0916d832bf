/* token_times.c - see token_times.h. */
#include "token_times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "output.h"

#define HEADER "token,seconds,logits_hash\n"
#define ROW_BYTES 64 /* more than any row takes */

void token_times_add(token_times *times, double seconds, uint64_t logits_hash)
{
	if (times->count == times->capacity && !times->failed) {
		size_t capacity = times->capacity ? 2 * times->capacity : 64;
		token_time *rows = realloc(times->rows, capacity * sizeof *rows);

		times->failed = !rows;
		if (rows) {
			times->rows = rows;
			times->capacity = capacity;
		}
	}
	if (!times->failed)
		times->rows[times->count++] = (token_time){seconds, logits_hash};
}

void token_times_free(token_times *times)
{
	free(times->rows);
	*times = (token_times){0};
}

static int print_row(char *to, size_t number, const token_time *row)
{
	int bytes = snprintf(to, ROW_BYTES, "%zu,%.9f,", number, row->seconds);

	if (row->logits_hash)
		bytes += snprintf(to + bytes, ROW_BYTES - (size_t)bytes, "%016" PRIx64, row->logits_hash);
	return bytes + snprintf(to + bytes, ROW_BYTES - (size_t)bytes, "\n");
}

int token_times_write(const token_times *times, const char *path, weir_error *error)
{
	char *text = times->failed ? NULL : malloc(sizeof HEADER + times->count * ROW_BYTES);
	size_t bytes;
	int result;

	if (!text)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory for the times of tokens");
	bytes = (size_t)sprintf(text, HEADER);
	for (size_t i = 0; i < times->count; i++)
		bytes += (size_t)print_row(text + bytes, i + 1, &times->rows[i]);
	result = output_write_file(path, text, bytes, error);
	free(text);
	return result;
}

/* One line after the header; *line moves on to the next. */
static bool parse_row(const char **line, size_t number, token_time *row)
{
	char *end;

	if (strtoull(*line, &end, 10) != number || *end != ',')
		return false;
	row->seconds = strtod(end + 1, &end);
	if (*end != ',' || !(row->seconds >= 0))
		return false;
	end++;
	row->logits_hash = *end == '\n' ? 0 : strtoull(end, &end, 16);
	*line = end + 1;
	return *end == '\n';
}

bool token_times_parse(token_times *times, const char *text)
{
	token_time row;

	*times = (token_times){0};
	if (strncmp(text, HEADER, strlen(HEADER)))
		return false;
	text += strlen(HEADER);
	while (*text && !times->failed) {
		if (!parse_row(&text, times->count + 1, &row))
			return false;
		token_times_add(times, row.seconds, row.logits_hash);
	}
	return !times->failed;
}
