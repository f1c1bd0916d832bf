/*
 * error.h - result codes and the optional error record.
 *
 * Every function of the library that can fail returns an int: 0, or one of the negative codes below.  Functions that take a
 * `weir_error *` fill it on failure and leave it alone on success; passing NULL is allowed everywhere.  The library never
 * prints, never exits and never installs a signal handler.
 */
#ifndef WEIR_ERROR_H
#define WEIR_ERROR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One line per code: name, value, text.  Values are part of the ABI and never change. */
#define WEIR_ERROR_TABLE(X)                                                                                                    \
	X(WEIR_EINVAL, -1, "invalid argument")                                                                                 \
	X(WEIR_ENOMEM, -2, "out of memory")                                                                                    \
	X(WEIR_EIO, -3, "input/output error")                                                                                  \
	X(WEIR_EFORMAT, -4, "file is not valid")                                                                               \
	X(WEIR_EUNSUPPORTED, -5, "file is valid but not supported")                                                            \
	X(WEIR_EBUDGET, -6, "budget cannot hold")                                                                              \
	X(WEIR_EBUSY, -7, "no slot can be freed at the moment")                                                                \
	X(WEIR_ENOTFOUND, -8, "not found")                                                                                     \
	X(WEIR_EACCESS, -9, "permission denied")                                                                               \
	X(WEIR_ENOTREGULAR, -10, "not a regular file")                                                                         \
	X(WEIR_ECHANGED, -11, "file changed while it was open")                                                                \
	X(WEIR_ENOSPACE, -12, "no space left on the device")                                                                   \
	X(WEIR_EENGINE, -13, "engine error")                                                                                   \
	X(WEIR_EINTERRUPTED, -14, "interrupted")                                                                               \
	X(WEIR_ECHECKSUM, -15, "checksum does not match")                                                                      \
	X(WEIR_ELIMIT, -16, "a limit of the process or the system was reached")

#define WEIR_ERROR_ENUM(name, value, text) name = (value),
enum { WEIR_OK = 0, WEIR_ERROR_TABLE(WEIR_ERROR_ENUM) };
#undef WEIR_ERROR_ENUM

#define WEIR_ERROR_FILE_BYTES 512
#define WEIR_ERROR_MESSAGE_BYTES 512
#define WEIR_ERROR_NO_OFFSET UINT64_MAX

/* What failed and where.  `file` and `message` are NUL-terminated, cut if too long, and hold the file's own bytes: escape
 * control characters before showing them (weir_error_format does). */
typedef struct weir_error {
	int code; /* one of the codes above */
	int sys_errno; /* errno behind it, or 0 */
	uint64_t offset; /* byte offset in `file`, or WEIR_ERROR_NO_OFFSET */
	char file[WEIR_ERROR_FILE_BYTES];
	char message[WEIR_ERROR_MESSAGE_BYTES]; /* the rule that was broken, in words */
} weir_error;

/* Name ("WEIR_EIO") and text ("input/output error") of a code; never NULL.  Thread-safe. */
const char *weir_error_name(int code);
const char *weir_error_text(int code);

/* Writes one line without a newline, "FILE: offset N: MESSAGE (ERRNO TEXT)", control characters escaped, always
 * NUL-terminated, cut at `capacity`.  Returns the length written.  Thread-safe. */
int weir_error_format(const weir_error *error, char *line, int capacity);

#ifdef __cplusplus
}
#endif
#endif
