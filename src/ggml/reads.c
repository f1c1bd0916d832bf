/*
 * reads.c - reads of one session in flight.  The completion's tag is the address of the record.
 */
#include "ggml/reads.h"
#include "base/fail.h"
#include "os/memory.h"

#define COMPLETIONS_AT_ONCE 64

static uint64_t alignment_of(const weir_session *session)
{
	uint32_t offset = weir_io_offset_alignment(session->io), memory = weir_io_memory_alignment(session->io);

	return offset > memory ? offset : memory;
}

uint64_t weir_reads_room(const weir_session *session, uint64_t bytes)
{
	uint64_t alignment = alignment_of(session);

	return (bytes + 2 * alignment - 1) / alignment * alignment;
}

int weir_reads_start(weir_session *session, weir_read *read, uint32_t file, uint64_t offset, uint64_t bytes, void *buffer,
		     void **data, weir_error *error)
{
	uint64_t alignment = alignment_of(session);
	uint64_t start = offset / alignment * alignment, shift = offset - start;
	weir_io_request request = {.file = session->files[file].io,
				   .offset = start,
				   .bytes = (shift + bytes + alignment - 1) / alignment * alignment,
				   .least = shift + bytes,
				   .buffer = buffer,
				   .tag = (uint64_t)(uintptr_t)read};
	int taken;

	*read = (weir_read){.file = file, .offset = offset};
	*data = (char *)buffer + shift;
	while ((taken = weir_io_submit(session->io, &request, 1)) == 0) {
		weir_io_wait(session->io, UINT64_MAX);
		weir_reads_poll(session);
	}
	if (taken < 0)
		return weir_fail(error, taken, session->files[file].path, offset, 0, "read cannot be started");
	return 0;
}

void weir_reads_poll(weir_session *session)
{
	weir_io_completion completions[COMPLETIONS_AT_ONCE];
	int count;

	do {
		count = weir_io_reap(session->io, completions, COMPLETIONS_AT_ONCE);
		for (int i = 0; i < count; i++) {
			weir_read *read = (weir_read *)(uintptr_t)completions[i].tag;

			read->code = completions[i].code;
			read->sys_errno = completions[i].sys_errno;
			if (read->code)
				read->offset = completions[i].offset;
			read->done = true;
		}
	} while (count == COMPLETIONS_AT_ONCE);
}

int weir_reads_wait(weir_session *session, const weir_read *read, uint64_t *stall_ns, weir_error *error)
{
	uint64_t began;

	if (!read->done)
		weir_reads_poll(session);
	if (!read->done) {
		began = weir_clock_ns();
		while (!read->done) {
			weir_io_wait(session->io, UINT64_MAX);
			weir_reads_poll(session);
		}
		*stall_ns += weir_clock_ns() - began;
	}
	if (read->code)
		return weir_fail(error, read->code, session->files[read->file].path, read->offset, read->sys_errno,
				 "reading weights failed");
	return 0;
}

void weir_reads_drain(weir_session *session)
{
	while (weir_io_pending(session->io)) {
		weir_io_wait(session->io, UINT64_MAX);
		weir_reads_poll(session);
	}
}
