/*
 * direct.h - finding out whether and how the file system reads an open file without the page cache (O_DIRECT).
 *
 * Alignment is asked of the kernel (statx, STATX_DIOALIGN), and where it does not know, found by trying reads; it is never
 * assumed.  The descriptor is the caller's, of a regular file opened for reading.  All functions are thread-safe.
 */
#ifndef WEIR_OS_DIRECT_H
#define WEIR_OS_DIRECT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct weir_direct {
	bool works; /* false: read through the page cache; both alignments are then 1 */
	uint32_t offset_bytes; /* alignment of offsets and lengths, a power of two */
	uint32_t memory_bytes; /* alignment of memory, a power of two */
} weir_direct;

/* Switches O_DIRECT of the open file on when reads then work, and says what they need.  Never fails: when direct reads do not
 * work, O_DIRECT is off afterwards and direct->works is false.  Both functions clear O_NONBLOCK, with which io_uring gives
 * EAGAIN instead of reading. */
void weir_direct_enable(int fd, weir_direct *direct);
void weir_direct_disable(int fd);

#endif
