/*
 * interrupt.c - see interrupt.h.
 */
#include "interrupt.h"

#include <signal.h>
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
	struct sigaction action = {.sa_handler = on_interrupt};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
}

bool interrupt_seen(void)
{
	return seen;
}
