/*
 * walk.c - see walk.h.
 */
#include "pack/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"

#define SOURCE_ALIGNMENT_MAX (64u << 10)
#define READ_BYTES ((uint64_t)4 << 20)

/* ---- items ---- */

static weir_work_item *put_slice(weir_work_item *to, const weir_pack *pack, const weir_pack_group *group,
				 const weir_pack_member *member, uint32_t chunk)
{
	const weir_tensor *source = &pack->tensors[member->tensor].source;

	for (uint64_t at = 0; at < member->bytes; at += member->unit_bytes) {
		uint64_t left = member->bytes - at;

		*to++ = (weir_work_item){.offset = group->offset + chunk * group->stride + member->offset + at,
					 .source_offset = source->offset + chunk * member->bytes + at,
					 .bytes = left < member->unit_bytes ? left : member->unit_bytes,
					 .source = source->shard};
	}
	return to;
}

weir_work_item *weir_walk_items(const weir_pack *pack)
{
	weir_work_item *items = calloc(pack->header.units_count + 1, sizeof *items), *to = items;

	for (uint32_t g = 0; items && g < pack->groups_count; g++) {
		const weir_pack_group *group = &pack->groups[g];

		for (uint32_t chunk = 0; chunk < group->count; chunk++)
			for (uint32_t m = 0; m < group->members_count; m++)
				to = put_slice(to, pack, group, &pack->members[group->members_first + m], chunk);
	}
	return items;
}

static uint64_t pieces_of(const weir_tensor *tensor)
{
	return (tensor->bytes + READ_BYTES - 1) / READ_BYTES;
}

weir_work_item *weir_walk_checkpoint(const weir_checkpoint *checkpoint, uint64_t *count)
{
	weir_work_item *items, *to;
	uint64_t at = 0;

	*count = 0;
	for (uint32_t i = 0; i < checkpoint->tensors_count; i++)
		*count += pieces_of(&checkpoint->tensors[i]);
	items = to = calloc(*count + 1, sizeof *items);
	for (uint32_t i = 0; items && i < checkpoint->tensors_count; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];

		for (uint64_t done = 0; done < tensor->bytes; done += READ_BYTES, at += READ_BYTES)
			*to++ = (weir_work_item){.offset = at,
						 .source_offset = tensor->offset + done,
						 .bytes = tensor->bytes - done < READ_BYTES ? tensor->bytes - done : READ_BYTES,
						 .source = tensor->shard};
	}
	return items;
}

/* ---- files ---- */

int weir_walk_open_sources(weir_work *work, const weir_checkpoint *checkpoint, weir_error *error)
{
	int code = 0;

	work->sources = calloc((size_t)checkpoint->shards_count + 1, sizeof *work->sources);
	if (!work->sources)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	for (uint32_t i = 0; i < checkpoint->shards_count && !code; i++) {
		code = weir_pack_open_shard(checkpoint, i, &work->sources[i].file, error);
		if (code)
			break;
		weir_work_enable_direct(&work->sources[i], SOURCE_ALIGNMENT_MAX);
		work->sources_count++;
	}
	return code;
}

void weir_walk_close_sources(weir_work *work)
{
	for (uint32_t i = 0; i < work->sources_count; i++)
		weir_file_close(&work->sources[i].file);
	free(work->sources);
	work->sources = NULL;
	work->sources_count = 0;
}

int weir_walk_open_output(weir_work *work, const char *path, bool writable, weir_error *error)
{
	weir_work_file *output = &work->output;
	int code = 0;

	if (!writable) {
		code = weir_file_open(path, &output->file, error);
	} else {
		output->file.path = path;
		output->file.descriptor = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
		if (output->file.descriptor < 0)
			return weir_fail(error, weir_code_of_errno(errno), path, WEIR_ERROR_NO_OFFSET, errno,
					 "cannot open for writing");
	}
	if (!code)
		weir_work_enable_direct(output, work->alignment);
	return code;
}

/* ---- checking ---- */

void weir_walk_name_unit(const weir_pack *pack, uint64_t unit, weir_error *error)
{
	char rule[WEIR_ERROR_MESSAGE_BYTES];
	const weir_pack_group *group = pack->groups;
	const weir_pack_member *member;
	uint64_t place;
	uint32_t last;

	if (!error || unit >= pack->header.units_count)
		return;
	while (unit >= group->units_first + group->units_per_chunk * group->count)
		group++;
	place = (unit - group->units_first) % group->units_per_chunk;
	for (last = group->members_count - 1; pack->members[group->members_first + last].units_first > place ||
					      !pack->members[group->members_first + last].bytes;)
		last--;
	member = &pack->members[group->members_first + last];
	memcpy(rule, error->message, sizeof rule);
	if (group->count > 1)
		snprintf(error->message, sizeof error->message, "tensor '%.100s', expert %llu: %.200s",
			 pack->tensors[member->tensor].source.name,
			 (unsigned long long)((unit - group->units_first) / group->units_per_chunk), rule);
	else
		snprintf(error->message, sizeof error->message, "tensor '%.100s': %.200s",
			 pack->tensors[member->tensor].source.name, rule);
}

int weir_walk_check_pack(const weir_pack *pack, const weir_verify_options *options, weir_error *error)
{
	weir_work work = {.mode = WEIR_WORK_CHECK_OUTPUT,
			  .items_count = pack->header.units_count,
			  .end = pack->header.file_bytes,
			  .sums = pack->sums,
			  .output = {.file = {.descriptor = -1}},
			  .alignment = (uint32_t)pack->header.alignment,
			  .threads = options->threads,
			  .stage = "checking",
			  .progress = options->progress,
			  .user = options->user};
	weir_work_item *items = weir_walk_items(pack);
	int code;

	if (!items)
		return weir_fail(error, WEIR_ENOMEM, pack->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	work.items = items;
	code = weir_walk_open_output(&work, pack->path, false, error);
	if (!code && !weir_file_same(&work.output.file.identity, &pack->identity))
		code = weir_fail(error, WEIR_ECHANGED, pack->path, WEIR_ERROR_NO_OFFSET, 0,
				 "the pack was changed or replaced since it was opened: start again");
	if (!code)
		code = weir_work_run(&work, error);
	if (code == WEIR_ECHECKSUM)
		weir_walk_name_unit(pack, work.failed_item, error);
	weir_file_close(&work.output.file);
	free(items);
	return code;
}
