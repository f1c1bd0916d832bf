/*
 * part.c - an output while it is written: "OUTPUT.part", locked, renamed when it is whole and safe on the drive.
 *
 * The lock (flock) ends with the process, however it ends; the file stays, for whoever goes on with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "pack/pack_internal.h"

static int fail_part(const weir_part *part, uint64_t offset, const char *doing, weir_error *error)
{
	int sys_errno = errno;

	return weir_fail(error, weir_code_of_errno(sys_errno), part->part, offset, sys_errno, "cannot %s", doing);
}

static int open_locked(weir_part *part, weir_error *error)
{
	struct stat status;

	part->fd = open(part->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
	if (part->fd < 0 || fstat(part->fd, &status) < 0)
		return fail_part(part, WEIR_ERROR_NO_OFFSET, "create", error);
	if (!S_ISREG(status.st_mode))
		return weir_fail(error, WEIR_ENOTREGULAR, part->part, WEIR_ERROR_NO_OFFSET, 0,
				 "only a regular file is written");
	if (flock(part->fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno == EWOULDBLOCK)
		return weir_fail(error, WEIR_EBUSY, part->part, WEIR_ERROR_NO_OFFSET, 0, "another process is writing it");
	return fail_part(part, WEIR_ERROR_NO_OFFSET, "lock", error);
}

/* The one who had the lock before may have renamed or removed the file. */
static bool still_named(const weir_part *part)
{
	struct stat named, opened;

	return stat(part->part, &named) == 0 && fstat(part->fd, &opened) == 0 && named.st_dev == opened.st_dev &&
	       named.st_ino == opened.st_ino;
}

int weir_part_open(weir_part *part, const char *path, weir_error *error)
{
	size_t bytes = strlen(path) + sizeof WEIR_PART_SUFFIX;
	int code = 0;

	*part = (weir_part){.fd = -1, .path = strdup(path), .part = malloc(bytes)};
	if (!part->path || !part->part)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	snprintf(part->part, bytes, "%s%s", path, WEIR_PART_SUFFIX);
	do {
		if (part->fd >= 0)
			close(part->fd);
		code = open_locked(part, error);
	} while (!code && !still_named(part));
	return code;
}

static int check_space(const weir_part *part, uint64_t bytes, weir_error *error)
{
	struct statvfs space;
	uint64_t unused;

	if (fstatvfs(part->fd, &space) < 0)
		return 0; /* writing will tell */
	unused = (uint64_t)space.f_bavail * space.f_frsize;
	if (unused >= bytes)
		return 0;
	return weir_fail(error, WEIR_ENOSPACE, part->path, WEIR_ERROR_NO_OFFSET, 0,
			 "%llu bytes are needed and %llu are free on that file system", (unsigned long long)bytes,
			 (unsigned long long)unused);
}

int weir_part_reserve(weir_part *part, uint64_t bytes, weir_error *error)
{
	int code, result;

	if (ftruncate(part->fd, 0) < 0)
		return fail_part(part, 0, "empty", error);
	code = check_space(part, bytes, error);
	if (code)
		return code;
	do
		result = fallocate(part->fd, 0, 0, (off_t)bytes);
	while (result < 0 && errno == EINTR);
	if (result < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
		result = ftruncate(part->fd, (off_t)bytes);
	return result < 0 ? fail_part(part, WEIR_ERROR_NO_OFFSET, "reserve its space", error) : 0;
}

int weir_part_write(const weir_part *part, uint64_t offset, const void *data, uint64_t bytes, weir_error *error)
{
	const unsigned char *from = data;

	while (bytes) {
		ssize_t count = pwrite(part->fd, from, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return fail_part(part, offset, "write", error);
		from += count;
		offset += (uint64_t)count;
		bytes -= (uint64_t)count;
	}
	return 0;
}

/* The new name is safe only once the folder is. */
static int sync_folder(const weir_part *part, weir_error *error)
{
	char *copy = strdup(part->path);
	int fd = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, code = 0;

	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL)) /* EINVAL: this file system has nothing to sync there */
		code = fail_part(part, WEIR_ERROR_NO_OFFSET, "make the new name safe", error);
	if (fd >= 0)
		close(fd);
	free(copy);
	return code;
}

int weir_part_finish(weir_part *part, weir_error *error)
{
	if (fsync(part->fd) < 0)
		return fail_part(part, WEIR_ERROR_NO_OFFSET, "write to the drive", error);
	if (rename(part->part, part->path) < 0)
		return fail_part(part, WEIR_ERROR_NO_OFFSET, "rename into place", error);
	return sync_folder(part, error);
}

void weir_part_remove(const weir_part *part)
{
	if (part->fd >= 0)
		unlink(part->part);
}

void weir_part_close(weir_part *part)
{
	if (part->fd >= 0)
		close(part->fd);
	free(part->path);
	free(part->part);
	*part = (weir_part){.fd = -1};
}
