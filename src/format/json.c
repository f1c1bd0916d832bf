/*
 * json.c - see json.h.
 */
#include "format/json.h"

#include <string.h>

#include "base/fail.h"
#include "base/text.h"

/* Never less than the values that `text` holds: each but the first follows one of these (some may stand inside strings). */
static size_t count_values(const char *text, size_t bytes)
{
	size_t count = 1;

	for (size_t i = 0; i < bytes; i++)
		count += text[i] == ',' || text[i] == ':' || text[i] == '[' || text[i] == '{';
	return count;
}

/* Of an allocation that failed jansson says nothing at all; of each mistake in the text it says what it is. */
static int fail_parse(const json_error_t *problem, const char *path, uint64_t offset, weir_error *error)
{
	if (!problem->text[0])
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory to parse the header");
	return weir_fail(error, WEIR_EFORMAT, path, offset + (uint64_t)(problem->position > 0 ? problem->position : 0), 0,
			 "the header is not valid JSON: %s", problem->text);
}

int weir_json_parse(const char *text, size_t bytes, const char *path, uint64_t offset, json_t **object, weir_error *error)
{
	json_error_t problem = {.text = ""};

	*object = NULL;
	if (!bytes || text[0] != '{')
		return weir_fail(error, WEIR_EFORMAT, path, offset, 0, "the JSON header must begin with '{'");
	if (!weir_utf8_valid(text, bytes))
		return weir_fail(error, WEIR_EFORMAT, path, offset, 0, "the JSON header is not valid UTF-8");
	if (count_values(text, bytes) > WEIR_JSON_VALUES_MAX)
		return weir_fail(error, WEIR_EUNSUPPORTED, path, offset, 0, "the JSON header holds more than %u values",
				 WEIR_JSON_VALUES_MAX);
	*object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
	return *object ? WEIR_OK : fail_parse(&problem, path, offset, error);
}
