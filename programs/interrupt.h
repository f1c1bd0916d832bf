/*
 * interrupt.h - Ctrl-C (and SIGTERM, SIGHUP) as a flag, for commands that work through much and can stop between two steps.
 *
 * Main thread only.  A second one ends the process at once, with the same exit code.
 */
#ifndef WEIR_PROGRAMS_INTERRUPT_H
#define WEIR_PROGRAMS_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

void interrupt_catch(void);
bool interrupt_seen(void);

/* For commands with a handler of their own: what interrupt_catch installs.  Without SA_RESTART, so that waiting ends too.  A
 * signal that was ignored when the program was started (nohup) stays so. */
void interrupt_install(void (*handler)(int number));

/* A weir_pack_progress: moves the bar of a command (`common`: its cli_common); not 0 once interrupted. */
int interrupt_progress(const char *stage, uint64_t done_bytes, uint64_t total_bytes, void *common);

#endif
