/*
 * file.c - see file.h.
 */
#include "os/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

static int fail_errno(const char *path, uint64_t offset, const char *doing, weir_error *error)
{
	int sys_errno = errno;

	return weir_fail(error, weir_code_of_errno(sys_errno), path, offset, sys_errno, "cannot %s", doing);
}

static weir_file_identity identity_of(const struct stat *status)
{
	return (weir_file_identity){
		.bytes = (uint64_t)status->st_size,
		.device = (uint64_t)status->st_dev,
		.inode = (uint64_t)status->st_ino,
		.mtime_s = (int64_t)status->st_mtim.tv_sec,
		.mtime_ns = (int64_t)status->st_mtim.tv_nsec,
	};
}

static int check_regular(const char *path, const struct stat *status, weir_error *error)
{
	if (S_ISREG(status->st_mode))
		return WEIR_OK;
	return weir_fail(error, WEIR_ENOTREGULAR, path, WEIR_ERROR_NO_OFFSET, 0,
			 "only regular files are read, and this is a %s",
			 S_ISDIR(status->st_mode)    ? "directory"
			 : S_ISFIFO(status->st_mode) ? "FIFO"
			 : S_ISSOCK(status->st_mode) ? "socket"
						     : "device");
}

static int open_descriptor(weir_file *file, weir_error *error)
{
	do
		file->descriptor = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	while (file->descriptor < 0 && errno == EINTR);
	if (file->descriptor < 0)
		return fail_errno(file->path, WEIR_ERROR_NO_OFFSET, "open", error);
	return WEIR_OK;
}

int weir_file_open(const char *path, weir_file *file, weir_error *error)
{
	struct stat status;
	int code;

	*file = (weir_file){.descriptor = -1, .path = path};
	if (stat(path, &status))
		return fail_errno(path, WEIR_ERROR_NO_OFFSET, "open", error);
	code = check_regular(path, &status, error);
	if (!code)
		code = open_descriptor(file, error);
	if (code)
		return code;
	/* The name may have been given to another file since: what counts is what was opened. */
	if (fstat(file->descriptor, &status))
		code = fail_errno(path, WEIR_ERROR_NO_OFFSET, "open", error);
	else
		code = check_regular(path, &status, error);
	if (code)
		weir_file_close(file);
	else
		file->identity = identity_of(&status);
	return code;
}

void weir_file_close(weir_file *file)
{
	if (file->descriptor >= 0)
		close(file->descriptor);
	file->descriptor = -1;
}

int weir_file_read(const weir_file *file, uint64_t offset, void *buffer, size_t bytes, weir_error *error)
{
	unsigned char *to = buffer;

	while (bytes) {
		ssize_t count = pread(file->descriptor, to, bytes, (off_t)offset);

		if (count < 0 && errno == EINTR)
			continue;
		if (count < 0)
			return fail_errno(file->path, offset, "read", error);
		if (count == 0)
			return weir_fail(error, WEIR_EIO, file->path, offset, 0, "the file ends here, %zu bytes early", bytes);
		to += count;
		offset += (uint64_t)count;
		bytes -= (size_t)count;
	}
	return WEIR_OK;
}

bool weir_file_same(const weir_file_identity *a, const weir_file_identity *b)
{
	return a->bytes == b->bytes && a->device == b->device && a->inode == b->inode && a->mtime_s == b->mtime_s &&
	       a->mtime_ns == b->mtime_ns;
}

int weir_file_check(const char *path, const weir_file_identity *identity, weir_error *error)
{
	struct stat status;
	weir_file_identity now;

	if (stat(path, &status))
		return fail_errno(path, WEIR_ERROR_NO_OFFSET, "look at the file again", error);
	now = identity_of(&status);
	if (weir_file_same(&now, identity))
		return WEIR_OK;
	return weir_fail(error, WEIR_ECHANGED, path, WEIR_ERROR_NO_OFFSET, 0,
			 "the file was changed or replaced since it was opened (%llu bytes then, %llu now): open it again",
			 (unsigned long long)identity->bytes, (unsigned long long)now.bytes);
}
