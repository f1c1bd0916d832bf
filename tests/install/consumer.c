/*
 * consumer.c - a program of somebody else: built against an installed weir, with pkg-config and with CMake.
 *
 * Asks the planner how an 8 GiB budget is divided for a model of 16 GiB and checks that the parts add up to the budget.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <weir/weir.h>

#define MIB ((uint64_t)1 << 20)

int main(void)
{
	weir_plan_facts facts = {
		.budget_bytes = 8192 * MIB,
		.program_bytes = 100 * MIB,
		.kv_bytes = 500 * MIB,
		.compute_bytes = 120 * MIB,
		.dense_fixed_bytes = 10 * MIB,
		.dense_stream_bytes = 1000 * MIB,
		.dense_largest_bytes = 5 * MIB,
		.classes_count = 1,
		.classes = {{.chunk_bytes = MIB,
			     .slot_bytes = MIB + 4096,
			     .chunks_count = 16384,
			     .chunks_per_token = 1024,
			     .slots_least = 24}},
		.hit_rate_hint = -1,
	};
	weir_plan plan;
	weir_error error;
	uint64_t parts_bytes;

	if (strcmp(weir_version(), WEIR_VERSION)) {
		fprintf(stderr, "headers are %s, the library is %s\n", WEIR_VERSION, weir_version());
		return 1;
	}
	if (weir_plan_make(&facts, &plan, &error) != WEIR_OK) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	parts_bytes = plan.memory_dense_bytes + plan.memory_experts_bytes + plan.memory_kv_bytes + plan.memory_compute_bytes +
		      plan.memory_other_bytes;
	printf("weir %s: %" PRIu64 " of %" PRIu64 " bytes, %" PRIu64 " slots\n", weir_version(), parts_bytes,
	       facts.budget_bytes, plan.slots_count);
	return plan.fits && plan.slots_count > 0 && parts_bytes <= facts.budget_bytes ? 0 : 1;
}
