/*
 * futex.h - sleeping until a number changes.
 *
 * Any thread.  A waiter may wake without a change: look again.
 */
#ifndef WEIR_OS_FUTEX_H
#define WEIR_OS_FUTEX_H

#include <stdatomic.h>

/* Sleeps while *word is `seen`. */
void weir_futex_wait(atomic_uint *word, unsigned seen);
void weir_futex_wake_all(atomic_uint *word);

/* What a processor should do between two looks at a number that another one is about to change. */
static inline void weir_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
