/* doctor_memory.c - how much memory can be used and what takes it away: limits, swap, huge pages, pressure.  See doctor.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "doctor.h"
#include "os/limits.h"
#include "os/proctext.h"

#define KIB 1024
#define PRESSURE_PERCENT 1.0 /* of the last ten seconds that every process waited for memory */

static uint64_t meminfo(const char *key)
{
	char *text = weir_proctext_read("/proc/meminfo");
	uint64_t kib = 0;

	if (!text || !weir_proctext_number(text, key, &kib))
		kib = 0;
	free(text);
	return kib * KIB;
}

static void check_limits(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "memory", DOCTOR_OK);
	char usable[CLI_BYTES_TEXT], total[CLI_BYTES_TEXT], automatic[CLI_BYTES_TEXT];
	weir_limits limits;
	bool cgroup;

	weir_limits_read(&limits);
	cgroup = limits.source == WEIR_LIMITS_CGROUP;
	doctor_say(finding, "%s of %s can be used, by %s%s%s; --memory auto would take %s",
		   cli_bytes(limits.usable_bytes, usable), cli_bytes(d->machine.memory_bytes, total),
		   weir_limits_source_name(limits.source), cgroup ? " " : "", cgroup ? limits.cgroup_path : "",
		   cli_bytes(limits.auto_bytes, automatic));
	if (limits.source != WEIR_LIMITS_AVAILABLE && limits.usable_bytes < limits.available_bytes) {
		finding->verdict = DOCTOR_WARNING;
		doctor_advise(finding, "%s",
			      cgroup ? "raise that group's limit (systemd: MemoryMax, docker: --memory) if weir may have more"
				     : "raise that limit (ulimit -v, ulimit -d) if weir may have more");
	} else if (limits.usable_bytes < d->machine.memory_bytes / 2) {
		finding->verdict = DOCTOR_NOTE;
		doctor_advise(finding, "other programs hold more than half of the memory: what they give back makes more hits");
	}
}

static void check_swap(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "swap", DOCTOR_OK);
	uint64_t total = meminfo("SwapTotal:"), left = meminfo("SwapFree:");
	char size[CLI_BYTES_TEXT], used[CLI_BYTES_TEXT];

	if (!total) {
		doctor_say(finding, "there is none: what weir holds stays in memory");
		return;
	}
	doctor_say(finding, "%s, of which %s are in use", cli_bytes(total, size), cli_bytes(total - left, used));
	if (total - left < total / 20)
		return;
	finding->verdict = DOCTOR_NOTE;
	doctor_advise(finding,
		      "memory is short enough that the kernel swaps: choose a smaller --memory, or slots may be swapped out");
}

static void check_huge_pages(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "huge pages", DOCTOR_OK);
	char text[MACHINE_TEXT_BYTES];

	if (!machine_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "this kernel does not tell");
		return;
	}
	doctor_say(finding, "transparent huge pages: %s", text);
	if (!strstr(text, "[never]"))
		return;
	finding->verdict = DOCTOR_WARNING;
	doctor_advise(finding,
		      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root: fewer page table walks in slots");
}

/* "full avg10=0.00 ..." */
static bool full_pressure(const char *path, double *percent)
{
	char *text = weir_proctext_read(path), *at = text ? strstr(text, "full avg10=") : NULL;
	bool found = at != NULL;

	if (found)
		*percent = strtod(at + strlen("full avg10="), NULL);
	free(text);
	return found;
}

static void check_pressure(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "memory pressure", DOCTOR_OK);
	double memory, io;

	if (!full_pressure("/proc/pressure/memory", &memory) || !full_pressure("/proc/pressure/io", &io)) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "this kernel does not tell (no /proc/pressure)");
		return;
	}
	doctor_say(finding, "in the last 10 s all programs waited for memory %.1f %% and for drives %.1f %% of the time",
		   memory, io);
	if (memory < PRESSURE_PERCENT)
		return;
	finding->verdict = DOCTOR_WARNING;
	doctor_advise(finding, "the page cache is being pushed out for lack of memory: end other programs or lower --memory");
}

void doctor_check_memory(doctor *d)
{
	check_limits(d);
	check_swap(d);
	check_huge_pages(d);
	check_pressure(d);
}
