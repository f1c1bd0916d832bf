/*
 * affinity.h - keeping compute threads apart.
 *
 * Threads that sleep for a read and wait for each other in short turns lose most of their speed when the scheduler wakes two of
 * them on one processor while another process has the other.  Where there is a thread for each processor that the process may
 * use, each is bound to its own.
 */
#ifndef WEIR_OS_AFFINITY_H
#define WEIR_OS_AFFINITY_H

#include <sched.h>
#include <stdint.h>

/* The processors that the process might use when it was first asked, before any thread was bound. */
const cpu_set_t *weir_affinity_allowed(void);

/* Binds the calling thread, number `thread` of `threads`, to its processor; when the process may use more or fewer processors
 * than that, the thread may use them all again.  Costs nothing while both numbers stay.  Any thread. */
void weir_affinity_bind(uint32_t thread, uint32_t threads);

#endif
