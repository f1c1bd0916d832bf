/*
 * catalog.c - building a catalog, step by checked step; see catalog.h.
 */
#include "format/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/checked.h"
#include "base/fail.h"

static int fail_memory(const char *path, weir_error *error)
{
	return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
}

int weir_catalog_add_shard(weir_checkpoint *checkpoint, const weir_file *file, weir_error *error)
{
	weir_shard shard = {.identity = file->identity};

	if (checkpoint->shards_count == checkpoint->shards_capacity) {
		weir_shard *grown = weir_array_grow(checkpoint->shards, &checkpoint->shards_capacity, sizeof *grown);

		if (!grown)
			return fail_memory(file->path, error);
		checkpoint->shards = grown;
	}
	shard.path = weir_arena_text(&checkpoint->arena, file->path, strlen(file->path));
	if (!shard.path)
		return fail_memory(file->path, error);
	checkpoint->shards[checkpoint->shards_count++] = shard;
	return WEIR_OK;
}

/* The product of the dimensions: 0 if one is 0, but each partial product of the others must fit all the same. */
static bool count_elements(const weir_tensor *tensor, uint64_t *elements)
{
	uint64_t product = 1;
	bool empty = false;

	for (uint32_t i = 0; i < tensor->rank; i++) {
		if (!tensor->shape[i])
			empty = true;
		else if (!weir_checked_multiply(product, tensor->shape[i], &product))
			return false;
	}
	*elements = empty ? 0 : product;
	return product <= INT64_MAX;
}

bool weir_tensor_measure(weir_tensor *tensor, const weir_dtype_info *info)
{
	tensor->dtype = info->dtype;
	tensor->dtype_name = info->name;
	tensor->block_elements = info->block_elements;
	tensor->block_bytes = info->block_bytes;
	for (uint32_t i = tensor->rank; i < WEIR_RANK_MAX; i++)
		tensor->shape[i] = 1;
	if (!count_elements(tensor, &tensor->elements) || tensor->elements % info->block_elements)
		return false;
	return weir_checked_multiply(tensor->elements / info->block_elements, info->block_bytes, &tensor->bytes);
}

static int check_name(const weir_shard *shard, const char *name, size_t name_bytes, weir_error *error)
{
	if (!memchr(name, '\0', name_bytes))
		return WEIR_OK;
	return weir_fail(error, WEIR_EFORMAT, shard->path, WEIR_ERROR_NO_OFFSET, 0,
			 "tensor name '%.100s...' contains a NUL byte", name);
}

static int check_extent(const weir_shard *shard, const weir_tensor *tensor, const char *name, weir_error *error)
{
	if (!tensor->bytes || weir_extent_within(tensor->offset, tensor->bytes, shard->identity.bytes))
		return WEIR_OK;
	return weir_fail(error, WEIR_EFORMAT, shard->path, tensor->offset, 0,
			 "tensor '%.100s' of %llu bytes reaches past the end of the file, which has %llu (truncated?)", name,
			 (unsigned long long)tensor->bytes, (unsigned long long)shard->identity.bytes);
}

static int index_name(weir_checkpoint *checkpoint, const weir_shard *shard, const char *name, weir_error *error)
{
	int code = weir_names_add(&checkpoint->names, name, checkpoint->tensors_count);

	if (code != WEIR_EINVAL)
		return code ? fail_memory(shard->path, error) : WEIR_OK;
	return weir_fail(error, WEIR_EFORMAT, shard->path, WEIR_ERROR_NO_OFFSET, 0, "tensor name '%.100s' occurs twice", name);
}

static int append_tensor(weir_checkpoint *checkpoint, const weir_tensor *tensor)
{
	if (checkpoint->tensors_count == checkpoint->tensors_capacity) {
		weir_tensor *grown = weir_array_grow(checkpoint->tensors, &checkpoint->tensors_capacity, sizeof *grown);

		if (!grown)
			return WEIR_ENOMEM;
		checkpoint->tensors = grown;
	}
	checkpoint->tensors[checkpoint->tensors_count++] = *tensor;
	return WEIR_OK;
}

int weir_catalog_add_tensor(weir_checkpoint *checkpoint, const weir_tensor *tensor, const char *name, size_t name_bytes,
			    weir_error *error)
{
	const weir_shard *shard = &checkpoint->shards[checkpoint->shards_count - 1];
	weir_tensor added = *tensor;
	int code;

	added.shard = checkpoint->shards_count - 1;
	added.name = weir_arena_text(&checkpoint->arena, name, name_bytes);
	if (!added.name)
		return fail_memory(shard->path, error);
	code = check_name(shard, added.name, name_bytes, error);
	if (!code)
		code = check_extent(shard, &added, added.name, error);
	if (!code)
		code = index_name(checkpoint, shard, added.name, error);
	if (code)
		return code;
	if (!weir_checked_add(checkpoint->tensors_bytes, added.bytes, &checkpoint->tensors_bytes))
		return weir_fail(error, WEIR_EFORMAT, shard->path, added.offset, 0, "the sizes of all tensors together wrap");
	return append_tensor(checkpoint, &added) ? fail_memory(shard->path, error) : WEIR_OK;
}

static int by_offset(const void *a, const void *b)
{
	const weir_tensor *const *left = a;
	const weir_tensor *const *right = b;

	return ((*left)->offset > (*right)->offset) - ((*left)->offset < (*right)->offset);
}

static int check_sorted(const weir_shard *shard, const weir_tensor *const *sorted, uint32_t count, weir_error *error)
{
	for (uint32_t i = 1; i < count; i++) {
		if (sorted[i]->offset - sorted[i - 1]->offset < sorted[i - 1]->bytes)
			return weir_fail(error, WEIR_EFORMAT, shard->path, sorted[i]->offset, 0,
					 "tensors '%.100s' and '%.100s' overlap", sorted[i - 1]->name, sorted[i]->name);
	}
	return WEIR_OK;
}

int weir_catalog_check_overlap(const weir_checkpoint *checkpoint, uint32_t first, weir_error *error)
{
	const weir_shard *shard = &checkpoint->shards[checkpoint->shards_count - 1];
	uint32_t count = 0;
	const weir_tensor **sorted;
	int code;

	if (first == checkpoint->tensors_count)
		return WEIR_OK;
	sorted = malloc((checkpoint->tensors_count - first) * sizeof *sorted);
	if (!sorted)
		return fail_memory(shard->path, error);
	for (uint32_t i = first; i < checkpoint->tensors_count; i++) {
		if (checkpoint->tensors[i].bytes)
			sorted[count++] = &checkpoint->tensors[i];
	}
	qsort(sorted, count, sizeof *sorted, by_offset);
	code = check_sorted(shard, sorted, count, error);
	free(sorted);
	return code;
}

static const char *check_tensor(const weir_checkpoint *checkpoint, uint32_t index)
{
	const weir_tensor *tensor = &checkpoint->tensors[index];
	weir_tensor again = *tensor;

	if (weir_names_find(&checkpoint->names, tensor->name) != index)
		return "a tensor is not found by its name";
	if (tensor->shard >= checkpoint->shards_count)
		return "a tensor lies in no shard";
	if (!weir_tensor_measure(&again, weir_dtype_describe(tensor->dtype)))
		return "a tensor's shape does not fit its type";
	if (again.bytes != tensor->bytes || again.elements != tensor->elements)
		return "a tensor's size is not that of its shape";
	if (tensor->bytes &&
	    !weir_extent_within(tensor->offset, tensor->bytes, checkpoint->shards[tensor->shard].identity.bytes))
		return "a tensor reaches past the end of its shard";
	return NULL;
}

const char *weir_catalog_check(const weir_checkpoint *checkpoint)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < checkpoint->tensors_count; i++) {
		const char *broken = check_tensor(checkpoint, i);

		if (broken)
			return broken;
		bytes += checkpoint->tensors[i].bytes;
	}
	if (bytes != checkpoint->tensors_bytes)
		return "tensors_bytes is not the sum";
	for (uint32_t i = 0; i < checkpoint->metadata.count; i++) {
		const weir_metadata *entry = &checkpoint->metadata.entries[i];

		if (weir_names_find(&checkpoint->metadata.keys, entry->key) != i)
			return "an entry of metadata is not found by its key";
		if (entry->kept > entry->count)
			return "more values are kept than the file has";
	}
	return NULL;
}
