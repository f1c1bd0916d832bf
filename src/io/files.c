/*
 * files.c - the files that a weir_io reads, their alignment, and the check that they are still what they were.
 *
 * A weir_io owns the descriptors it opens.  Files are added before or between submits, never removed before close.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/io_types.h"
#include "os/errno.h"

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

static int prepare_file(weir_io *io, const char *path, weir_io_file *file, weir_error *error)
{
	file->direct = (weir_direct){.works = false, .offset_bytes = 1, .memory_bytes = 1};
	if (io->direct)
		weir_direct_enable(file->fd, &file->direct);
	file->path = strdup(path);
	if (!file->path)
		return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory");
	return io->method->add_file(io->state, file->fd, file->path, (uint64_t)file->attributes.st_size, &file->handle, error);
}

int weir_io_add_file(weir_io *io, const char *path, uint32_t *file, weir_error *error)
{
	weir_io_file added = {.path = NULL};
	int code;

	if (!io || !file)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no I/O or no place for the result");
	code = grow_files(io);
	if (code != 0)
		return weir_fail(error, code, path, WEIR_ERROR_NO_OFFSET, 0, "no room for one more file");
	code = weir_open_regular(path, &added.fd, &added.attributes, error);
	if (code != 0)
		return code;
	code = prepare_file(io, path, &added, error);
	if (code != 0) {
		free(added.path);
		close(added.fd);
		return code;
	}
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
		close(io->files[i].fd);
		free(io->files[i].path);
	}
	io->files_count = 0;
}

static bool same_content(const struct stat *then, const struct stat *now)
{
	return then->st_size == now->st_size && then->st_mtim.tv_sec == now->st_mtim.tv_sec &&
	       then->st_mtim.tv_nsec == now->st_mtim.tv_nsec;
}

int weir_io_check_file(weir_io *io, uint32_t file, weir_error *error)
{
	struct stat now;

	if (!io || file >= io->files_count)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no such file");
	if (fstat(io->files[file].fd, &now) != 0)
		return weir_fail(error, weir_errno_code(errno), io->files[file].path, WEIR_ERROR_NO_OFFSET, errno,
				 "cannot look at the file");
	if (!same_content(&io->files[file].attributes, &now))
		return weir_fail(error, WEIR_ECHANGED, io->files[file].path, WEIR_ERROR_NO_OFFSET, 0,
				 "the file changed while it was open");
	return 0;
}

uint64_t weir_io_file_bytes(const weir_io *io, uint32_t file)
{
	return file < io->files_count ? (uint64_t)io->files[file].attributes.st_size : 0;
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
