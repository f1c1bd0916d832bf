/*
 * direct.h - opening regular files for reading, and finding out whether and how the file system reads them without the page
 * cache (O_DIRECT).
 *
 * Alignment is asked of the kernel (statx, STATX_DIOALIGN), and where it does not know, found by trying reads; it is never
 * assumed.  Only regular files are opened: a FIFO, socket or device is refused before it could block or act.  The caller owns
 * the descriptor.  All functions are thread-safe.
 */
#ifndef WEIR_OS_DIRECT_H
#define WEIR_OS_DIRECT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "weir/error.h"

typedef struct weir_direct {
	bool works; /* false: read through the page cache; both alignments are then 1 */
	uint32_t offset_bytes; /* alignment of offsets and lengths, a power of two */
	uint32_t memory_bytes; /* alignment of memory, a power of two */
} weir_direct;

/* Opens `path` read-only and gives its descriptor (close-on-exec, blocking) and attributes. */
int weir_open_regular(const char *path, int *fd, struct stat *attributes, weir_error *error);

/* Switches O_DIRECT of the open file on when reads then work, and says what they need.  Never fails: when direct reads do not
 * work, O_DIRECT is off afterwards and direct->works is false. */
void weir_direct_enable(int fd, weir_direct *direct);
void weir_direct_disable(int fd);

#endif
