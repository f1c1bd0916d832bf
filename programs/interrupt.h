/*
 * interrupt.h - Ctrl-C (and SIGTERM, SIGHUP) as a flag, for commands that work through much and can stop between two steps.
 *
 * Main thread only.  A second one ends the process at once, with the same exit code.
 */
#ifndef WEIR_PROGRAMS_INTERRUPT_H
#define WEIR_PROGRAMS_INTERRUPT_H

#include <stdbool.h>

void interrupt_catch(void);
bool interrupt_seen(void);

#endif
