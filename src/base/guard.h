/*
 * guard.h - in debug builds, an allocation by weir's own code while a token is worked on ends the process.
 *
 * Everything that a token needs is allocated before it; a call that slips in costs time where it is scarcest and grows what the
 * budget has counted.  The thread that works on a token holds the guard meanwhile.  In debug builds the linker hands calls of
 * malloc and its relatives from weir's objects to guard.c (--wrap, cmake/library.cmake), which stops there while the calling
 * thread holds it; what other libraries allocate does not pass through it.  In other builds nothing of this exists.
 *
 * Holding is by thread and does not nest.
 */
#ifndef WEIR_BASE_GUARD_H
#define WEIR_BASE_GUARD_H

#ifdef WEIR_ALLOCATION_GUARD

void weir_guard_hold(void);
void weir_guard_drop(void);
void weir_guard_check(const char *what); /* for memory that does not come from malloc */

#else

static inline void weir_guard_hold(void)
{
}

static inline void weir_guard_drop(void)
{
}

static inline void weir_guard_check(const char *what)
{
	(void)what;
}

#endif
#endif
