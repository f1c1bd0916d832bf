/*
 * map_model.c - keeps libllama from reading a whole model when it maps it.
 *
 * libllama maps the file with MAP_POPULATE and asks for it with posix_madvise, which reads every byte before the first token.
 * These definitions take precedence over libc's for the whole program (it is linked with its symbols exported) and leave
 * just the mapping.  Anonymous mappings pass unchanged.
 *
 * libc has two names for mmap; which one a library calls depends on how it was compiled.  _FILE_OFFSET_BITS=64 would turn the
 * first name into the second here, so it is taken back for this file.
 */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *map(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	if (fd >= 0)
		flags &= ~MAP_POPULATE;
#ifdef SYS_mmap2
	return (void *)syscall(SYS_mmap2, address, length, protection, flags, fd, offset >> 12);
#else
	return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
#endif
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
	return map(address, length, protection, flags, fd, offset);
}

int posix_madvise(void *address, size_t length, int advice)
{
	int before = errno, result = 0;

	if (advice == POSIX_MADV_WILLNEED)
		return 0;
	if (advice != POSIX_MADV_DONTNEED && madvise(address, length, advice))
		result = errno;
	errno = before; /* posix_madvise reports by its result alone */
	return result;
}
