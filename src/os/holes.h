/*
 * holes.h - parts of a file that were never written, or were freed: reading them gives zeros and touches no drive.
 *
 * The descriptor is the caller's; its file position is moved.  Thread-safe for different descriptors.
 */
#ifndef WEIR_OS_HOLES_H
#define WEIR_OS_HOLES_H

#include <stdbool.h>
#include <stdint.h>

/* The first hole that begins before `end` and ends after `from`, cut to [from, end).  False when there is none, or when the
 * file system keeps no account of them. */
bool weir_holes_next(int fd, uint64_t from, uint64_t end, uint64_t *hole_from, uint64_t *hole_end);

/* True when data must be missing from [from, end): a hole of at least 1 MiB, or one that covers every whole block of it.  A
 * smaller one may stand for zeros that were meant (sparse copies).  *at becomes the hole's start. */
bool weir_holes_spoil(int fd, uint64_t from, uint64_t end, uint64_t *at);

/* Bytes of [from, end) that lie in holes, and the start of the first one. */
uint64_t weir_holes_count(int fd, uint64_t from, uint64_t end, uint64_t *first);

/* Frees the whole blocks inside [from, end): they read as zeros afterwards, the length stays.  0 or an errno. */
int weir_holes_punch(int fd, uint64_t from, uint64_t end);

#endif
