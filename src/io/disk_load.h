/*
 * disk_load.h - one setting of a drive (method, depth, read size) under load: kept full for a while, or given a burst.
 *
 * Internal to the disk measurement.  Reads land in memory of the kind that weights land in: huge pages where there are any,
 * registered with the method, and as much of it, in turns, as the caller gives.  The memory is the caller's and may serve one
 * load after the other; it must outlive the load. Used by one thread.
 */
#ifndef WEIR_IO_DISK_LOAD_H
#define WEIR_IO_DISK_LOAD_H

#include "io/disk_target.h"
#include "io/io.h"

#define WEIR_DISK_ALIGNMENT_MAX 4096u /* a slot of the memory is a piece and at most this */

typedef struct weir_disk_memory {
	unsigned char *base;
	uint64_t bytes;
} weir_disk_memory;

/* Memory for loads of so many bytes in flight, filled with pages. */
int weir_disk_memory_map(uint64_t bytes, weir_disk_memory *memory, weir_error *error);
void weir_disk_memory_unmap(weir_disk_memory *memory);

/* What a load of this setting takes of the memory at most. */
uint64_t weir_disk_memory_wanted(uint32_t queue_depth, uint32_t piece_bytes);

typedef struct weir_disk_load {
	const weir_disk_target *target;
	weir_io *io;
	uint32_t file;
	uint32_t queue_depth;
	uint32_t piece_bytes;
	uint64_t unit_bytes; /* offsets are multiples of it */
	uint64_t slot_bytes;
	unsigned char *memory; /* slot_bytes × slots_count */
	uint32_t *slots; /* ring: free slots from slots_first up to slots_end, the one used longest ago first */
	uint32_t slots_count, slots_first, slots_end;
	weir_io_completion *completions; /* queue_depth */
	uint64_t completed_count;
	uint64_t completed_bytes;
} weir_disk_load;

/* Opens the setting that the point names; its rate is not looked at.  WEIR_EINVAL when the memory is too small. */
int weir_disk_load_open(weir_disk_load *load, const weir_disk_target *target, const weir_disk_point *point,
			const weir_disk_memory *memory, weir_error *error);
void weir_disk_load_close(weir_disk_load *load);

/* Keeps the queue full for about `seconds`, counted after it was filled and emptied once; then lets it run dry. */
int weir_disk_load_run(weir_disk_load *load, double seconds, double *bytes_per_second, weir_error *error);

/* So many pieces at once on an idle drive, at most queue_depth: the seconds until the last one is there, and the bytes. */
int weir_disk_load_burst(weir_disk_load *load, uint32_t pieces, double *seconds, uint64_t *bytes, weir_error *error);

#endif
