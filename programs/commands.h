/*
 * commands.h - one function per command.  argv[0] is the command's name; the result is the exit code.
 *
 * Each is declared weak: a build without the engine lacks the commands that need it, and every build lacks those that are
 * planned (docs/limits.md); it says so instead of failing to link.
 */
#ifndef WEIR_PROGRAMS_COMMANDS_H
#define WEIR_PROGRAMS_COMMANDS_H

#define WEIR_COMMAND_TABLE(X)                                                                                                  \
	X(run, "generates text within a memory budget and reports what it cost")                                               \
	X(chat, "interactive chat within a memory budget")                                                                     \
	X(serve, "HTTP server (OpenAI and Anthropic routes) within a memory budget")                                           \
	X(plan, "says how a budget would be divided and the speed to expect")                                                  \
	X(bench, "runs a prompt streamed, fully resident and with plain mmap, and compares")                                   \
	X(inspect, "lists and validates a checkpoint")                                                                         \
	X(pack, "writes the aligned, checksummed pack of a model")                                                             \
	X(verify, "checks a pack and its model, byte by byte")                                                                 \
	X(disk, "measures the drive the way weir will read it")                                                                \
	X(simulate, "replays a routing trace against policies and budgets")                                                    \
	X(top, "live view of a running weir process")                                                                          \
	X(doctor, "says what on this machine limits weir and what to change")

#define WEIR_COMMAND_DECLARE(name, summary) __attribute__((weak)) int cmd_##name(int argc, char **argv);
WEIR_COMMAND_TABLE(WEIR_COMMAND_DECLARE)
#undef WEIR_COMMAND_DECLARE

#endif
