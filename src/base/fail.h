/*
 * fail.h - filling a weir_error in one expression: `return weir_fail(error, WEIR_EIO, path, offset, errno, "read failed");`
 */
#ifndef WEIR_BASE_FAIL_H
#define WEIR_BASE_FAIL_H

#include "weir/error.h"

/* Fills `error` (may be NULL) and returns `code`.  `file` may be NULL; `offset` may be WEIR_ERROR_NO_OFFSET. */
__attribute__((format(printf, 6, 7))) int weir_fail(weir_error *error, int code, const char *file, uint64_t offset,
						    int sys_errno, const char *message_format, ...);

/* The code that stands for an errno of open, read, mmap and the like. */
int weir_code_of_errno(int sys_errno);

#endif
