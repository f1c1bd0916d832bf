/*
 * safetensors.h - the safetensors reader.
 *
 *   u64 n (little-endian) | n bytes of JSON, padded with spaces | data
 *   JSON: {"__metadata__": {key: text}, NAME: {"dtype": "BF16", "shape": [R, C], "data_offsets": [from, to]}}
 *
 * One thread.
 */
#ifndef WEIR_FORMAT_SAFETENSORS_H
#define WEIR_FORMAT_SAFETENSORS_H

#include "format/catalog.h"

/* Reads one file as a checkpoint of its own. */
int weir_safetensors_open(weir_checkpoint *checkpoint, const char *path, weir_error *error);

/* Reads an index and the shards that it names. */
int weir_safetensors_open_index(weir_checkpoint *checkpoint, const char *path, weir_error *error);

/* Adds one file to a checkpoint as its next shard. */
int weir_safetensors_add_shard(weir_checkpoint *checkpoint, const char *path, weir_error *error);

/* Reads bytes [from, to) of a file (malloc, the caller frees) with a NUL after them. */
int weir_safetensors_read_text(const weir_file *file, uint64_t from, uint64_t to, char **text, weir_error *error);

/* The limit on a header's length that `checkpoint` was opened with. */
uint64_t weir_safetensors_header_max(const weir_checkpoint *checkpoint);

#endif
