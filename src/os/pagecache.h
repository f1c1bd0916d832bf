/*
 * pagecache.h - what the kernel's page cache holds of a file.  Linux 6.5 and later; newer ones tell only who owns the file or
 * may write to it.  Thread-safe.
 */
#ifndef WEIR_OS_PAGECACHE_H
#define WEIR_OS_PAGECACHE_H

#include <stdbool.h>
#include <stdint.h>

/* Pages that are cached, of those that `bytes` from `offset` on touch; 0 bytes: to the end of the file.  False, with errno,
 * where the kernel does not tell. */
bool weir_page_cache_count(int fd, uint64_t offset, uint64_t bytes, uint64_t *pages);

/* Bytes of the file that are cached, whole pages.  False likewise, or when it cannot be opened. */
bool weir_page_cache_file_bytes(const char *path, uint64_t *bytes);

/* Whether this kernel can tell at all. */
bool weir_page_cache_tells(void);

#endif
