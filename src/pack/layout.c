/*
 * layout.c - the order of a pack: dense weights as a token uses them, then each layer's experts.
 *
 *   token_embd, blk.0: norms, attention, router, feed-forward; blk.1 ...; output        one chunk each
 *   blk.0 expert 0: gate up down, expert 1: gate up down ...; blk.1 ...                 one chunk an expert
 *
 * The order of use is told by names: nothing breaks when a name is unknown, its tensor then lies at the end of its layer.
 * Small tensors with a value for each expert (biases, scales) stay in memory while a model runs and count as dense.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "pack/pack_internal.h"

#define UNIT_BYTES (2u << 20)
#define UNIT_ROWS_STEP 256 /* rows that ggml's kernels take together: a streamed part begins at a multiple of them */
#define NO_LAYER INT64_MAX

typedef struct place {
	const weir_tensor *tensor;
	uint32_t index; /* in the checkpoint */
	int64_t layer;
	int rank;
	bool expert;
	const char *kind; /* of experts: "exps.weight" */
} place;

static int64_t layer_of(const char *name)
{
	char *end;
	long long layer;

	if (strncmp(name, "blk.", 4) != 0)
		return strstr(name, "embd") || strstr(name, "rope") ? -1 : NO_LAYER;
	layer = strtoll(name + 4, &end, 10);
	return end == name + 4 || *end != '.' || layer < 0 ? NO_LAYER : layer;
}

static int rank_of(const char *name)
{
	static const char *const order[] = {
		"token_embd", "attn_norm",    "attn_q",	       "attn_k",   "attn_v", "attn_qkv", "attn_",	"ssm_",
		"ffn_norm",   "ffn_gate_inp", "ffn_gate_exps", "ffn_gate", "ffn_up", "ffn_down", "output_norm", "output"};
	const int count = (int)(sizeof order / sizeof order[0]);

	if (strstr(name, "post_") || strstr(name, "attn_post"))
		return count;
	for (int i = 0; i < count; i++)
		if (strstr(name, order[i]))
			return i;
	return count;
}

static int by_use(const void *a, const void *b)
{
	const place *x = a, *y = b;

	if (x->expert != y->expert)
		return x->expert ? 1 : -1;
	if (x->layer != y->layer)
		return x->layer < y->layer ? -1 : 1;
	if (x->expert && strcmp(x->kind, y->kind) != 0)
		return strcmp(x->kind, y->kind);
	if (x->expert && x->tensor->shape[2] != y->tensor->shape[2])
		return x->tensor->shape[2] < y->tensor->shape[2] ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static bool same_group(const place *x, const place *y)
{
	return x->expert && y->expert && x->layer == y->layer && x->layer != NO_LAYER && !strcmp(x->kind, y->kind) &&
	       x->tensor->shape[2] == y->tensor->shape[2];
}

static place *sort_tensors(const weir_checkpoint *checkpoint)
{
	place *places = calloc((size_t)checkpoint->tensors_count + 1, sizeof *places);

	for (uint32_t i = 0; places && i < checkpoint->tensors_count; i++) {
		const weir_tensor *tensor = &checkpoint->tensors[i];
		const char *kind = strrchr(tensor->name, '_');

		places[i] = (place){.tensor = tensor,
				    .index = i,
				    .layer = layer_of(tensor->name),
				    .rank = rank_of(tensor->name),
				    .expert = weir_pack_is_expert(tensor),
				    .kind = kind ? kind : tensor->name};
	}
	if (places)
		qsort(places, checkpoint->tensors_count, sizeof *places, by_use);
	return places;
}

/* What one checksum covers: an expert's slice; of a dense tensor the rows that are streamed together, where that is aligned. */
static uint64_t unit_bytes_of(const weir_tensor *tensor, bool expert, uint64_t alignment)
{
	uint64_t rows = tensor->rank == 2 ? tensor->shape[1] : 0, unit, row_bytes;

	if (expert)
		return tensor->bytes / tensor->shape[2];
	if (tensor->bytes <= UNIT_BYTES)
		return tensor->bytes;
	row_bytes = rows ? tensor->bytes / rows : 0;
	unit = row_bytes ? UNIT_BYTES / row_bytes / UNIT_ROWS_STEP * UNIT_ROWS_STEP * row_bytes : 0;
	if (row_bytes && !unit)
		unit = UNIT_ROWS_STEP * row_bytes;
	if (!unit || unit % alignment)
		unit = UNIT_BYTES;
	return unit < tensor->bytes ? unit : tensor->bytes;
}

static void form_groups(weir_pack *pack, const place *places, uint32_t count)
{
	weir_pack_group *group = pack->groups;

	pack->groups_count = 0;
	for (uint32_t i = 0; i < count; i++) {
		bool expert = places[i].expert;

		if (!i || !same_group(&places[i - 1], &places[i])) {
			group = &pack->groups[pack->groups_count++];
			group->count = expert ? (uint32_t)places[i].tensor->shape[2] : 1;
			group->members_first = i;
		}
		group->members_count++;
		pack->members[i].tensor = places[i].index;
		pack->members[i].unit_bytes = unit_bytes_of(places[i].tensor, expert, pack->header.alignment);
	}
}

static int copy_names(weir_pack *pack, const weir_checkpoint *checkpoint)
{
	for (uint32_t i = 0; i < checkpoint->shards_count; i++) {
		const char *path = checkpoint->shards[i].path, *slash = strrchr(path, '/');
		const char *name = slash ? slash + 1 : path;

		pack->sources[i].bytes = checkpoint->shards[i].identity.bytes;
		pack->sources[i].name = weir_arena_text(&pack->arena, name, strlen(name));
		if (!pack->sources[i].name)
			return WEIR_ENOMEM;
	}
	for (uint32_t i = 0; i < checkpoint->tensors_count; i++) {
		weir_tensor *tensor = &pack->tensors[i].source;

		*tensor = checkpoint->tensors[i];
		tensor->name = weir_arena_text(&pack->arena, tensor->name, strlen(tensor->name));
		if (!tensor->name || weir_names_add(&pack->names, tensor->name, i))
			return WEIR_ENOMEM;
	}
	return 0;
}

static int fill(weir_pack *pack, const weir_checkpoint *checkpoint, const place *places, weir_error *error)
{
	uint32_t count = checkpoint->tensors_count;
	const char *broken;

	if (weir_pack_reserve(pack, checkpoint->shards_count, count, count, count) || copy_names(pack, checkpoint))
		return weir_fail(error, WEIR_ENOMEM, pack->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	pack->header.alignment = WEIR_PACK_ALIGNMENT;
	form_groups(pack, places, count);
	pack->header.index_bytes = weir_pack_index_bytes(pack);
	broken = weir_pack_place(pack);
	if (!broken && pack->header.index_bytes > WEIR_PACK_INDEX_BYTES_MAX)
		broken = "the index is longer than the limit of 256 MiB";
	if (broken)
		return weir_fail(error, WEIR_EUNSUPPORTED, pack->path, WEIR_ERROR_NO_OFFSET, 0, "cannot be packed: %s", broken);
	pack->sums = calloc(pack->header.units_count + 1, sizeof *pack->sums);
	if (!pack->sums)
		return weir_fail(error, WEIR_ENOMEM, pack->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	return 0;
}

int weir_pack_layout(const weir_checkpoint *checkpoint, const char *path, weir_pack **pack, weir_error *error)
{
	place *places = sort_tensors(checkpoint);
	weir_pack *made = weir_pack_new(path);
	int code;

	if (places && made)
		code = fill(made, checkpoint, places, error);
	else
		code = weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	free(places);
	if (code)
		weir_pack_close(made);
	else
		*pack = made;
	return code;
}

static bool is_shard_name(const char *name, size_t *stem)
{
	const char pattern[] = "-ddddd-of-ddddd";
	const size_t length = sizeof pattern - 1;
	const char *at;

	if (*stem <= length)
		return false;
	at = name + *stem - length;
	for (size_t i = 0; i < length; i++)
		if (pattern[i] == 'd' ? at[i] < '0' || at[i] > '9' : at[i] != pattern[i])
			return false;
	*stem -= length;
	return true;
}

char *weir_pack_path_beside(const char *model_path)
{
	const char *slash = strrchr(model_path, '/'), *name = slash ? slash + 1 : model_path, *dot = strrchr(name, '.');
	size_t folder = (size_t)(name - model_path), stem = dot && dot != name ? (size_t)(dot - name) : strlen(name);
	char *path = malloc(folder + stem + sizeof ".weir");

	if (!path)
		return NULL;
	is_shard_name(name, &stem);
	memcpy(path, model_path, folder + stem);
	memcpy(path + folder + stem, ".weir", sizeof ".weir");
	return path;
}
