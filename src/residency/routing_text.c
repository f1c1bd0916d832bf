/*
 * routing_text.c - reading a routing trace: comma-separated values, or one JSON object a line.
 *
 * The text is untrusted.  Every line is either understood as a whole or refused with its number and the rule it breaks; numbers
 * are digits and nothing else, and are bounded before they are used.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/fail.h"
#include "format/json.h"
#include "residency/routing.h"

#define COLUMNS 9
#define HEADER "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes"
#define FIELD_BYTES_MAX 40
#define STEPS_MAX (UINT64_C(1) << 53) /* what JSON numbers hold exactly */
#define SLOTS_MAX 65536U
#define ROWS_MAX (1U << 28)

typedef struct text_line {
	const weir_routing *routing;
	const char *text;
	size_t bytes;
	uint64_t number, offset; /* from 1; of its first byte in the file */
} text_line;

static int refuse(const text_line *line, weir_error *error, int code, const char *rule)
{
	return weir_fail(error, code, line->routing->path, line->offset, 0, "line %" PRIu64 ": %s", line->number, rule);
}

static int add_row(weir_routing *routing, const text_line *line, const weir_routing_row *row, weir_error *error)
{
	if (routing->rows_count == ROWS_MAX)
		return refuse(line, error, WEIR_EUNSUPPORTED, "a trace holds at most 2^28 picks");
	if (routing->rows_count == routing->rows_capacity) {
		void *grown = weir_array_grow(routing->rows, &routing->rows_capacity, sizeof *routing->rows);

		if (!grown)
			return weir_fail(error, WEIR_ENOMEM, routing->path, WEIR_ERROR_NO_OFFSET, ENOMEM,
					 "no memory for the trace");
		routing->rows = grown;
	}
	routing->rows[routing->rows_count] = *row;
	routing->rows[routing->rows_count++].offset = line->offset;
	return 0;
}

/* ---- comma-separated values ---- */

/* The field at *text as digits only, below `limit`; moves *text past it and its comma. */
static bool take_number(const char **text, const char *end, uint64_t limit, uint64_t *value)
{
	const char *at = *text;

	*value = 0;
	if (at == end || *at < '0' || *at > '9')
		return false;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		if (*value > (UINT64_MAX - 9) / 10)
			return false;
		*value = *value * 10 + (uint64_t)(*at - '0');
	}
	if (*value >= limit || (at < end && *at != ','))
		return false;
	*text = at < end ? at + 1 : at;
	return true;
}

/* A router's weight: any finite number; it plays no part here. */
static bool take_weight(const char **text, const char *end)
{
	const char *comma = memchr(*text, ',', (size_t)(end - *text));
	size_t bytes = comma ? (size_t)(comma - *text) : 0;
	char copy[FIELD_BYTES_MAX], *stop;

	if (!comma || bytes == 0 || bytes >= sizeof copy || !strchr("-.0123456789", **text) || !**text)
		return false;
	memcpy(copy, *text, bytes);
	copy[bytes] = '\0';
	if (!isfinite(strtod(copy, &stop)) || stop != copy + bytes)
		return false;
	*text = comma + 1;
	return true;
}

static bool has_columns(const text_line *line)
{
	size_t commas = 0;

	for (size_t i = 0; i < line->bytes; i++)
		commas += line->text[i] == ',';
	return commas == COLUMNS - 1;
}

static int parse_row(weir_routing *routing, const text_line *line, weir_error *error)
{
	const char *at = line->text, *end = at + line->bytes;
	uint64_t turn, phase, step, layer, slot, expert, resident, bytes;

	if (!has_columns(line))
		return refuse(line, error, WEIR_EFORMAT, "a row has the nine columns " HEADER);
	if (!take_number(&at, end, STEPS_MAX, &turn) || !take_number(&at, end, 2, &phase))
		return refuse(line, error, WEIR_EFORMAT, "turn is a whole number below 2^53, phase 0 or 1");
	if (!take_number(&at, end, STEPS_MAX, &step) || !take_number(&at, end, WEIR_ROUTING_LAYERS_MAX, &layer))
		return refuse(line, error, WEIR_EFORMAT, "step is a whole number below 2^53, layer one below 4096");
	if (!take_number(&at, end, SLOTS_MAX, &slot) || !take_number(&at, end, WEIR_ROUTING_EXPERTS_MAX, &expert))
		return refuse(line, error, WEIR_EFORMAT, "slot and expert are whole numbers below 65536");
	if (!take_weight(&at, end))
		return refuse(line, error, WEIR_EFORMAT, "weight is a finite number");
	if (!take_number(&at, end, 2, &resident) || at == end || !take_number(&at, end, UINT64_MAX, &bytes) || at != end)
		return refuse(line, error, WEIR_EFORMAT, "residency is 0 or 1, expert_bytes a whole number");
	return add_row(routing, line,
		       &(weir_routing_row){.turn = turn,
					   .phase = (uint32_t)phase,
					   .step = step,
					   .layer = (uint32_t)layer,
					   .slot = (uint32_t)slot,
					   .expert = (uint32_t)expert},
		       error);
}

/* "n_expert=128" in a comment says how many experts a layer has, whether or not the trace names them all. */
static int parse_comment(weir_routing *routing, const text_line *line, weir_error *error)
{
	static const char KEY[] = " n_expert=";
	const char *end = line->text + line->bytes, *at = memmem(line->text, line->bytes, KEY, sizeof KEY - 1);
	uint64_t count = 0;

	if (!at)
		return 0;
	for (at += sizeof KEY - 1; at < end && *at >= '0' && *at <= '9' && count <= WEIR_ROUTING_EXPERTS_MAX; at++)
		count = count * 10 + (uint64_t)(*at - '0');
	if (count == 0 || count > WEIR_ROUTING_EXPERTS_MAX || (at < end && *at != ' '))
		return refuse(line, error, WEIR_EFORMAT, "n_expert is a whole number from 1 to 65536");
	routing->experts_stated = (uint32_t)count;
	return 0;
}

static bool is_header(const text_line *line)
{
	return line->bytes == sizeof HEADER - 1 && memcmp(line->text, HEADER, line->bytes) == 0;
}

static int parse_csv_line(weir_routing *routing, const text_line *line, weir_error *error)
{
	if (line->bytes && line->text[0] == '#')
		return parse_comment(routing, line, error);
	if (routing->rows_count == 0 && is_header(line))
		return 0;
	return parse_row(routing, line, error);
}

/* ---- JSON lines ---- */

static int add_layer(weir_routing *routing, const text_line *line, weir_routing_row row, const json_t *experts,
		     weir_error *error)
{
	size_t count = json_array_size(experts);

	if (!json_is_array(experts) || count > SLOTS_MAX)
		return refuse(line, error, WEIR_EFORMAT, "each layer is an array of expert numbers");
	for (size_t i = 0; i < count; i++) {
		const json_t *expert = json_array_get(experts, i);
		json_int_t number = json_integer_value(expert);
		int result;

		if (!json_is_integer(expert) || number < 0 || number >= WEIR_ROUTING_EXPERTS_MAX)
			return refuse(line, error, WEIR_EFORMAT, "an expert is a whole number below 65536");
		row.slot = (uint32_t)i;
		row.expert = (uint32_t)number;
		result = add_row(routing, line, &row, error);
		if (result)
			return result;
	}
	return 0;
}

static int add_token(weir_routing *routing, const text_line *line, const json_t *object, weir_error *error)
{
	const json_t *token = json_object_get(object, "tok"), *layers = json_object_get(object, "layers");
	json_int_t step = json_integer_value(token);
	size_t count = json_array_size(layers);

	if (!json_is_integer(token) || step < 0 || (uint64_t)step >= STEPS_MAX)
		return refuse(line, error, WEIR_EFORMAT, "\"tok\" is a whole number below 2^53");
	if (!json_is_array(layers) || count == 0 || count > WEIR_ROUTING_LAYERS_MAX)
		return refuse(line, error, WEIR_EFORMAT, "\"layers\" is an array of 1 to 4096 layers");
	for (size_t i = 0; i < count; i++) {
		weir_routing_row row = {.step = (uint64_t)step, .phase = 1, .layer = (uint32_t)i};
		int result = add_layer(routing, line, row, json_array_get(layers, i), error);

		if (result)
			return result;
	}
	return 0;
}

static int parse_json_line(weir_routing *routing, const text_line *line, weir_error *error)
{
	weir_error inner;
	json_t *object;
	int result = weir_json_parse(line->text, line->bytes, routing->path, line->offset, &object, &inner);

	if (result == WEIR_ENOMEM)
		return weir_fail(error, result, routing->path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the trace");
	if (result)
		return refuse(line, error, result, inner.message);
	result = add_token(routing, line, object, error);
	json_decref(object);
	return result;
}

/* ---- lines ---- */

int weir_routing_parse(weir_routing *routing, const char *text, size_t bytes, weir_error *error)
{
	bool json = bytes && text[0] == '{';
	text_line line = {.routing = routing};

	for (size_t at = 0; at < bytes; at += line.bytes + 1) {
		const char *newline = memchr(text + at, '\n', bytes - at);
		int result;

		line.text = text + at;
		line.bytes = newline ? (size_t)(newline - line.text) : bytes - at;
		line.offset = at;
		line.number++;
		result = json ? parse_json_line(routing, &line, error) : parse_csv_line(routing, &line, error);
		if (result)
			return result;
	}
	return 0;
}
