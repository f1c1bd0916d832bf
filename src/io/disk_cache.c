/*
 * disk_cache.c - measurements that are remembered between runs: see disk.h for where and under which key.
 *
 *   {"version": 2, "drives": {"254:0 ef53 Samsung SSD 990": {"method": "uring", "queue_depth": 16, ...}}}
 *
 * The file is read as untrusted input: an entry with a missing or senseless field counts as absent, and a file that is no such
 * JSON is replaced by the next result.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fail.h"
#include "io/disk_choice.h"
#include "os/cache.h"
#include "os/file.h"
#include "weir/disk.h"

#define CACHE_NAME "disk.json"
#define CACHE_VERSION 2
#define CACHE_BYTES_MAX (1u << 20)
#define MODEL_BYTES 64
#define KEY_BYTES 160
#define DEPTH_MAX 1024
#define PIECE_BYTES_MAX (1 << 30)

/* Printable ASCII only, without blanks at the end. */
static void clean_model(char *model)
{
	size_t length = strlen(model), i;

	while (length && (unsigned char)model[length - 1] <= ' ')
		model[--length] = '\0';
	for (i = 0; i < length; i++) {
		if (model[i] < ' ' || model[i] > '~')
			model[i] = '?';
	}
}

/* A partition's model is its drive's.  Empty where the system shows none. */
static void drive_model(dev_t device, char model[MODEL_BYTES])
{
	static const char *const PLACES[] = {"device/model", "../device/model"};
	char path[128];
	size_t i, length = 0;

	for (i = 0; i < sizeof PLACES / sizeof PLACES[0] && !length; i++) {
		FILE *file;

		snprintf(path, sizeof path, "/sys/dev/block/%u:%u/%s", major(device), minor(device), PLACES[i]);
		file = fopen(path, "re");
		if (!file)
			continue;
		length = fread(model, 1, MODEL_BYTES - 1, file);
		fclose(file);
	}
	model[length] = '\0';
	clean_model(model);
}

static int drive_key(const char *path, char key[KEY_BYTES])
{
	struct stat attributes;
	struct statfs system;
	char model[MODEL_BYTES];

	if (stat(path, &attributes) != 0 || statfs(path, &system) != 0)
		return weir_code_of_errno(errno);
	drive_model(attributes.st_dev, model);
	snprintf(key, KEY_BYTES, "%u:%u %lx%s%s", major(attributes.st_dev), minor(attributes.st_dev),
		 (unsigned long)system.f_type, model[0] ? " " : "", model);
	return 0;
}

static char *read_text(const char *path, size_t *bytes)
{
	weir_file file;
	char *text = NULL;

	if (weir_file_open(path, &file, NULL) != 0)
		return NULL;
	if (file.identity.bytes <= CACHE_BYTES_MAX) {
		*bytes = (size_t)file.identity.bytes;
		text = malloc(*bytes + 1);
	}
	if (text && weir_file_read(&file, 0, text, *bytes, NULL) != 0) {
		free(text);
		text = NULL;
	}
	weir_file_close(&file);
	return text;
}

/* The cache as an object with "drives" in it; an empty one when there is none or it makes no sense.  NULL: no memory. */
static json_t *load_cache(const char *path)
{
	size_t bytes = 0;
	char *text = read_text(path, &bytes);
	json_t *cache = text ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL) : NULL;

	free(text);
	if (json_integer_value(json_object_get(cache, "version")) == CACHE_VERSION &&
	    json_is_object(json_object_get(cache, "drives")))
		return cache;
	json_decref(cache);
	return json_pack("{s:i, s:{}}", "version", CACHE_VERSION, "drives");
}

static bool take_count(const json_t *object, const char *name, json_int_t least, json_int_t most, uint32_t *value)
{
	const json_t *number = json_object_get(object, name);
	json_int_t count = json_integer_value(number);

	if (!json_is_integer(number) || count < least || count > most)
		return false;
	*value = (uint32_t)count;
	return true;
}

static bool take_real(const json_t *object, const char *name, double *value)
{
	const json_t *number = json_object_get(object, name);

	*value = json_number_value(number);
	return json_is_number(number) && isfinite(*value) && *value >= 0;
}

static bool take_method(const json_t *object, char method[WEIR_DISK_METHOD_BYTES])
{
	const char *text = json_string_value(json_object_get(object, "method"));

	if (!text || (strcmp(text, "uring") != 0 && strcmp(text, "threads") != 0))
		return false;
	memcpy(method, text, strlen(text) + 1);
	return true;
}

static bool take_setting(const json_t *object, char *method, uint32_t *queue_depth, uint32_t *piece_bytes, double *rate)
{
	return take_method(object, method) && take_count(object, "queue_depth", 1, DEPTH_MAX, queue_depth) &&
	       take_count(object, "piece_bytes", 1, PIECE_BYTES_MAX, piece_bytes) &&
	       take_real(object, "bytes_per_second", rate) && *rate > 0;
}

static bool take_points(const json_t *points, weir_disk *disk)
{
	size_t count = json_array_size(points), i;

	if (!json_is_array(points) || count > WEIR_DISK_POINTS_MAX)
		return false;
	for (i = 0; i < count; i++) {
		weir_disk_point *point = &disk->points[i];

		if (!take_setting(json_array_get(points, i), point->method, &point->queue_depth, &point->piece_bytes,
				  &point->bytes_per_second) ||
		    !take_count(json_array_get(points, i), "slices_count", 1, WEIR_DISK_SLICES_MAX, &point->slices_count))
			return false;
	}
	disk->points_count = (uint32_t)count;
	return true;
}

static bool is_power_of_two(uint32_t value)
{
	return value && !(value & (value - 1));
}

static bool take_disk(const json_t *object, weir_disk *disk)
{
	const json_t *direct = json_object_get(object, "direct"), *bytes = json_object_get(object, "file_bytes"),
		     *when = json_object_get(object, "measured_at_s");

	memset(disk, 0, sizeof *disk);
	disk->direct = json_is_true(direct);
	disk->file_bytes = (uint64_t)json_integer_value(bytes);
	disk->measured_at_s = json_integer_value(when);
	return json_is_boolean(direct) && json_integer_value(bytes) > 0 && json_is_integer(when) &&
	       take_setting(object, disk->method, &disk->queue_depth, &disk->piece_bytes, &disk->bytes_per_second) &&
	       take_count(object, "offset_alignment_bytes", 1, PIECE_BYTES_MAX, &disk->offset_alignment_bytes) &&
	       take_count(object, "memory_alignment_bytes", 1, PIECE_BYTES_MAX, &disk->memory_alignment_bytes) &&
	       is_power_of_two(disk->offset_alignment_bytes) && is_power_of_two(disk->memory_alignment_bytes) &&
	       take_real(object, "read_latency_us_p50", &disk->read_latency_us_p50) &&
	       take_real(object, "read_latency_us_p95", &disk->read_latency_us_p95) &&
	       take_real(object, "read_latency_us_p99", &disk->read_latency_us_p99) &&
	       take_real(object, "burst_latency_us", &disk->burst_latency_us) &&
	       take_points(json_object_get(object, "points"), disk);
}

static json_t *give_points(const weir_disk *disk)
{
	json_t *points = json_array();
	uint32_t i;

	for (i = 0; i < disk->points_count; i++) {
		const weir_disk_point *point = &disk->points[i];

		json_array_append_new(points,
				      json_pack("{s:s, s:I, s:I, s:f, s:I}", "method", point->method, "queue_depth",
						(json_int_t)point->queue_depth, "piece_bytes", (json_int_t)point->piece_bytes,
						"bytes_per_second", point->bytes_per_second, "slices_count",
						(json_int_t)point->slices_count));
	}
	return points;
}

static json_t *give_disk(const weir_disk *disk)
{
	return json_pack("{s:s, s:I, s:I, s:f, s:b, s:I, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:o}", "method", disk->method,
			 "queue_depth", (json_int_t)disk->queue_depth, "piece_bytes", (json_int_t)disk->piece_bytes,
			 "bytes_per_second", disk->bytes_per_second, "direct", (int)disk->direct, "offset_alignment_bytes",
			 (json_int_t)disk->offset_alignment_bytes, "memory_alignment_bytes",
			 (json_int_t)disk->memory_alignment_bytes, "read_latency_us_p50", disk->read_latency_us_p50,
			 "read_latency_us_p95", disk->read_latency_us_p95, "read_latency_us_p99", disk->read_latency_us_p99,
			 "burst_latency_us", disk->burst_latency_us, "file_bytes", (json_int_t)disk->file_bytes,
			 "measured_at_s", (json_int_t)disk->measured_at_s, "points", give_points(disk));
}

int weir_disk_cached(const char *path, weir_disk *disk)
{
	char key[KEY_BYTES], file[PATH_MAX];
	weir_disk found;
	json_t *cache;
	bool known;

	if (!path || !disk)
		return WEIR_EINVAL;
	if (drive_key(path, key) != 0 || !weir_cache_path(file, sizeof file, CACHE_NAME))
		return WEIR_ENOTFOUND;
	cache = load_cache(file);
	known = take_disk(json_object_get(json_object_get(cache, "drives"), key), &found);
	json_decref(cache);
	if (!known)
		return WEIR_ENOTFOUND;
	*disk = found;
	return 0;
}

int weir_disk_tuned(const char *path, const char *method, weir_disk_point *point)
{
	weir_disk disk;
	int code;

	if (!point)
		return WEIR_EINVAL;
	code = weir_disk_cached(path, &disk);
	if (code != 0)
		return code;
	if (method && strcmp(method, "auto") != 0 && strcmp(method, disk.method) != 0)
		return weir_disk_choice_of_method(&disk, method, point);
	*point = (weir_disk_point){
		.queue_depth = disk.queue_depth, .piece_bytes = disk.piece_bytes, .bytes_per_second = disk.bytes_per_second};
	memcpy(point->method, disk.method, sizeof point->method);
	return 0;
}

static int write_beside(const char *path, json_t *cache, weir_error *error)
{
	char beside[PATH_MAX];
	int length = snprintf(beside, sizeof beside, "%s.XXXXXX", path), fd, failed;

	if (length < 0 || (size_t)length >= sizeof beside)
		return weir_fail(error, WEIR_ELIMIT, path, WEIR_ERROR_NO_OFFSET, ENAMETOOLONG, "the path is too long");
	fd = mkostemp(beside, O_CLOEXEC);
	if (fd < 0)
		return weir_fail(error, weir_code_of_errno(errno), path, WEIR_ERROR_NO_OFFSET, errno, "cannot write");
	errno = EIO;
	failed = json_dumpfd(cache, fd, JSON_INDENT(1)) == 0 ? 0 : errno;
	if (close(fd) != 0 && !failed)
		failed = errno;
	if (!failed && rename(beside, path) != 0)
		failed = errno;
	if (!failed)
		return 0;
	unlink(beside);
	return weir_fail(error, weir_code_of_errno(failed), path, WEIR_ERROR_NO_OFFSET, failed, "cannot write");
}

int weir_disk_remember(const char *path, const weir_disk *disk, weir_error *error)
{
	char key[KEY_BYTES], file[PATH_MAX];
	json_t *cache;
	int code;

	if (!path || !disk || disk->points_count > WEIR_DISK_POINTS_MAX)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "no path or no result");
	code = drive_key(path, key);
	if (code != 0)
		return weir_fail(error, code, path, WEIR_ERROR_NO_OFFSET, errno, "cannot look at the path");
	if (!weir_cache_path(file, sizeof file, CACHE_NAME))
		return weir_fail(error, WEIR_ENOTFOUND, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "neither XDG_CACHE_HOME nor HOME says where to remember results");
	weir_cache_make_folders(file);
	cache = load_cache(file);
	if (!cache || json_object_set_new(json_object_get(cache, "drives"), key, give_disk(disk)) != 0)
		code = weir_fail(error, WEIR_ENOMEM, file, WEIR_ERROR_NO_OFFSET, 0, "no memory");
	else
		code = write_beside(file, cache, error);
	json_decref(cache);
	return code;
}
