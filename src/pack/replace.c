/*
 * replace.c - giving back the space that experts take in the checkpoint, once a pack has them.
 *
 *   1  the pack was read back and is right                (the caller)
 *   2  the pack is marked: "what it holds may be missing in the checkpoint", and that is made safe on the drive
 *   3  the whole blocks of every expert tensor are freed
 *
 * Stopped between 2 and 3, or in 3, nothing is lost: the next call goes on.  The marked pack is then the only place that weir
 * reads experts from, and holes are never taken for weights (holes.c).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/holes.h"
#include "pack/pack_internal.h"

#define BLOCK_BYTES 4096u

static int fail_shard(const char *path, const char *doing, weir_error *error)
{
	int sys_errno = errno;

	return weir_fail(error, weir_code_of_errno(sys_errno), path, WEIR_ERROR_NO_OFFSET, sys_errno, "cannot %s", doing);
}

static int open_shard(const char *path, int *fd, struct stat *status, weir_error *error)
{
	*fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (*fd < 0 || fstat(*fd, status) < 0)
		return fail_shard(path, "open it to free space in it", error);
	return 0;
}

/* Freeing what lies past the end changes nothing and tells whether the file system can. */
static int check_shard(const char *path, weir_error *error)
{
	struct stat status;
	int fd, failed, code = open_shard(path, &fd, &status, error);

	if (!code && status.st_nlink > 1)
		code = weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0,
				 "the file has further names (hard links), which would lose their weights as well");
	if (!code) {
		uint64_t end = ((uint64_t)status.st_size / BLOCK_BYTES + 1) * BLOCK_BYTES;

		failed = weir_holes_punch(fd, end, end + BLOCK_BYTES);
		if (failed)
			code = weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, failed,
					 "this file system cannot free parts of a file");
	}
	if (fd >= 0)
		close(fd);
	return code;
}

int weir_pack_check_replace(const weir_checkpoint *checkpoint, weir_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++)
		code = check_shard(checkpoint->shards[i].path, error);
	return code;
}

static int mark(const char *pack_path, weir_error *error)
{
	unsigned char block[WEIR_PACK_HEADER_BYTES];
	weir_pack *pack;
	int fd, code = weir_pack_open(pack_path, &pack, error);

	if (code)
		return code;
	if (weir_pack_replaces(pack)) {
		weir_pack_close(pack);
		return 0;
	}
	pack->header.flags |= WEIR_PACK_REPLACES;
	weir_pack_encode_header(pack, block);
	weir_pack_close(pack);
	fd = open(pack_path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || pwrite(fd, block, sizeof block, 0) != (ssize_t)sizeof block || fsync(fd) < 0)
		code = fail_shard(pack_path, "mark the pack", error);
	if (fd >= 0)
		close(fd);
	return code;
}

static int free_tensor(int fd, const char *path, const weir_tensor *tensor, weir_error *error)
{
	uint64_t from = (tensor->offset + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
	uint64_t end = (tensor->offset + tensor->bytes) / BLOCK_BYTES * BLOCK_BYTES;
	int failed = from < end ? weir_holes_punch(fd, from, end) : 0;

	if (failed)
		return weir_fail(error, weir_code_of_errno(failed), path, from, failed,
				 "cannot free the space of tensor '%.100s'", tensor->name);
	return 0;
}

static int free_shard(const weir_checkpoint *checkpoint, uint32_t shard, uint64_t *freed_bytes, weir_error *error)
{
	const char *path = checkpoint->shards[shard].path;
	struct stat before, after;
	int fd, code = open_shard(path, &fd, &before, error);

	for (uint32_t i = 0; i < checkpoint->tensors_count && !code; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];

		if (tensor->shard == shard && weir_pack_is_expert(tensor))
			code = free_tensor(fd, path, tensor, error);
	}
	if (!code && fsync(fd) < 0)
		code = fail_shard(path, "write to the drive", error);
	if (!code && fstat(fd, &after) == 0 && after.st_blocks < before.st_blocks)
		*freed_bytes += (uint64_t)(before.st_blocks - after.st_blocks) * 512;
	if (fd >= 0)
		close(fd);
	return code;
}

int weir_pack_replace(const weir_checkpoint *checkpoint, const char *pack_path, uint64_t *freed_bytes, weir_error *error)
{
	int code = mark(pack_path, error);

	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++)
		code = free_shard(checkpoint, i, freed_bytes, error);
	return code;
}
