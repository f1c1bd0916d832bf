/*
 * prompt.c - see prompt.h.
 */
#include "prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

#define PROMPT_BYTES_MAX ((size_t)64 << 20)
#define FIRST_BYTES ((size_t)4096)

int prompt_check(const prompt_source *source, weir_error *error)
{
	if (!!source->text + !!source->path + !!source->tokens > 1)
		return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
				 "only one of --prompt, --file and --prompt-tokens can be given");
	return 0;
}

/* Room for more; false with errno when there is none. */
static bool grow(char **text, size_t *capacity)
{
	size_t wanted = *capacity ? *capacity * 2 : FIRST_BYTES;
	char *grown = NULL;

	if (wanted <= 2 * PROMPT_BYTES_MAX)
		grown = realloc(*text, wanted + 1);
	if (!grown)
		return false;
	*text = grown;
	*capacity = wanted;
	return true;
}

/* Reads to the end.  EINTR is given to the caller: the only signal that is caught means "stop". */
static ssize_t read_all(int fd, char **text)
{
	size_t length = 0, capacity = 0;
	ssize_t got = 1;

	errno = 0;
	while (got > 0) {
		if (length == capacity && !grow(text, &capacity)) {
			errno = EFBIG;
			return -1;
		}
		got = read(fd, *text + length, capacity - length);
		if (got > 0)
			length += (size_t)got;
		if (length > PROMPT_BYTES_MAX) {
			errno = EFBIG;
			return -1;
		}
	}
	(*text)[length] = '\0';
	return got < 0 ? -1 : (ssize_t)length;
}

static int fail_read(const char *path, weir_error *error)
{
	if (errno == EINTR)
		return weir_fail(error, WEIR_EINTERRUPTED, NULL, WEIR_ERROR_NO_OFFSET, 0, "interrupted");
	if (errno == EFBIG)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "a prompt is at most 64 MiB long");
	return weir_fail(error, weir_code_of_errno(errno), path, WEIR_ERROR_NO_OFFSET, errno, "the prompt cannot be read");
}

static int check_text(const char *path, const char *text, size_t bytes, weir_error *error)
{
	if (!bytes)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "the prompt is empty");
	if (memchr(text, '\0', bytes))
		return weir_fail(error, WEIR_EINVAL, path, (uint64_t)strlen(text), 0, "the prompt holds a NUL byte");
	return 0;
}

static int read_descriptor(int fd, const char *path, char **text, weir_error *error)
{
	ssize_t length = read_all(fd, text);

	if (length < 0)
		return fail_read(path, error);
	return check_text(path, *text, (size_t)length, error);
}

static int read_file(const char *path, char **text, weir_error *error)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	int result;

	if (fd < 0)
		return fail_read(path, error);
	result = read_descriptor(fd, path, text, error);
	close(fd);
	return result;
}

int prompt_read(const cli_common *common, const prompt_source *source, char **text, weir_error *error)
{
	int result;

	*text = NULL;
	if (source->text) {
		*text = strdup(source->text);
		result = *text ? check_text(NULL, *text, strlen(*text), error)
			       : weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the prompt");
	} else if (source->path && strcmp(source->path, "-")) {
		result = read_file(source->path, text, error);
	} else {
		if (isatty(STDIN_FILENO))
			cli_note(common, "type the prompt, then Ctrl-D");
		result = read_descriptor(STDIN_FILENO, "standard input", text, error);
	}
	if (result < 0) {
		free(*text);
		*text = NULL;
	}
	return result;
}

/* One id and the place after it and its comma; NULL when there is none. */
static const char *read_id(const char *at, int32_t *id)
{
	char *end;
	long value;

	at += strspn(at, " ");
	if (*at < '0' || *at > '9')
		return NULL;
	errno = 0;
	value = strtol(at, &end, 10);
	if (errno || value > INT32_MAX)
		return NULL;
	*id = (int32_t)value;
	end += strspn(end, " ");
	if (*end == ',')
		return end[1 + strspn(end + 1, " ")] ? end + 1 : NULL;
	return *end ? NULL : end;
}

int prompt_parse_tokens(const char *text, int32_t **tokens, uint32_t *count, weir_error *error)
{
	size_t most = 1;
	const char *at = text;

	for (const char *comma = text; (comma = strchr(comma, ',')); comma++)
		most++;
	*count = 0;
	*tokens = most <= INT32_MAX ? malloc(most * sizeof **tokens) : NULL;
	if (!*tokens)
		return weir_fail(error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the prompt");
	do
		at = read_id(at, &(*tokens)[(*count)++]);
	while (at && *at);
	if (at)
		return 0;
	free(*tokens);
	*tokens = NULL;
	return weir_fail(error, WEIR_EINVAL, NULL, WEIR_ERROR_NO_OFFSET, 0,
			 "--prompt-tokens: number %u is no token id (ids are separated by commas)", (unsigned)*count);
}
