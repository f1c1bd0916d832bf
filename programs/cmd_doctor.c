/*
 * cmd_doctor.c - `weir doctor [PATH]`: what on this machine limits weir, and what to change.
 *
 * The checks are in doctor_*.c.  Main thread only.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "base/text.h"
#include "cli.h"
#include "commands.h"
#include "doctor.h"
#include "output.h"
#include "weir/version.h"

/* ---- findings ---- */

doctor_finding *doctor_add(doctor *d, const char *name, doctor_verdict verdict)
{
	doctor_finding *finding;

	if (d->findings_count < DOCTOR_FINDINGS_MAX)
		d->findings_count++;
	finding = &d->findings[d->findings_count - 1];
	*finding = (doctor_finding){.name = name, .verdict = verdict};
	return finding;
}

/* What the system tells may hold anything: names of groups and drives. */
static void write_line(char line[DOCTOR_LINE_BYTES], const char *format, va_list arguments)
{
	char raw[DOCTOR_LINE_BYTES];

	vsnprintf(raw, sizeof raw, format, arguments);
	weir_text_escape(raw, strlen(raw), line, DOCTOR_LINE_BYTES);
}

void doctor_say(doctor_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(finding->says, format, arguments);
	va_end(arguments);
}

void doctor_advise(doctor_finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(finding->advice, format, arguments);
	va_end(arguments);
}

const char *doctor_verdict_name(doctor_verdict verdict)
{
	static const char *const names[] = {"ok", "note", "warning", "unknown"};

	return names[verdict];
}

static int count_of(const doctor *d, doctor_verdict verdict)
{
	int count = 0;

	for (int i = 0; i < d->findings_count; i++)
		count += d->findings[i].verdict == verdict;
	return count;
}

/* ---- output ---- */

static json_t *doctor_json(const doctor *d)
{
	json_t *object = json_object(), *findings = json_array();

	for (int i = 0; i < d->findings_count; i++) {
		const doctor_finding *finding = &d->findings[i];
		json_t *entry = json_object();

		json_object_set_new(entry, "name", json_string(finding->name));
		json_object_set_new(entry, "verdict", json_string(doctor_verdict_name(finding->verdict)));
		output_put_text(entry, "says", finding->says);
		output_put_text(entry, "advice", finding->advice);
		json_array_append_new(findings, entry);
	}
	json_object_set_new(object, "weir_version", json_string(weir_version()));
	output_put_text(object, "path", d->path);
	json_object_set_new(object, "machine", machine_json(&d->machine, &d->drive));
	json_object_set_new(object, "findings", findings);
	json_object_set_new(object, "warnings", json_integer(count_of(d, DOCTOR_WARNING)));
	return object;
}

static void print_finding(const doctor_finding *finding, bool colored)
{
	static const char *const colors[] = {"\033[32m", "\033[33m", "\033[1;31m", "\033[36m"};

	printf("%s%-8s%s %-19s %s\n", colored ? colors[finding->verdict] : "", doctor_verdict_name(finding->verdict),
	       colored ? "\033[0m" : "", finding->name, finding->says);
	if (finding->advice[0])
		printf("%28s %s\n", "->", finding->advice);
}

static int print_all(const cli_common *common, const doctor *d)
{
	bool colored = cli_colored(common, stdout);

	if (common->json)
		return output_json_print(common, doctor_json(d));
	for (int i = 0; i < d->findings_count; i++)
		if (!common->quiet || d->findings[i].verdict == DOCTOR_WARNING)
			print_finding(&d->findings[i], colored);
	return cli_flush(common);
}

/* ---- command ---- */

static int check_path(const char *path, weir_error *error)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return weir_fail(error, WEIR_ENOTFOUND, path, WEIR_ERROR_NO_OFFSET, 0, "there is no such file or folder");
	if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode))
		return weir_fail(error, WEIR_ENOTREGULAR, path, WEIR_ERROR_NO_OFFSET, 0, "is neither a file nor a folder");
	return 0;
}

static int examine(const cli_common *common, doctor *d)
{
	weir_error error;

	if (check_path(d->path, &error) < 0)
		return cli_fail(common, &error);
	machine_read(&d->machine);
	machine_drive_read(d->path, &d->drive);
	doctor_check_drive(d);
	doctor_check_reading(d);
	doctor_check_memory(d);
	doctor_check_processor(d);
	return print_all(common, d);
}

int cmd_doctor(int argc, char **argv)
{
	cli_common common;
	doctor d = {.path = ".", .measure = true};
	const cli_option options[] = {
		{.name = "no-measure", .kind = CLI_CLEAR, .target = &d.measure, .help = "do not measure the drive"},
	};
	const cli_command command = {
		.name = "doctor",
		.operands = "[PATH]",
		.summary = "says what on this machine limits weir and what to change",
		.details =
			"PATH is a model or a folder that models are in (default: the current folder).  Each line is what the\n"
			"system says or what came of trying; nothing is changed.  The drive is measured for a moment unless\n"
			"'weir disk' has a result for it; in a folder that needs a temporary file of 256 MiB.\n"
			"Verdicts: ok, note (may limit weir), warning (does, with what to do), unknown.",
		.example = "  weir doctor model.gguf\n"
			   "  weir doctor --json | jq '.findings[] | select(.verdict == \"warning\")'",
		CLI_OPTIONS(options),
		.operands_least = 0,
		.operands_most = 1,
	};
	char **operands;
	int count, result = cli_parse(&command, &common, argc, argv, &operands, &count);

	if (result != CLI_CONTINUE)
		return result;
	if (count)
		d.path = operands[0];
	return examine(&common, &d);
}
