/*
 * rates.c - see rates.h.
 */
#include "rates.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "os/memory.h"
#include "output.h"
#include "weir/disk.h"

#define SHORT_SECONDS 0.25
#define QUEUE_DEPTH_DEFAULT 32 /* those of weir/disk.h */
#define PIECE_BYTES_DEFAULT (UINT64_C(1) << 20)
#define ENTRIES_MAX 64
#define SAMPLE_BYTES ((size_t)4 << 20)
#define SAMPLE_NS UINT64_C(20000000)
#define TOKEN_SECONDS_LEAST 0.003 /* what a token takes besides its bytes: graph, threads meeting, sampling; small models */
#define THREADS_THAT_ADD 8 /* beyond these, more threads hardly read memory faster */

/* ---- what earlier runs have shown ---- */

static bool cache_folder(char folder[PATH_MAX])
{
	const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length;

	if (base && *base == '/')
		length = snprintf(folder, PATH_MAX, "%s/weir", base);
	else if (home && *home == '/')
		length = snprintf(folder, PATH_MAX, "%s/.cache/weir", home);
	else
		return false;
	return length > 0 && length < PATH_MAX - 32;
}

static bool cache_path(char path[PATH_MAX])
{
	if (!cache_folder(path))
		return false;
	strcat(path, "/compute.json");
	return true;
}

/* Creates the folder and its parent. */
static void make_folder(void)
{
	char folder[PATH_MAX], *slash;

	if (!cache_folder(folder))
		return;
	slash = strrchr(folder, '/');
	*slash = '\0';
	mkdir(folder, 0700);
	*slash = '/';
	mkdir(folder, 0700);
}

/* The same file, unchanged, with the same threads, has the same key. */
static bool entry_key(const char *model, uint32_t threads, char key[20])
{
	char path[PATH_MAX], whole[PATH_MAX + 96];
	struct stat status;
	int length;

	if (!realpath(model, path) || stat(path, &status) < 0)
		return false;
	length = snprintf(whole, sizeof whole, "%s|%lld|%lld.%09ld|%u", path, (long long)status.st_size,
			  (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, threads);
	snprintf(key, 20, "%016llx", (unsigned long long)XXH3_64bits(whole, (size_t)length));
	return true;
}

/* The cache as it is, or an empty one; NULL when out of memory. */
static json_t *load_cache(void)
{
	char path[PATH_MAX];
	struct stat status;
	json_t *cache = NULL;

	if (cache_path(path) && stat(path, &status) == 0 && S_ISREG(status.st_mode))
		cache = json_load_file(path, 0, NULL);
	if (json_is_object(cache))
		return cache;
	json_decref(cache);
	return json_object();
}

static double cached_compute(const char *model, uint32_t threads)
{
	json_t *cache = load_cache();
	char key[20];
	double rate = 0;

	if (entry_key(model, threads, key))
		rate = json_number_value(json_object_get(cache, key));
	json_decref(cache);
	return rate > 0 && isfinite(rate) ? rate : NAN;
}

/* Members stand in the order in which they were set: the first is the oldest. */
static void drop_oldest(json_t *cache)
{
	while (json_object_size(cache) > ENTRIES_MAX)
		json_object_del(cache, json_object_iter_key(json_object_iter(cache)));
}

/* A run beside a busy neighbour says little about the machine: a slower one counts for a quarter. */
static double merged(double known, double seen)
{
	return known > seen ? (3 * known + seen) / 4 : seen;
}

void rates_remember_compute(const char *model, uint32_t threads, double tokens_per_second)
{
	char key[20], path[PATH_MAX], *text;
	json_t *cache;

	if (!entry_key(model, threads, key) || !cache_path(path))
		return;
	make_folder();
	cache = load_cache();
	tokens_per_second = merged(json_number_value(json_object_get(cache, key)), tokens_per_second);
	json_object_del(cache, key);
	json_object_set_new(cache, key, output_json_real(tokens_per_second));
	drop_oldest(cache);
	text = output_json_text(cache);
	if (text)
		output_write_file(path, text, strlen(text), NULL);
	free(text);
	json_decref(cache);
}

/* ---- estimate ---- */

static uint32_t processors(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 1)
		return 1;
	return (uint32_t)CPU_COUNT(&set);
}

/* Bytes per second that one thread reads from a buffer larger than its own caches. */
static double memory_rate(void)
{
	size_t words = SAMPLE_BYTES / sizeof(uint64_t);
	uint64_t *buffer = malloc(SAMPLE_BYTES), began, now;
	uint64_t bytes = 0;
	volatile uint64_t result;

	if (!buffer)
		return NAN;
	memset(buffer, 1, SAMPLE_BYTES);
	began = now = weir_clock_ns();
	while (now - began < SAMPLE_NS) {
		uint64_t sum = 0;

		for (size_t i = 0; i < words; i++)
			sum += buffer[i];
		result = sum;
		bytes += SAMPLE_BYTES;
		now = weir_clock_ns();
	}
	(void)result;
	free(buffer);
	return (double)bytes * 1e9 / (double)(now - began);
}

double rates_compute(const char *model, uint32_t threads, uint64_t touched_bytes)
{
	double rate = cached_compute(model, threads);
	uint32_t used = threads ? threads : processors();

	if (isfinite(rate) || !touched_bytes)
		return rate;
	rate = memory_rate() * (used < THREADS_THAT_ADD ? used : THREADS_THAT_ADD);
	return 1 / ((double)touched_bytes / rate + TOKEN_SECONDS_LEAST);
}

/* ---- the drive ---- */

/* As many reads at a time as asked for and as there is room for; 0 when there is none for one. */
static uint32_t affordable_depth(const rates_reading *reading, uint32_t piece)
{
	uint32_t depth = reading->queue_depth ? reading->queue_depth : QUEUE_DEPTH_DEFAULT;

	while (depth && weir_disk_rate_memory_bytes(reading->method, depth, piece) > reading->room_bytes)
		depth /= 2;
	return depth;
}

double rates_measure_device(const rates_reading *reading, double seconds)
{
	uint32_t piece = reading->piece_bytes < UINT32_MAX ? (uint32_t)reading->piece_bytes : 0;
	uint32_t depth = affordable_depth(reading, piece);
	double rate = NAN;

	if (!depth || weir_disk_rate(reading->path, reading->method, depth, piece, seconds, &rate, NULL) < 0)
		return NAN;
	return rate > 0 ? rate : NAN;
}

/* How unlike a measured setting is to the wanted one; 1 when it is the same. */
static double unlike(uint64_t a, uint64_t b)
{
	return a > b ? (double)a / (double)b : (double)b / (double)a;
}

/* Of what `weir disk` measured, the rate at the setting most like the one that the model is read with. */
static double nearest_point(const weir_disk *disk, const rates_reading *reading)
{
	uint64_t piece = reading->piece_bytes ? reading->piece_bytes : PIECE_BYTES_DEFAULT;
	uint64_t depth = reading->queue_depth ? reading->queue_depth : QUEUE_DEPTH_DEFAULT;
	double rate = disk->bytes_per_second, least = 0;

	for (uint32_t i = 0; i < disk->points_count && i < WEIR_DISK_POINTS_MAX; i++) {
		const weir_disk_point *point = &disk->points[i];
		double distance;

		if (!point->queue_depth || !point->piece_bytes)
			continue;
		if (strcmp(point->method, strcmp(reading->method, "auto") ? reading->method : disk->method))
			continue;
		distance = unlike(point->queue_depth, depth) * unlike(point->piece_bytes, piece);
		if (least > 0 && distance >= least)
			continue;
		least = distance;
		rate = point->bytes_per_second;
	}
	return rate > 0 ? rate : NAN;
}

double rates_device(const rates_reading *reading, bool measure)
{
	weir_disk disk;

	if (weir_disk_cached(reading->path, &disk) == 0)
		return nearest_point(&disk, reading);
	return measure ? rates_measure_device(reading, SHORT_SECONDS) : NAN;
}
