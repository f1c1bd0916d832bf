/*
 * proctext.c - see proctext.h.
 */
#include "os/proctext.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_BYTES ((size_t)4096)
#define MOST_BYTES ((size_t)8 << 20)

/* Reads until the end or until the buffer is full; the length, or -1. */
static ssize_t fill(int fd, char *text, size_t length, size_t capacity)
{
	ssize_t got = 1;

	while (length < capacity && got > 0) {
		do
			got = read(fd, text + length, capacity - length);
		while (got < 0 && errno == EINTR);
		if (got > 0)
			length += (size_t)got;
	}
	return got < 0 ? -1 : (ssize_t)length;
}

/* Kernel text has no size to ask for: doubles the buffer until the end is in it. */
static char *read_growing(int fd)
{
	size_t capacity = FIRST_BYTES;
	ssize_t length = 0;
	char *text = NULL, *grown;

	for (;;) {
		grown = realloc(text, capacity + 1);
		if (!grown)
			break;
		text = grown;
		length = fill(fd, text, (size_t)length, capacity);
		if (length < 0)
			break;
		text[length] = '\0';
		if ((size_t)length < capacity || capacity >= MOST_BYTES)
			return text;
		capacity *= 2;
	}
	free(text);
	return NULL;
}

char *weir_proctext_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int saved;
	char *text;

	if (fd < 0)
		return NULL;
	text = read_growing(fd);
	saved = errno;
	close(fd);
	errno = saved;
	return text;
}

const char *weir_proctext_next(const char *line)
{
	line = strchr(line, '\n');
	return line && line[1] ? line + 1 : NULL;
}

bool weir_proctext_number(const char *text, const char *key, uint64_t *value)
{
	size_t length = strlen(key);
	char *end;

	for (const char *line = text; line && *line; line = weir_proctext_next(line)) {
		const char *at = line + length;

		if (strncmp(line, key, length) || (*at != ' ' && *at != '\t'))
			continue;
		at += strspn(at, " \t");
		if (*at < '0' || *at > '9')
			return false;
		errno = 0;
		*value = strtoull(at, &end, 10);
		return errno == 0;
	}
	return false;
}
