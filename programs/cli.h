/*
 * cli.h - what every command shares: options, help, error lines, exit codes, progress.
 *
 * A command describes itself in a cli_command and calls cli_parse, which fills the targets, prints help and version, and turns
 * every mistake into one line on standard error.  Standard output belongs to the command's result alone; with --json it
 * carries exactly one JSON object (output.h).
 *
 * Only the main thread calls these functions.  Nothing here exits: a command returns its exit code from its function.
 */
#ifndef WEIR_PROGRAMS_CLI_H
#define WEIR_PROGRAMS_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "weir/error.h"

enum {
	CLI_CONTINUE = -1, /* from cli_parse: go on */
	CLI_DONE = 0,
	CLI_FAILED = 1,
	CLI_USAGE = 2,
	CLI_BUDGET = 3,
	CLI_FILE = 4,
	CLI_INTERRUPTED = 130
};

typedef enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER } cli_color;

/* The options that every command has. */
typedef struct cli_common {
	const char *command; /* "run" */
	bool json;
	bool quiet;
	int verbosity; /* how often -v was given */
	cli_color color;
} cli_common;

typedef enum cli_kind {
	CLI_FLAG, /* bool *: becomes true */
	CLI_CLEAR, /* bool *: becomes false ("--no-...") */
	CLI_TEXT, /* const char **; with `choices`, one of them */
	CLI_COUNT, /* uint32_t *: within least..most; with `choices`, that word is 0 */
	CLI_LONG, /* int64_t *: within least..most */
	CLI_REAL, /* double *: finite, within least..most */
	CLI_SIZE /* weir_size *: base/size.h */
} cli_kind;

typedef struct cli_option {
	char letter; /* 0 for none */
	const char *name;
	cli_kind kind;
	void *target;
	const char *value; /* what the help calls the value; NULL for flags */
	const char *help;
	const char *choices; /* "auto|uring|threads"; NULL for none */
	double least, most; /* both 0: whatever the type holds */
} cli_option;

typedef struct cli_command {
	const char *name;
	const char *operands; /* "MODEL"; "" for none */
	const char *summary; /* one line */
	const char *details; /* further paragraphs, or NULL */
	const char *example; /* lines of commands */
	const cli_option *options;
	int options_count;
	int operands_least, operands_most;
} cli_command;

#define CLI_OPTIONS(array) .options = (array), .options_count = (int)(sizeof(array) / sizeof *(array))

/* Reads argv (argv[0] is the command's name).  CLI_CONTINUE with *operands pointing at the operands in argv and
 * *operands_count set; or the exit code when there is nothing left to do. */
int cli_parse(const cli_command *command, cli_common *common, int argc, char **argv, char ***operands, int *operands_count);

/* Prints the line for an error and gives its exit code. */
int cli_fail(const cli_common *common, const weir_error *error);

/* The exit code of a WEIR_E code. */
int cli_exit_code(int code);

/* "weir run: MESSAGE (see 'weir run --help')"; gives CLI_USAGE. */
__attribute__((format(printf, 2, 3))) int cli_usage(const cli_common *common, const char *format, ...);

/* One line on standard error, unless -q. */
__attribute__((format(printf, 2, 3))) void cli_note(const cli_common *common, const char *format, ...);

/* Flushes standard output; CLI_FAILED with the line printed when what was written did not arrive. */
int cli_flush(const cli_common *common);

/* Whether `stream` gets colour: --color, NO_COLOR, TERM=dumb, and whether it is a terminal. */
bool cli_colored(const cli_common *common, FILE *stream);

/* A bar on standard error, only when that is a terminal and neither -q nor a pipe asks for silence.  fraction is 0..1. */
void cli_progress(const cli_common *common, const char *what, double fraction);
void cli_progress_clear(const cli_common *common);

/* "3.9 GiB", "412 MiB", "12 bytes": for people; the buffer is given back. */
#define CLI_BYTES_TEXT 32
const char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT]);

/* What a noun ends with after this number: "1 token", "2 tokens". */
const char *cli_plural(uint64_t count);

#endif
