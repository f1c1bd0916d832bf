/* token_times.c - see token_times.h. */
#include "token_times.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

/* One line after the header. */
static bool parse_row(const char *line, size_t number, token_time *row)
{
	char *end;

	if (strtoull(line, &end, 10) != number || *end != ',')
		return false;
	row->seconds = strtod(end + 1, &end);
	if (*end != ',' || !(row->seconds >= 0))
		return false;
	row->logits_hash = end[1] == '\n' ? 0 : strtoull(end + 1, &end, 16);
	return true;
}

int token_times_read(token_times *times, const char *path, weir_error *error)
{
	FILE *file = fopen(path, "re");
	char line[2 * ROW_BYTES];
	token_time row;
	bool good;

	*times = (token_times){0};
	if (!file)
		return weir_fail(error, weir_code_of_errno(errno), path, WEIR_ERROR_NO_OFFSET, errno, "cannot be read");
	good = fgets(line, sizeof line, file) != NULL;
	while (good && fgets(line, sizeof line, file)) {
		good = parse_row(line, times->count + 1, &row);
		if (good)
			token_times_add(times, row.seconds, row.logits_hash);
	}
	fclose(file);
	if (good && !times->failed)
		return 0;
	return weir_fail(error, times->failed ? WEIR_ENOMEM : WEIR_EFORMAT, path, WEIR_ERROR_NO_OFFSET, 0,
			 "holds no times of tokens");
}
