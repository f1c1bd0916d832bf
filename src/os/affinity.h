/*
 * affinity.h - keeping compute threads apart.
 *
 * Threads that sleep for a read and wait for each other in short turns lose most of their speed when the scheduler wakes two of
 * them on one processor while another process has the other.  Where there is a thread for each processor that the process may
 * use, each is bound to its own.
 */
#ifndef WEIR_OS_AFFINITY_H
#define WEIR_OS_AFFINITY_H

#include <stdint.h>

/* Binds the calling thread, number `thread` of `threads`, the first time it calls; does nothing when the process may use more
 * or fewer processors than that.  Any thread. */
void weir_affinity_bind(uint32_t thread, uint32_t threads);

#endif
