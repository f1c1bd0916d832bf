/*
 * test_store_counts.c - counts of demands that one store saves and the next one loads, by the names of weights.
 */
#include <sys/stat.h>

#include "residency/residency_types.h"
#include "store_fixture.h"

#define EXPERTS FIXTURE_PER_GROUP

/* Two weights over the chunks of two groups, the second's in the opposite order, and one that the store does not hold. */
typedef struct counted_weights {
	uint32_t chunks[2][EXPERTS];
	weir_counted_weight list[3];
} counted_weights;

static counted_weights describe(void)
{
	counted_weights made = {.list = {{.name = "up"}, {.name = "down"}, {.name = "elsewhere"}}};

	for (uint32_t e = 0; e < EXPERTS; e++) {
		made.chunks[0][e] = e;
		made.chunks[1][e] = 2 * EXPERTS - 1 - e;
	}
	for (uint32_t i = 0; i < 3; i++)
		made.list[i].experts = EXPERTS;
	return made;
}

static const weir_counted_weight *list_of(counted_weights *weights)
{
	weights->list[0].chunks = weights->chunks[0];
	weights->list[1].chunks = weights->chunks[1];
	return weights->list;
}

static int setup(void **state)
{
	fixture_setup(state);
	return setenv("XDG_CACHE_HOME", ((store_fixture *)*state)->folder, 1);
}

static int teardown(void **state)
{
	const store_fixture *fixture = *state;
	char command[128];

	snprintf(command, sizeof command, "rm -rf %s/weir", fixture->folder);
	assert_int_equal(system(command), 0);
	unsetenv("XDG_CACHE_HOME");
	return fixture_teardown(state);
}

/* Chunk 3 twice, chunk 20 once. */
static weir_store *opened_and_used(const store_fixture *fixture)
{
	weir_store *store = fixture_open(fixture);

	touch(fixture, store, 3);
	touch(fixture, store, 3);
	touch(fixture, store, 20);
	return store;
}

static void the_next_store_goes_on_from_them(void **state)
{
	const store_fixture *fixture = *state;
	counted_weights weights = describe();
	const weir_counted_weight *list = list_of(&weights);
	uint32_t counts[FIXTURE_CHUNKS];
	weir_store *store = opened_and_used(fixture);

	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 3), 0);
	weir_store_save_counts(store, fixture->paths[0], list, 3);
	weir_store_close(store);

	store = opened_and_used(fixture);
	weir_store_close(store); /* nothing is kept of one that does not save */

	store = fixture_open(fixture);
	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 3), 3);
	touch(fixture, store, 20);
	weir_store_get_counts(store, counts);
	for (uint32_t i = 0; i < FIXTURE_CHUNKS; i++)
		assert_int_equal(counts[i], i == 3 || i == 20 ? 2 : 0);
	assert_store_sound(store);
	weir_store_close(store);
}

static void of_other_weights_there_are_none(void **state)
{
	const store_fixture *fixture = *state;
	counted_weights weights = describe();
	const weir_counted_weight *list = list_of(&weights);
	weir_store *store = opened_and_used(fixture);

	weir_store_save_counts(store, fixture->paths[0], list, 3);
	assert_int_equal(weir_store_load_counts(store, fixture->paths[1], list, 3), 0);
	assert_int_equal(weir_store_load_counts(store, "/nowhere", list, 3), 0);
	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 2), 0);
	weights.list[1].bytes = 1;
	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 3), 0);
	weights.list[1].bytes = 0;
	weir_store_close(store);

	store = fixture_open(fixture);
	weights.list[1].chunks = NULL; /* not in this store */
	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 3), 2);
	weir_store_close(store);
}

static void lists_that_cannot_be_are_left_alone(void **state)
{
	const store_fixture *fixture = *state;
	counted_weights weights = describe();
	const weir_counted_weight *list = list_of(&weights);
	weir_store *store = opened_and_used(fixture);
	char folder[128];

	weights.chunks[0][EXPERTS - 1] = FIXTURE_CHUNKS;
	weir_store_save_counts(store, fixture->paths[0], list, 3);
	weir_store_save_counts(store, fixture->paths[0], list, 0);
	weir_store_save_counts(store, fixture->paths[0], &list[2], 1);
	assert_int_equal(weir_store_load_counts(store, fixture->paths[0], list, 3), 0);
	snprintf(folder, sizeof folder, "%s/weir", fixture->folder);
	assert_int_equal(access(folder, F_OK), -1);
	weir_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_next_store_goes_on_from_them, setup, teardown),
		cmocka_unit_test_setup_teardown(of_other_weights_there_are_none, setup, teardown),
		cmocka_unit_test_setup_teardown(lists_that_cannot_be_are_left_alone, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
