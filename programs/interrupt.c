/*
 * interrupt.c - see interrupt.h.
 */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "cli.h"

static volatile sig_atomic_t seen;

static void on_interrupt(int number)
{
	(void)number;
	if (seen)
		_exit(CLI_INTERRUPTED);
	seen = 1;
}

void interrupt_install(void (*handler)(int number))
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = handler}, before;

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		sigaction(numbers[i], NULL, &before);
		if (before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

void interrupt_catch(void)
{
	interrupt_install(on_interrupt);
}

bool interrupt_seen(void)
{
	return seen;
}

int interrupt_progress(const char *stage, uint64_t done_bytes, uint64_t total_bytes, void *common)
{
	if (total_bytes)
		cli_progress(common, stage, (double)done_bytes / (double)total_bytes);
	return interrupt_seen();
}
