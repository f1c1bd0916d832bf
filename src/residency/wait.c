/*
 * wait.c - waiting for what was acquired, and looking without waiting.
 *
 * A lease whose read has ended costs one atomic load.  Else the thread sleeps (reads.c) until it has, and the time counts as
 * stall.
 */
#include <assert.h>

#include "base/fail.h"
#include "residency/residency_types.h"

static weir_slot_state state_of(const weir_lease *lease)
{
	return atomic_load_explicit(&lease->store->slots[lease->slot].state, memory_order_acquire);
}

bool weir_lease_ready(const weir_lease *lease)
{
	return state_of(lease) != WEIR_SLOT_LOADING;
}

uint32_t weir_lease_chunk(const weir_lease *lease)
{
	return lease->chunk;
}

void weir_lease_get_position(const weir_lease *lease, weir_lease_position *position)
{
	const weir_store *store = lease->store;
	const weir_store_class *owner = &store->classes[store->slots[lease->slot].class_index];

	*position = (weir_lease_position){
		.base = store->slab + owner->slab_offset,
		.stride_bytes = owner->slot_bytes,
		.index = lease->slot - owner->slots_first,
		.shift_bytes = weir_chunk_shift(store, lease->chunk),
	};
}

/* Index of the first lease whose read has ended, or `count`. */
static uint32_t first_ready(weir_lease *const *leases, uint32_t count)
{
	uint32_t i = 0;

	while (i < count && !weir_lease_ready(leases[i]))
		i++;
	return i;
}

static int sleep_until_any(weir_store *store, weir_lease *const *leases, uint32_t count, uint32_t *index)
{
	int code = 0;

	pthread_mutex_lock(&store->mutex);
	*index = first_ready(leases, count);
	if (*index == count) {
		weir_reads_begin_stall(store);
		while (code == 0 && (*index = first_ready(leases, count)) == count)
			code = weir_reads_sleep(store);
		weir_reads_end_stall(store);
	}
	pthread_mutex_unlock(&store->mutex);
	return code;
}

static int wait_any(weir_store *store, weir_lease *const *leases, uint32_t count, uint32_t *index, weir_error *error)
{
	int code;

	*index = first_ready(leases, count);
	if (*index < count)
		return 0;
	code = sleep_until_any(store, leases, count, index);
	if (code < 0)
		return weir_fail(error, code, NULL, WEIR_ERROR_NO_OFFSET, 0, "the I/O method does not answer");
	return 0;
}

int weir_store_wait_any(weir_store *store, weir_lease *const *leases, uint32_t count, uint32_t *index, weir_error *error)
{
	if (!store || !leases || !index || count == 0)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no leases to wait for");
	return wait_any(store, leases, count, index, error);
}

static int fail_as_slot(const weir_store *store, const weir_lease *lease, weir_error *error)
{
	const weir_slot *slot = &store->slots[lease->slot];
	uint32_t file = store->files[store->chunks[lease->chunk].file];
	const char *path = weir_io_file_path(store->io, file);

	if (weir_io_check_file(store->io, file, NULL) == WEIR_ECHANGED)
		return weir_fail(error, WEIR_ECHANGED, path, slot->failed_offset, slot->sys_errno,
				 "file changed while it was in use");
	if (slot->code == WEIR_ECHECKSUM)
		return weir_fail(error, slot->code, path, slot->failed_offset, 0, "the checksum does not match what was read");
	if (slot->sys_errno == 0 && slot->code == WEIR_EIO)
		return weir_fail(error, slot->code, path, slot->failed_offset, 0, "file ended early");
	return weir_fail(error, slot->code, path, slot->failed_offset, slot->sys_errno, "read failed");
}

static int report_failure(const weir_lease *lease, weir_error *error)
{
	weir_store *store = lease->store;
	int code;

	pthread_mutex_lock(&store->mutex);
	code = fail_as_slot(store, lease, error);
	pthread_mutex_unlock(&store->mutex);
	return code;
}

int weir_lease_wait(weir_lease *lease, const void **data, weir_error *error)
{
	uint32_t index;
	int code;

	if (!lease || !data)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no lease to wait for");
	code = wait_any(lease->store, &lease, 1, &index, error);
	if (code < 0)
		return code;
	if (state_of(lease) == WEIR_SLOT_FAILED)
		return report_failure(lease, error);
	*data = lease->data;
	return 0;
}

int weir_store_wait_read(weir_store *store)
{
	uint64_t ended_before;
	int code = 0;

	if (!store)
		return WEIR_EINVAL;
	pthread_mutex_lock(&store->mutex);
	ended_before = store->reads_ended;
	weir_reads_begin_stall(store);
	while (code == 0 && store->reads_ended == ended_before)
		code = weir_reads_sleep(store);
	weir_reads_end_stall(store);
	pthread_mutex_unlock(&store->mutex);
	return code;
}

int weir_store_poll(weir_store *store)
{
	int ended;

	if (!store)
		return WEIR_EINVAL;
	pthread_mutex_lock(&store->mutex);
	ended = weir_reads_collect(store);
	pthread_mutex_unlock(&store->mutex);
	return ended;
}

uint32_t weir_store_reads_under_way(weir_store *store)
{
	uint32_t count;

	if (!store)
		return 0;
	pthread_mutex_lock(&store->mutex);
	count = weir_io_pending(store->io) + store->demand.count + store->prefetch.count;
	pthread_mutex_unlock(&store->mutex);
	return count;
}

bool weir_store_has(weir_store *store, uint32_t chunk)
{
	bool has;

	if (!store || chunk >= store->chunks_count)
		return false;
	pthread_mutex_lock(&store->mutex);
	has = store->chunks[chunk].slot != WEIR_NONE;
	pthread_mutex_unlock(&store->mutex);
	return has;
}
