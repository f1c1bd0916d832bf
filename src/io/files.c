/*
 * files.c - the files that a weir_io reads, their alignment, and the check that they are still what they were.
 *
 * A weir_io owns the descriptors it opens.  Files are added before or between submits, never removed before close.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "io/io_types.h"

static uint32_t larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static void adopt_alignment(weir_io *io, const weir_direct *direct)
{
	uint32_t both;

	io->offset_alignment = larger(io->offset_alignment, direct->offset_bytes);
	io->memory_alignment = larger(io->memory_alignment, direct->memory_bytes);
	both = larger(io->offset_alignment, io->memory_alignment);
	io->piece_bytes = (io->piece_bytes + both - 1) / both * both;
}

static int grow_files(weir_io *io)
{
	weir_io_file *grown;

	if (io->files_count == UINT32_MAX)
		return WEIR_ELIMIT;
	grown = realloc(io->files, ((size_t)io->files_count + 1) * sizeof *grown);
	if (!grown)
		return WEIR_ENOMEM;
	io->files = grown;
	return 0;
}

static int prepare_file(weir_io *io, weir_io_file *file, weir_error *error)
{
	int fd = file->opened.descriptor;

	if (io->direct) {
		weir_direct_enable(fd, &file->direct);
	} else {
		weir_direct_disable(fd);
		file->direct = (weir_direct){.works = false, .offset_bytes = 1, .memory_bytes = 1};
	}
	return io->method->add_file(io->state, fd, file->path, file->opened.identity.bytes, &file->handle, error);
}

static int open_file(weir_io *io, const char *path, weir_io_file *file, weir_error *error)
{
	int code;

	file->path = strdup(path);
	if (!file->path)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory");
	code = weir_file_open(file->path, &file->opened, error);
	if (code == 0)
		code = prepare_file(io, file, error);
	if (code == 0)
		return 0;
	weir_file_close(&file->opened);
	free(file->path);
	return code;
}

int weir_io_add_file(weir_io *io, const char *path, uint32_t *file, weir_error *error)
{
	weir_io_file added = {.path = NULL};
	int code;

	if (!io || !path || !file)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no path or no place for the result");
	code = grow_files(io);
	if (code != 0)
		return weir_fail(error, code, path, WEIR_ERROR_NO_OFFSET, 0, "no room for one more file");
	code = open_file(io, path, &added, error);
	if (code != 0)
		return code;
	adopt_alignment(io, &added.direct);
	*file = io->files_count;
	io->files[io->files_count++] = added;
	return 0;
}

void weir_io_forget_files(weir_io *io)
{
	uint32_t i;

	for (i = 0; i < io->files_count; i++) {
		io->method->remove_file(io->state, io->files[i].handle);
		weir_file_close(&io->files[i].opened);
		free(io->files[i].path);
	}
	io->files_count = 0;
}

static bool same_content(const weir_file_identity *then, const struct stat *now)
{
	return then->bytes == (uint64_t)now->st_size && then->mtime_s == (int64_t)now->st_mtim.tv_sec &&
	       then->mtime_ns == (int64_t)now->st_mtim.tv_nsec;
}

/* Asks the open file, not its name: a file that was replaced by rename is still whole where it is open. */
int weir_io_check_file(weir_io *io, uint32_t file, weir_error *error)
{
	const weir_file *opened;
	struct stat now;

	if (!io || file >= io->files_count)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no such file");
	opened = &io->files[file].opened;
	if (fstat(opened->descriptor, &now) != 0)
		return weir_fail(error, weir_code_of_errno(errno), opened->path, WEIR_ERROR_NO_OFFSET, errno,
				 "cannot look at the file");
	if (!same_content(&opened->identity, &now))
		return weir_fail(error, WEIR_ECHANGED, opened->path, WEIR_ERROR_NO_OFFSET, 0,
				 "the file changed while it was open");
	return 0;
}

uint64_t weir_io_file_bytes(const weir_io *io, uint32_t file)
{
	return file < io->files_count ? io->files[file].opened.identity.bytes : 0;
}

const char *weir_io_file_path(const weir_io *io, uint32_t file)
{
	return file < io->files_count ? io->files[file].path : NULL;
}

int weir_io_add_buffer(weir_io *io, void *base, uint64_t bytes)
{
	if (!io || !base || !bytes)
		return WEIR_EINVAL;
	io->method->add_buffer(io->state, base, bytes);
	return 0;
}
