/*
 * pack_internal.h - what the files of src/pack share.
 *
 *   layout.c       which tensor lies where                     checkpoint → pack (in memory)
 *   fingerprint.c  what a checkpoint is known by
 *   work.c         threads that copy, or read and compare
 *   write.c        a pack: begin or go on, finish, put in place        aligned.c  the same for safetensors
 *   replace.c      freeing the experts' space in a checkpoint
 *   verify.c       comparing everything
 */
#ifndef WEIR_PACK_INTERNAL_H
#define WEIR_PACK_INTERNAL_H

#include "format/catalog.h"
#include "format/pack.h"
#include "weir/pack.h"

#define WEIR_PART_SUFFIX ".part"

/* The pack that `checkpoint` gets, nothing done yet: places, names, room for checksums; header.index_hash and the fingerprint
 * are filled in by the writer. */
int weir_pack_layout(const weir_checkpoint *checkpoint, const char *path, weir_pack **pack, weir_error *error);

/* Reads sizes, headers and samples of the checkpoint.  Without `moved`, experts are not touched and those numbers are 0. */
int weir_pack_read_fingerprint(const weir_checkpoint *checkpoint, bool moved, weir_pack_fingerprint *fingerprint,
			       weir_error *error);

/* Opens a shard and makes sure that it still is the file that the checkpoint was opened from. */
int weir_pack_open_shard(const weir_checkpoint *checkpoint, uint32_t shard, weir_file *file, weir_error *error);

/* write.c: the output while it is written, and putting it in place. */
typedef struct weir_part {
	char *path; /* of the output */
	char *part; /* path of the partial file beside it */
	int fd; /* open for reading and writing, page cache; locked against other writers; -1 when closed */
} weir_part;

/* Opens or creates the partial file beside `path` and locks it.  WEIR_EBUSY when another process has it. */
int weir_part_open(weir_part *part, const char *path, weir_error *error);
/* Empties the file and reserves `bytes` for it; WEIR_ENOSPACE names what is needed and what is free. */
int weir_part_reserve(weir_part *part, uint64_t bytes, weir_error *error);
int weir_part_write(const weir_part *part, uint64_t offset, const void *data, uint64_t bytes, weir_error *error);
/* Makes everything safe on the drive and gives it its name. */
int weir_part_finish(weir_part *part, weir_error *error);
void weir_part_remove(const weir_part *part);
void weir_part_close(weir_part *part); /* gives up the lock; what was written stays */

/* aligned.c: the safetensors side of weir_pack_write. */
int weir_pack_write_aligned(const weir_checkpoint *checkpoint, const char *model_path, const weir_pack_options *options,
			    weir_pack_result *result, weir_error *error);

/* replace.c: frees the experts' space of the checkpoint, marking the pack at `pack_path` first. */
int weir_pack_check_replace(const weir_checkpoint *checkpoint, weir_error *error);
int weir_pack_replace(const weir_checkpoint *checkpoint, const char *pack_path, uint64_t *freed_bytes, weir_error *error);

#endif
