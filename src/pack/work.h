/*
 * work.h - threads that go through a list of byte ranges: copying them, or reading and comparing them.
 *
 *   item   a range of bytes: where it lies in the output, where it comes from, the number of its checksum.
 *   job    items that follow each other, about 4 MiB of output, beginning and ending at multiples of the alignment.
 *
 *   worker 1   [read job 1][write job 1][read job 4] ...
 *   worker 2   [read job 2 ][write job 2 ][read job 5] ...      reads and writes overlap; past the page cache where possible
 *   caller     sleeps, calls `progress`, and `note_done` when all items up to one are finished
 *
 * Owned by the caller of weir_work_run, which starts the threads and ends them.  Items, files and the output must not change
 * meanwhile.  Callbacks come from the caller's thread only.
 */
#ifndef WEIR_PACK_WORK_H
#define WEIR_PACK_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "os/direct.h"
#include "os/file.h"
#include "weir/pack.h"

typedef enum weir_work_mode {
	WEIR_WORK_COPY, /* sources → output; checksums are filled in */
	WEIR_WORK_CHECK_OUTPUT, /* output against checksums; what lies between items must be zero */
	WEIR_WORK_CHECK_SOURCES, /* sources against checksums */
	WEIR_WORK_READ_SOURCES /* only that they can be read */
} weir_work_mode;

typedef struct weir_work_item {
	uint64_t offset; /* in the output */
	uint64_t source_offset;
	uint64_t bytes; /* > 0 */
	uint32_t source; /* index into sources */
	bool skip; /* CHECK_SOURCES, READ_SOURCES: not there any more */
} weir_work_item;

typedef struct weir_work_file {
	weir_file file;
	weir_direct direct;
} weir_work_file;

typedef struct weir_work {
	weir_work_mode mode;
	const weir_work_item *items; /* by offset; checksum i is that of item i */
	uint64_t items_count;
	uint64_t end; /* of the output: what follows the last item up to here is zero */
	uint64_t first; /* item to begin with */
	uint64_t *sums; /* NULL: none are wanted (COPY) */
	weir_work_file *sources;
	uint32_t sources_count;
	weir_work_file output;
	uint32_t alignment; /* of jobs in the output */
	uint32_t threads;
	const char *stage; /* for progress */
	weir_pack_progress progress;
	void *user;
	uint64_t note_every_bytes; /* COPY: how often note_done is called */
	int (*note_done)(uint64_t items_done, void *note_user, weir_error *error);
	void *note_user;
	uint64_t failed_item; /* on return: the first item that failed (CHECK modes) */
} weir_work;

#define WEIR_WORK_THREADS 6u

/* Opens a file of the list for direct reads. */
void weir_work_enable_direct(weir_work_file *file, uint32_t alignment_max);

/* 0, or the code of the first item that failed.  WEIR_EINTERRUPTED when `progress` asked for it.  `output` in errors is the
 * output's path. */
int weir_work_run(weir_work *work, weir_error *error);

#endif
