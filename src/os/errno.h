/* errno.h - which WEIR_E code an errno stands for.  Thread-safe. */
#ifndef WEIR_OS_ERRNO_H
#define WEIR_OS_ERRNO_H

/* 0 for 0; what has no code of its own is WEIR_EIO. */
int weir_errno_code(int sys_errno);

#endif
