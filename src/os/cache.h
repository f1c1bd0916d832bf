/*
 * cache.h - where what is worth remembering between runs lies: ${XDG_CACHE_HOME:-~/.cache}/weir.
 *
 * Threads: no state, but the environment is read.
 */
#ifndef WEIR_OS_CACHE_H
#define WEIR_OS_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* The path of "weir/NAME" below the user's cache folder; false when there is none, or no room. */
bool weir_cache_path(char *path, size_t capacity, const char *name);

/* Creates the folders on the way to a file, for the user alone.  What fails shows when the file is written. */
void weir_cache_make_folders(const char *file);

#endif
