/*
 * mapping.c - which file lies behind an address: libllama hands over a pointer into its mapping, weir reads the file itself.
 *
 * Linux only: /proc/self/maps.  A file name there may hold any byte but a newline, which the kernel writes as \012.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ggml/mapping.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

static void unescape(char *path)
{
	char *out = path;

	for (const char *in = path; *in; in++) {
		if (in[0] == '\\' && is_octal(in[1]) && is_octal(in[2]) && is_octal(in[3])) {
			*out++ = (char)((in[1] - '0') * 64 + (in[2] - '0') * 8 + (in[3] - '0'));
			in += 3;
		} else {
			*out++ = *in;
		}
	}
	*out = '\0';
}

static bool parse_line(char *line, weir_file *file)
{
	uint64_t start, end, offset, inode;
	int path_at = 0;

	line[strcspn(line, "\n")] = '\0';
	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64 " %n", &start, &end, &offset, &inode,
		   &path_at) < 4)
		return false;
	if (!inode || !path_at || line[path_at] != '/')
		return false;
	file->map_start = (uintptr_t)start;
	file->map_end = (uintptr_t)end;
	file->map_offset = offset;
	file->path = line + path_at;
	return true;
}

static int find_mapping(uintptr_t address, weir_file *file)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char *line = NULL;
	size_t capacity = 0;
	int result = WEIR_ENOTFOUND;

	if (!maps)
		return WEIR_EIO;
	while (result == WEIR_ENOTFOUND && getline(&line, &capacity, maps) > 0) {
		if (!parse_line(line, file) || address < file->map_start || address >= file->map_end)
			continue;
		file->path = strdup(file->path);
		result = file->path ? 0 : WEIR_ENOMEM;
		if (file->path)
			unescape(file->path);
	}
	free(line);
	fclose(maps);
	return result;
}

int weir_mapping_add(weir_session *session, void *base, size_t size)
{
	uintptr_t address = (uintptr_t)base;
	weir_file file = {0}, *files;
	int result;

	(void)size;
	for (uint32_t i = 0; i < session->files_count; i++)
		if (address >= session->files[i].map_start && address < session->files[i].map_end)
			return 0;
	if (session->files_count == WEIR_FILES_MAX)
		return WEIR_ELIMIT;
	result = find_mapping(address, &file);
	if (result)
		return result;
	files = realloc(session->files, (session->files_count + 1) * sizeof *files);
	if (!files) {
		free(file.path);
		return WEIR_ENOMEM;
	}
	session->files = files;
	session->files[session->files_count++] = file;
	return 0;
}

void weir_mapping_drop(void *base, size_t size)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)base & ~(page - 1), end = ((uintptr_t)base + size + page - 1) & ~(page - 1);

	madvise((void *)start, end - start, MADV_DONTNEED);
}
