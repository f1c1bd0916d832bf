/*
 * cmd_pack.c - `weir pack MODEL`: writes the pack of a model, or the aligned copy of a safetensors one.
 *
 * Ctrl-C stops between two writes; what was written stays and the next call goes on with it.  Main thread only.
 */
#include <math.h>

#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "output.h"
#include "weir/pack.h"

struct pack_run {
	cli_common common;
	weir_pack_options options;
	weir_pack_result result;
};

static double rate(const weir_pack_result *result)
{
	return result->seconds > 0 && result->written_bytes ? (double)result->written_bytes / result->seconds : NAN;
}

static json_t *result_json(const char *model, const weir_pack_result *result)
{
	json_t *object = json_object();

	output_put_text(object, "model", model);
	output_put_text(object, "output", result->output);
	output_put_count(object, "output_bytes", result->output_bytes);
	output_put_count(object, "written_bytes", result->written_bytes);
	output_put_count(object, "resumed_bytes", result->resumed_bytes);
	output_put_count(object, "freed_bytes", result->freed_bytes);
	json_object_set_new(object, "up_to_date", json_boolean(result->up_to_date));
	output_put_real(object, "seconds", result->seconds);
	output_put_real(object, "bytes_per_second", rate(result));
	return object;
}

static void print_result(const struct pack_run *run)
{
	const weir_pack_result *result = &run->result;
	char bytes[CLI_BYTES_TEXT];

	if (result->up_to_date)
		cli_note(&run->common, "%s is up to date (%s)", result->output, cli_bytes(result->output_bytes, bytes));
	else
		cli_note(&run->common, "%s: %s written in %.1f s", result->output, cli_bytes(result->written_bytes, bytes),
			 result->seconds);
	if (result->resumed_bytes)
		cli_note(&run->common, "%s were there from an earlier call and are right",
			 cli_bytes(result->resumed_bytes, bytes));
	if (run->options.replace)
		cli_note(&run->common, "%s freed in the model: keep %s, only weir can use the two together",
			 cli_bytes(result->freed_bytes, bytes), result->output);
}

static int pack_model(struct pack_run *run, const char *model)
{
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	int code;

	run->options.progress = interrupt_progress;
	run->options.user = &run->common;
	interrupt_catch();
	code = weir_pack_write(model, &run->options, &run->result, &error);
	cli_progress_clear(&run->common);
	if (code == WEIR_EINTERRUPTED)
		cli_note(&run->common, "interrupted; the same command goes on from here");
	if (code)
		return code == WEIR_EINTERRUPTED ? CLI_INTERRUPTED : cli_fail(&run->common, &error);
	if (run->common.json)
		return output_json_print(&run->common, result_json(model, &run->result));
	print_result(run);
	return CLI_DONE;
}

#define PACK_DETAILS                                                                                                           \
	"A pack holds the weights once more: each expert's parts side by side, dense weights in order of use,\n"               \
	"everything aligned and with checksums.  'weir run MODEL' uses a pack that lies beside its model.  A call\n"           \
	"that was stopped, by whatever, is gone on with by the next one.  --replace reads the pack back, then frees\n"         \
	"the experts' space in MODEL: the two together take little more room than MODEL did, but no other program\n"           \
	"can use MODEL any more.  A safetensors model becomes another safetensors file at -o (a folder for a sharded\n"        \
	"set), whose tensors are aligned so that any reader can map them in place.\n\n"                                        \
	"exit codes: 0 done, 1 failed (no space: the line says how much is needed), 2 wrong usage, 4 MODEL is not\n"           \
	"valid, 130 interrupted (the next call goes on)"

int cmd_pack(int argc, char **argv)
{
	struct pack_run run = {.options = {.threads = 0}};
	const cli_option options[] = {
		{'o', "output", CLI_TEXT, &run.options.output, "FILE", "what to write (default: MODEL.weir beside it)", NULL, 0,
		 0},
		{0, "replace", CLI_FLAG, &run.options.replace, NULL, "then free the experts' space in MODEL itself", NULL, 0,
		 0},
		{0, "force", CLI_FLAG, &run.options.force, NULL, "write anew even if a matching pack is there", NULL, 0, 0},
		{'t', "threads", CLI_COUNT, &run.options.threads, "N", "that read and write (default: 6)", NULL, 1, 32},
	};
	const cli_command command = {
		.name = "pack",
		.operands = "MODEL",
		.summary = "writes the aligned, checksummed pack of a model",
		.details = PACK_DETAILS,
		.example = "  weir pack model.gguf\n"
			   "  weir pack model.gguf --replace\n"
			   "  weir pack model.safetensors -o aligned.safetensors",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int count, code;

	code = cli_parse(&command, &run.common, argc, argv, &operands, &count);
	return code == CLI_CONTINUE ? pack_model(&run, operands[0]) : code;
}
