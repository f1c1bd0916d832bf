/* pagecache.c - see pagecache.h; by cachestat, which reads nothing and leaves the cache as it is. */
#include "os/pagecache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/memory.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* wherever Linux numbers new calls alike, that is everywhere but on Alpha */
#endif

/* As in linux/mman.h, which older systems lack. */
struct range {
	uint64_t offset, bytes;
};
struct counts {
	uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

bool weir_page_cache_count(int fd, uint64_t offset, uint64_t bytes, uint64_t *pages)
{
	struct range range = {offset, bytes};
	struct counts found;

	if (syscall(SYS_cachestat, fd, &range, &found, 0) != 0)
		return false;
	*pages = found.cached;
	return true;
}

bool weir_page_cache_file_bytes(const char *path, uint64_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t pages;
	bool told;

	if (fd < 0)
		return false;
	told = weir_page_cache_count(fd, 0, 0, &pages);
	close(fd);
	if (told)
		*bytes = pages * weir_page_bytes();
	return told;
}

bool weir_page_cache_tells(void)
{
	uint64_t pages;

	return weir_page_cache_count(-1, 0, 1, &pages) || errno == EBADF;
}
