/*
 * verify.c - reading everything and comparing.
 *
 *   a pack        header, index and table by their own hashes (opening does it), every unit by its checksum, all padding
 *   a checkpoint  its tensors by the checksums of the pack; then its header, by the fingerprint
 *
 * What stands between tensors in a checkpoint belongs to nobody and is not compared.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "format/locate.h"
#include "os/memory.h"
#include "pack/walk.h"

static bool is_there(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static weir_work source_work(weir_work_mode mode, const weir_verify_options *options)
{
	return (weir_work){.mode = mode,
			   .output = {.file = {.descriptor = -1}},
			   .alignment = 1,
			   .threads = options->threads,
			   .stage = mode == WEIR_WORK_READ_SOURCES ? "reading" : "comparing",
			   .progress = options->progress,
			   .user = options->user};
}

/* ---- a checkpoint alone ---- */

static int read_checkpoint(const weir_checkpoint *checkpoint, const weir_verify_options *options, weir_verify_result *result,
			   weir_error *error)
{
	weir_work work = source_work(WEIR_WORK_READ_SOURCES, options);
	weir_work_item *items = weir_walk_checkpoint(checkpoint, &work.items_count);
	int code = items ? weir_checkpoint_check_holes(checkpoint, error)
			 : weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "out of memory");

	work.items = items;
	work.end = checkpoint->tensors_bytes;
	if (!code)
		code = weir_walk_open_sources(&work, checkpoint, error);
	if (!code && work.items_count)
		code = weir_work_run(&work, error);
	weir_walk_close_sources(&work);
	free(items);
	result->checkpoint_bytes = checkpoint->tensors_bytes;
	return code;
}

/* ---- a checkpoint and its pack ---- */

static const weir_tensor *other_tensor(const weir_pack *pack, const weir_checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < pack->tensors_count; i++) {
		const weir_tensor *ours = &pack->tensors[i].source, *theirs = weir_checkpoint_find(checkpoint, ours->name);

		if (!theirs || theirs->shard != ours->shard || theirs->offset != ours->offset || theirs->bytes != ours->bytes)
			return ours;
	}
	return NULL;
}

static int check_places(const weir_pack *pack, const weir_checkpoint *checkpoint, weir_error *error)
{
	const weir_tensor *other = other_tensor(pack, checkpoint);

	if (other)
		return weir_fail(error, WEIR_ECHANGED, checkpoint->shards[0].path, WEIR_ERROR_NO_OFFSET, 0,
				 "is not the model that the pack was made from: tensor '%.100s' is missing or lies elsewhere",
				 other->name);
	return 0;
}

/* Units of experts that the pack replaces are not looked for in the checkpoint. */
static void skip_replaced(const weir_pack *pack, weir_work_item *items, weir_verify_result *result)
{
	uint64_t unit = 0;

	for (uint32_t g = 0; g < pack->groups_count; g++) {
		const weir_pack_group *group = &pack->groups[g];
		uint64_t units = group->units_per_chunk * group->count;
		bool skip = weir_pack_replaces(pack) &&
			    weir_pack_is_expert(&pack->tensors[pack->members[group->members_first].tensor].source);

		for (uint64_t end = unit + units; unit < end; unit++) {
			items[unit].skip = skip;
			*(skip ? &result->freed_bytes : &result->checkpoint_bytes) += items[unit].bytes;
		}
	}
}

static int compare_items(const weir_pack *pack, const weir_checkpoint *checkpoint, weir_work *work, weir_error *error)
{
	int code = weir_walk_open_sources(work, checkpoint, error);

	if (!code && work->items_count)
		code = weir_work_run(work, error);
	if (code == WEIR_ECHECKSUM)
		weir_walk_name_unit(pack, work->failed_item, error);
	weir_walk_close_sources(work);
	return code;
}

static int compare_checkpoint(const weir_pack *pack, const weir_checkpoint *checkpoint, const weir_verify_options *options,
			      weir_verify_result *result, weir_error *error)
{
	weir_work work = source_work(WEIR_WORK_CHECK_SOURCES, options);
	weir_work_item *items = weir_walk_items(pack);
	int code = check_places(pack, checkpoint, error);

	if (!code && !items)
		code = weir_fail(error, WEIR_ENOMEM, pack->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	if (code) {
		free(items);
		return code;
	}
	if (!weir_pack_replaces(pack))
		code = weir_checkpoint_check_holes(checkpoint, error);
	skip_replaced(pack, items, result);
	work.items = items;
	work.items_count = pack->header.units_count;
	work.end = pack->header.file_bytes;
	work.sums = pack->sums;
	if (!code)
		code = compare_items(pack, checkpoint, &work, error);
	free(items);
	if (!code && weir_pack_matches(pack, checkpoint, error))
		code = weir_fail(error, WEIR_ECHECKSUM, checkpoint->shards[0].path, WEIR_ERROR_NO_OFFSET, 0,
				 "the header is not that of the model that was packed; its weights are");
	return code;
}

/* ---- what belongs to a path ---- */

static int verify_pack(const char *pack_path, const char *checkpoint_path, const weir_verify_options *options,
		       weir_verify_result *result, weir_error *error)
{
	weir_checkpoint *checkpoint = NULL;
	weir_pack *pack;
	char *beside = NULL;
	int code = weir_pack_open(pack_path, &pack, error);

	if (code)
		return code;
	snprintf(result->pack, sizeof result->pack, "%s", pack_path);
	result->pack_bytes = weir_pack_bytes(pack);
	code = weir_walk_check_pack(pack, options, error);
	if (!checkpoint_path)
		checkpoint_path = beside = weir_path_beside(pack_path, weir_pack_source_name(pack, 0));
	if (!code && checkpoint_path && is_there(checkpoint_path)) {
		snprintf(result->checkpoint, sizeof result->checkpoint, "%s", checkpoint_path);
		code = weir_checkpoint_open(checkpoint_path, NULL, &checkpoint, error);
		if (!code)
			code = compare_checkpoint(pack, checkpoint, options, result, error);
	}
	weir_checkpoint_close(checkpoint);
	weir_pack_close(pack);
	free(beside);
	return code;
}

static int verify_checkpoint(const char *path, const weir_verify_options *options, weir_verify_result *result,
			     weir_error *error)
{
	weir_checkpoint *checkpoint;
	const char *shard;
	char *pack_path;
	int code = weir_checkpoint_open(path, NULL, &checkpoint, error);

	if (code)
		return code;
	shard = is_there(path) ? path : checkpoint->shards[0].path; /* a folder stands for the file in it */
	snprintf(result->checkpoint, sizeof result->checkpoint, "%s", path);
	pack_path = checkpoint->format == WEIR_FORMAT_GGUF ? weir_pack_path_beside(shard) : NULL;
	if (pack_path && is_there(pack_path))
		code = verify_pack(pack_path, shard, options, result, error);
	else
		code = read_checkpoint(checkpoint, options, result, error);
	free(pack_path);
	weir_checkpoint_close(checkpoint);
	return code;
}

int weir_verify(const char *path, const weir_verify_options *options, weir_verify_result *result, weir_error *error)
{
	static const weir_verify_options defaults;
	const uint64_t began_ns = weir_clock_ns();
	weir_verify_result own;
	int code;

	if (!path || !path[0])
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "a path must be given");
	result = result ? result : &own;
	options = options ? options : &defaults;
	*result = (weir_verify_result){0};
	if (weir_pack_recognize(path))
		code = verify_pack(path, NULL, options, result, error);
	else
		code = verify_checkpoint(path, options, result, error);
	result->seconds = (double)(weir_clock_ns() - began_ns) / 1e9;
	return code;
}
