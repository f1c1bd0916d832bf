/*
 * reads.h - reads of one session in flight: each is a record that says when it is done (internal to src/ggml).
 *
 * The record must stay where it is until it is done.  Used by the thread that computes.
 */
#ifndef WEIR_GGML_READS_H
#define WEIR_GGML_READS_H

#include "ggml/session.h"

typedef struct weir_read {
	bool done;
	int code; /* 0 or a WEIR_E code, once done */
	int sys_errno;
	uint32_t file; /* in the session */
	uint64_t offset;
} weir_read;

/* Starts reading the aligned superset of an extent into `buffer`; *data becomes the extent's first byte.  The buffer needs
 * weir_reads_room(bytes) and the drive's memory alignment. */
int weir_reads_start(weir_session *session, weir_read *read, uint32_t file, uint64_t offset, uint64_t bytes, void *buffer,
		     void **data, weir_error *error);

/* Room that the aligned superset of any extent of so many bytes takes. */
uint64_t weir_reads_room(const weir_session *session, uint64_t bytes);

/* Collects what has arrived. */
void weir_reads_poll(weir_session *session);

/* Sleeps until the read is done; adds the time to *stall_ns.  The read's own result. */
int weir_reads_wait(weir_session *session, const weir_read *read, uint64_t *stall_ns, weir_error *error);

/* Sleeps until nothing of the session is in flight. */
void weir_reads_drain(weir_session *session);

#endif
