/*
 * disk_target.c - see disk_target.h.
 */
#include "io/disk_target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/file.h"
#include "os/memory.h"

#define LEAST_FILE_BYTES ((uint64_t)64 << 20)
#define WRITE_BYTES ((size_t)4 << 20)

static int fail_errno(const char *path, const char *doing, weir_error *error)
{
	int sys_errno = errno;

	return weir_fail(error, weir_code_of_errno(sys_errno), path, WEIR_ERROR_NO_OFFSET, sys_errno, "cannot %s", doing);
}

int weir_disk_target_open_file(const char *path, weir_disk_target *target, weir_error *error)
{
	weir_file file;
	int code = weir_file_open(path, &file, error);

	if (code != 0)
		return code;
	*target = (weir_disk_target){.name = path, .path = path, .fd = -1, .bytes = file.identity.bytes};
	weir_file_close(&file);
	if (!target->bytes)
		return weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0,
				 "an empty file says nothing about a drive");
	return 0;
}

/* Leaves at least as much free as it takes. */
static int check_space(const char *folder, uint64_t *bytes, weir_error *error)
{
	struct statvfs space;
	uint64_t half;

	if (statvfs(folder, &space) != 0)
		return fail_errno(folder, "find out the free space", error);
	if (__builtin_mul_overflow((uint64_t)space.f_bavail, (uint64_t)space.f_frsize, &half))
		half = UINT64_MAX;
	half /= 2;
	if (*bytes > half)
		*bytes = half;
	if (half < LEAST_FILE_BYTES)
		return weir_fail(error, WEIR_ENOSPACE, folder, WEIR_ERROR_NO_OFFSET, 0,
				 "measuring needs %llu bytes free, there are %llu", 2 * (unsigned long long)LEAST_FILE_BYTES,
				 2 * (unsigned long long)half);
	return 0;
}

static int create_nameless(const char *folder, weir_disk_target *target, weir_error *error)
{
	char path[PATH_MAX];
	int length = snprintf(path, sizeof path, "%s/.weir-disk-XXXXXX", folder);

	if (length < 0 || (size_t)length >= sizeof path)
		return weir_fail(error, WEIR_ELIMIT, folder, WEIR_ERROR_NO_OFFSET, ENAMETOOLONG, "the path is too long");
	target->fd = mkostemp(path, O_CLOEXEC);
	if (target->fd < 0)
		return fail_errno(folder, "create a temporary file to measure with", error);
	unlink(path);
	snprintf(target->own_path, sizeof target->own_path, "/proc/self/fd/%d", target->fd);
	target->path = target->own_path;
	return 0;
}

/* Bytes that no drive can compress or share. */
static void fill_with_noise(uint64_t *words, size_t count, uint64_t seed)
{
	size_t i;

	for (i = 0; i < count; i++) {
		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		words[i] = seed;
	}
}

static int write_fully(const weir_disk_target *target, const unsigned char *from, size_t bytes, weir_error *error)
{
	while (bytes) {
		ssize_t count = write(target->fd, from, bytes);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return fail_errno(target->name, "write a temporary file to measure with", error);
		from += count;
		bytes -= (size_t)count;
	}
	return 0;
}

static int write_noise(weir_disk_target *target, const weir_disk_options *options, uint64_t bytes, weir_error *error)
{
	void *memory;
	uint64_t written = 0;
	int code = weir_memory_map(WRITE_BYTES, false, &memory, error);

	if (code != 0)
		return code;
	while (code == 0 && written < bytes) {
		size_t part = bytes - written < WRITE_BYTES ? (size_t)(bytes - written) : WRITE_BYTES;

		fill_with_noise(memory, WRITE_BYTES / sizeof(uint64_t), weir_clock_ns() | 1);
		code = write_fully(target, memory, part, error);
		written += part;
		if (code == 0 && options->progress && !options->progress(0, options->context))
			code = weir_fail(error, WEIR_EINTERRUPTED, target->name, WEIR_ERROR_NO_OFFSET, 0,
					 "stopped while writing a temporary file");
	}
	weir_memory_unmap(memory, WRITE_BYTES);
	if (code == 0 && fsync(target->fd) != 0)
		code = fail_errno(target->name, "write a temporary file to measure with", error);
	target->bytes = written;
	return code;
}

static int make_temporary(const char *folder, const weir_disk_options *options, weir_disk_target *target, weir_error *error)
{
	uint64_t bytes = options->file_bytes;
	int code = check_space(folder, &bytes, error);

	*target = (weir_disk_target){.name = folder, .fd = -1};
	if (code == 0)
		code = create_nameless(folder, target, error);
	if (code == 0)
		code = write_noise(target, options, bytes, error);
	if (code != 0)
		weir_disk_target_close(target);
	else
		weir_disk_target_drop_cache(target);
	return code;
}

int weir_disk_target_open(const char *path, const weir_disk_options *options, weir_disk_target *target, weir_error *error)
{
	struct stat attributes;

	if (stat(path, &attributes) == 0 && S_ISDIR(attributes.st_mode))
		return make_temporary(path, options, target, error);
	return weir_disk_target_open_file(path, target, error);
}

void weir_disk_target_close(weir_disk_target *target)
{
	if (target->fd >= 0)
		close(target->fd);
	target->fd = -1;
}

void weir_disk_target_drop_cache(const weir_disk_target *target)
{
	weir_file file;

	if (weir_file_open(target->path, &file, NULL) != 0)
		return;
	(void)posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED);
	weir_file_close(&file);
}
