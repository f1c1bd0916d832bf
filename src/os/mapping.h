/*
 * mapping.h - read-only mappings of extents, for the library's own use; the public side is in weir/checkpoint.h.
 */
#ifndef WEIR_OS_MAPPING_H
#define WEIR_OS_MAPPING_H

#include "os/file.h"
#include "weir/checkpoint.h"

/* Maps [offset, offset + bytes) of an open file, or reads a copy of it; the file may be closed afterwards. */
int weir_mapping_of_file(const weir_file *file, uint64_t offset, uint64_t bytes, bool copy, weir_mapping **mapping,
			 weir_error *error);

#endif
