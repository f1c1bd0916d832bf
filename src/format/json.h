/*
 * json.h - JSON from files, read strictly and within bounds.
 *
 * Refused: duplicate keys, text that is not valid UTF-8, anything after the value, more values than a header can need (which
 * bounds the memory that a small text can claim).  The caller owns the result (json_decref).  One thread per value.
 *
 * When memory runs out while it reads, jansson (2.14) may say that the text is not valid, or drop characters of a long text:
 * the readers' own rules (lengths against shapes, the map against its shards) then refuse what no longer fits together.
 */
#ifndef WEIR_FORMAT_JSON_H
#define WEIR_FORMAT_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "weir/error.h"

#define WEIR_JSON_VALUES_MAX (8u << 20)

/* Parses text[0..bytes), which begins at `offset` of file `path`, as one object.  WEIR_EFORMAT, WEIR_EUNSUPPORTED (too many
 * values), WEIR_ENOMEM. */
int weir_json_parse(const char *text, size_t bytes, const char *path, uint64_t offset, json_t **object, weir_error *error);

#endif
