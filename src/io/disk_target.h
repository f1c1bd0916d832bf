/*
 * disk_target.h - the file that a measurement reads: the user's own, or a temporary one in the user's directory.
 *
 * Internal to the disk measurement.  A temporary file is unlinked as soon as it is created and read through /proc/self/fd, so
 * that it never outlives the process.
 */
#ifndef WEIR_IO_DISK_TARGET_H
#define WEIR_IO_DISK_TARGET_H

#include <stdint.h>

#include "weir/disk.h"
#include "weir/error.h"

#define WEIR_DISK_TARGET_PATH_BYTES 64

typedef struct weir_disk_target {
	const char *name; /* what the user gave, for messages; not owned */
	const char *path; /* to open and read: name, or `own_path` */
	char own_path[WEIR_DISK_TARGET_PATH_BYTES];
	int fd; /* of the temporary file, or -1 */
	uint64_t bytes;
} weir_disk_target;

/* The target must not move after it was opened: path may point into it. */
int weir_disk_target_open(const char *path, const weir_disk_options *options, weir_disk_target *target, weir_error *error);
int weir_disk_target_open_file(const char *path, weir_disk_target *target, weir_error *error);
void weir_disk_target_close(weir_disk_target *target);

/* Asks the kernel to forget the file's clean cached pages. */
void weir_disk_target_drop_cache(const weir_disk_target *target);

#endif
