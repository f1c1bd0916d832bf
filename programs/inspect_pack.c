/*
 * inspect_pack.c - see inspect_pack.h.
 */
#include "inspect_pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "output.h"
#include "weir/pack.h"

#define NAME_BYTES 256

/* ---- JSON ---- */

static json_t *shape_json(const weir_tensor *tensor)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < tensor->rank; i++)
		json_array_append_new(array, output_json_count(tensor->shape[i]));
	return array;
}

static json_t *tensors_json(const weir_pack *pack)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < weir_pack_tensors_count(pack); i++) {
		const weir_pack_tensor *tensor = weir_pack_tensor_at(pack, i);
		const weir_tensor *source = &tensor->source;

		json_array_append_new(
			array, json_pack("{s:o, s:s, s:o, s:i, s:o, s:o, s:I, s:o}", "name",
					 output_json_string(source->name, strlen(source->name)), "dtype", source->dtype_name,
					 "shape", shape_json(source), "file", 0, "offset", output_json_count(tensor->offset),
					 "bytes", output_json_count(source->bytes), "slices", (json_int_t)tensor->slices_count,
					 "stride", output_json_count(tensor->stride_bytes)));
	}
	return array;
}

static json_t *sources_json(const weir_pack *pack)
{
	json_t *array = json_array();

	for (uint32_t i = 0; array && i < weir_pack_sources_count(pack); i++) {
		const char *name = weir_pack_source_name(pack, i);

		json_array_append_new(array, json_pack("{s:o, s:o}", "name", output_json_string(name, strlen(name)), "bytes",
						       output_json_count(weir_pack_source_bytes(pack, i))));
	}
	return array;
}

static json_t *pack_json(const weir_pack *pack)
{
	const char *path = weir_pack_file(pack);

	return json_pack("{s:s, s:i, s:n, s:[{s:o, s:o}], s:o, s:o, s:{}, s:b, s:o, s:b, s:o}", "format", "weir", "version",
			 (int)weir_pack_version(pack), "architecture", "files", "path", output_json_string(path, strlen(path)),
			 "bytes", output_json_count(weir_pack_bytes(pack)), "tensors", tensors_json(pack), "tensor_bytes",
			 output_json_count(weir_pack_tensors_bytes(pack)), "metadata", "aligned", 1, "chunks",
			 output_json_count(weir_pack_chunks_count(pack)), "replaces", (int)weir_pack_replaces(pack), "sources",
			 sources_json(pack));
}

/* ---- table ---- */

static void print_safe(const char *text)
{
	char safe[NAME_BYTES];

	weir_text_escape(text, strlen(text), safe, sizeof safe);
	printf("%s", safe);
}

static void print_tensors(const weir_pack *pack)
{
	uint32_t count = weir_pack_tensors_count(pack);

	if (count)
		printf("\n  %-7s  %14s  %14s  %6s  %14s  tensor\n", "type", "offset", "bytes", "slices", "each");
	for (uint32_t i = 0; i < count; i++) {
		const weir_pack_tensor *tensor = weir_pack_tensor_at(pack, i);

		printf("  %-7s  %14" PRIu64 "  %14" PRIu64 "  %6" PRIu32 "  %14" PRIu64 "  ", tensor->source.dtype_name,
		       tensor->offset, tensor->source.bytes, tensor->slices_count, tensor->slice_bytes);
		print_safe(tensor->source.name);
		printf("\n");
	}
}

static void print_pack(const weir_pack *pack)
{
	char text[CLI_BYTES_TEXT];

	printf("file             ");
	print_safe(weir_pack_file(pack));
	printf(", %s\nformat           weir pack version %" PRIu32 ", aligned to %" PRIu64 " bytes\n",
	       cli_bytes(weir_pack_bytes(pack), text), weir_pack_version(pack), weir_pack_alignment(pack));
	for (uint32_t i = 0; i < weir_pack_sources_count(pack); i++) {
		printf("made from        ");
		print_safe(weir_pack_source_name(pack, i));
		printf(", %s\n", cli_bytes(weir_pack_source_bytes(pack, i), text));
	}
	printf("replaces         %s\n",
	       weir_pack_replaces(pack) ? "yes: the model's experts are in this file alone" : "no: the model is whole");
	printf("tensors          %" PRIu32 ", %s, in %" PRIu64 " chunks\n", weir_pack_tensors_count(pack),
	       cli_bytes(weir_pack_tensors_bytes(pack), text), weir_pack_chunks_count(pack));
	print_tensors(pack);
}

int inspect_pack(const cli_common *common, const char *path)
{
	weir_error error;
	weir_pack *pack;
	int exit_code;

	if (weir_pack_open(path, &pack, &error))
		return cli_fail(common, &error);
	if (common->json) {
		exit_code = output_json_print(common, pack_json(pack));
	} else {
		print_pack(pack);
		exit_code = cli_flush(common);
	}
	weir_pack_close(pack);
	return exit_code;
}
