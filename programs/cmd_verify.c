/*
 * cmd_verify.c - `weir verify FILE`: reads a pack and its model whole and compares them with the checksums.
 *
 * Writes nothing but standard output.  Main thread only.
 */
#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "output.h"
#include "weir/pack.h"

struct verify_run {
	cli_common common;
	weir_verify_options options;
	weir_verify_result result;
};

static json_t *result_json(const weir_verify_result *result)
{
	json_t *object = json_object();

	output_put_text(object, "pack", result->pack);
	output_put_text(object, "checkpoint", result->checkpoint);
	output_put_count(object, "pack_bytes", result->pack_bytes);
	output_put_count(object, "checkpoint_bytes", result->checkpoint_bytes);
	output_put_count(object, "freed_bytes", result->freed_bytes);
	output_put_real(object, "seconds", result->seconds);
	return object;
}

static int print_result(const struct verify_run *run)
{
	const weir_verify_result *result = &run->result;
	const double seconds = result->seconds > 0 ? result->seconds : 1;
	char bytes[CLI_BYTES_TEXT], rate[CLI_BYTES_TEXT];

	if (run->common.quiet)
		return CLI_DONE;
	if (result->pack[0])
		printf("pack         %s, every byte is right\n", cli_bytes(result->pack_bytes, bytes));
	if (result->checkpoint[0] && result->pack[0])
		printf("model        %s of weights, the same\n", cli_bytes(result->checkpoint_bytes, bytes));
	else if (result->checkpoint[0])
		printf("model        %s of weights can be read; without a pack there are no checksums to compare with\n",
		       cli_bytes(result->checkpoint_bytes, bytes));
	else
		printf("model        not beside the pack, not compared\n");
	if (result->freed_bytes)
		printf("replaced     %s of weights are in the pack alone\n", cli_bytes(result->freed_bytes, bytes));
	printf("read at      %s/s\n",
	       cli_bytes((uint64_t)((double)(result->pack_bytes + result->checkpoint_bytes) / seconds), rate));
	return cli_flush(&run->common);
}

static int verify_file(struct verify_run *run, const char *path)
{
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	int code;

	run->options.progress = interrupt_progress;
	run->options.user = &run->common;
	interrupt_catch();
	code = weir_verify(path, &run->options, &run->result, &error);
	cli_progress_clear(&run->common);
	if (code == WEIR_EINTERRUPTED)
		return CLI_INTERRUPTED;
	if (code) {
		int exit_code = cli_fail(&run->common, &error);

		return code == WEIR_ECHANGED ? CLI_FILE : exit_code;
	}
	if (run->common.json)
		return output_json_print(&run->common, result_json(&run->result));
	return print_result(run);
}

#define VERIFY_DETAILS                                                                                                         \
	"FILE is a pack or a model.  Of a pack every byte is read: a single flipped bit is found, and the line names\n"        \
	"the offset and the tensor.  When the model that it was made from lies beside it, its weights are compared\n"          \
	"with the same checksums.  A model without a pack has no checksums: its headers are checked, and that all of\n"        \
	"it can be read.\n\n"                                                                                                  \
	"exit codes: 0 all is right, 1 failed while reading, 2 wrong usage, 4 something differs"

int cmd_verify(int argc, char **argv)
{
	struct verify_run run = {.options = {.threads = 0}};
	const cli_option options[] = {
		{'t', "threads", CLI_COUNT, &run.options.threads, "N", "that read (default: 6)", NULL, 1, 32},
	};
	const cli_command command = {
		.name = "verify",
		.operands = "FILE",
		.summary = "checks a pack and its model, byte by byte",
		.details = VERIFY_DETAILS,
		.example = "  weir verify model.weir\n  weir verify model.gguf --json",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int count, code;

	code = cli_parse(&command, &run.common, argc, argv, &operands, &count);
	return code == CLI_CONTINUE ? verify_file(&run, operands[0]) : code;
}
