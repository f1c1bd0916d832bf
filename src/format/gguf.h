/*
 * gguf.h - the GGUF reader's stages.
 *
 *   open:     magic, version, counts, metadata          ──► header.metadata, header.alignment
 *   tensors:  tensor infos, checked against the file    ──► checkpoint
 *
 * Layout of the file, all numbers little-endian:
 *   "GGUF" u32 version, u64 tensors, u64 entries, entries..., infos..., padding to `alignment`, data
 *   entry: string key, u32 type, value          string: u64 length, bytes          array: u32 type, u64 count, elements
 *   info:  string name, u32 rank, u64 dimension × rank, u32 type, u64 offset from the start of data
 *
 * One thread; a header owns its file and metadata until it is closed.
 */
#ifndef WEIR_FORMAT_GGUF_H
#define WEIR_FORMAT_GGUF_H

#include "format/catalog.h"
#include "format/metadata.h"
#include "format/reader.h"

typedef struct weir_gguf_header {
	weir_file file;
	weir_reader reader;
	uint32_t version;
	uint64_t tensors_count, entries_count; /* as the file claims */
	uint64_t alignment;
	weir_metadata_set metadata;
} weir_gguf_header;

/* What the file says of the set that it belongs to. */
typedef struct weir_gguf_split {
	uint64_t count; /* shards; 0 or 1: a file of its own */
	uint64_t number, tensors_count;
} weir_gguf_split;

int weir_gguf_open_header(weir_gguf_header *header, const char *path, const weir_checkpoint_options *options,
			  weir_error *error);
int weir_gguf_read_metadata(weir_gguf_header *header, const weir_checkpoint_options *options);
int weir_gguf_read_tensors(weir_gguf_header *header, weir_checkpoint *checkpoint);
void weir_gguf_close_header(weir_gguf_header *header); /* also one that failed to open */

/* Reads length and bytes of a key or name into text[0..WEIR_NAME_BYTES_MAX + 1). */
int weir_gguf_read_name(weir_reader *reader, char *text, size_t *text_bytes, const char *what);

int weir_gguf_read_split(const weir_gguf_header *header, weir_gguf_split *split);

/* Reads a file, or the set that it is a shard of. */
int weir_gguf_open(weir_checkpoint *checkpoint, const char *path, weir_error *error);

#endif
