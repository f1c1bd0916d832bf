/*
 * memory.c - anonymous mappings by mmap, advice by madvise.  See memory.h for ownership and thread rules.
 */
#include "os/memory.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/guard.h"
#include "os/affinity.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define POPULATE_THREADS_MAX 16u
#define SHARE_BYTES_LEAST ((uint64_t)64 << 20) /* less is done before a thread has started */

uint64_t weir_page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

static bool round_up_checked(uint64_t value, uint64_t unit, uint64_t *rounded)
{
	if (value > UINT64_MAX - (unit - 1))
		return false;
	*rounded = (value + unit - 1) / unit * unit;
	return true;
}

static void *map_pages(uint64_t bytes)
{
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return base == MAP_FAILED ? NULL : base;
}

/* Huge pages need a base at their own size: maps one huge page more than asked, and trims both ends. */
static void *map_huge_aligned(uint64_t bytes)
{
	uint64_t mapped_bytes = bytes + HUGE_BYTES;
	unsigned char *start = map_pages(mapped_bytes);
	uint64_t skip, tail;

	if (!start)
		return NULL;
	skip = (HUGE_BYTES - (uintptr_t)start % HUGE_BYTES) % HUGE_BYTES;
	tail = mapped_bytes - skip - bytes;
	if (skip)
		munmap(start, skip);
	if (tail)
		munmap(start + skip + bytes, tail);
	return start + skip;
}

int weir_memory_map(uint64_t bytes, bool huge, void **base, weir_error *error)
{
	uint64_t rounded;
	void *start;

	weir_guard_check("a mapping");
	if (!bytes || !base)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "cannot map 0 bytes of memory");
	if (!round_up_checked(bytes, weir_page_bytes(), &rounded) || rounded > INT64_MAX - HUGE_BYTES)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, ENOMEM, "cannot map %llu bytes of memory",
				 (unsigned long long)bytes);
	huge = huge && rounded >= HUGE_BYTES;
	start = huge ? map_huge_aligned(rounded) : map_pages(rounded);
	if (!start)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, errno, "cannot map %llu bytes of memory",
				 (unsigned long long)bytes);
	if (huge)
		(void)weir_memory_advise(start, rounded, WEIR_ADVICE_HUGE);
	*base = start;
	return 0;
}

void weir_memory_unmap(void *base, uint64_t bytes)
{
	uint64_t rounded;

	if (base && round_up_checked(bytes, weir_page_bytes(), &rounded))
		munmap(base, rounded);
}

static int advice_value(weir_advice advice)
{
	switch (advice) {
	case WEIR_ADVICE_HUGE:
		return MADV_HUGEPAGE;
	case WEIR_ADVICE_DISCARD:
		return MADV_DONTNEED;
	case WEIR_ADVICE_WILLNEED:
		return MADV_WILLNEED;
	case WEIR_ADVICE_NODUMP:
		return MADV_DONTDUMP;
	case WEIR_ADVICE_POPULATE:
#ifdef MADV_POPULATE_WRITE
		return MADV_POPULATE_WRITE;
#else
		return -1;
#endif
	}
	return -1;
}

int weir_memory_advise(void *base, uint64_t bytes, weir_advice advice)
{
	uint64_t page_bytes = weir_page_bytes();
	uint64_t head = (page_bytes - (uintptr_t)base % page_bytes) % page_bytes;
	int value = advice_value(advice);

	if (value < 0)
		return WEIR_EUNSUPPORTED;
	if (bytes < head || bytes - head < page_bytes)
		return 0;
	bytes = (bytes - head) / page_bytes * page_bytes;
	if (madvise((unsigned char *)base + head, bytes, value) == 0)
		return 0;
	return errno == EINVAL ? WEIR_EUNSUPPORTED : weir_code_of_errno(errno);
}

/* ---- bringing pages into memory ---- */

typedef struct share {
	pthread_t thread;
	unsigned char *base;
	uint64_t bytes;
	int code;
} share;

static void *populate_share(void *user)
{
	share *own = user;

	own->code = weir_memory_advise(own->base, own->bytes, WEIR_ADVICE_POPULATE);
	return NULL;
}

/* A thread inherits the processor that its maker is bound to: these may use all. */
static bool start_share(share *own)
{
	pthread_attr_t attributes;
	bool started;

	if (pthread_attr_init(&attributes))
		return false;
	started = !pthread_attr_setaffinity_np(&attributes, sizeof(cpu_set_t), weir_affinity_allowed()) &&
		  !pthread_create(&own->thread, &attributes, populate_share, own);
	pthread_attr_destroy(&attributes);
	return started;
}

/* The caller's is the first share; one for which no thread can be had is the caller's too. */
static int populate_shares(share *shares, uint32_t count)
{
	bool started[POPULATE_THREADS_MAX] = {false};
	int code;

	for (uint32_t i = 1; i < count; i++)
		started[i] = start_share(&shares[i]);
	for (uint32_t i = 0; i < count; i++)
		if (!started[i])
			populate_share(&shares[i]);
	code = shares[0].code;
	for (uint32_t i = 1; i < count; i++) {
		if (started[i])
			pthread_join(shares[i].thread, NULL);
		code = code ? code : shares[i].code;
	}
	return code;
}

int weir_memory_populate(void *base, uint64_t bytes)
{
	share shares[POPULATE_THREADS_MAX];
	uint64_t count = (uint64_t)CPU_COUNT(weir_affinity_allowed()), share_bytes, at = 0;
	uint32_t made = 0;

	count = count < POPULATE_THREADS_MAX ? count : POPULATE_THREADS_MAX;
	count = count < bytes / SHARE_BYTES_LEAST ? count : bytes / SHARE_BYTES_LEAST;
	share_bytes = count > 1 ? (bytes / count + HUGE_BYTES) / HUGE_BYTES * HUGE_BYTES : bytes;
	for (; at < bytes; at += share_bytes)
		shares[made++] = (share){.base = (unsigned char *)base + at,
					 .bytes = share_bytes < bytes - at ? share_bytes : bytes - at};
	return made ? populate_shares(shares, made) : 0;
}

uint64_t weir_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
