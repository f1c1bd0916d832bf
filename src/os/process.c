/*
 * process.c - see process.h.
 */
#include "os/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/fail.h"
#include "os/proctext.h"

#define STATUS_PATH "/proc/self/status"
#define KIB 1024 /* the unit of /proc/PID/status */

static uint64_t kib_field(const char *status, const char *key)
{
	uint64_t kib, bytes;

	if (!weir_proctext_number(status, key, &kib) || __builtin_mul_overflow(kib, (uint64_t)KIB, &bytes))
		return 0;
	return bytes;
}

void weir_process_parse(const char *status, weir_process_memory *memory)
{
	memory->rss_bytes = kib_field(status, "VmRSS:");
	memory->rss_peak_bytes = kib_field(status, "VmHWM:");
	memory->anon_bytes = kib_field(status, "RssAnon:");
	memory->file_bytes = kib_field(status, "RssFile:");
	memory->shmem_bytes = kib_field(status, "RssShmem:");
	memory->virtual_bytes = kib_field(status, "VmSize:");
	memory->data_bytes = kib_field(status, "VmData:");
}

int weir_process_memory_read(weir_process_memory *memory, weir_error *error)
{
	char *status = weir_proctext_read(STATUS_PATH);

	memset(memory, 0, sizeof *memory);
	if (!status)
		return weir_fail(error, weir_code_of_errno(errno), STATUS_PATH, WEIR_ERROR_NO_OFFSET, errno, "cannot be read");
	weir_process_parse(status, memory);
	free(status);
	return 0;
}

void weir_process_faults_read(weir_process_faults *faults)
{
	struct rusage usage;

	memset(faults, 0, sizeof *faults);
	if (getrusage(RUSAGE_SELF, &usage) < 0)
		return;
	faults->minor_count = (uint64_t)usage.ru_minflt;
	faults->major_count = (uint64_t)usage.ru_majflt;
}
