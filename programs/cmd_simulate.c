/*
 * cmd_simulate.c - `weir simulate TRACE...`: replays routing traces against policies and budgets.
 *
 * Needs no model, no engine and no drive.  The policies are those that `weir run` runs, through the public library; "belady"
 * is the bound.  Main thread only; writes standard output and, with --plot, one file.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/text.h"
#include "cli.h"
#include "commands.h"
#include "output.h"
#include "simulate.h"

#define BOUND "belady"
#define GAP_LEAST 0.002 /* below two tenths of a point, a share of the gap says nothing */

struct simulate_run {
	cli_common common;
	const char *policies;
	const char *budgets;
	const char *plot;
	uint32_t experts_count;
	simulate_table table;
	char names[512];
};

/* ---- what is asked for ---- */

static int take_budget(struct simulate_run *run, const char *text, size_t bytes)
{
	char copy[32], *end;
	double percent;

	if (run->table.budgets_count == SIMULATE_BUDGETS_MAX)
		return cli_usage(&run->common, "--budgets takes at most %d numbers", SIMULATE_BUDGETS_MAX);
	if (bytes == 0 || bytes >= sizeof copy || strspn(text, "0123456789.") < bytes)
		return cli_usage(&run->common, "--budgets takes percentages, as in 5,12.5,25");
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	percent = strtod(copy, &end);
	if (*end || !(percent > 0) || percent > 100)
		return cli_usage(&run->common, "--budgets: '%s' is not a percentage above 0 and up to 100", copy);
	run->table.budgets_percent[run->table.budgets_count++] = percent;
	return CLI_CONTINUE;
}

static int take_budgets(struct simulate_run *run)
{
	const char *at = run->budgets;
	int result;

	do {
		size_t bytes = strcspn(at, ",");

		result = take_budget(run, at, bytes);
		at += bytes;
	} while (result == CLI_CONTINUE && *at++);
	return result;
}

static bool is_policy(const char *name)
{
	const char *known;

	if (!strcmp(name, BOUND))
		return true;
	for (uint32_t i = 0; (known = weir_policy_name(i)); i++)
		if (!strcmp(known, name))
			return true;
	return false;
}

static void take_all_policies(struct simulate_run *run)
{
	const char *name;

	for (uint32_t i = 0; (name = weir_policy_name(i)) && run->table.policies_count < SIMULATE_POLICIES_MAX - 1; i++)
		run->table.policies[run->table.policies_count++] = name;
	run->table.policies[run->table.policies_count++] = BOUND;
}

static int take_policies(struct simulate_run *run)
{
	char *rest = NULL;

	if (!run->policies) {
		take_all_policies(run);
		return CLI_CONTINUE;
	}
	if (strlen(run->policies) >= sizeof run->names)
		return cli_usage(&run->common, "--policies is too long");
	strcpy(run->names, run->policies);
	for (char *name = strtok_r(run->names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		if (run->table.policies_count == SIMULATE_POLICIES_MAX)
			return cli_usage(&run->common, "--policies takes at most %d names", SIMULATE_POLICIES_MAX);
		if (!is_policy(name))
			return cli_usage(&run->common, "there is no policy '%.40s': docs/policies.md names them", name);
		run->table.policies[run->table.policies_count++] = name;
	}
	return run->table.policies_count ? CLI_CONTINUE : cli_usage(&run->common, "--policies needs a name");
}

static int check_plot(struct simulate_run *run)
{
	size_t length = run->plot ? strlen(run->plot) : 0;
	weir_error error;

	if (!run->plot)
		return CLI_CONTINUE;
	if (length < 5 || strcmp(run->plot + length - 4, ".svg") != 0)
		return cli_usage(&run->common, "--plot writes SVG: give it a name that ends in .svg");
	return output_check_path(run->plot, &error) < 0 ? cli_fail(&run->common, &error) : CLI_CONTINUE;
}

/* ---- work ---- */

static double share(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static int simulate_one(const weir_routing *routing, const char *policy, const simulate_trace *trace, int budget,
			simulate_rates *rates, weir_error *error)
{
	weir_simulation result;
	int code = weir_routing_simulate(routing, policy, trace->experts_count, trace->slots[budget], &result, error);

	if (!code)
		*rates = (simulate_rates){share(result.hits, result.demanded), share(result.warm_hits, result.warm_demanded)};
	return code;
}

static int simulate_budget(const simulate_table *table, const weir_routing *routing, simulate_trace *trace, int budget,
			   weir_error *error)
{
	simulate_rates lru = {0, 0}, lfu = {0, 0};
	double slots = table->budgets_percent[budget] / 100 * trace->info.layers_count * trace->experts_count;
	int code;

	trace->slots[budget] = slots < 1 ? 1 : (uint32_t)slots;
	code = simulate_one(routing, "lru", trace, budget, &lru, error);
	if (!code)
		code = simulate_one(routing, "lfu", trace, budget, &lfu, error);
	if (!code)
		code = simulate_one(routing, BOUND, trace, budget, &trace->belady[budget], error);
	for (int i = 0; i < table->policies_count && !code; i++)
		code = simulate_one(routing, table->policies[i], trace, budget, &trace->rates[i][budget], error);
	trace->simple[budget] = (simulate_rates){fmax(lru.cold, lfu.cold), fmax(lru.warm, lfu.warm)};
	return code;
}

static int simulate_trace_file(struct simulate_run *run, const char *path, simulate_trace *trace, weir_error *error)
{
	weir_routing *routing;
	int code = weir_routing_open(path, &routing, error);

	if (code && !strncmp(error->message, "line ", 5))
		error->offset = WEIR_ERROR_NO_OFFSET; /* the line says where */
	if (code)
		return code;
	trace->path = path;
	weir_routing_get_info(routing, &trace->info);
	trace->experts_count = run->experts_count ? run->experts_count : trace->info.experts_count;
	for (int i = 0; i < run->table.budgets_count && !code; i++) {
		code = simulate_budget(&run->table, routing, trace, i, error);
		cli_progress(&run->common, "simulating", (double)(i + 1) / run->table.budgets_count);
	}
	cli_progress_clear(&run->common);
	weir_routing_close(routing);
	if (code && !error->file[0])
		snprintf(error->file, sizeof error->file, "%s", path);
	return code;
}

/* ---- output ---- */

/* The share of the way from the better of lru and lfu to the bound; NAN when they are as good as equal. */
static double gap_closed(double rate, double simple, double bound)
{
	return bound - simple < GAP_LEAST ? NAN : (rate - simple) / (bound - simple);
}

static json_t *result_json(const simulate_table *table, const simulate_trace *trace, int policy, int budget)
{
	const simulate_rates *rates = &trace->rates[policy][budget], *simple = &trace->simple[budget],
			     *bound = &trace->belady[budget];
	json_t *object = json_object();

	json_object_set_new(object, "policy", json_string(table->policies[policy]));
	output_put_real(object, "budget_percent", table->budgets_percent[budget]);
	output_put_count(object, "slots", trace->slots[budget]);
	output_put_real(object, "hit_rate", rates->cold);
	output_put_real(object, "warm_hit_rate", rates->warm);
	output_put_real(object, "gap_closed", gap_closed(rates->cold, simple->cold, bound->cold));
	output_put_real(object, "warm_gap_closed", gap_closed(rates->warm, simple->warm, bound->warm));
	return object;
}

static json_t *trace_json(const simulate_table *table, const simulate_trace *trace)
{
	json_t *object = json_object(), *results = json_array();

	output_put_text(object, "trace", trace->path);
	output_put_count(object, "tokens", trace->info.tokens_count);
	output_put_count(object, "prompt_tokens", trace->info.prompt_tokens_count);
	output_put_count(object, "layers", trace->info.layers_count);
	output_put_count(object, "experts", trace->experts_count);
	output_put_count(object, "experts_per_token", trace->info.picks_max);
	output_put_count(object, "demanded", trace->info.picks_count);
	for (int p = 0; p < table->policies_count; p++)
		for (int b = 0; b < table->budgets_count; b++)
			json_array_append_new(results, result_json(table, trace, p, b));
	json_object_set_new(object, "results", results);
	return object;
}

static int print_json(const struct simulate_run *run)
{
	json_t *object = json_object(), *traces = json_array();

	for (int i = 0; i < run->table.traces_count; i++)
		json_array_append_new(traces, trace_json(&run->table, &run->table.traces[i]));
	json_object_set_new(object, "traces", traces);
	return output_json_print(&run->common, object);
}

static void print_title(const simulate_table *table, const simulate_trace *trace)
{
	char name[512];

	weir_text_escape(trace->path, strlen(trace->path), name, sizeof name);
	printf("%s: %u token%s (%u of a prompt), %u layer%s of %u expert%s, %u a token\n", name, trace->info.tokens_count,
	       cli_plural(trace->info.tokens_count), trace->info.prompt_tokens_count, trace->info.layers_count,
	       cli_plural(trace->info.layers_count), trace->experts_count, cli_plural(trace->experts_count),
	       trace->info.picks_max);
	printf("  hits in %%: from empty slots / in the second half\n  %-13s", "slots");
	for (int b = 0; b < table->budgets_count; b++)
		printf("%s%10.4g %%", b ? " " : "", table->budgets_percent[b]);
	putchar('\n');
}

static void print_gap(double part)
{
	if (isnan(part))
		printf("%6s", "-");
	else
		printf("%6.0f", 100 * part);
}

static void print_gaps(const simulate_table *table, const simulate_trace *trace, int policy)
{
	printf("  %-13s", "  gap closed");
	for (int b = 0; b < table->budgets_count; b++) {
		const simulate_rates *rates = &trace->rates[policy][b];

		print_gap(gap_closed(rates->cold, trace->simple[b].cold, trace->belady[b].cold));
		print_gap(gap_closed(rates->warm, trace->simple[b].warm, trace->belady[b].warm));
		putchar(' ');
	}
	printf("  %% of the way from the better of lru and lfu to belady\n");
}

static int print_table(const struct simulate_run *run)
{
	const simulate_table *table = &run->table;

	for (int i = 0; i < table->traces_count; i++) {
		const simulate_trace *trace = &table->traces[i];

		print_title(table, trace);
		for (int p = 0; p < table->policies_count; p++) {
			printf("  %-13s", table->policies[p]);
			for (int b = 0; b < table->budgets_count; b++)
				printf("%s%6.1f%6.1f", b ? " " : "", 100 * trace->rates[p][b].cold,
				       100 * trace->rates[p][b].warm);
			putchar('\n');
			if (!strcmp(table->policies[p], "auto"))
				print_gaps(table, trace, p);
		}
		if (i + 1 < table->traces_count)
			putchar('\n');
	}
	return cli_flush(&run->common);
}

static int write_plot(const struct simulate_run *run)
{
	char *text = simulate_plot(&run->table);
	weir_error error;
	int result;

	if (text)
		result = output_write_file(run->plot, text, strlen(text), &error);
	else
		result = weir_fail(&error, WEIR_ENOMEM, run->plot, WEIR_ERROR_NO_OFFSET, 0, "no memory for the plot");
	free(text);
	return result < 0 ? cli_fail(&run->common, &error) : CLI_DONE;
}

static int simulate_all(struct simulate_run *run, char **paths, int count)
{
	simulate_table *table = &run->table;
	weir_error error = {.offset = WEIR_ERROR_NO_OFFSET};
	int result = CLI_DONE, plotted = CLI_DONE;

	table->traces = calloc((size_t)count, sizeof *table->traces);
	if (!table->traces) {
		weir_fail(&error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the results");
		return cli_fail(&run->common, &error);
	}
	for (int i = 0; i < count && !result; i++)
		if (simulate_trace_file(run, paths[i], &table->traces[table->traces_count++], &error) < 0)
			result = cli_fail(&run->common, &error);
	if (!result && run->plot)
		plotted = write_plot(run);
	if (!result)
		result = run->common.json ? print_json(run) : print_table(run);
	free(table->traces);
	return result ? result : plotted;
}

#define SIMULATE_DETAILS                                                                                                       \
	"A trace says which experts the router picked, token by token: 'weir run --trace FILE' writes one.  Each policy\n"     \
	"is the one that 'weir run --policy' would use, and 'belady', which knows the future, is the bound.  A budget is a\n"  \
	"share of all experts in percent.  Hits are counted from empty slots over the whole trace, and over its second half."

int cmd_simulate(int argc, char **argv)
{
	struct simulate_run run = {.budgets = "5,12.5,25,50"};
	const cli_option options[] = {
		{0, "budgets", CLI_TEXT, &run.budgets, "LIST", "percentages of all experts (default: 5,12.5,25,50)", NULL, 0,
		 0},
		{0, "policies", CLI_TEXT, &run.policies, "LIST", "policies, as in auto,lru,belady (default: all)", NULL, 0, 0},
		{0, "experts", CLI_COUNT, &run.experts_count, "N", "experts of a layer (default: as the trace says or shows)",
		 NULL, 1, 65536},
		{0, "plot", CLI_TEXT, &run.plot, "FILE.svg", "draw the second half's hit rates over the budgets", NULL, 0, 0},
	};
	const cli_command command = {
		.name = "simulate",
		.operands = "TRACE...",
		.summary = "replays a routing trace against policies and budgets",
		.details = SIMULATE_DETAILS,
		.example = "  weir run model.gguf -M 4G -p \"Once upon a time\" -n 200 --trace trace.csv\n"
			   "  weir simulate trace.csv --budgets 10,20,30 --plot trace.svg",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = SIMULATE_TRACES_MAX,
	};
	char **operands;
	int count, result = cli_parse(&command, &run.common, argc, argv, &operands, &count);

	if (result == CLI_CONTINUE)
		result = take_budgets(&run);
	if (result == CLI_CONTINUE)
		result = take_policies(&run);
	if (result == CLI_CONTINUE)
		result = check_plot(&run);
	return result == CLI_CONTINUE ? simulate_all(&run, operands, count) : result;
}
