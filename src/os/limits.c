/*
 * limits.c - reads every limit on this process's memory and takes the least; see limits.h.
 */
#include "os/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "os/process.h"
#include "os/proctext.h"

#define MARGIN_PART 16
#define MARGIN_LEAST (UINT64_C(64) << 20)
#define MARGIN_MOST (UINT64_C(2) << 30)
#define KIB 1024
#define SHARE_WHOLE_PPM 1000000

__extension__ typedef unsigned __int128 wide;

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* a - b, or 0. */
static uint64_t left_of(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static char *read_under(const char *root, const char *folder, const char *name)
{
	char path[2 * WEIR_LIMITS_PATH_BYTES];
	int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);

	return length > 0 && (size_t)length < sizeof path ? weir_proctext_read(path) : NULL;
}

/* ---- cgroups ---- */

static uint64_t read_limit(const char *root, const char *folder, const char *name)
{
	char *text = read_under(root, folder, name);
	uint64_t limit = text ? weir_cgroup_parse_limit(text) : WEIR_LIMITS_NONE;

	free(text);
	return limit;
}

/* What may be held in one cgroup.  v2's memory.high counts: beyond it the kernel slows a process down until it gives back. */
static uint64_t folder_limit(const char *root, const char *folder, weir_cgroup_version version)
{
	if (version == WEIR_CGROUP_V1)
		return read_limit(root, folder, "memory.limit_in_bytes");
	return smaller(read_limit(root, folder, "memory.max"), read_limit(root, folder, "memory.high"));
}

static uint64_t folder_held(const char *root, const char *folder, weir_cgroup_version version)
{
	char *text = read_under(root, folder, "memory.stat");
	uint64_t held = text ? weir_cgroup_parse_held(text, version) : 0;

	free(text);
	return held;
}

/* Takes one cgroup into account. */
static void visit_folder(const char *root, const char *folder, weir_cgroup_version version, uint64_t own_bytes,
			 weir_limits *limits)
{
	uint64_t limit = folder_limit(root, folder, version);
	uint64_t others;

	if (limit == WEIR_LIMITS_NONE)
		return;
	others = left_of(folder_held(root, folder, version), own_bytes);
	limit = left_of(limit, others);
	if (limit >= limits->cgroup_bytes)
		return;
	limits->cgroup_bytes = limit;
	snprintf(limits->cgroup_path, sizeof limits->cgroup_path, "%s", folder);
}

/* From the process's own cgroup up to the mount point. */
static void visit_ancestors(const char *root, const weir_cgroup_mount *mount, char *folder, weir_cgroup_version version,
			    uint64_t own_bytes, weir_limits *limits)
{
	size_t point_length = strlen(mount->point);
	char *slash;

	for (;;) {
		visit_folder(root, folder, version, own_bytes, limits);
		slash = strrchr(folder, '/');
		if (!slash || strlen(folder) <= point_length)
			return;
		*slash = '\0';
	}
}

static void read_cgroups(const char *root, weir_cgroup_version version, uint64_t own_bytes, weir_limits *limits)
{
	char *paths = read_under(root, "/proc/self", "cgroup"), *mounts = read_under(root, "/proc/self", "mountinfo");
	char path[WEIR_LIMITS_PATH_BYTES], folder[WEIR_LIMITS_PATH_BYTES];
	weir_cgroup_mount mount;

	if (paths && mounts && weir_cgroup_parse_path(paths, version, path) &&
	    weir_cgroup_parse_mount(mounts, version, path, &mount) && weir_cgroup_folder(&mount, path, folder))
		visit_ancestors(root, &mount, folder, version, own_bytes, limits);
	free(paths);
	free(mounts);
}

/* ---- the rest ---- */

uint64_t weir_meminfo_parse_available(const char *text)
{
	uint64_t kib, bytes;

	if (!weir_proctext_number(text, "MemAvailable:", &kib) || __builtin_mul_overflow(kib, (uint64_t)KIB, &bytes))
		return WEIR_LIMITS_NONE;
	return bytes;
}

static uint64_t read_available(const char *root, uint64_t own_bytes)
{
	char *text = read_under(root, "/proc", "meminfo");
	uint64_t available = text ? weir_meminfo_parse_available(text) : WEIR_LIMITS_NONE;

	free(text);
	return available == WEIR_LIMITS_NONE ? available : plus(available, own_bytes);
}

/* A limit on address space, less what of it is taken without holding anything. */
static uint64_t read_rlimit(__rlimit_resource_t resource, uint64_t taken_bytes, uint64_t resident_bytes)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return WEIR_LIMITS_NONE;
	return left_of(limit.rlim_cur, left_of(taken_bytes, resident_bytes));
}

static void read_process(const char *root, weir_process_memory *memory)
{
	char *status = read_under(root, "/proc/self", "status");

	weir_process_parse(status ? status : "", memory);
	free(status);
}

static void take_least(weir_limits *limits)
{
	const uint64_t each[] = {
		[WEIR_LIMITS_CGROUP] = limits->cgroup_bytes,
		[WEIR_LIMITS_AVAILABLE] = limits->available_bytes,
		[WEIR_LIMITS_ADDRESS_SPACE] = limits->address_space_bytes,
		[WEIR_LIMITS_DATA] = limits->data_bytes,
	};

	limits->source = WEIR_LIMITS_AVAILABLE;
	for (unsigned i = 0; i < sizeof each / sizeof *each; i++)
		if (each[i] < each[limits->source])
			limits->source = (weir_limits_source)i;
	limits->usable_bytes = each[limits->source];
	limits->margin_bytes = weir_limits_margin(limits->usable_bytes);
	limits->auto_bytes = limits->usable_bytes - limits->margin_bytes;
}

void weir_limits_read_under(const char *root, weir_limits *limits)
{
	weir_process_memory memory;
	uint64_t own_bytes;

	memset(limits, 0, sizeof *limits);
	read_process(root, &memory);
	own_bytes = plus(memory.anon_bytes, memory.shmem_bytes);
	limits->cgroup_bytes = WEIR_LIMITS_NONE;
	read_cgroups(root, WEIR_CGROUP_V1, own_bytes, limits);
	read_cgroups(root, WEIR_CGROUP_V2, own_bytes, limits);
	limits->available_bytes = read_available(root, own_bytes);
	limits->address_space_bytes = read_rlimit(RLIMIT_AS, memory.virtual_bytes, memory.rss_bytes);
	limits->data_bytes = read_rlimit(RLIMIT_DATA, memory.data_bytes, memory.anon_bytes);
	take_least(limits);
}

void weir_limits_read(weir_limits *limits)
{
	weir_limits_read_under("", limits);
}

const char *weir_limits_source_name(weir_limits_source source)
{
	switch (source) {
	case WEIR_LIMITS_CGROUP:
		return "cgroup";
	case WEIR_LIMITS_AVAILABLE:
		return "available memory";
	case WEIR_LIMITS_ADDRESS_SPACE:
		return "RLIMIT_AS";
	case WEIR_LIMITS_DATA:
		return "RLIMIT_DATA";
	}
	return "unknown";
}

uint64_t weir_limits_margin(uint64_t usable_bytes)
{
	uint64_t margin = usable_bytes / MARGIN_PART;

	margin = margin < MARGIN_LEAST ? MARGIN_LEAST : smaller(margin, MARGIN_MOST);
	return smaller(margin, usable_bytes / 2);
}

uint64_t weir_limits_resolve(const weir_limits *limits, const weir_size *size)
{
	uint64_t bytes = size->bytes;

	if (size->kind == WEIR_SIZE_AUTO)
		bytes = limits->auto_bytes;
	else if (size->kind == WEIR_SIZE_SHARE)
		bytes = (uint64_t)((wide)limits->usable_bytes * size->share_ppm / SHARE_WHOLE_PPM);
	return bytes ? bytes : 1;
}
