/*
 * direct.c - see direct.h.
 *
 *   statx says  offset/memory alignment ──► use it
 *               0                       ──► this file has no direct reads
 *               nothing (old kernel, tmpfs, network) ──► try one read at 512, 1024, ... 64 KiB; the first that works counts
 */
#include "os/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/memory.h"

#define TRY_FIRST_BYTES 512u
#define TRY_LAST_BYTES (64u << 10)

static bool set_flags(int fd, int flags)
{
	int now = fcntl(fd, F_GETFL);

	return now >= 0 && fcntl(fd, F_SETFL, (now & ~(O_DIRECT | O_NONBLOCK)) | flags) == 0;
}

void weir_direct_disable(int fd)
{
	(void)set_flags(fd, 0);
}

static bool is_power_of_two(uint32_t value)
{
	return value && !(value & (value - 1));
}

typedef enum statx_answer { STATX_KNOWS, STATX_REFUSES, STATX_SILENT } statx_answer;

static statx_answer ask_statx(int fd, weir_direct *direct)
{
#ifdef STATX_DIOALIGN
	struct statx answer;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &answer) != 0 || !(answer.stx_mask & STATX_DIOALIGN))
		return STATX_SILENT;
	if (!is_power_of_two(answer.stx_dio_offset_align) || !is_power_of_two(answer.stx_dio_mem_align))
		return STATX_REFUSES;
	direct->offset_bytes = answer.stx_dio_offset_align;
	direct->memory_bytes = answer.stx_dio_mem_align;
	return STATX_KNOWS;
#else
	(void)fd;
	(void)direct;
	return STATX_SILENT;
#endif
}

/* One read at `bytes` into memory aligned to no more than `bytes`; in a file shorter than that, at 0. */
static bool try_read(int fd, unsigned char *memory, uint32_t bytes)
{
	ssize_t count;

	do
		count = pread(fd, memory + bytes, bytes, bytes);
	while (count < 0 && errno == EINTR);
	if (count == 0)
		count = pread(fd, memory + bytes, bytes, 0);
	return count >= 0;
}

static bool find_by_trying(int fd, weir_direct *direct)
{
	void *memory;
	uint32_t bytes;

	if (weir_memory_map(3 * (uint64_t)TRY_LAST_BYTES, false, &memory, NULL) != 0)
		return false;
	for (bytes = TRY_FIRST_BYTES; bytes <= TRY_LAST_BYTES; bytes *= 2) {
		if (try_read(fd, memory, bytes))
			break;
	}
	weir_memory_unmap(memory, 3 * (uint64_t)TRY_LAST_BYTES);
	direct->offset_bytes = bytes;
	direct->memory_bytes = bytes;
	return bytes <= TRY_LAST_BYTES;
}

void weir_direct_enable(int fd, weir_direct *direct)
{
	statx_answer answer = ask_statx(fd, direct);

	direct->works = answer != STATX_REFUSES && set_flags(fd, O_DIRECT);
	if (direct->works && answer == STATX_SILENT)
		direct->works = find_by_trying(fd, direct);
	if (direct->works)
		return;
	weir_direct_disable(fd);
	direct->offset_bytes = 1;
	direct->memory_bytes = 1;
}
