/*
 * limits.h - how much memory this process may really use.
 *
 *   usable = the least of   each cgroup limit above the process (v1 and v2), less what others there hold for good
 *                           MemAvailable, and what this process holds already
 *                           RLIMIT_AS and RLIMIT_DATA, less address space that is taken and holds nothing
 *   auto   = usable less a margin: one sixteenth of it, at least 64 MiB (half of it when it is tiny), at most 2 GiB
 *
 * What others hold for good is anonymous memory, shared memory and unreclaimable kernel memory; page cache is not, since the
 * kernel gives it up first.  What this process holds counts as usable: a budget covers the whole process.
 *
 * The margin is for what nobody can promise: page tables, sockets, the kernel's own share of a cgroup, other processes.
 *
 * Any thread.  The parsing functions take text, and weir_limits_read_under takes the folder that stands for "/", so that
 * every layout of cgroups can be a test.
 */
#ifndef WEIR_OS_LIMITS_H
#define WEIR_OS_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/size.h"
#include "weir/error.h"

#define WEIR_LIMITS_NONE UINT64_MAX
#define WEIR_LIMITS_PATH_BYTES 1024

typedef enum weir_limits_source {
	WEIR_LIMITS_CGROUP,
	WEIR_LIMITS_AVAILABLE,
	WEIR_LIMITS_ADDRESS_SPACE,
	WEIR_LIMITS_DATA
} weir_limits_source;

/* Each limit is in bytes of this process, WEIR_LIMITS_NONE when there is none. */
typedef struct weir_limits {
	uint64_t usable_bytes;
	uint64_t margin_bytes;
	uint64_t auto_bytes; /* usable - margin */
	weir_limits_source source; /* which one usable_bytes is */
	uint64_t cgroup_bytes;
	uint64_t available_bytes;
	uint64_t address_space_bytes;
	uint64_t data_bytes;
	char cgroup_path[WEIR_LIMITS_PATH_BYTES]; /* the folder of the tightest cgroup; "" for none */
} weir_limits;

/* Reads everything.  What is not there limits nothing; never fails. */
void weir_limits_read(weir_limits *limits);
void weir_limits_read_under(const char *root, weir_limits *limits);

const char *weir_limits_source_name(weir_limits_source source); /* "cgroup", "available memory", ... */

/* What a size comes to here: always at least 1. */
uint64_t weir_limits_resolve(const weir_limits *limits, const weir_size *size);

/* usable → margin, as described above. */
uint64_t weir_limits_margin(uint64_t usable_bytes);

/* ---- text ---- */

typedef enum weir_cgroup_version { WEIR_CGROUP_V1 = 1, WEIR_CGROUP_V2 = 2 } weir_cgroup_version;

/* Where a hierarchy that counts memory is mounted: `root` is the folder of the hierarchy that `point` shows. */
typedef struct weir_cgroup_mount {
	char point[WEIR_LIMITS_PATH_BYTES];
	char root[WEIR_LIMITS_PATH_BYTES];
} weir_cgroup_mount;

/* From /proc/self/cgroup: the process's path in the memory hierarchy.  False when it is in none. */
bool weir_cgroup_parse_path(const char *text, weir_cgroup_version version, char path[WEIR_LIMITS_PATH_BYTES]);

/* From /proc/self/mountinfo: the mount through which the most of `path`'s ancestors can be seen.  False when there is none. */
bool weir_cgroup_parse_mount(const char *text, weir_cgroup_version version, const char *path, weir_cgroup_mount *mount);

/* The folder of `path` as seen through `mount`; the mount point itself when the path lies outside of it. */
bool weir_cgroup_folder(const weir_cgroup_mount *mount, const char *path, char folder[WEIR_LIMITS_PATH_BYTES]);

/* A limit file: a number, or "max".  WEIR_LIMITS_NONE for no limit (v1 writes a number near 2^63) and for anything else. */
uint64_t weir_cgroup_parse_limit(const char *text);

/* From memory.stat: bytes that the kernel cannot reclaim. */
uint64_t weir_cgroup_parse_held(const char *text, weir_cgroup_version version);

/* From /proc/meminfo: MemAvailable, or WEIR_LIMITS_NONE. */
uint64_t weir_meminfo_parse_available(const char *text);

#endif
