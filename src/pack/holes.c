/*
 * holes.c - checkpoints from which weights are missing: their files have holes where tensors should lie.
 *
 * `weir pack --replace` makes such files on purpose; a download that was interrupted may leave one as well.  Reading a hole
 * gives zeros without an error, so what is missing must be found by asking the file system.
 */
#include <unistd.h>

#include "base/fail.h"
#include "os/holes.h"
#include "pack/pack_internal.h"

static int check_tensor(const weir_checkpoint *checkpoint, const weir_file *file, const weir_tensor *tensor, weir_error *error)
{
	uint64_t at;

	(void)checkpoint;
	if (!tensor->bytes || !weir_holes_spoil(file->descriptor, tensor->offset, tensor->offset + tensor->bytes, &at))
		return 0;
	return weir_fail(error, WEIR_EUNSUPPORTED, file->path, at, 0,
			 "tensor '%.100s' is not there: the file has a hole (its weights were moved to a pack by 'weir pack "
			 "--replace', or never written)",
			 tensor->name);
}

static int check_shard(const weir_checkpoint *checkpoint, uint32_t shard, weir_error *error)
{
	uint64_t hole_from, hole_end;
	weir_file file;
	int code = weir_pack_open_shard(checkpoint, shard, &file, error);

	if (code)
		return code;
	if (weir_holes_next(file.descriptor, 0, file.identity.bytes, &hole_from, &hole_end))
		for (uint32_t i = 0; i < checkpoint->tensors_count && !code; i++)
			if (checkpoint->tensors[i].shard == shard)
				code = check_tensor(checkpoint, &file, &checkpoint->tensors[i], error);
	weir_file_close(&file);
	return code;
}

int weir_checkpoint_check_holes(const weir_checkpoint *checkpoint, weir_error *error)
{
	int code = 0;

	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++)
		code = check_shard(checkpoint, i, error);
	return code;
}
