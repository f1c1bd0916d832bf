/*
 * outfile.c - see outfile.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/outfile.h"

/* Names beside targets, so that a process that ends at once can remove them.  Who takes a name out of its place owns it. */
#define NAMES_MAX 16
#define DESCRIPTOR_BYTES 32
static _Atomic(char *) names[NAMES_MAX];

static void remember(char *name)
{
	for (size_t i = 0; i < NAMES_MAX; i++) {
		char *none = NULL;

		if (atomic_compare_exchange_strong(&names[i], &none, name))
			return;
	}
}

/* False when weir_outfile_abandon_all has it. */
static bool forget(char *name)
{
	for (size_t i = 0; i < NAMES_MAX; i++) {
		char *expected = name;

		if (atomic_load(&names[i]) == name && !atomic_compare_exchange_strong(&names[i], &expected, NULL))
			return false;
	}
	return true;
}

void weir_outfile_abandon_all(void)
{
	for (size_t i = 0; i < NAMES_MAX; i++) {
		char *name = atomic_exchange(&names[i], NULL);

		if (name)
			unlink(name);
	}
}

static int fail_open(const char *path, int sys_errno, weir_error *error)
{
	return weir_fail(error, weir_code_of_errno(sys_errno), path, WEIR_ERROR_NO_OFFSET, sys_errno, "cannot be written");
}

/* Two files of one process may have the same target: the number keeps what is beside apart. */
static char *name_beside(const char *target)
{
	static atomic_uint numbers;
	char *name;

	if (asprintf(&name, "%s.%ld-%u.part", target, (long)getpid(), atomic_fetch_add(&numbers, 1)) < 0)
		return NULL;
	return name;
}

/* By which a file without a name can be found, and named. */
static const char *descriptor_path(int fd, char text[DESCRIPTOR_BYTES])
{
	snprintf(text, DESCRIPTOR_BYTES, "/proc/self/fd/%d", fd);
	return text;
}

/* In the target's folder.  -1 where the file system has no such files, or nobody could name one afterwards. */
static int open_nameless(const weir_outfile *file)
{
	char *copy = strdup(file->target), descriptor[DESCRIPTOR_BYTES];
	int fd = copy ? open(dirname(copy), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666) : -1;

	free(copy);
	if (fd >= 0 && access(descriptor_path(fd, descriptor), F_OK) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static int open_descriptor(weir_outfile *file)
{
	int fd;

	if (!file->beside)
		return open(file->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	fd = open_nameless(file);
	if (fd >= 0)
		return fd;
	fd = open(file->beside, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
	file->named = fd >= 0;
	return fd;
}

static int give_name(weir_outfile *file)
{
	char descriptor[DESCRIPTOR_BYTES];

	remember(file->beside);
	if (linkat(AT_FDCWD, descriptor_path(fileno(file->stream), descriptor), AT_FDCWD, file->beside, AT_SYMLINK_FOLLOW) < 0)
		return -1;
	file->named = true;
	return 0;
}

static int open_stream(weir_outfile *file, const char *path, weir_error *error)
{
	int fd = open_descriptor(file);

	if (fd < 0)
		return fail_open(path, errno, error);
	file->stream = fdopen(fd, "w");
	if (file->stream) {
		if (file->named)
			remember(file->beside);
		return 0;
	}
	close(fd);
	if (file->named)
		unlink(file->beside);
	return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, errno, "no memory for the file's buffer");
}

static void release(weir_outfile *file)
{
	free(file->target);
	if (file->beside && forget(file->beside))
		free(file->beside);
	memset(file, 0, sizeof *file);
}

int weir_outfile_open(const char *path, weir_outfile *file, weir_error *error)
{
	struct stat status;
	bool special = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
	int result;

	memset(file, 0, sizeof *file);
	file->target = realpath(path, NULL); /* a link stays a link: what it points at is replaced */
	if (!file->target)
		file->target = strdup(path);
	if (file->target && !special)
		file->beside = name_beside(file->target);
	if (!file->target || (!special && !file->beside))
		result = weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "no memory for a file's name");
	else
		result = open_stream(file, path, error);
	if (result)
		release(file);
	return result;
}

int weir_outfile_fail(const weir_outfile *file, int sys_errno, weir_error *error)
{
	bool full = sys_errno == ENOSPC || sys_errno == EDQUOT;

	return weir_fail(error, full ? WEIR_ENOSPACE : WEIR_EIO, file->target, WEIR_ERROR_NO_OFFSET, sys_errno, "write failed");
}

int weir_outfile_finish(weir_outfile *file, weir_error *error)
{
	int failed = 0, result = 0;

	if (!file->stream)
		return 0;
	if (fflush(file->stream) || ferror(file->stream) || (file->beside && fsync(fileno(file->stream))) ||
	    (file->beside && !file->named && give_name(file)))
		failed = errno ? errno : EIO;
	if (fclose(file->stream) && !failed)
		failed = errno;
	if (!failed && file->beside && rename(file->beside, file->target))
		failed = errno;
	if (failed)
		result = weir_outfile_fail(file, failed, error);
	if (failed && file->named)
		unlink(file->beside);
	release(file);
	return result;
}

void weir_outfile_discard(weir_outfile *file)
{
	if (file->stream)
		fclose(file->stream);
	if (file->named)
		unlink(file->beside);
	release(file);
}
