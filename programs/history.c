/*
 * history.c - see history.h.
 *
 *   {"version": 1, "runs": [{"at_s": 1790000000, "slots_share": 0.19, "hit_rate": 0.81, ...}, ...]}
 */
#include "history.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <xxhash.h>

#include "os/cache.h"
#include "output.h"

#define VERSION 1
#define FILE_BYTES_MAX (64 << 10)
#define LATEST_RUNS 5 /* whose median counts: chance has little say, and a changed machine is noticed soon */
#define SAME_SHARE 0.02 /* runs whose shares of slots differ by less are of one point */

/* Every member of a run that is a number, by name. */
static const struct {
	const char *name;
	size_t offset;
	double least, most;
} FIELDS[] = {
	{"slots_share", offsetof(history_run, slots_share), 0, 1},
	{"hit_rate", offsetof(history_run, hit_rate), 0, 1},
	{"read_share", offsetof(history_run, read_share), 0, 100},
	{"compute_seconds", offsetof(history_run, compute_seconds), 1e-9, 1e6},
	{"overlap_share", offsetof(history_run, overlap_share), -4, 1},
	{"dense_exposed_share", offsetof(history_run, dense_exposed_share), 0, 1},
	{"device_bytes_per_second", offsetof(history_run, device_bytes_per_second), 1, 1e15},
};
#define FIELDS_COUNT (sizeof FIELDS / sizeof *FIELDS)

/* ---- the file ---- */

/* The same file, unchanged, with the same threads, has the same name. */
static bool file_path(const char *model, uint32_t threads, char file[PATH_MAX])
{
	char path[PATH_MAX], whole[PATH_MAX + 96], name[32];
	struct stat status;
	int length;

	if (!realpath(model, path) || stat(path, &status) < 0)
		return false;
	length = snprintf(whole, sizeof whole, "%s|%lld|%lld.%09ld|%u", path, (long long)status.st_size,
			  (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, threads);
	snprintf(name, sizeof name, "models/%016llx.json", (unsigned long long)XXH3_64bits(whole, (size_t)length));
	return weir_cache_path(file, PATH_MAX, name);
}

static double *field_of(history_run *run, size_t field)
{
	return (double *)(void *)((char *)run + FIELDS[field].offset);
}

static void take_run(const json_t *object, history_run *run)
{
	run->at_s = json_integer_value(json_object_get(object, "at_s"));
	for (size_t i = 0; i < FIELDS_COUNT; i++) {
		const json_t *number = json_object_get(object, FIELDS[i].name);
		double value = json_number_value(number);

		*field_of(run, i) = json_is_number(number) && value >= FIELDS[i].least && value <= FIELDS[i].most ? value : NAN;
	}
}

static json_t *give_run(history_run *run)
{
	json_t *object = json_object();

	json_object_set_new(object, "at_s", json_integer(run->at_s));
	for (size_t i = 0; i < FIELDS_COUNT; i++)
		output_put_real(object, FIELDS[i].name, *field_of(run, i));
	return object;
}

static void take_file(const json_t *file, history *known)
{
	const json_t *runs = json_object_get(file, "runs");
	size_t count = json_array_size(runs);

	if (json_integer_value(json_object_get(file, "version")) != VERSION || count > HISTORY_RUNS_MAX)
		return;
	for (size_t i = 0; i < count; i++)
		take_run(json_array_get(runs, i), &known->runs[i]);
	known->count = (uint32_t)count;
}

void history_load(const char *model, uint32_t threads, history *known)
{
	char path[PATH_MAX];
	struct stat status;
	json_t *file;

	known->count = 0;
	if (!file_path(model, threads, path) || stat(path, &status) < 0 || !S_ISREG(status.st_mode) ||
	    status.st_size > FILE_BYTES_MAX)
		return;
	file = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
	take_file(file, known);
	json_decref(file);
}

static json_t *give_file(history *known)
{
	json_t *runs = json_array();

	for (uint32_t i = 0; i < known->count; i++)
		json_array_append_new(runs, give_run(&known->runs[i]));
	return json_pack("{s:i, s:o}", "version", VERSION, "runs", runs);
}

void history_add(const char *model, uint32_t threads, const history_run *run)
{
	char path[PATH_MAX], *text;
	history known;
	json_t *file;

	if (!file_path(model, threads, path))
		return;
	history_load(model, threads, &known);
	if (known.count == HISTORY_RUNS_MAX)
		memmove(known.runs, known.runs + 1, --known.count * sizeof *known.runs);
	known.runs[known.count++] = *run;
	file = give_file(&known);
	text = file ? output_json_text(file) : NULL;
	weir_cache_make_folders(path);
	if (text)
		output_write_file(path, text, strlen(text), NULL);
	free(text);
	json_decref(file);
}

/* ---- what it comes to ---- */

static int compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

static double median(double *values, uint32_t count)
{
	if (!count)
		return NAN;
	qsort(values, count, sizeof *values, compare);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* Median over the latest runs that have the field; `share` not NAN: of those with about that share of slots. */
static double latest(const history *known, size_t offset, double share)
{
	double values[LATEST_RUNS];
	uint32_t count = 0;

	for (uint32_t i = known->count; i-- && count < LATEST_RUNS;) {
		const history_run *run = &known->runs[i];
		double value = *(const double *)(const void *)((const char *)run + offset);

		if (isnan(value) || (!isnan(share) && !(fabs(run->slots_share - share) < SAME_SHARE)))
			continue;
		values[count++] = value;
	}
	return median(values, count);
}

double history_compute_seconds(const history *known)
{
	return latest(known, offsetof(history_run, compute_seconds), NAN);
}

double history_device_rate(const history *known, int64_t age_s)
{
	const history_run *run = known->count ? &known->runs[known->count - 1] : NULL;
	int64_t age = run ? (int64_t)time(NULL) - run->at_s : 0;

	return run && age >= 0 && age < age_s ? run->device_bytes_per_second : NAN;
}

static int compare_points(const void *a, const void *b)
{
	return compare(&((const weir_plan_point *)a)->slots_share, &((const weir_plan_point *)b)->slots_share);
}

static bool has_point(const weir_plan_facts *facts, double share)
{
	for (uint32_t i = 0; i < facts->points_count; i++)
		if (fabs(facts->points[i].slots_share - share) < SAME_SHARE)
			return true;
	return false;
}

static void add_points(const history *known, weir_plan_facts *facts)
{
	facts->points_count = 0;
	for (uint32_t i = known->count; i-- && facts->points_count < WEIR_PLAN_POINTS_MAX;) {
		const history_run *run = &known->runs[i];

		if (isnan(run->slots_share) || isnan(run->hit_rate) || isnan(run->read_share) || run->slots_share >= 1 ||
		    has_point(facts, run->slots_share))
			continue;
		facts->points[facts->points_count++] =
			(weir_plan_point){.slots_share = run->slots_share,
					  .hit_rate = latest(known, offsetof(history_run, hit_rate), run->slots_share),
					  .read_share = latest(known, offsetof(history_run, read_share), run->slots_share)};
	}
	qsort(facts->points, facts->points_count, sizeof *facts->points, compare_points);
}

void history_inform(const history *known, weir_plan_facts *facts)
{
	double overlap = latest(known, offsetof(history_run, overlap_share), NAN);
	double exposed = latest(known, offsetof(history_run, dense_exposed_share), NAN);

	facts->overlap_share = isnan(overlap) ? WEIR_PLAN_OVERLAP_TYPICAL : overlap;
	facts->dense_exposed_share = isnan(exposed) ? 0 : exposed;
	add_points(known, facts);
}
