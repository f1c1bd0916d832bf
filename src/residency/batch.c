/*
 * batch.c - many leases in one call, for callers to whom each call is dear (Python).
 *
 * Threads: as for the single calls, on which these are built.
 */
#include "base/fail.h"
#include "residency/residency_types.h"

int weir_store_wait_all(weir_store *store, weir_lease *const *leases, uint32_t count, const void **data, weir_error *error)
{
	if (!store || (count > 0 && (!leases || !data)))
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0, "no leases to wait for");
	for (uint32_t i = 0; i < count; i++) {
		int code = weir_lease_wait(leases[i], &data[i], error);

		if (code < 0)
			return code;
	}
	return 0;
}

void weir_store_release_all(weir_store *store, weir_lease *const *leases, uint32_t count)
{
	if (!store || !leases)
		return;
	for (uint32_t i = 0; i < count; i++)
		weir_lease_release(leases[i]);
}
