/*
 * simulate.h - the results of `weir simulate` between the command and its plot.
 */
#ifndef WEIR_PROGRAMS_SIMULATE_H
#define WEIR_PROGRAMS_SIMULATE_H

#include "weir/simulate.h"

#define SIMULATE_POLICIES_MAX 24
#define SIMULATE_BUDGETS_MAX 32
#define SIMULATE_TRACES_MAX 64

typedef struct simulate_rates {
	double cold, warm; /* hits ÷ demanded, 0..1 */
} simulate_rates;

typedef struct simulate_trace {
	const char *path;
	weir_routing_info info;
	uint32_t experts_count; /* of a layer, as simulated */
	uint32_t slots[SIMULATE_BUDGETS_MAX];
	simulate_rates rates[SIMULATE_POLICIES_MAX][SIMULATE_BUDGETS_MAX];
	simulate_rates simple[SIMULATE_BUDGETS_MAX]; /* the better of lru and lfu */
	simulate_rates belady[SIMULATE_BUDGETS_MAX];
} simulate_trace;

typedef struct simulate_table {
	const char *policies[SIMULATE_POLICIES_MAX];
	int policies_count;
	double budgets_percent[SIMULATE_BUDGETS_MAX]; /* of all experts */
	int budgets_count;
	simulate_trace *traces;
	int traces_count;
} simulate_table;

/* The plot as SVG: a panel for each trace, warm hit rate over budget, a line for each policy.  free() it; NULL: no memory. */
char *simulate_plot(const simulate_table *table);

#endif
