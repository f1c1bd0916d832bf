/*
 * output.c - JSON text and output files; see output.h.
 */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/text.h"

#define REAL_DIGITS 12
#define ESCAPE_BYTES 6 /* "\u009f" */
#define REPLACEMENT "\xEF\xBF\xBD"

/* ---- JSON ---- */

/* jansson escapes C0; DEL is one raw byte and C1 controls are C2 80 .. C2 9F, both found in strings only. */
static int raw_control(const char *text, unsigned *point)
{
	const unsigned char *at = (const unsigned char *)text;

	if (at[0] == 0x7F) {
		*point = at[0];
		return 1;
	}
	if (at[0] == 0xC2 && at[1] >= 0x80 && at[1] <= 0x9F) {
		*point = at[1];
		return 2;
	}
	return 0;
}

static size_t count_controls(const char *text)
{
	size_t count = 0;
	unsigned point;

	for (; *text; text++)
		count += raw_control(text, &point) > 0;
	return count;
}

char *output_json_text(const json_t *object)
{
	char *raw = json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(REAL_DIGITS));
	char *text = NULL, *out;
	unsigned point;
	int length;

	if (raw)
		out = text = malloc(strlen(raw) + count_controls(raw) * ESCAPE_BYTES + 2);
	for (const char *at = raw; text && *at; at += length ? length : 1) {
		length = raw_control(at, &point);
		if (length)
			out += sprintf(out, "\\u%04x", point);
		else
			*out++ = *at;
	}
	if (text)
		memcpy(out, "\n", 2);
	free(raw);
	return text;
}

int output_json_print(const cli_common *common, json_t *object)
{
	char *text = object ? output_json_text(object) : NULL;
	weir_error error;

	json_decref(object);
	if (!text) {
		weir_fail(&error, WEIR_ENOMEM, NULL, WEIR_ERROR_NO_OFFSET, 0, "no memory for the JSON output");
		return cli_fail(common, &error);
	}
	fputs(text, stdout);
	free(text);
	return cli_flush(common);
}

json_t *output_json_string(const char *text, size_t bytes)
{
	char *valid = malloc(bytes * strlen(REPLACEMENT) + 1), *out = valid;
	uint32_t point;
	json_t *string;
	size_t length;

	if (!valid)
		return NULL;
	for (size_t at = 0; at < bytes; at += length ? length : 1) {
		length = weir_utf8_decode(text + at, bytes - at, &point);
		memcpy(out, length ? text + at : REPLACEMENT, length ? length : strlen(REPLACEMENT));
		out += length ? length : strlen(REPLACEMENT);
	}
	string = json_stringn(valid, (size_t)(out - valid));
	free(valid);
	return string;
}

json_t *output_json_real(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

json_t *output_json_count(uint64_t value)
{
	return value <= LLONG_MAX ? json_integer((json_int_t)value) : json_null();
}

void output_put_count(json_t *object, const char *name, uint64_t value)
{
	json_object_set_new(object, name, output_json_count(value));
}

void output_put_real(json_t *object, const char *name, double value)
{
	json_object_set_new(object, name, output_json_real(value));
}

void output_put_text(json_t *object, const char *name, const char *text)
{
	json_object_set_new(object, name, text && *text ? output_json_string(text, strlen(text)) : json_null());
}

/* ---- files ---- */

static bool is_special(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

static int write_all(int fd, const char *text, size_t bytes)
{
	ssize_t written;

	while (bytes) {
		written = write(fd, text, bytes);
		if (written < 0 && errno != EINTR)
			return -1;
		if (written > 0) {
			text += written;
			bytes -= (size_t)written;
		}
	}
	return 0;
}

static int fail_write(const char *path, int code, weir_error *error)
{
	if (errno == ENOSPC || errno == EDQUOT)
		code = WEIR_ENOSPACE;
	return weir_fail(error, code, path, WEIR_ERROR_NO_OFFSET, errno, "write failed");
}

static int write_special(const char *path, const char *text, size_t bytes, weir_error *error)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	int result = 0;

	if (fd < 0)
		return fail_write(path, WEIR_EACCESS, error);
	if (write_all(fd, text, bytes) < 0)
		result = fail_write(path, WEIR_EIO, error);
	close(fd);
	return result;
}

/* A link stays a link: what it points at is replaced. */
static bool real_target(const char *path, char target[PATH_MAX])
{
	if (realpath(path, target))
		return true;
	return snprintf(target, PATH_MAX, "%s", path) < PATH_MAX;
}

int output_write_file(const char *path, const char *text, size_t bytes, weir_error *error)
{
	char target[PATH_MAX], beside[PATH_MAX + 32];
	int fd, result = 0;

	if (is_special(path))
		return write_special(path, text, bytes, error);
	if (!real_target(path, target))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "path is too long");
	snprintf(beside, sizeof beside, "%s.%ld.part", target, (long)getpid());
	fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0)
		return fail_write(path, WEIR_EACCESS, error);
	if (write_all(fd, text, bytes) < 0 || fsync(fd) < 0)
		result = fail_write(path, WEIR_EIO, error);
	if (close(fd) < 0 && !result)
		result = fail_write(path, WEIR_EIO, error);
	if (!result && rename(beside, target) < 0)
		result = fail_write(path, WEIR_EIO, error);
	if (result)
		unlink(beside);
	return result;
}

int output_check_path(const char *path, weir_error *error)
{
	char folder[PATH_MAX];
	const char *slash;

	if (is_special(path)) {
		struct stat status;

		if (stat(path, &status) == 0 && S_ISDIR(status.st_mode))
			return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "is a directory");
		return 0;
	}
	if (!*path || !real_target(path, folder))
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "is no usable path");
	slash = strrchr(folder, '/');
	folder[slash ? slash - folder + (slash == folder) : 0] = '\0';
	if (access(slash ? folder : ".", W_OK | X_OK) < 0)
		return weir_fail(error, errno == ENOENT || errno == ENOTDIR ? WEIR_ENOTFOUND : WEIR_EACCESS, path,
				 WEIR_ERROR_NO_OFFSET, errno, "cannot be written");
	return 0;
}
