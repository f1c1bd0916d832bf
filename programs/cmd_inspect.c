/*
 * cmd_inspect.c - `weir inspect FILE`: validates a checkpoint and lists what is in it.
 *
 * Opening is the validation: a file that opens has passed every rule of the readers.  Only headers are read.  Whatever comes
 * from the file is escaped before it is shown.  Main thread only; writes nothing but standard output.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli.h"
#include "commands.h"
#include "inspect_pack.h"
#include "output.h"
#include "weir/checkpoint.h"
#include "weir/pack.h"

enum {
	ARRAY_WHOLE = 64, /* longer arrays are shown by their first elements */
	ARRAY_FIRST = 8,
	CELL_BYTES = 72, /* of a metadata value in the table */
	NAME_COLUMN_MAX = 64,
	SHAPE_BYTES = 24 * WEIR_RANK_MAX,
	DTYPES_MAX = 64
};

/* ---- JSON ---- */

/* Text from a file.  What is not valid UTF-8 cannot stand in JSON, and is shown escaped, byte by byte. */
static json_t *text_json(const char *text, size_t bytes)
{
	size_t capacity;
	char *escaped;
	json_t *made;

	if (weir_utf8_valid(text, bytes))
		return json_stringn(text, bytes);
	capacity = weir_text_escape(text, bytes, NULL, 0) + 1;
	escaped = malloc(capacity);
	if (!escaped)
		return NULL;
	weir_text_escape(text, bytes, escaped, capacity);
	made = json_string(escaped);
	free(escaped);
	return made;
}

static json_t *string_json(const char *text)
{
	return text ? text_json(text, strlen(text)) : json_null();
}

/* A number beyond JSON's integers here keeps all of its digits as a text. */
static json_t *natural_json(uint64_t natural)
{
	char digits[24];

	if (natural <= INT64_MAX)
		return json_integer((json_int_t)natural);
	snprintf(digits, sizeof digits, "%" PRIu64, natural);
	return json_string(digits);
}

static json_t *value_json(weir_value_type type, const weir_value *value)
{
	switch (type) {
	case WEIR_VALUE_STRING:
		return text_json(value->text, (size_t)value->as.text_bytes);
	case WEIR_VALUE_BOOL:
		return json_boolean(value->as.natural);
	case WEIR_VALUE_FLOAT32:
	case WEIR_VALUE_FLOAT64:
		return output_json_real(value->as.real);
	case WEIR_VALUE_INT8:
	case WEIR_VALUE_INT16:
	case WEIR_VALUE_INT32:
	case WEIR_VALUE_INT64:
		return json_integer(value->as.integer);
	default:
		return natural_json(value->as.natural);
	}
}

static uint64_t shown_elements(const weir_metadata *metadata)
{
	if (metadata->count <= ARRAY_WHOLE && metadata->kept == metadata->count)
		return metadata->count;
	return metadata->kept < ARRAY_FIRST ? metadata->kept : ARRAY_FIRST;
}

/* Fills `array`, and lets go of it on failure. */
static json_t *elements_json(const weir_metadata *metadata, json_t *array)
{
	for (uint64_t i = 0; array && i < shown_elements(metadata); i++) {
		if (json_array_append_new(array, value_json(metadata->type, &metadata->values[i]))) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *entry_json(const weir_metadata *metadata)
{
	json_t *elements;

	if (!metadata->is_array)
		return value_json(metadata->type, &metadata->values[0]);
	elements = elements_json(metadata, json_array());
	if (!elements || shown_elements(metadata) == metadata->count)
		return elements;
	return json_pack("{s:s, s:o, s:o}", "type", weir_value_type_name(metadata->type), "count",
			 natural_json(metadata->count), "first", elements);
}

/* Adds `value` (may be NULL: out of memory) under a key of any bytes. */
static int set_entry(json_t *object, const char *key, json_t *value)
{
	json_t *text = string_json(key);
	int failed = !text || json_object_set_new(object, json_string_value(text), value);

	if (!text)
		json_decref(value);
	json_decref(text);
	return failed;
}

static json_t *metadata_json(const weir_checkpoint *checkpoint)
{
	json_t *object = json_object();

	for (uint32_t i = 0; object && i < weir_checkpoint_metadata_count(checkpoint); i++) {
		const weir_metadata *metadata = weir_checkpoint_metadata(checkpoint, i);

		if (set_entry(object, metadata->key, entry_json(metadata))) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

static json_t *files_json(const weir_checkpoint *checkpoint)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < weir_checkpoint_shards_count(checkpoint); i++) {
		json_t *file = json_pack("{s:o, s:o}", "path", string_json(weir_checkpoint_shard_path(checkpoint, i)), "bytes",
					 natural_json(weir_checkpoint_shard_bytes(checkpoint, i)));

		if (json_array_append_new(array, file)) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *shape_json(const weir_tensor *tensor)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < tensor->rank; i++) {
		if (json_array_append_new(array, natural_json(tensor->shape[i]))) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *tensor_json(const weir_tensor *tensor)
{
	return json_pack("{s:o, s:s, s:o, s:I, s:o, s:o}", "name", string_json(tensor->name), "dtype", tensor->dtype_name,
			 "shape", shape_json(tensor), "file", (json_int_t)tensor->shard, "offset", natural_json(tensor->offset),
			 "bytes", natural_json(tensor->bytes));
}

static json_t *tensors_json(const weir_checkpoint *checkpoint)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < weir_checkpoint_tensors_count(checkpoint); i++) {
		if (json_array_append_new(array, tensor_json(weir_checkpoint_tensor(checkpoint, i)))) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static json_t *version_json(const weir_checkpoint *checkpoint)
{
	uint32_t version = weir_checkpoint_version(checkpoint);

	return version ? json_integer(version) : json_null();
}

static json_t *checkpoint_json(const weir_checkpoint *checkpoint)
{
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "format",
			 weir_format_name(weir_checkpoint_format(checkpoint)), "version", version_json(checkpoint),
			 "architecture", string_json(weir_checkpoint_architecture(checkpoint)), "files", files_json(checkpoint),
			 "tensors", tensors_json(checkpoint), "tensor_bytes",
			 natural_json(weir_checkpoint_tensors_bytes(checkpoint)), "metadata", metadata_json(checkpoint),
			 "aligned", (int)weir_checkpoint_aligned(checkpoint));
}

/* ---- table ---- */

/* A cell under construction: cut at its capacity, between characters. */
typedef struct cell {
	char text[CELL_BYTES + 1];
	size_t length;
	bool cut;
} cell;

static void append(cell *to, const char *text, size_t bytes)
{
	size_t room = sizeof to->text - to->length;

	if (to->cut)
		return;
	to->cut = weir_text_escape(text, bytes, to->text + to->length, room) >= room;
	to->length = strlen(to->text);
}

static void append_value(cell *to, weir_value_type type, const weir_value *value)
{
	char number[32];

	switch (type) {
	case WEIR_VALUE_STRING:
		append(to, value->text, (size_t)value->as.text_bytes);
		return;
	case WEIR_VALUE_BOOL:
		snprintf(number, sizeof number, "%s", value->as.natural ? "true" : "false");
		break;
	case WEIR_VALUE_FLOAT32:
	case WEIR_VALUE_FLOAT64:
		snprintf(number, sizeof number, "%g", value->as.real);
		break;
	case WEIR_VALUE_INT8:
	case WEIR_VALUE_INT16:
	case WEIR_VALUE_INT32:
	case WEIR_VALUE_INT64:
		snprintf(number, sizeof number, "%" PRId64, value->as.integer);
		break;
	default:
		snprintf(number, sizeof number, "%" PRIu64, value->as.natural);
	}
	append(to, number, strlen(number));
}

static void append_elements(cell *to, const weir_metadata *metadata)
{
	uint64_t shown = shown_elements(metadata);

	for (uint64_t i = 0; i < shown; i++) {
		if (i)
			append(to, ", ", 2);
		append_value(to, metadata->type, &metadata->values[i]);
	}
	if (shown < metadata->count)
		append(to, ", ...", 5);
}

/* Prints text from the file, padded to `width` columns where each byte that starts a character counts as one. */
static void print_padded(const char *text, int width)
{
	size_t bytes = strlen(text);
	size_t capacity = weir_text_escape(text, bytes, NULL, 0) + 1;
	char *escaped = malloc(capacity);
	int columns = 0;

	if (!escaped)
		return;
	weir_text_escape(text, bytes, escaped, capacity);
	for (const char *at = escaped; *at; at++)
		columns += ((unsigned char)*at & 0xC0) != 0x80;
	printf("%s%*s", escaped, columns < width ? width - columns : 0, "");
	free(escaped);
}

static int widen(int width, const char *text)
{
	size_t bytes = strlen(text);

	return bytes > (size_t)width && bytes <= NAME_COLUMN_MAX ? (int)bytes : width;
}

static void print_metadata(const weir_checkpoint *checkpoint)
{
	uint32_t count = weir_checkpoint_metadata_count(checkpoint);
	int width = 0;

	for (uint32_t i = 0; i < count; i++)
		width = widen(width, weir_checkpoint_metadata(checkpoint, i)->key);
	if (count)
		printf("\nmetadata\n");
	for (uint32_t i = 0; i < count; i++) {
		const weir_metadata *metadata = weir_checkpoint_metadata(checkpoint, i);
		cell value = {.length = 0};
		char type[40];

		snprintf(type, sizeof type, metadata->is_array ? "%s[%" PRIu64 "]" : "%s", weir_value_type_name(metadata->type),
			 metadata->count);
		append_elements(&value, metadata);
		printf("  ");
		print_padded(metadata->key, width);
		printf("  %-14s  %s%s\n", type, value.text, value.cut ? "..." : "");
	}
}

static const char *shape_text(const weir_tensor *tensor, char text[SHAPE_BYTES])
{
	int length = snprintf(text, SHAPE_BYTES, "[");

	for (uint32_t i = 0; i < tensor->rank; i++)
		length +=
			snprintf(text + length, (size_t)(SHAPE_BYTES - length), "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
	snprintf(text + length, (size_t)(SHAPE_BYTES - length), "]");
	return text;
}

static void print_tensors(const weir_checkpoint *checkpoint)
{
	uint32_t count = weir_checkpoint_tensors_count(checkpoint);
	char shape[SHAPE_BYTES];
	int width = 4, shape_width = 5;

	for (uint32_t i = 0; i < count; i++) {
		width = widen(width, weir_checkpoint_tensor(checkpoint, i)->name);
		shape_width = widen(shape_width, shape_text(weir_checkpoint_tensor(checkpoint, i), shape));
	}
	if (count)
		printf("\n  %-*s  %-7s  %-*s  %4s  %14s  %14s\n", width, "tensor", "type", shape_width, "shape", "file",
		       "offset", "bytes");
	for (uint32_t i = 0; i < count; i++) {
		const weir_tensor *tensor = weir_checkpoint_tensor(checkpoint, i);

		printf("  ");
		print_padded(tensor->name, width);
		printf("  %-7s  %-*s  %4u  %14" PRIu64 "  %14" PRIu64 "\n", tensor->dtype_name, shape_width,
		       shape_text(tensor, shape), tensor->shard, tensor->offset, tensor->bytes);
	}
}

/* How many tensors there are of each type, and their bytes. */
static void print_types(const weir_checkpoint *checkpoint)
{
	uint64_t bytes[DTYPES_MAX] = {0};
	uint32_t counts[DTYPES_MAX] = {0};
	char text[CLI_BYTES_TEXT];

	for (uint32_t i = 0; i < weir_checkpoint_tensors_count(checkpoint); i++) {
		const weir_tensor *tensor = weir_checkpoint_tensor(checkpoint, i);

		if ((unsigned)tensor->dtype >= DTYPES_MAX)
			continue;
		counts[tensor->dtype]++;
		bytes[tensor->dtype] += tensor->bytes;
	}
	for (int i = 0; i < DTYPES_MAX; i++) {
		if (counts[i])
			printf("  %-12s  %u, %s\n", weir_dtype_describe((weir_dtype)i)->name, counts[i],
			       cli_bytes(bytes[i], text));
	}
}

static void print_files(const weir_checkpoint *checkpoint)
{
	char text[CLI_BYTES_TEXT];

	for (uint32_t i = 0; i < weir_checkpoint_shards_count(checkpoint); i++) {
		printf("file %-4u        ", i);
		print_padded(weir_checkpoint_shard_path(checkpoint, i), 0);
		printf(", %s\n", cli_bytes(weir_checkpoint_shard_bytes(checkpoint, i), text));
	}
}

static void print_summary(const weir_checkpoint *checkpoint)
{
	const char *architecture = weir_checkpoint_architecture(checkpoint);
	uint32_t version = weir_checkpoint_version(checkpoint);
	char text[CLI_BYTES_TEXT];

	print_files(checkpoint);
	printf("format           %s", weir_format_name(weir_checkpoint_format(checkpoint)));
	if (version)
		printf(" version %u", version);
	printf("\narchitecture     ");
	print_padded(architecture ? architecture : "not stated", 0);
	printf("\naligned          %s\n",
	       weir_checkpoint_aligned(checkpoint) ? "yes" : "no: some tensors must be copied to be used");
	printf("tensors          %u, %s\n", weir_checkpoint_tensors_count(checkpoint),
	       cli_bytes(weir_checkpoint_tensors_bytes(checkpoint), text));
	print_types(checkpoint);
}

/* ---- command ---- */

static int show(const cli_common *common, const weir_checkpoint *checkpoint)
{
	if (common->json)
		return output_json_print(common, checkpoint_json(checkpoint));
	print_summary(checkpoint);
	print_metadata(checkpoint);
	print_tensors(checkpoint);
	return cli_flush(common);
}

int cmd_inspect(int argc, char **argv)
{
	static const cli_command command = {
		.name = "inspect",
		.operands = "FILE",
		.summary = "lists and validates a checkpoint",
		.details = "FILE is a .gguf file (of a split set: any shard), a .safetensors file, a safetensors index\n"
			   "(*.safetensors.index.json), a directory that holds one of those, or a pack (*.weir).  Shapes are\n"
			   "given in the order of the format: GGUF from the innermost dimension on, safetensors from the "
			   "outermost.\n"
			   "Exit code 4: the file breaks a rule of its format, which the error line names.",
		.example = "  weir inspect model.gguf\n"
			   "  weir inspect --json model.safetensors.index.json | jq '.tensors[].name'",
		.operands_least = 1,
		.operands_most = 1,
	};
	const weir_checkpoint_options options = {.array_numbers_kept = ARRAY_WHOLE, .array_strings_kept = ARRAY_WHOLE};
	cli_common common;
	char **operands;
	int operands_count;
	weir_checkpoint *checkpoint;
	weir_error error;
	int exit_code = cli_parse(&command, &common, argc, argv, &operands, &operands_count);

	if (exit_code != CLI_CONTINUE)
		return exit_code;
	if (weir_pack_recognize(operands[0]))
		return inspect_pack(&common, operands[0]);
	if (weir_checkpoint_open(operands[0], &options, &checkpoint, &error))
		return cli_fail(&common, &error);
	exit_code = show(&common, checkpoint);
	weir_checkpoint_close(checkpoint);
	return exit_code;
}
