/*
 * test_store_allocation.c - from open to close a store allocates nothing.
 *
 * This program defines malloc and its relatives itself and passes them on to the C library; while the guard is up, every call
 * from any thread is counted.  Sanitizers bring their own malloc: there the tests only run the calls.
 */
#include "residency/residency_types.h"
#include "store_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OWN_MALLOC 0
#endif
#endif
#ifndef OWN_MALLOC
#ifdef __GLIBC__
#define OWN_MALLOC 1
#else
#define OWN_MALLOC 0
#endif
#endif

static atomic_bool guard;
static atomic_uint allocations;

#if OWN_MALLOC
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *old);

static void count_call(void)
{
	if (atomic_load(&guard))
		atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t bytes)
{
	count_call();
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	count_call();
	return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
	count_call();
	return __libc_realloc(old, bytes);
}

void free(void *old)
{
	if (old)
		count_call();
	__libc_free(old);
}
#endif

static void the_guard_counts(void **state)
{
	void *volatile memory;

	(void)state;
	atomic_store(&allocations, 0);
	atomic_store(&guard, true);
	memory = malloc(10);
	free(memory);
	atomic_store(&guard, false);
	assert_int_equal(atomic_load(&allocations), OWN_MALLOC ? 2 : 0);
}

/* Everything that a store offers, without an assertion that could allocate.  Returns how many bytes were wrong. */
static int use_everything(const store_fixture *fixture, weir_store *store)
{
	uint64_t random = 5;
	int wrong = 0;

	for (int round = 0; round < 100; round++) {
		uint32_t chunks[10], index;
		weir_lease *leases[10];
		weir_store_stats stats;
		int made;

		for (int i = 0; i < 10; i++)
			chunks[i] = next_random(&random) % FIXTURE_CHUNKS;
		weir_store_prefetch(store, chunks + 6, 4);
		made = weir_store_acquire(store, chunks, 8, leases, NULL);
		if (made > 0)
			weir_store_wait_any(store, leases, (uint32_t)made, &index, NULL);
		for (int i = 0; i < made; i++) {
			const void *data;

			if (weir_lease_wait(leases[i], &data, NULL) == 0)
				wrong += !chunk_is_right(fixture, chunks[i], data);
			weir_lease_release(leases[i]);
		}
		weir_store_poll(store);
		weir_store_tick(store);
		weir_store_wait_read(store);
		weir_store_get_stats(store, &stats);
		wrong += weir_store_check(store) != 0;
	}
	return wrong;
}

static void count_allocations(store_fixture *fixture, const char *method, const char *fault)
{
	weir_store *store;
	int wrong;

	fixture->options.io_method = method;
	fixture->options.io_fault = fault;
	if (weir_store_open(&fixture->options, &store, NULL) != 0) {
		assert_string_equal(method, "uring"); /* may be missing on this system */
		return;
	}
	atomic_store(&allocations, 0);
	atomic_store(&guard, true);
	wrong = use_everything(fixture, store);
	atomic_store(&guard, false);
	assert_int_equal(wrong, 0);
	assert_int_equal(atomic_load(&allocations), 0);
	weir_store_close(store);
}

static void nothing_is_allocated_between_open_and_close(void **state)
{
	static const char *const methods[] = {"uring", "threads", "mmap"};

	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
		count_allocations(*state, methods[i], NULL);
		count_allocations(*state, methods[i], "eio-every:10,short:4,eintr:6");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_guard_counts),
		cmocka_unit_test_setup_teardown(nothing_is_allocated_between_open_and_close, fixture_setup, fixture_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
