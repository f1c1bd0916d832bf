/*
 * weir.c - the program: finds the command and hands over.
 *
 * A closed pipe and a file size limit must be errors like any other, so SIGPIPE and SIGXFSZ are ignored here, once, for every
 * command.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "commands.h"
#include "weir/version.h"

struct command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
};

#define COMMAND_ROW(name, summary) {#name, summary, cmd_##name},
static const struct command commands[] = {WEIR_COMMAND_TABLE(COMMAND_ROW)};
#undef COMMAND_ROW

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int print_help(const cli_common *common)
{
	printf("weir %s - runs language models larger than memory within a stated budget\n\n"
	       "usage: weir COMMAND [OPTIONS] ...\n\ncommands:\n",
	       weir_version());
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (commands[i].run)
			printf("  %-10s %s\n", commands[i].name, commands[i].summary);
	printf("\n'weir COMMAND --help' says more, with an example.\n\nexample:\n"
	       "  weir run model.gguf --memory 4G --prompt \"Once upon a time\"\n");
	return cli_flush(common);
}

static int print_version(const cli_common *common)
{
	printf("weir %s\n", weir_version());
	return cli_flush(common);
}

static int run_command(const cli_common *common, int argc, char **argv)
{
	const struct command *command = find_command(argv[0]);

	if (!command)
		return cli_usage(common, "there is no command '%s'", argv[0]);
	if (!command->run) {
		cli_note(common, "this build has no '%s'", argv[0]);
		return CLI_FAILED;
	}
	return command->run(argc, argv);
}

/* "weir help run" is "weir run --help". */
static int run_help(const cli_common *common, int argc, char **argv)
{
	char flag[] = "--help";
	char *arguments[] = {NULL, flag, NULL};

	if (argc < 2)
		return print_help(common);
	arguments[0] = argv[1];
	return run_command(common, 2, arguments);
}

/* Started with a standard stream closed, the next file opened would take its number and receive our output.  The null device,
 * opened the wrong way round, keeps the number and still lets every read or write fail as it should. */
static void hold_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv)
{
	const cli_common common = {0};

	hold_standard_streams();
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN);
	if (argc < 2)
		return cli_usage(&common, "a command is needed");
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))
		return print_help(&common);
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version"))
		return print_version(&common);
	if (!strcmp(argv[1], "help"))
		return run_help(&common, argc - 1, argv + 1);
	return run_command(&common, argc - 1, argv + 1);
}
