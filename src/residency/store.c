/*
 * store.c - opening and closing a store, its sizes and its statistics.
 *
 * Everything is allocated here.  From open to close no other function of the store allocates or frees memory.
 *
 *   budget_bytes ≥ ┌────────┬───────────────────────────┬──────────────────────────────────────┐
 *                  │ store  │ workspace: chunks, slots, │ slab: class 0 │ class 1 │ ...        │
 *                  │        │ leases, policy, scratch   │ ▒▒▒▒▒▒▒▒▒▒▒▒▒ │ ▒▒▒▒▒▒▒ │            │
 *                  └────────┴───────────────────────────┴──────────────────────────────────────┘
 *                    tables_bytes                         slab_bytes, whole pages
 *
 * The store owns its weir_io, and with it the open files.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "os/memory.h"
#include "residency/residency_types.h"

#define DEFAULT_LEASES_MAX 4096
#define LEASES_MAX (1U << 24)
#define REQUESTS_MAX 4096
#define ALIGNMENT_LEAST 64 /* a cache line, and what tensors in files keep to */
#define ALIGNMENT_ASSUMED 4096
#define LEARNING_SHARE 64 /* tables that "auto" learns in take at most this part of the budget */

static int check_options(const weir_store_options *options, weir_error *error)
{
	if (!options || !options->chunks || options->chunks_count == 0 || options->chunks_count > WEIR_POLICY_CHUNKS_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "a store holds between 1 and 2^30 chunks");
	if (options->leases_max > LEASES_MAX)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "leases_max %u is too large",
				 options->leases_max);
	if (options->data_alignment > ALIGNMENT_LEAST || (options->data_alignment & (options->data_alignment - 1)) != 0)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "data_alignment %u is no power of two up to %u", options->data_alignment, ALIGNMENT_LEAST);
	if (!weir_policy_find(options->policy))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "unknown policy \"%s\"", options->policy);
	for (uint32_t i = 0; i < options->chunks_count && options->paths; i++)
		if (options->chunks[i].file >= options->paths_count)
			return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "chunk %u lies in no file", i);
	return 0;
}

static int open_io(const weir_store_options *options, weir_io **io, weir_error *error)
{
	const weir_io_options io_options = {
		.method = options->io_method,
		.queue_depth = options->queue_depth,
		.piece_bytes = options->piece_bytes,
		.in_flight_bytes = options->in_flight_bytes,
		.page_cache = options->page_cache,
		.requests_max = options->chunks_count < REQUESTS_MAX ? options->chunks_count : REQUESTS_MAX,
		.fault = options->io_fault,
	};

	return weir_io_open(&io_options, io, error);
}

static uint32_t alignment_of(const weir_io *io)
{
	uint32_t offset = weir_io_offset_alignment(io);
	uint32_t memory = weir_io_memory_alignment(io);
	uint32_t larger = offset > memory ? offset : memory;

	return larger > ALIGNMENT_LEAST ? larger : ALIGNMENT_LEAST;
}

static int add_files(weir_io *io, const weir_store_options *options, uint32_t *files, weir_error *error)
{
	for (uint32_t i = 0; i < options->paths_count; i++) {
		int code = weir_io_add_file(io, options->paths[i], &files[i], error);

		if (code < 0)
			return code;
	}
	for (uint32_t i = 0; i < options->chunks_count; i++) {
		const weir_chunk *chunk = &options->chunks[i];
		uint64_t file_bytes = weir_io_file_bytes(io, files[chunk->file]);

		if (chunk->bytes > file_bytes || chunk->offset > file_bytes - chunk->bytes)
			return weir_fail(error, WEIR_EINVAL, options->paths[chunk->file], chunk->offset, 0,
					 "chunk %u reaches past the end of the file", i);
	}
	return 0;
}

/* Opens the I/O method and the files; *files is malloc'ed.  On failure nothing stays open. */
static int open_files(const weir_store_options *options, weir_io **io, uint32_t **files, weir_error *error)
{
	int code = open_io(options, io, error);

	if (code < 0)
		return code;
	*files = calloc(options->paths_count, sizeof **files);
	code = *files ? add_files(*io, options, *files, error)
		      : weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the list of files");
	if (code < 0) {
		free(*files);
		weir_io_close(*io);
	}
	return code;
}

static void set_counts(weir_store *store, const weir_store_options *options, const weir_layout *layout)
{
	store->chunks_count = options->chunks_count;
	store->files_count = options->paths_count;
	store->leases_max = options->leases_max ? options->leases_max : DEFAULT_LEASES_MAX;
	store->budget_bytes = options->budget_bytes;
	store->alignment = layout->alignment;
	store->data_alignment = options->data_alignment ? options->data_alignment : 1;
	store->classes_count = layout->classes_count;
	store->slots_count = 0;
	for (uint32_t i = 0; i < layout->classes_count; i++)
		store->slots_count += layout->classes[i].slots_count;
}

static weir_policy_shape shape_of(const weir_store *store, const weir_layout *layout, const uint32_t *class_slots)
{
	return (weir_policy_shape){
		.chunks_count = layout->chunks_count,
		.sets_count = layout->sets_count,
		.classes_count = layout->classes_count,
		.slots_count = store->slots_count,
		.chunk_set = layout->chunk_set,
		.set_class = layout->set_class,
		.set_chunks = layout->set_chunks,
		.class_slots = class_slots,
	};
}

static void carve(weir_store *store, const weir_policy_methods *methods, const weir_layout *layout, weir_workspace *workspace)
{
	weir_policy_shape shape = shape_of(store, layout, NULL);

	store->chunks = weir_workspace_take(workspace, store->chunks_count, sizeof *store->chunks);
	store->classes = weir_workspace_take(workspace, store->classes_count, sizeof *store->classes);
	store->slots = weir_workspace_take(workspace, store->slots_count, sizeof *store->slots);
	store->leases = weir_workspace_take(workspace, store->leases_max, sizeof *store->leases);
	store->files = weir_workspace_take(workspace, store->files_count, sizeof *store->files);
	store->requests = weir_workspace_take(workspace, WEIR_STORE_BATCH, sizeof *store->requests);
	store->completions = weir_workspace_take(workspace, WEIR_STORE_BATCH, sizeof *store->completions);
	weir_policy_carve(&store->policy, methods, &shape, workspace);
}

/* Bytes of the store and its workspace with `slots_count` slots, or UINT64_MAX. */
static uint64_t tables_bytes(const weir_store_options *options, const weir_policy_methods *methods, const weir_layout *layout,
			     uint32_t slots_count)
{
	weir_store measured = {0};
	weir_workspace workspace = {0};

	set_counts(&measured, options, layout);
	measured.slots_count = slots_count;
	carve(&measured, methods, layout, &workspace);
	return workspace.used == SIZE_MAX ? UINT64_MAX : workspace.used + sizeof measured;
}

#define SLOT_OVERHEAD_BYTES (sizeof(weir_slot) + sizeof(weir_policy_slot))

/* What a store costs beside its slots: tables without slots, and what rounding adds to the arrays of slots and to the slab. */
static uint64_t fixed_bytes(const weir_store_options *options, const weir_policy_methods *methods, const weir_layout *layout)
{
	return tables_bytes(options, methods, layout, 0) + 2 * WEIR_WORKSPACE_ALIGNMENT + weir_page_bytes();
}

/* What "auto" is where it must do without the tables that it learns in. */
static const weir_policy_methods *least_methods(const weir_store_options *options)
{
	const weir_policy_methods *methods = weir_policy_find(options->policy);

	return methods->chooses ? weir_policy_find("lfu") : methods;
}

/* The policy asked for; "auto" learns where its tables take a small part of the budget, and not everything fits. */
static const weir_policy_methods *choose_methods(const weir_store_options *options, const weir_layout *layout)
{
	const weir_policy_methods *methods = weir_policy_find(options->policy), *least = least_methods(options);
	uint64_t fixed = fixed_bytes(options, least, layout), least_bytes, all_bytes;

	if (!methods->chooses)
		return methods;
	if (weir_layout_cost(layout, SLOT_OVERHEAD_BYTES, options->slots_least, &least_bytes, &all_bytes) != 0 ||
	    options->budget_bytes < fixed || options->budget_bytes - fixed >= all_bytes)
		return least;
	return fixed_bytes(options, methods, layout) - fixed > options->budget_bytes / LEARNING_SHARE ? least : methods;
}

static int divide_budget(weir_layout *layout, const weir_store_options *options, const weir_policy_methods *methods,
			 weir_error *error)
{
	uint64_t fixed = fixed_bytes(options, methods, layout);
	uint64_t left = options->budget_bytes > fixed ? options->budget_bytes - fixed : 0;
	uint64_t least, all;
	int code = weir_layout_divide(layout, left, SLOT_OVERHEAD_BYTES, options->slots_least);

	if (code == WEIR_EBUDGET && weir_layout_cost(layout, SLOT_OVERHEAD_BYTES, options->slots_least, &least, &all) == 0)
		return weir_fail(error, code, NULL, WEIR_ERROR_NO_OFFSET, 0, "%llu bytes are too few: the least is %llu",
				 (unsigned long long)options->budget_bytes, (unsigned long long)(least + fixed));
	if (code < 0)
		return weir_fail(error, code, NULL, WEIR_ERROR_NO_OFFSET, 0, "sizes of the chunks wrap");
	return 0;
}

static int allocate_tables(weir_store *store, const weir_policy_methods *methods, const weir_layout *layout, weir_error *error)
{
	weir_workspace workspace = {0};

	carve(store, methods, layout, &workspace);
	if (workspace.used != SIZE_MAX)
		store->workspace = aligned_alloc(WEIR_WORKSPACE_ALIGNMENT, workspace.used);
	if (!store->workspace)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the tables of a store");
	memset(store->workspace, 0, workspace.used);
	store->tables_bytes = workspace.used + sizeof *store;
	workspace = (weir_workspace){.base = store->workspace, .capacity = workspace.used};
	carve(store, methods, layout, &workspace);
	return 0;
}

static void fill_classes(weir_store *store, const weir_layout *layout)
{
	uint32_t slot = 0;
	uint64_t offset = 0;

	for (uint32_t i = 0; i < store->classes_count; i++) {
		weir_store_class *owner = &store->classes[i];

		*owner = (weir_store_class){
			.slot_bytes = layout->classes[i].slot_bytes,
			.slab_offset = offset,
			.slots_first = slot,
			.slots_count = layout->classes[i].slots_count,
			.free = {.head = WEIR_NONE, .tail = WEIR_NONE, .name = WEIR_IN_FREE},
		};
		for (uint32_t end = slot + owner->slots_count; slot < end; slot++) {
			store->slots[slot].class_index = i;
			weir_slot_list_push(store, &owner->free, slot);
		}
		offset += owner->slots_count * owner->slot_bytes;
	}
	store->slab_bytes = offset;
	store->states_count[WEIR_SLOT_FREE] = slot;
}

static void fill_chunks(weir_store *store, const weir_chunk *chunks, const weir_layout *layout)
{
	for (uint32_t i = 0; i < store->chunks_count; i++)
		store->chunks[i] = (weir_store_chunk){
			.offset = chunks[i].offset,
			.bytes = chunks[i].bytes,
			.file = chunks[i].file,
			.class_index = layout->set_class[layout->chunk_set[i]],
			.slot = WEIR_NONE,
		};
}

static void fill_leases(weir_store *store)
{
	for (uint32_t i = 0; i < store->leases_max; i++)
		store->leases[i] = (weir_lease){
			.store = store,
			.slot = WEIR_NONE,
			.next_free = i + 1 < store->leases_max ? i + 1 : WEIR_NONE,
		};
	store->lease_free = 0;
}

static int fill_policy(weir_store *store, const weir_policy_methods *methods, const weir_layout *layout)
{
	uint32_t *class_slots = calloc(store->classes_count, sizeof *class_slots);
	weir_policy_shape shape = shape_of(store, layout, class_slots);

	if (!class_slots)
		return WEIR_ENOMEM;
	for (uint32_t i = 0; i < store->classes_count; i++)
		class_slots[i] = store->classes[i].slots_count;
	weir_policy_init(&store->policy, methods, &shape);
	free(class_slots);
	return 0;
}

static int map_slab(weir_store *store, weir_error *error)
{
	uint64_t page_bytes = weir_page_bytes();
	void *base;
	int code;

	store->slab_bytes = (store->slab_bytes + page_bytes - 1) / page_bytes * page_bytes;
	code = weir_memory_map(store->slab_bytes, true, &base, error);
	if (code < 0)
		return code;
	store->slab = base;
	(void)weir_memory_advise(base, store->slab_bytes, WEIR_ADVICE_NODUMP); /* the bytes are on the drive already */
	(void)weir_memory_populate(base, store->slab_bytes); /* else adding it does, on one processor */
	(void)weir_io_add_buffer(store->io, base, store->slab_bytes); /* reads work unregistered too */
	return 0;
}

static int fill_store(weir_store *store, const weir_store_options *options, const weir_policy_methods *methods,
		      const weir_layout *layout, const uint32_t *files, weir_error *error)
{
	int code;

	set_counts(store, options, layout);
	code = allocate_tables(store, methods, layout, error);
	if (code < 0)
		return code;
	store->demand = (weir_slot_list){.head = WEIR_NONE, .tail = WEIR_NONE, .name = WEIR_IN_DEMAND};
	store->prefetch = (weir_slot_list){.head = WEIR_NONE, .tail = WEIR_NONE, .name = WEIR_IN_PREFETCH};
	memcpy(store->files, files, store->files_count * sizeof *files);
	fill_classes(store, layout);
	fill_chunks(store, options->chunks, layout);
	fill_leases(store);
	if (fill_policy(store, methods, layout) < 0)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for the policy");
	return map_slab(store, error);
}

/* Takes over `io`, also on failure. */
static int open_over(weir_io *io, const weir_store_options *options, const uint32_t *files, weir_store **opened,
		     weir_error *error)
{
	weir_layout layout;
	weir_store *store = calloc(1, sizeof *store);
	int code;

	if (!store) {
		weir_io_close(io);
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, ENOMEM, "no memory for a store");
	}
	store->io = io;
	pthread_mutex_init(&store->mutex, NULL);
	pthread_cond_init(&store->changed, NULL);
	code = weir_layout_make(&layout, options->chunks, options->chunks_count, alignment_of(io), error);
	if (code == 0) {
		const weir_policy_methods *methods = choose_methods(options, &layout);

		code = divide_budget(&layout, options, methods, error);
		if (code == 0)
			code = fill_store(store, options, methods, &layout, files, error);
		weir_layout_free(&layout);
	}
	if (code < 0) {
		weir_store_close(store);
		return code;
	}
	*opened = store;
	return 0;
}

int weir_store_open(const weir_store_options *options, weir_store **store, weir_error *error)
{
	uint32_t *files;
	weir_io *io;
	int code = check_options(options, error);

	if (code < 0)
		return code;
	if (!store || !options->paths)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no files, or no place for the store");
	code = open_files(options, &io, &files, error);
	if (code < 0)
		return code;
	code = open_over(io, options, files, store, error);
	free(files);
	return code;
}

void weir_store_close(weir_store *store)
{
	if (!store)
		return;
	weir_io_close(store->io); /* first: reads in flight land in the slab */
	if (store->slab)
		weir_memory_unmap(store->slab, store->slab_bytes);
	pthread_cond_destroy(&store->changed);
	pthread_mutex_destroy(&store->mutex);
	free(store->workspace);
	free(store);
}

static int alignment_for(const weir_store_options *options, uint32_t *alignment)
{
	uint32_t *files;
	weir_io *io;
	int code;

	*alignment = ALIGNMENT_ASSUMED;
	if (!options->paths)
		return 0;
	code = open_files(options, &io, &files, NULL);
	if (code < 0)
		return code;
	*alignment = alignment_of(io);
	free(files);
	weir_io_close(io);
	return 0;
}

int weir_store_sizes(const weir_store_options *options, uint32_t slots_least, uint64_t *least_bytes, uint64_t *all_bytes)
{
	uint32_t alignment;
	weir_layout layout;
	int code = check_options(options, NULL);

	if (code == 0 && (!least_bytes || !all_bytes))
		code = WEIR_EINVAL;
	if (code == 0)
		code = alignment_for(options, &alignment);
	if (code == 0)
		code = weir_layout_make(&layout, options->chunks, options->chunks_count, alignment, NULL);
	if (code < 0)
		return code;
	code = weir_layout_cost(&layout, SLOT_OVERHEAD_BYTES, slots_least, least_bytes, all_bytes);
	if (code == 0) {
		*least_bytes += fixed_bytes(options, least_methods(options), &layout);
		*all_bytes += fixed_bytes(options, least_methods(options), &layout);
	}
	weir_layout_free(&layout);
	return code;
}

void weir_store_tick(weir_store *store)
{
	pthread_mutex_lock(&store->mutex);
	weir_policy_tick(&store->policy);
	pthread_mutex_unlock(&store->mutex);
}

void weir_store_get_counts(weir_store *store, uint32_t *counts)
{
	pthread_mutex_lock(&store->mutex);
	for (uint32_t i = 0; i < store->chunks_count; i++)
		counts[i] = store->policy.chunks[i].total;
	pthread_mutex_unlock(&store->mutex);
}

void weir_store_seed(weir_store *store, const uint32_t *counts)
{
	pthread_mutex_lock(&store->mutex);
	weir_policy_seed(&store->policy, counts);
	pthread_mutex_unlock(&store->mutex);
}

static uint32_t count_pinned(const weir_store *store)
{
	uint32_t pinned = 0;

	for (uint32_t i = 0; i < store->slots_count; i++)
		pinned += store->slots[i].pins > 0;
	return pinned;
}

void weir_store_get_stats(weir_store *store, weir_store_stats *stats)
{
	weir_io_stats io;

	pthread_mutex_lock(&store->mutex);
	*stats = store->stats;
	if (store->waiters > 0)
		stats->stall_ns += weir_clock_ns() - store->stall_start_ns;
	weir_io_get_stats(store->io, &io);
	stats->bytes_read = io.bytes - store->io_bytes_base;
	stats->page_cache_bytes = io.page_cache_bytes - store->page_cache_bytes_base;
	stats->slots_count = store->slots_count;
	stats->slots_free = store->states_count[WEIR_SLOT_FREE];
	stats->slots_loading = store->states_count[WEIR_SLOT_LOADING];
	stats->slots_ready = store->states_count[WEIR_SLOT_READY];
	stats->slots_failed = store->states_count[WEIR_SLOT_FAILED];
	stats->slots_pinned = count_pinned(store);
	stats->slab_bytes = store->slab_bytes;
	pthread_mutex_unlock(&store->mutex);
}

void weir_store_reset_stats(weir_store *store)
{
	weir_io_stats io;

	pthread_mutex_lock(&store->mutex);
	store->stats = (weir_store_stats){0};
	weir_io_get_stats(store->io, &io);
	store->io_bytes_base = io.bytes;
	store->page_cache_bytes_base = io.page_cache_bytes;
	if (store->waiters > 0)
		store->stall_start_ns = weir_clock_ns();
	pthread_mutex_unlock(&store->mutex);
}

const char *weir_store_policy(weir_store *store)
{
	const char *name;

	pthread_mutex_lock(&store->mutex);
	name = store->policy.methods->name;
	pthread_mutex_unlock(&store->mutex);
	return name;
}

const char *weir_store_io_method(const weir_store *store)
{
	return weir_io_method(store->io);
}
