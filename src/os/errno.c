/*
 * errno.c - the one table from the system's error numbers to the library's codes.
 */
#include "os/errno.h"

#include <errno.h>

#include "weir/error.h"

int weir_errno_code(int sys_errno)
{
	switch (sys_errno) {
	case 0:
		return WEIR_OK;
	case ENOMEM:
		return WEIR_ENOMEM;
	case ENOENT:
	case ENOTDIR:
		return WEIR_ENOTFOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return WEIR_EACCESS;
	case EISDIR:
	case ENXIO:
	case ENODEV:
		return WEIR_ENOTREGULAR;
	case ENOSPC:
	case EDQUOT:
		return WEIR_ENOSPACE;
	case EMFILE:
	case ENFILE:
	case ENAMETOOLONG:
	case ELOOP:
	case EFBIG:
		return WEIR_ELIMIT;
	case EOPNOTSUPP:
	case ENOSYS:
		return WEIR_EUNSUPPORTED;
	default:
		return WEIR_EIO;
	}
}
