/*
 * process.h - what this process has in memory and what it faulted in, as the kernel counts it.
 *
 * Any thread.  weir_process_parse takes the text, so that it can be tested with tables.
 */
#ifndef WEIR_OS_PROCESS_H
#define WEIR_OS_PROCESS_H

#include <stdint.h>

#include "weir/error.h"

/* rss = anon + file + shmem.  A field that the kernel does not tell is 0. */
typedef struct weir_process_memory {
	uint64_t rss_bytes; /* resident now, file pages included */
	uint64_t rss_peak_bytes; /* the most that was ever resident (VmHWM) */
	uint64_t anon_bytes;
	uint64_t file_bytes;
	uint64_t shmem_bytes;
	uint64_t virtual_bytes; /* address space taken: what RLIMIT_AS counts */
	uint64_t data_bytes; /* private writable address space: what RLIMIT_DATA counts */
} weir_process_memory;

typedef struct weir_process_faults {
	uint64_t minor_count; /* pages found in memory */
	uint64_t major_count; /* pages read from a drive */
} weir_process_faults;

/* Reads the text of /proc/PID/status. */
void weir_process_parse(const char *status, weir_process_memory *memory);

/* Of this process.  0 or WEIR_EIO, WEIR_ENOTFOUND when /proc cannot be read. */
int weir_process_memory_read(weir_process_memory *memory, weir_error *error);

/* Of this process, all its threads, since it began. */
void weir_process_faults_read(weir_process_faults *faults);

#endif
