/*
 * fault.h - the wrapper that makes any I/O method misbehave on purpose, for tests.
 *
 * A description is a list of faults, separated by commas; reads are counted from 1 as they are started, resumed ones too:
 *
 *   eio:N          the Nth read fails with EIO              eio-every:N    every Nth read does
 *   enomem:N       the Nth read fails with ENOMEM           eintr:N        every Nth read is interrupted (EINTR)
 *   eagain:N       every Nth read gives EAGAIN              einval:N       the Nth read fails with EINVAL
 *   short:N        every Nth read gives about half, a multiple of 4096 where that is possible
 *   short-odd:N    every Nth read gives some odd number of bytes, so that resuming has to keep the alignment
 *   latency-us:N   a read's completion is held back until N microseconds after its start
 *   reorder        completions are held back and given in random order
 *   seed:N         of the random choices (default 1)
 *
 * A short read's buffer is overwritten past the bytes that it admits to, so that a reader that fails to resume is found out.
 */
#ifndef WEIR_IO_FAULT_H
#define WEIR_IO_FAULT_H

#include "io/io_types.h"

extern const weir_method weir_io_faulty; /* its open is weir_io_faulty_wrap */

/* Wraps an open method; the wrapper's close closes it.  A description that is not understood gives WEIR_EINVAL, and the
 * method stays the caller's. */
int weir_io_faulty_wrap(const weir_method *inner, void *inner_state, uint32_t queue_depth, const char *description,
			void **state, weir_error *error);

#endif
