/*
 * map_model.c - keeps libllama from reading a whole model when it maps it.
 *
 * libllama maps the file with MAP_POPULATE and asks for it with posix_madvise, which reads every byte before the first token:
 * a process that may use less than the model takes would be over its budget, or out of memory, at the start.  The definitions
 * here take precedence over libc's for the whole program and leave just the mapping.  They reach it in three ways: weir itself
 * links this file (with its symbols exported), an unmodified llama.cpp program is started with it in LD_PRELOAD, and in a
 * process that is running already libllama's calls are bound to it (bind.c).
 *
 * Only large read-only mappings of files are changed, and only advice on those is dropped; every other call does what it
 * always did.
 *
 * Threads: any.  The table of changed mappings is written without a lock; an entry that is read half written, or that outlived
 * its mapping, costs some advice or gives it, never an error.
 *
 * libc has two names for mmap; which one a library calls depends on how it was compiled.  _FILE_OFFSET_BITS=64 would turn the
 * first name into the second here, so it is taken back for this file.
 */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#include "map_model.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define LARGE_BYTES (1u << 20)
#define REMEMBERED 1024 /* mappings: a model's shards */

bool weir_map_model_off;

static struct {
	atomic_uintptr_t start, end;
} changed[REMEMBERED];
static atomic_uint changed_count; /* ever; the table keeps the last ones */

static bool is_model(size_t length, int protection, int flags, int fd)
{
	return !weir_map_model_off && fd >= 0 && !(flags & MAP_ANONYMOUS) && protection == PROT_READ && length >= LARGE_BYTES;
}

static void remember(uintptr_t start, size_t length)
{
	unsigned at = atomic_fetch_add(&changed_count, 1) % REMEMBERED;

	atomic_store(&changed[at].end, 0);
	atomic_store(&changed[at].start, start);
	atomic_store(&changed[at].end, start + length);
}

static bool was_changed(uintptr_t address)
{
	unsigned count = atomic_load(&changed_count);

	for (unsigned i = 0; i < count && i < REMEMBERED; i++)
		if (address >= atomic_load(&changed[i].start) && address < atomic_load(&changed[i].end))
			return true;
	return false;
}

/* Whatever is mapped there now is not the model any more. */
static void forget(uintptr_t address)
{
	unsigned count = atomic_load(&changed_count);

	for (unsigned i = 0; i < count && i < REMEMBERED; i++)
		if (address >= atomic_load(&changed[i].start) && address < atomic_load(&changed[i].end))
			atomic_store(&changed[i].end, 0);
}

static void *map(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	bool model = is_model(length, protection, flags, fd);
	long mapped;

	if (model)
		flags &= ~MAP_POPULATE;
#ifdef SYS_mmap2
	mapped = syscall(SYS_mmap2, address, length, protection, flags, fd, offset >> 12);
#else
	mapped = syscall(SYS_mmap, address, length, protection, flags, fd, offset);
#endif
	if (mapped == -1)
		return MAP_FAILED;
	forget((uintptr_t)mapped);
	if (model)
		remember((uintptr_t)mapped, length);
	return (void *)mapped;
}

PUBLIC void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

PUBLIC void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

PUBLIC int posix_madvise(void *address, size_t length, int advice)
{
	int before = errno, result = 0;

	if (advice == POSIX_MADV_WILLNEED && was_changed((uintptr_t)address))
		return 0;
	if (advice != POSIX_MADV_DONTNEED && madvise(address, length, advice))
		result = errno;
	errno = before; /* posix_madvise reports by its result alone */
	return result;
}
