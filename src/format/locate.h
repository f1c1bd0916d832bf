/*
 * locate.h - from what the user names to the file to open first, and its format.
 */
#ifndef WEIR_FORMAT_LOCATE_H
#define WEIR_FORMAT_LOCATE_H

#include "weir/error.h"

typedef enum weir_kind { WEIR_KIND_GGUF, WEIR_KIND_SAFETENSORS, WEIR_KIND_INDEX } weir_kind;

/* Gives the path (malloc, the caller frees) of the file that `path` stands for: itself, or the one checkpoint in the directory
 * `path`.  Reads the first bytes of a file whose name does not tell its kind. */
int weir_locate(const char *path, char **found, weir_kind *kind, weir_error *error);

/* "DIRECTORY/NAME" (malloc) where DIRECTORY is that of `path`; NULL without memory. */
char *weir_path_beside(const char *path, const char *name);

#endif
