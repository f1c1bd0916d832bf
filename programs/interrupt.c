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

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_interrupt};

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
		sigaction(numbers[i], &action, NULL);
}

bool interrupt_seen(void)
{
	return seen;
}
