/* doctor_reading.c - whether io_uring may be used and may keep buffers locked in memory: by trying both.  See doctor.h. */
#include <errno.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cli.h"
#include "doctor.h"
#include "os/proctext.h"

#define BUFFER_BYTES ((size_t)32 << 20) /* queue depth 32 with reads of 1 MiB */

static bool is_filtered(void)
{
	char *status = weir_proctext_read("/proc/self/status");
	uint64_t mode = 0;
	bool filtered = status && weir_proctext_number(status, "Seccomp:", &mode) && mode == 2;

	free(status);
	return filtered;
}

/* Why io_uring_setup was refused. */
static void explain_refusal(doctor_finding *finding, int sys_errno)
{
	char text[16];

	if (machine_file("/proc/sys/kernel/io_uring_disabled", text, sizeof text) && text[0] != '0') {
		doctor_say(finding, "switched off: kernel.io_uring_disabled is %s; reads go through a pool of threads", text);
		doctor_advise(finding, "sysctl kernel.io_uring_disabled=0, as root");
	} else if (sys_errno == ENOSYS && !is_filtered()) {
		doctor_say(finding, "this kernel has none; reads go through a pool of threads");
	} else if (is_filtered()) {
		doctor_say(finding, "refused (%s) under a seccomp filter; reads go through a pool of threads",
			   strerror(sys_errno));
		doctor_advise(finding, "allow io_uring_setup, io_uring_enter and io_uring_register in the container's profile");
	} else {
		doctor_say(finding, "refused: %s; reads go through a pool of threads", strerror(sys_errno));
	}
}

/* Registers a buffer as large as weir's; 0 or an errno. */
static int try_buffer(int ring)
{
	struct iovec buffer = {.iov_len = BUFFER_BYTES};
	int sys_errno = 0;

	buffer.iov_base = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer.iov_base == MAP_FAILED)
		return errno;
	if (syscall(__NR_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1) < 0)
		sys_errno = errno;
	munmap(buffer.iov_base, BUFFER_BYTES);
	return sys_errno;
}

static void check_locking(doctor *d, int ring)
{
	doctor_finding *finding = doctor_add(d, "registered buffers", DOCTOR_OK);
	char size[CLI_BYTES_TEXT], limit_text[CLI_BYTES_TEXT];
	struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
	int sys_errno = try_buffer(ring);

	getrlimit(RLIMIT_MEMLOCK, &limit);
	snprintf(limit_text, sizeof limit_text, "unlimited");
	if (limit.rlim_cur != RLIM_INFINITY)
		cli_bytes(limit.rlim_cur, limit_text);
	if (!sys_errno) {
		doctor_say(finding, "%s could be registered with io_uring (RLIMIT_MEMLOCK is %s)",
			   cli_bytes(BUFFER_BYTES, size), limit_text);
		return;
	}
	finding->verdict = DOCTOR_WARNING;
	doctor_say(finding, "%s could not be registered with io_uring: %s (RLIMIT_MEMLOCK is %s)",
		   cli_bytes(BUFFER_BYTES, size), strerror(sys_errno), limit_text);
	doctor_advise(finding,
		      "raise 'memlock' in /etc/security/limits.conf, or LimitMEMLOCK of the service; each read costs a "
		      "little more without");
}

void doctor_check_reading(doctor *d)
{
	struct io_uring_params params = {0};
	doctor_finding *finding = doctor_add(d, "io_uring", DOCTOR_OK);
	int ring = (int)syscall(__NR_io_uring_setup, 4, &params);

	if (ring < 0) {
		finding->verdict = DOCTOR_WARNING;
		explain_refusal(finding, errno);
		return;
	}
	doctor_say(finding, "allowed");
	check_locking(d, ring);
	close(ring);
}
