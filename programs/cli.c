/*
 * cli.c - option parsing over getopt_long, and the lines that every command prints the same way.
 */
#include "cli.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/size.h"
#include "weir/version.h"

#define OPTIONS_MAX 64
#define LONG_BASE 256 /* getopt's value of table row i is LONG_BASE + i */
#define HELP_COLUMN 28
#define BAR_CELLS 30

/* The rows that a command's own table is put together with. */
enum common_row { ROW_HELP, ROW_VERSION, ROW_QUIET, ROW_VERBOSE, ROW_JSON, ROW_COLOR, COMMON_ROWS };

struct parser {
	const cli_command *command;
	cli_common *common;
	const char *color;
	cli_option rows[OPTIONS_MAX]; /* the common rows first */
	int rows_count;
	struct option longs[OPTIONS_MAX + 1];
	char shorts[2 * OPTIONS_MAX + 2];
};

/* ---- lines ---- */

static bool stream_is_terminal(FILE *stream)
{
	return isatty(fileno(stream));
}

bool cli_colored(const cli_common *common, FILE *stream)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	if (common->color != CLI_COLOR_AUTO)
		return common->color == CLI_COLOR_ALWAYS;
	if ((no_color && *no_color) || (term && !strcmp(term, "dumb")))
		return false;
	return stream_is_terminal(stream);
}

static void print_line(const cli_common *common, bool alarm, const weir_error *error, const char *hint)
{
	char line[4 * (WEIR_ERROR_FILE_BYTES + WEIR_ERROR_MESSAGE_BYTES)];
	bool colored = alarm && cli_colored(common, stderr);

	weir_error_format(error, line, (int)sizeof line);
	cli_progress_clear(common);
	fprintf(stderr, "%sweir%s%s:%s %s%s\n", colored ? "\033[1;31m" : "", common->command ? " " : "",
		common->command ? common->command : "", colored ? "\033[0m" : "", line, hint);
}

int cli_exit_code(int code)
{
	switch (code) {
	case WEIR_OK:
		return CLI_DONE;
	case WEIR_EINVAL:
		return CLI_USAGE;
	case WEIR_EBUDGET:
		return CLI_BUDGET;
	case WEIR_EFORMAT:
	case WEIR_EUNSUPPORTED:
	case WEIR_ENOTREGULAR:
	case WEIR_ECHECKSUM:
		return CLI_FILE;
	case WEIR_EINTERRUPTED:
		return CLI_INTERRUPTED;
	default:
		return CLI_FAILED;
	}
}

int cli_fail(const cli_common *common, const weir_error *error)
{
	print_line(common, true, error, "");
	return cli_exit_code(error->code);
}

int cli_usage(const cli_common *common, const char *format, ...)
{
	weir_error error = {.code = WEIR_EINVAL, .offset = WEIR_ERROR_NO_OFFSET};
	char hint[64];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error.message, sizeof error.message, format, arguments);
	va_end(arguments);
	snprintf(hint, sizeof hint, " (see 'weir %s%s--help')", common->command ? common->command : "",
		 common->command ? " " : "");
	print_line(common, true, &error, hint);
	return CLI_USAGE;
}

void cli_note(const cli_common *common, const char *format, ...)
{
	weir_error note = {.offset = WEIR_ERROR_NO_OFFSET};
	va_list arguments;

	if (common->quiet)
		return;
	va_start(arguments, format);
	vsnprintf(note.message, sizeof note.message, format, arguments);
	va_end(arguments);
	print_line(common, false, &note, "");
}

int cli_flush(const cli_common *common)
{
	weir_error error;
	int failed = ferror(stdout);

	if (fflush(stdout) == 0 && !failed)
		return CLI_DONE;
	weir_fail(&error, WEIR_EIO, "standard output", WEIR_ERROR_NO_OFFSET, errno, "write failed");
	return cli_fail(common, &error);
}

const char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double amount = (double)bytes;
	int unit = -1;

	while (amount >= 1024 && unit < 5) {
		amount /= 1024;
		unit++;
	}
	if (unit < 0)
		snprintf(text, CLI_BYTES_TEXT, "%d bytes", (int)bytes);
	else
		snprintf(text, CLI_BYTES_TEXT, amount < 100 ? "%.1f %s" : "%.0f %s", amount, units[unit]);
	return text;
}

const char *cli_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* ---- progress ---- */

static bool progress_wanted(const cli_common *common)
{
	return !common->quiet && stream_is_terminal(stderr);
}

void cli_progress(const cli_common *common, const char *what, double fraction)
{
	char bar[BAR_CELLS + 1];
	int cells;

	if (!progress_wanted(common))
		return;
	fraction = fraction < 0 ? 0 : fraction > 1 ? 1 : fraction;
	cells = (int)(fraction * BAR_CELLS);
	memset(bar, ' ', BAR_CELLS);
	memset(bar, '#', (size_t)cells);
	bar[BAR_CELLS] = '\0';
	fprintf(stderr, "\r%-10s [%s] %3d %%", what, bar, (int)(fraction * 100));
	fflush(stderr);
}

void cli_progress_clear(const cli_common *common)
{
	if (progress_wanted(common))
		fputs("\r\033[K", stderr);
}

/* ---- help ---- */

static void print_row(const cli_option *row)
{
	char left[80];
	int width;

	width = snprintf(left, sizeof left, "  %c%c%s--%s%s%s", row->letter ? '-' : ' ', row->letter ? row->letter : ' ',
			 row->letter ? ", " : "  ", row->name, row->value ? " " : "", row->value ? row->value : "");
	printf("%s%*s%s\n", left, width < HELP_COLUMN ? HELP_COLUMN - width : 2, "", row->help);
}

static int print_help(const struct parser *parser)
{
	const cli_command *command = parser->command;

	printf("weir %s - %s\n\nusage: weir %s %s%s[OPTIONS]\n", command->name, command->summary, command->name,
	       command->operands, *command->operands ? " " : "");
	if (parser->rows_count > COMMON_ROWS)
		printf("\noptions:\n");
	for (int i = COMMON_ROWS; i < parser->rows_count; i++)
		print_row(&parser->rows[i]);
	printf("\ncommon options:\n");
	for (int i = 0; i < COMMON_ROWS; i++)
		print_row(&parser->rows[i]);
	if (command->details)
		printf("\n%s\n", command->details);
	printf("\nexample:\n%s\n", command->example);
	return cli_flush(parser->common);
}

static int print_version(const struct parser *parser)
{
	printf("weir %s\n", weir_version());
	return cli_flush(parser->common);
}

/* ---- values ---- */

static int bad_value(const struct parser *parser, const cli_option *row, const char *text, const char *rule)
{
	return cli_usage(parser->common, "--%s '%.60s': %s", row->name, text, rule);
}

static bool in_range(const cli_option *row, double value)
{
	return (row->least == 0 && row->most == 0) || (value >= row->least && value <= row->most);
}

/* A whole number in plain decimal digits; '-' only where the range goes below zero. */
static bool read_whole(const cli_option *row, const char *text, int64_t *value)
{
	const char *digits = text + (*text == '-' && row->least < 0);
	char *end;

	if (*digits < '0' || *digits > '9')
		return false;
	errno = 0;
	*value = strtoll(text, &end, 10);
	return !errno && !*end && in_range(row, (double)*value);
}

static int set_whole(const struct parser *parser, const cli_option *row, const char *text)
{
	char rule[96];
	int64_t value;

	if (row->choices && !strcmp(text, row->choices)) {
		*(uint32_t *)row->target = 0;
		return CLI_CONTINUE;
	}
	if (!read_whole(row, text, &value) || (row->kind == CLI_COUNT && value > UINT32_MAX)) {
		snprintf(rule, sizeof rule, "a whole number is needed");
		if (row->most > 0)
			snprintf(rule, sizeof rule, "a whole number from %.0f to %.0f is needed", row->least, row->most);
		return bad_value(parser, row, text, rule);
	}
	if (row->kind == CLI_COUNT)
		*(uint32_t *)row->target = (uint32_t)value;
	else
		*(int64_t *)row->target = value;
	return CLI_CONTINUE;
}

static int set_real(const struct parser *parser, const cli_option *row, const char *text)
{
	char rule[96], *end;
	double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || strpbrk(text, " \txX") || !in_range(row, value)) {
		snprintf(rule, sizeof rule, "a number is needed");
		if (row->most > 0)
			snprintf(rule, sizeof rule, "a number from %g to %g is needed", row->least, row->most);
		return bad_value(parser, row, text, rule);
	}
	*(double *)row->target = value;
	return CLI_CONTINUE;
}

static int set_size(const struct parser *parser, const cli_option *row, const char *text)
{
	weir_error error;

	if (weir_size_parse(text, row->target, &error) < 0)
		return cli_usage(parser->common, "--%s: %s", row->name, error.message);
	return CLI_CONTINUE;
}

/* Whether `text` is one of "a|b|c". */
static bool is_choice(const char *choices, const char *text)
{
	size_t length = strlen(text), part;

	for (; *choices; choices += part + (choices[part] == '|')) {
		part = strcspn(choices, "|");
		if (part == length && !memcmp(choices, text, length))
			return true;
	}
	return false;
}

static int set_text(const struct parser *parser, const cli_option *row, const char *text)
{
	char rule[160];

	if (row->choices && !is_choice(row->choices, text)) {
		snprintf(rule, sizeof rule, "one of %s is needed", row->choices);
		return bad_value(parser, row, text, rule);
	}
	*(const char **)row->target = text;
	return CLI_CONTINUE;
}

static int set_value(const struct parser *parser, const cli_option *row, const char *text)
{
	switch (row->kind) {
	case CLI_FLAG:
	case CLI_CLEAR:
		*(bool *)row->target = row->kind == CLI_FLAG;
		return CLI_CONTINUE;
	case CLI_TEXT:
		return set_text(parser, row, text);
	case CLI_COUNT:
	case CLI_LONG:
		return set_whole(parser, row, text);
	case CLI_REAL:
		return set_real(parser, row, text);
	case CLI_SIZE:
		return set_size(parser, row, text);
	}
	return CLI_CONTINUE;
}

/* ---- parsing ---- */

static void add_common_rows(struct parser *parser)
{
	cli_common *common = parser->common;
	const cli_option rows[COMMON_ROWS] = {
		[ROW_HELP] = {'h', "help", CLI_FLAG, NULL, NULL, "print this help", NULL, 0, 0},
		[ROW_VERSION] = {'V', "version", CLI_FLAG, NULL, NULL, "print the version", NULL, 0, 0},
		[ROW_QUIET] = {'q', "quiet", CLI_FLAG, &common->quiet, NULL, "errors only on standard error", NULL, 0, 0},
		[ROW_VERBOSE] = {'v', "verbose", CLI_FLAG, NULL, NULL, "say more: the engine's own messages too", NULL, 0, 0},
		[ROW_JSON] = {0, "json", CLI_FLAG, &common->json, NULL, "one JSON object on standard output", NULL, 0, 0},
		[ROW_COLOR] = {0, "color", CLI_TEXT, &parser->color, "WHEN", "auto, always or never (NO_COLOR is honoured)",
			       "auto|always|never", 0, 0},
	};

	memcpy(parser->rows, rows, sizeof rows);
	parser->rows_count = COMMON_ROWS;
}

/* Puts the two tables together and writes them down as getopt_long wants them. */
static void build_tables(struct parser *parser)
{
	const cli_command *command = parser->command;
	char *shorts = parser->shorts;

	add_common_rows(parser);
	for (int i = 0; i < command->options_count && parser->rows_count < OPTIONS_MAX; i++)
		parser->rows[parser->rows_count++] = command->options[i];
	*shorts++ = ':';
	for (int i = 0; i < parser->rows_count; i++) {
		const cli_option *row = &parser->rows[i];

		parser->longs[i] =
			(struct option){row->name, row->value ? required_argument : no_argument, NULL, LONG_BASE + i};
		if (row->letter)
			*shorts++ = row->letter;
		if (row->letter && row->value)
			*shorts++ = ':';
	}
	*shorts = '\0';
	parser->longs[parser->rows_count] = (struct option){0};
}

/* The row for what getopt_long returned, or -1. */
static int find_row(const struct parser *parser, int found)
{
	if (found >= LONG_BASE)
		return found - LONG_BASE < parser->rows_count ? found - LONG_BASE : -1;
	for (int i = 0; i < parser->rows_count; i++)
		if (found && parser->rows[i].letter == found)
			return i;
	return -1;
}

static int refuse_option(const struct parser *parser, int found, char **argv)
{
	int row = find_row(parser, optopt);

	if (found == ':')
		return cli_usage(parser->common, "--%s needs a value", row < 0 ? "" : parser->rows[row].name);
	if (row >= 0)
		return cli_usage(parser->common, "--%s takes no value", parser->rows[row].name);
	if (optopt)
		return cli_usage(parser->common, "unknown option '-%c'", optopt);
	return cli_usage(parser->common, "unknown or ambiguous option '%.80s'", argv[optind - 1]);
}

static int apply_row(struct parser *parser, int row, const char *text)
{
	switch (row) {
	case ROW_HELP:
		return print_help(parser);
	case ROW_VERSION:
		return print_version(parser);
	case ROW_VERBOSE:
		parser->common->verbosity++;
		return CLI_CONTINUE;
	default:
		return set_value(parser, &parser->rows[row], text);
	}
}

static void apply_color(struct parser *parser)
{
	cli_common *common = parser->common;

	if (parser->color)
		common->color = !strcmp(parser->color, "always")  ? CLI_COLOR_ALWAYS
				: !strcmp(parser->color, "never") ? CLI_COLOR_NEVER
								  : CLI_COLOR_AUTO;
}

static int check_operands(const struct parser *parser, int argc, char **argv)
{
	const cli_command *command = parser->command;
	int count = argc - optind;

	if (count < command->operands_least)
		return cli_usage(parser->common, "%s is missing", command->operands);
	if (count > command->operands_most)
		return cli_usage(parser->common, "unexpected argument '%.80s'", argv[optind + command->operands_most]);
	return CLI_CONTINUE;
}

int cli_parse(const cli_command *command, cli_common *common, int argc, char **argv, char ***operands, int *operands_count)
{
	struct parser parser = {.command = command, .common = common};
	int found, result = CLI_CONTINUE;

	*common = (cli_common){.command = command->name};
	build_tables(&parser);
	opterr = 0;
	optind = 0; /* glibc: start over, for callers that parse twice */
	while (result == CLI_CONTINUE && (found = getopt_long(argc, argv, parser.shorts, parser.longs, NULL)) != -1) {
		if (found == ':' || found == '?')
			result = refuse_option(&parser, found, argv);
		else
			result = apply_row(&parser, find_row(&parser, found), optarg);
		apply_color(&parser);
	}
	if (result == CLI_CONTINUE)
		result = check_operands(&parser, argc, argv);
	*operands = argv + optind;
	*operands_count = argc - optind;
	return result;
}
