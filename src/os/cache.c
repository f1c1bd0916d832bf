/*
 * cache.c - see cache.h.  Relative paths in the environment are to be ignored: XDG Base Directory Specification 0.8.
 */
#include "os/cache.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool weir_cache_path(char *path, size_t capacity, const char *name)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int length = -1;

	if (cache && cache[0] == '/')
		length = snprintf(path, capacity, "%s/weir/%s", cache, name);
	else if (home && home[0] == '/')
		length = snprintf(path, capacity, "%s/.cache/weir/%s", home, name);
	return length > 0 && (size_t)length < capacity;
}

void weir_cache_make_folders(const char *file)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s", file);
	for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
}
