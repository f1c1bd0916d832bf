/*
 * holes.c - see holes.h.
 */
#include "os/holes.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u /* what most file systems free at the least */
#define HOLE_BYTES_LEAST (1u << 20)

bool weir_holes_next(int fd, uint64_t from, uint64_t end, uint64_t *hole_from, uint64_t *hole_end)
{
	off_t hole = lseek(fd, (off_t)from, SEEK_HOLE), data;

	if (from >= end || hole < 0 || (uint64_t)hole >= end)
		return false;
	data = lseek(fd, hole, SEEK_DATA); /* ENXIO: the hole reaches the end of the file */
	*hole_from = (uint64_t)hole;
	*hole_end = data < 0 || (uint64_t)data > end ? end : (uint64_t)data;
	return true;
}

bool weir_holes_spoil(int fd, uint64_t from, uint64_t end, uint64_t *at)
{
	uint64_t inner_from = (from + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES, inner_end = end / BLOCK_BYTES * BLOCK_BYTES;
	uint64_t hole_from, hole_end, next = from;

	while (weir_holes_next(fd, next, end, &hole_from, &hole_end)) {
		bool whole = inner_from < inner_end && hole_from <= inner_from && hole_end >= inner_end;

		*at = hole_from;
		if (whole || hole_end - hole_from >= HOLE_BYTES_LEAST)
			return true;
		next = hole_end;
	}
	return false;
}

uint64_t weir_holes_count(int fd, uint64_t from, uint64_t end, uint64_t *first)
{
	uint64_t hole_from, hole_end, bytes = 0;

	*first = end;
	while (weir_holes_next(fd, from, end, &hole_from, &hole_end)) {
		if (!bytes)
			*first = hole_from;
		bytes += hole_end - hole_from;
		from = hole_end;
	}
	return bytes;
}

int weir_holes_punch(int fd, uint64_t from, uint64_t end)
{
	int result;

	do
		result = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from));
	while (result < 0 && errno == EINTR);
	return result < 0 ? errno : 0;
}
