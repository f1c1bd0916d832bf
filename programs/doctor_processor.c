/* doctor_processor.c - instructions that the kernels want, processors that may be used, who else uses them.  See doctor.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"
#include "os/limits.h"
#include "os/proctext.h"

/* Instruction sets that ggml's kernels use, the best last, as /proc/cpuinfo names them. */
static const char *const INSTRUCTIONS[] = {"avx",	  "avx2",     "fma",   "f16c",	  "avx_vnni", "avx512f", "avx512_vnni",
					   "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm",     "sve",	 "sve2"};

/* The value of the first line "flags : ..." (x86) or "Features : ..." (Arm), with a space at both ends; free() it. */
static char *cpu_flags(void)
{
	char *info = weir_proctext_read("/proc/cpuinfo"), *line = info, *flags = NULL;

	while (line && strncmp(line, "flags", 5) && strncmp(line, "Features", 8))
		line = (char *)(uintptr_t)weir_proctext_next(line);
	line = line ? strchr(line, ':') : NULL;
	if (line && asprintf(&flags, "%.*s ", (int)strcspn(line + 1, "\n"), line + 1) < 0)
		flags = NULL;
	free(info);
	return flags;
}

static bool has(const char *flags, const char *name)
{
	char word[32];

	snprintf(word, sizeof word, " %s ", name);
	return strstr(flags, word) != NULL;
}

static void check_instructions(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "instructions", DOCTOR_OK);
	char *flags = cpu_flags(), list[DOCTOR_LINE_BYTES / 2] = "";
	size_t used = 0;

	if (!flags) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "the processor's are not told");
		return;
	}
	for (size_t i = 0; i < sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS; i++)
		if (has(flags, INSTRUCTIONS[i]) && used < sizeof list)
			used += (size_t)snprintf(list + used, sizeof list - used, " %s", INSTRUCTIONS[i]);
	doctor_say(finding, "%s:%s", d->machine.processor[0] ? d->machine.processor : d->machine.architecture,
		   used ? list : " none that the kernels have variants for");
	if (!has(flags, "avx2") && !has(flags, "asimddp")) {
		finding->verdict = DOCTOR_NOTE;
		doctor_advise(finding, "without avx2 (x86) or asimddp (Arm) the processor, not the drive, will be the limit");
	}
	free(flags);
}

/* ---- processors ---- */

static double smaller(double a, double b)
{
	return isnan(a) || b < a ? b : a;
}

/* "200000 100000" (v2: cpu.max) or two files (v1): processors' worth of time; NAN for no limit. */
static double folder_quota(const char *folder, weir_cgroup_version version)
{
	char path[WEIR_LIMITS_PATH_BYTES + 32], text[64], period[32];
	double quota, per;

	snprintf(path, sizeof path, "%s/%s", folder, version == WEIR_CGROUP_V2 ? "cpu.max" : "cpu.cfs_quota_us");
	if (!machine_file(path, text, sizeof text))
		return NAN;
	if (version == WEIR_CGROUP_V2)
		return sscanf(text, "%lf %lf", &quota, &per) == 2 && per > 0 ? quota / per : NAN;
	snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
	quota = strtod(text, NULL);
	if (quota <= 0 || !machine_file(path, period, sizeof period) || strtod(period, NULL) <= 0)
		return NAN;
	return quota / strtod(period, NULL);
}

/* The controller's folder for a line of /proc/self/cgroup, where this system mounts it. */
static bool quota_folder(const char *line, weir_cgroup_version *version, char folder[WEIR_LIMITS_PATH_BYTES])
{
	static const char *const points[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
	const char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
	int length = path ? (int)strcspn(path + 1, "\n") : 0;
	const char *point = "/sys/fs/cgroup";

	if (!path)
		return false;
	*version = path == controllers + 1 ? WEIR_CGROUP_V2 : WEIR_CGROUP_V1;
	if (*version == WEIR_CGROUP_V1) {
		if (strncmp(controllers, ":cpu:", 5) && strncmp(controllers, ":cpu,", 5))
			return false;
		point = access(points[0], R_OK) == 0 ? points[0] : points[1];
	}
	return snprintf(folder, WEIR_LIMITS_PATH_BYTES, "%s%.*s", point, length, path + 1) < WEIR_LIMITS_PATH_BYTES;
}

/* The least quota of this process's groups and those above them. */
static double cpu_quota(void)
{
	char *groups = weir_proctext_read("/proc/self/cgroup"), folder[WEIR_LIMITS_PATH_BYTES], *slash;
	weir_cgroup_version version;
	double quota = NAN, here;

	for (const char *line = groups; line && *line; line = weir_proctext_next(line)) {
		if (!quota_folder(line, &version, folder))
			continue;
		while (strlen(folder) >= strlen("/sys/fs/cgroup")) {
			here = folder_quota(folder, version);
			if (!isnan(here))
				quota = smaller(quota, here);
			slash = strrchr(folder, '/');
			*slash = '\0';
		}
	}
	free(groups);
	return quota;
}

static void check_processors(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "processors", DOCTOR_OK);
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	double quota = cpu_quota();

	doctor_say(finding, "%u of %ld may be used%s", d->machine.processors, online,
		   d->machine.virtual_machine ? ", of a virtual machine" : "");
	if (!isnan(quota) && quota < d->machine.processors) {
		finding->verdict = DOCTOR_WARNING;
		doctor_say(finding, "%u of %ld may be used, and a cgroup gives them the time of %.2f", d->machine.processors,
			   online, quota);
		doctor_advise(finding, "use --threads %.0f, or raise the quota (systemd: CPUQuota, docker: --cpus)",
			      ceil(quota));
	} else if (d->machine.processors < (uint32_t)online) {
		finding->verdict = DOCTOR_NOTE;
		doctor_advise(finding, "this process is bound to some of them (taskset, cpuset)");
	}
}

static void check_load(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "other programs", DOCTOR_OK);
	char text[64];
	double load;

	if (!machine_file("/proc/loadavg", text, sizeof text)) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "the load is not told");
		return;
	}
	load = strtod(text, NULL);
	doctor_say(finding, "load average of the last minute: %.2f on %u processors", load, d->machine.processors);
	if (load < 0.5 * d->machine.processors)
		return;
	finding->verdict = DOCTOR_NOTE;
	doctor_advise(finding, "others keep processors or drives busy: figures taken now are lower than the machine's best");
}

static void check_governor(doctor *d)
{
	doctor_finding *finding;
	char text[MACHINE_TEXT_BYTES];

	if (!machine_file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", text, sizeof text))
		return; /* nothing scales the clock here */
	finding = doctor_add(d, "clock", DOCTOR_OK);
	doctor_say(finding, "the frequency governor is %s", text);
	if (strcmp(text, "powersave"))
		return;
	finding->verdict = DOCTOR_NOTE;
	doctor_advise(finding, "'performance' wakes up faster from the short waits for reads");
}

void doctor_check_processor(doctor *d)
{
	check_instructions(d);
	check_processors(d);
	check_load(d);
	check_governor(d);
}
