/*
 * file.h - opening regular files for reading, safely.
 *
 * Whoever opens owns the descriptor until weir_file_close.  A file may be read by several threads at once (pread).  Refused:
 * anything but a regular file, before it is opened, so that no FIFO is waited for and no device is touched.
 */
#ifndef WEIR_OS_FILE_H
#define WEIR_OS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/error.h"

/* What makes it the same, unchanged file later. */
typedef struct weir_file_identity {
	uint64_t bytes;
	uint64_t device, inode;
	int64_t mtime_s, mtime_ns;
} weir_file_identity;

typedef struct weir_file {
	int descriptor; /* -1 when closed */
	const char *path; /* the caller's; outlives the file; for messages */
	weir_file_identity identity;
} weir_file;

/* Opens with O_NONBLOCK and O_CLOEXEC.  WEIR_ENOTREGULAR, or the code of errno (weir_code_of_errno). */
int weir_file_open(const char *path, weir_file *file, weir_error *error);
void weir_file_close(weir_file *file); /* also one that failed to open */

/* Reads exactly `bytes` at `offset`: short reads are resumed, EINTR retried.  WEIR_EIO when the file ends before. */
int weir_file_read(const weir_file *file, uint64_t offset, void *buffer, size_t bytes, weir_error *error);

bool weir_file_same(const weir_file_identity *a, const weir_file_identity *b);

/* 0 when `path` names that file still, unchanged; WEIR_ECHANGED, or the code of errno. */
int weir_file_check(const char *path, const weir_file_identity *identity, weir_error *error);

#endif
