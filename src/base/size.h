/*
 * size.h - sizes as people write them: "4G", "3500M", "1.5GiB", "60%", "auto".
 *
 * K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are powers of 1000; a bare number or "B" is bytes.
 * Suffixes may be written in either case.  Everything else is refused: signs, exponents, spaces, "nan", zero, what overflows
 * 64 bits.  Pure functions, thread-safe; nothing is looked up here: what "60%" and "auto" come to is os/limits.h's matter.
 */
#ifndef WEIR_BASE_SIZE_H
#define WEIR_BASE_SIZE_H

#include <stdint.h>

#include "weir/error.h"

typedef enum weir_size_kind { WEIR_SIZE_AUTO, WEIR_SIZE_BYTES, WEIR_SIZE_SHARE } weir_size_kind;

typedef struct weir_size {
	weir_size_kind kind;
	uint64_t bytes; /* WEIR_SIZE_BYTES: never 0 */
	uint32_t share_ppm; /* WEIR_SIZE_SHARE: millionths, 1..1000000 */
} weir_size;

/* Reads the whole of `text`.  0, or WEIR_EINVAL with a message that quotes it. */
int weir_size_parse(const char *text, weir_size *size, weir_error *error);

#endif
