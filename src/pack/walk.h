/*
 * walk.h - a pack as work: its units as items, its files open, its failures told by tensor and expert.
 *
 * One thread; the work borrows from pack and checkpoint, which must outlive it.
 */
#ifndef WEIR_PACK_WALK_H
#define WEIR_PACK_WALK_H

#include "pack/pack_internal.h"
#include "pack/work.h"

/* Items of all units of the pack, in order (malloc, the caller frees); items[i] belongs to checksum i.  NULL without memory. */
weir_work_item *weir_walk_items(const weir_pack *pack);

/* Items of all bytes of a checkpoint's tensors, without checksums; NULL without memory. */
weir_work_item *weir_walk_checkpoint(const weir_checkpoint *checkpoint, uint64_t *count);

/* Opens every shard into work->sources. */
int weir_walk_open_sources(weir_work *work, const weir_checkpoint *checkpoint, weir_error *error);
void weir_walk_close_sources(weir_work *work);

/* Opens the pack's file (or its partial one) as work->output, for direct reads, and writes if `writable`. */
int weir_walk_open_output(weir_work *work, const char *path, bool writable, weir_error *error);

/* Reads a finished pack back and compares everything behind its index. */
int weir_walk_check_pack(const weir_pack *pack, const weir_verify_options *options, weir_error *error);

/* Puts tensor and expert of a unit before the message of an error. */
void weir_walk_name_unit(const weir_pack *pack, uint64_t unit, weir_error *error);

#endif
