/* machine.c - see machine.h. */
#include "machine.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "os/proctext.h"
#include "output.h"

#define KIB 1024

bool machine_file(const char *path, char *text, size_t bytes)
{
	char *whole = weir_proctext_read(path);

	snprintf(text, bytes, "%s", whole ? whole : "");
	text[strcspn(text, "\n")] = '\0';
	free(whole);
	return whole != NULL;
}

/* ---- processor and memory ---- */

/* The value of "key : value"; "" when there is none. */
static void colon_value(const char *text, const char *key, char value[MACHINE_TEXT_BYTES])
{
	size_t length = strlen(key);

	value[0] = '\0';
	for (const char *line = text; line && *line; line = weir_proctext_next(line)) {
		if (strncmp(line, key, length))
			continue;
		line += length + strspn(line + length, " \t");
		if (*line != ':')
			continue;
		line += 1 + strspn(line + 1, " ");
		snprintf(value, MACHINE_TEXT_BYTES, "%.*s", (int)strcspn(line, "\n"), line);
		return;
	}
}

static uint32_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 0;
}

void machine_read(machine *found)
{
	char *info = weir_proctext_read("/proc/cpuinfo"), *memory = weir_proctext_read("/proc/meminfo");
	struct utsname name;
	uint64_t kib = 0;

	*found = (machine){.processors = processors()};
	if (uname(&name) == 0) {
		snprintf(found->system, sizeof found->system, "%.60s %.60s", name.sysname, name.release);
		snprintf(found->architecture, sizeof found->architecture, "%s", name.machine);
	}
	if (info) {
		colon_value(info, "model name", found->processor);
		if (!found->processor[0])
			colon_value(info, "Model", found->processor); /* Arm boards */
		found->virtual_machine = strstr(info, " hypervisor") != NULL;
	}
	if (memory && weir_proctext_number(memory, "MemTotal:", &kib))
		found->memory_bytes = kib * KIB;
	free(info);
	free(memory);
}

/* ---- drive ---- */

/* Whether `path` lies at or below `mount`. */
static bool lies_below(const char *path, const char *mount)
{
	size_t length = strlen(mount);

	if (length == 1)
		return true;
	return !strncmp(path, mount, length) && (!path[length] || path[length] == '/');
}

/* The longest mount point that is a prefix of the path; of equal ones the last, which hides the others. */
static void find_mount(const char *path, machine_drive *drive)
{
	char *mounts = weir_proctext_read("/proc/self/mounts"), device[256], mount[256], kind[64];
	size_t longest = 0;

	for (const char *line = mounts; line && *line; line = weir_proctext_next(line)) {
		if (sscanf(line, "%255s %255s %63s", device, mount, kind) != 3 || !lies_below(path, mount) ||
		    strlen(mount) < longest)
			continue;
		longest = strlen(mount);
		snprintf(drive->device, sizeof drive->device, "%.127s", device);
		snprintf(drive->mount, sizeof drive->mount, "%.127s", mount);
		snprintf(drive->filesystem, sizeof drive->filesystem, "%s", kind);
	}
	free(mounts);
}

/* The folder of the whole drive: of a partition, the one above. */
static void find_block(const char *path, machine_drive *drive)
{
	char link[64], folder[PATH_MAX], queue[PATH_MAX + 8];
	struct stat status;
	char *slash;

	if (stat(path, &status) < 0)
		return;
	snprintf(link, sizeof link, "/sys/dev/block/%u:%u", major(status.st_dev), minor(status.st_dev));
	if (!realpath(link, folder))
		return;
	snprintf(queue, sizeof queue, "%s/queue", folder);
	slash = strrchr(folder, '/');
	if (stat(queue, &status) < 0 && slash)
		*slash = '\0';
	if (strlen(folder) < sizeof drive->block)
		snprintf(drive->block, sizeof drive->block, "%.127s", folder);
}

/* "none [mq-deadline] bfq": the one in brackets. */
static void keep_bracketed(char *text)
{
	char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;

	if (!to)
		return;
	*to = '\0';
	memmove(text, from + 1, (size_t)(to - from));
}

void machine_drive_read(const char *path, machine_drive *drive)
{
	char whole[PATH_MAX], file[PATH_MAX], text[16];

	*drive = (machine_drive){.rotational = -1};
	if (!realpath(path, whole))
		return;
	find_mount(whole, drive);
	find_block(whole, drive);
	if (!drive->block[0])
		return;
	snprintf(file, sizeof file, "%s/device/model", drive->block);
	machine_file(file, drive->model, sizeof drive->model);
	snprintf(file, sizeof file, "%s/queue/scheduler", drive->block);
	if (machine_file(file, drive->scheduler, sizeof drive->scheduler))
		keep_bracketed(drive->scheduler);
	snprintf(file, sizeof file, "%s/queue/rotational", drive->block);
	if (machine_file(file, text, sizeof text))
		drive->rotational = text[0] == '1';
}

/* ---- JSON ---- */

json_t *machine_json(const machine *found, const machine_drive *drive)
{
	json_t *object = json_object();

	output_put_text(object, "system", found->system);
	output_put_text(object, "architecture", found->architecture);
	output_put_text(object, "processor", found->processor);
	json_object_set_new(object, "processors", json_integer(found->processors));
	json_object_set_new(object, "virtual_machine", json_boolean(found->virtual_machine));
	output_put_count(object, "memory_bytes", found->memory_bytes);
	output_put_text(object, "filesystem", drive->filesystem);
	output_put_text(object, "drive", drive->device);
	output_put_text(object, "drive_model", drive->model);
	json_object_set_new(object, "drive_rotational", drive->rotational < 0 ? json_null() : json_boolean(drive->rotational));
	output_put_text(object, "drive_scheduler", drive->scheduler);
	return object;
}
