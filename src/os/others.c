/* others.c - see others.h; by the ticks of /proc/stat, less this process's own time. */
#include "os/others.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "os/affinity.h"
#include "os/memory.h"

#define INTERVAL_NS UINT64_C(500000000)
#define NS_PER_SECOND UINT64_C(1000000000)

static bool is_nice(void)
{
	errno = 0;
	return getpriority(PRIO_PROCESS, 0) > 0 && errno == 0;
}

/* "cpu3 user nice system idle iowait irq softirq ...": ticks that were spent on processes. */
static uint64_t busy_ticks(const char *line, const cpu_set_t *allowed, bool with_nice)
{
	unsigned long long user, nice, system;
	unsigned cpu;

	if (sscanf(line, "cpu%u %llu %llu %llu", &cpu, &user, &nice, &system) != 4 || cpu >= CPU_SETSIZE ||
	    !CPU_ISSET(cpu, allowed))
		return 0;
	return user + system + (with_nice ? nice : 0);
}

/* The beginning of a file: the lines of the processors come first.  Nothing is allocated: tokens are being computed. */
static bool read_beginning(const char *path, char *text, size_t capacity)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t count = 1;

	if (fd < 0)
		return false;
	while (count > 0 && length < capacity - 1) {
		count = read(fd, text + length, capacity - 1 - length);
		length += count > 0 ? (size_t)count : 0;
	}
	close(fd);
	text[length] = '\0';
	return length > 0;
}

static bool read_busy(const cpu_set_t *allowed, uint64_t *busy_ns)
{
	bool with_nice = is_nice();
	uint64_t ticks = 0;
	char text[32768];

	if (!read_beginning("/proc/stat", text, sizeof text))
		return false;
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, "cpu", 3) != 0)
			break;
		ticks += busy_ticks(line, allowed, with_nice);
	}
	*busy_ns = ticks * (NS_PER_SECOND / (uint64_t)sysconf(_SC_CLK_TCK));
	return ticks != 0;
}

static uint64_t own_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * NS_PER_SECOND + (uint64_t)time.tv_nsec;
}

bool weir_others_sample(weir_others *others, double *processors)
{
	weir_others now = {.at_ns = weir_clock_ns()}, before = *others;
	uint64_t busy;
	double rest;

	if (before.at_ns && now.at_ns - before.at_ns < INTERVAL_NS)
		return false;
	*others = now;
	if (!read_busy(weir_affinity_allowed(), &now.busy_ns))
		return false;
	now.own_ns = own_ns();
	*others = now;
	if (!before.busy_ns || now.busy_ns < before.busy_ns)
		return false;
	busy = now.busy_ns - before.busy_ns;
	rest = (double)busy - (double)(now.own_ns - before.own_ns);
	*processors = rest > 0 ? rest / (double)(now.at_ns - before.at_ns) : 0;
	return true;
}
