/*
 * locate.c - see locate.h.
 *
 * In a directory a safetensors index counts before its shards, and a split GGUF set is known by its first shard.  When two
 * checkpoints are found the user has to say which: nothing is guessed.
 */
#include "format/locate.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fail.h"
#include "os/file.h"

static bool ends_with(const char *text, const char *end)
{
	size_t text_bytes = strlen(text);
	size_t end_bytes = strlen(end);

	return text_bytes >= end_bytes && !strcmp(text + text_bytes - end_bytes, end);
}

static int no_memory(const char *path, weir_error *error)
{
	return weir_fail(error, WEIR_ENOMEM, path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
}

static char *join(const char *directory, size_t directory_bytes, const char *name)
{
	size_t name_bytes = strlen(name) + 1;
	char *path = malloc(directory_bytes + name_bytes);

	if (!path)
		return NULL;
	memcpy(path, directory, directory_bytes);
	memcpy(path + directory_bytes, name, name_bytes);
	return path;
}

char *weir_path_beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');

	return join(path, slash ? (size_t)(slash - path) + 1 : 0, name);
}

static int kind_of_content(const char *path, weir_kind *kind, weir_error *error)
{
	weir_file file;
	char start[9] = {0};
	int code = weir_file_open(path, &file, error);

	if (!code)
		code = weir_file_read(&file, 0, start,
				      file.identity.bytes < sizeof start ? (size_t)file.identity.bytes : sizeof start, error);
	weir_file_close(&file);
	if (code)
		return code;
	if (!memcmp(start, "GGUF", 4))
		*kind = WEIR_KIND_GGUF;
	else if (start[8] == '{')
		*kind = WEIR_KIND_SAFETENSORS;
	else if (!memcmp(start, "WEIRPACK", 8))
		return weir_fail(error, WEIR_EUNSUPPORTED, path, 0, 0,
				 "this is a pack, which holds weights only: name the model that it was made from");
	else
		return weir_fail(error, WEIR_EFORMAT, path, 0, 0,
				 "neither GGUF (which begins with \"GGUF\") nor safetensors (whose ninth byte is '{')");
	return WEIR_OK;
}

static int kind_of_file(const char *path, weir_kind *kind, weir_error *error)
{
	if (ends_with(path, ".gguf"))
		*kind = WEIR_KIND_GGUF;
	else if (ends_with(path, ".safetensors"))
		*kind = WEIR_KIND_SAFETENSORS;
	else if (ends_with(path, ".json"))
		*kind = WEIR_KIND_INDEX;
	else
		return kind_of_content(path, kind, error);
	return WEIR_OK;
}

/* "...-NNNNN-of-NNNNN.EXTENSION" with a first number other than 00001: a shard that its first stands for. */
static bool is_later_shard(const char *name, const char *extension)
{
	const char pattern[] = "-ddddd-of-ddddd";
	size_t length = sizeof pattern - 1;
	size_t bytes = strlen(name) - strlen(extension);
	const char *at = name + bytes - length;

	if (bytes < length)
		return false;
	for (size_t i = 0; i < length; i++) {
		if (pattern[i] == 'd' ? !isdigit((unsigned char)at[i]) : at[i] != pattern[i])
			return false;
	}
	return strncmp(at, "-00001-", 7) != 0;
}

/* What a directory holds: counts[kind], and a name of that kind. */
typedef struct holdings {
	unsigned counts[WEIR_KIND_INDEX + 1];
	char *names[WEIR_KIND_INDEX + 1];
} holdings;

static int note(holdings *held, const char *name)
{
	weir_kind kind;

	if (ends_with(name, ".safetensors.index.json"))
		kind = WEIR_KIND_INDEX;
	else if (ends_with(name, ".safetensors"))
		kind = WEIR_KIND_SAFETENSORS;
	else if (ends_with(name, ".gguf") && !is_later_shard(name, ".gguf"))
		kind = WEIR_KIND_GGUF;
	else
		return WEIR_OK;
	if (held->counts[kind]++)
		return WEIR_OK;
	held->names[kind] = strdup(name);
	return held->names[kind] ? WEIR_OK : WEIR_ENOMEM;
}

static int list(const char *path, holdings *held, weir_error *error)
{
	DIR *directory = opendir(path);
	const struct dirent *entry;
	int code = WEIR_OK;

	if (!directory) {
		int sys_errno = errno;

		return weir_fail(error, weir_code_of_errno(sys_errno), path, WEIR_ERROR_NO_OFFSET, sys_errno, "cannot list");
	}
	while (!code && (entry = readdir(directory)))
		code = note(held, entry->d_name);
	closedir(directory);
	return code ? no_memory(path, error) : WEIR_OK;
}

static int choose(const char *path, const holdings *held, weir_kind *kind, weir_error *error)
{
	unsigned safetensors =
		held->counts[WEIR_KIND_INDEX] ? held->counts[WEIR_KIND_INDEX] : held->counts[WEIR_KIND_SAFETENSORS];
	unsigned total = safetensors + held->counts[WEIR_KIND_GGUF];

	if (!total)
		return weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0,
				 "the directory holds no checkpoint (*.gguf, *.safetensors or *.safetensors.index.json)");
	if (total > 1)
		return weir_fail(error, WEIR_EUNSUPPORTED, path, WEIR_ERROR_NO_OFFSET, 0,
				 "the directory holds %u checkpoints: name the file", total);
	if (held->counts[WEIR_KIND_GGUF])
		*kind = WEIR_KIND_GGUF;
	else
		*kind = held->counts[WEIR_KIND_INDEX] ? WEIR_KIND_INDEX : WEIR_KIND_SAFETENSORS;
	return WEIR_OK;
}

static int locate_in(const char *path, char **found, weir_kind *kind, weir_error *error)
{
	holdings held = {0};
	size_t length = strlen(path);
	char *directory = join(path, length, length && path[length - 1] == '/' ? "" : "/");
	int code = directory ? list(path, &held, error) : no_memory(path, error);

	if (!code)
		code = choose(path, &held, kind, error);
	if (!code) {
		*found = join(directory, strlen(directory), held.names[*kind]);
		code = *found ? WEIR_OK : no_memory(path, error);
	}
	for (unsigned i = 0; i <= WEIR_KIND_INDEX; i++)
		free(held.names[i]);
	free(directory);
	return code;
}

int weir_locate(const char *path, char **found, weir_kind *kind, weir_error *error)
{
	struct stat status;
	int code;

	*found = NULL;
	if (stat(path, &status)) {
		int sys_errno = errno;

		return weir_fail(error, weir_code_of_errno(sys_errno), path, WEIR_ERROR_NO_OFFSET, sys_errno, "cannot open");
	}
	if (S_ISDIR(status.st_mode))
		return locate_in(path, found, kind, error);
	code = kind_of_file(path, kind, error);
	if (code)
		return code;
	*found = strdup(path);
	return *found ? WEIR_OK : no_memory(path, error);
}
