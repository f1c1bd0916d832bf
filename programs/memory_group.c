/* memory_group.c - see memory_group.h. */
#include "memory_group.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fail.h"
#include "os/proctext.h"
#include "output.h"

#define REMOVE_TRIES 500
#define REMOVE_WAIT_NS 10000000L
#define PROBE_BYTES (UINT64_C(64) << 20)

/* ---- small files ---- */

static bool write_text(const char *folder, const char *name, const char *text)
{
	char path[2 * WEIR_LIMITS_PATH_BYTES];
	size_t bytes = strlen(text);
	bool good;
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	good = write(fd, text, bytes) == (ssize_t)bytes;
	close(fd);
	return good;
}

static bool write_number(const char *folder, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return write_text(folder, name, text);
}

static char *read_text(const char *folder, const char *name)
{
	char path[2 * WEIR_LIMITS_PATH_BYTES];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	return weir_proctext_read(path);
}

/* A file that is one number; `missing` when it is not there. */
static uint64_t read_number(const char *folder, const char *name, uint64_t missing)
{
	char *text = read_text(folder, name), *end;
	uint64_t value = missing;

	if (text && *text >= '0' && *text <= '9')
		value = strtoull(text, &end, 10);
	free(text);
	return value;
}

static bool holds_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = text; at && (at = strstr(at, word)); at += length)
		if ((at == text || at[-1] == ' ') && (!at[length] || at[length] == ' ' || at[length] == '\n'))
			return true;
	return false;
}

/* ---- what there is ---- */

/* The folder of this process's (or another's) group in the hierarchy that counts memory. */
static bool own_folder(const char *pid, weir_cgroup_version version, char folder[WEIR_LIMITS_PATH_BYTES])
{
	char process[64], path[WEIR_LIMITS_PATH_BYTES];
	char *paths, *mounts;
	weir_cgroup_mount mount;
	bool found;

	snprintf(process, sizeof process, "/proc/%s", pid);
	paths = read_text(process, "cgroup");
	mounts = weir_proctext_read("/proc/self/mountinfo");
	found = paths && mounts && weir_cgroup_parse_path(paths, version, path) &&
		weir_cgroup_parse_mount(mounts, version, path, &mount) && weir_cgroup_folder(&mount, path, folder);
	free(paths);
	free(mounts);
	return found;
}

/* Whether groups in `folder` count memory; switched on there where that is allowed. */
static bool hands_on_memory(const char *folder)
{
	char *text = read_text(folder, "cgroup.subtree_control");
	bool on = text && holds_word(text, "memory");

	free(text);
	return on || write_text(folder, "cgroup.subtree_control", "+memory");
}

static bool find_v1(memory_group_method *method)
{
	return own_folder("self", WEIR_CGROUP_V1, method->folder) && access(method->folder, W_OK) == 0;
}

/* In version 2 a group with processes has no groups below it that count memory, unless it is the root: then its parent does. */
static bool find_v2(memory_group_method *method)
{
	char *controllers, *slash;
	bool counts;

	if (!own_folder("self", WEIR_CGROUP_V2, method->folder))
		return false;
	controllers = read_text(method->folder, "cgroup.controllers");
	counts = controllers && holds_word(controllers, "memory");
	free(controllers);
	if (!counts)
		return false;
	if (access(method->folder, W_OK) == 0 && hands_on_memory(method->folder))
		return true;
	slash = strrchr(method->folder, '/');
	if (!slash || slash == method->folder)
		return false;
	*slash = '\0';
	return access(method->folder, W_OK) == 0 && hands_on_memory(method->folder);
}

/* Runs a command with its output thrown away; whether it ended well. */
static bool succeeds(const char *const *words)
{
	pid_t child = fork();
	int status, null;

	if (child == 0) {
		null = open("/dev/null", O_RDWR);
		for (int fd = 0; fd <= 2; fd++)
			dup2(null, fd);
		execvp(words[0], (char *const *)(uintptr_t)words);
		_exit(127);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool find_systemd(void)
{
	const memory_group probe = {.kind = MEMORY_GROUP_SYSTEMD, .bytes = PROBE_BYTES};
	const char *words[MEMORY_GROUP_WORDS_MAX];
	char text[2][48];
	int count = memory_group_words(&probe, words, text);

	words[count] = "true";
	words[count + 1] = NULL;
	return succeeds(words);
}

void memory_group_find(memory_group_method *method)
{
	*method = (memory_group_method){.kind = MEMORY_GROUP_NONE};
	if (find_v1(method)) {
		method->kind = MEMORY_GROUP_V1;
	} else if (find_v2(method)) {
		method->kind = MEMORY_GROUP_V2;
	} else if (find_systemd()) {
		method->kind = MEMORY_GROUP_SYSTEMD;
	} else {
		snprintf(method->reason, sizeof method->reason,
			 "no cgroup that counts memory can be made by this user, and systemd-run --user makes no scope");
		method->folder[0] = '\0';
	}
}

const char *memory_group_name(memory_group_kind kind)
{
	static const char *const names[] = {"none", "cgroup v1", "cgroup v2", "systemd scope"};

	return names[kind];
}

/* ---- one child's ---- */

/* Version 1: a limit on memory and swap together would be met before memory's own, so swapping is switched off instead. */
static bool set_limit(const memory_group *group)
{
	if (group->kind == MEMORY_GROUP_V1)
		return write_number(group->path, "memory.limit_in_bytes", group->bytes) &&
		       (write_number(group->path, "memory.swappiness", 0) || true);
	return write_number(group->path, "memory.max", group->bytes) &&
	       (write_number(group->path, "memory.swap.max", 0) || true);
}

int memory_group_open(const memory_group_method *method, uint64_t bytes, memory_group *group, weir_error *error)
{
	int sys_errno;

	*group = (memory_group){.kind = bytes ? method->kind : MEMORY_GROUP_NONE,
				.bytes = bytes,
				.peak_bytes = OUTPUT_NONE,
				.hits_count = OUTPUT_NONE};
	if (group->kind != MEMORY_GROUP_V1 && group->kind != MEMORY_GROUP_V2)
		return 0;
	snprintf(group->path, sizeof group->path, "%s/weir-bench-%ld", method->folder, (long)getpid());
	snprintf(group->procs, sizeof group->procs, "%s/cgroup.procs", group->path);
	if (mkdir(group->path, 0755) == 0 && set_limit(group)) {
		group->enforced = true;
		return 0;
	}
	sys_errno = errno;
	rmdir(group->path);
	return weir_fail(error, weir_code_of_errno(sys_errno), group->path, WEIR_ERROR_NO_OFFSET, sys_errno,
			 "no memory cgroup of %llu bytes could be made", (unsigned long long)bytes);
}

int memory_group_words(const memory_group *group, const char *words[MEMORY_GROUP_WORDS_MAX], char text[2][48])
{
	int count = 0;

	if (group->kind != MEMORY_GROUP_SYSTEMD)
		return 0;
	snprintf(text[0], sizeof text[0], "MemoryMax=%llu", (unsigned long long)group->bytes);
	snprintf(text[1], sizeof text[1], "MemorySwapMax=0");
	words[count++] = "systemd-run";
	words[count++] = "--user";
	words[count++] = "--scope";
	words[count++] = "--quiet";
	words[count++] = "-p";
	words[count++] = text[0];
	words[count++] = "-p";
	words[count++] = text[1];
	words[count++] = "--";
	return count;
}

bool memory_group_enter(const memory_group *group)
{
	int fd;
	bool good;

	if (!group->procs[0])
		return true;
	fd = open(group->procs, O_WRONLY | O_CLOEXEC);
	good = fd >= 0 && write(fd, "0", 1) == 1;
	if (fd >= 0)
		close(fd);
	return good;
}

/* A scope's folder has a name that systemd makes up; the limit may not have arrived there (memory not delegated). */
static void find_scope(memory_group *group, pid_t child)
{
	char pid[24], folder[WEIR_LIMITS_PATH_BYTES];

	snprintf(pid, sizeof pid, "%ld", (long)child);
	if (!own_folder(pid, WEIR_CGROUP_V2, folder))
		return;
	if (read_number(folder, "memory.max", 0) / 4096 != group->bytes / 4096)
		return;
	snprintf(group->path, sizeof group->path, "%s", folder);
	group->enforced = true;
}

static void take_most(uint64_t *count, uint64_t now)
{
	if (now != OUTPUT_NONE && (*count == OUTPUT_NONE || now > *count))
		*count = now;
}

void memory_group_read(memory_group *group, pid_t child)
{
	uint64_t hits = OUTPUT_NONE;
	char *events;

	if (group->kind == MEMORY_GROUP_SYSTEMD && !group->path[0])
		find_scope(group, child);
	if (!group->path[0])
		return;
	if (group->kind == MEMORY_GROUP_V1) {
		take_most(&group->peak_bytes, read_number(group->path, "memory.max_usage_in_bytes", OUTPUT_NONE));
		take_most(&group->hits_count, read_number(group->path, "memory.failcnt", OUTPUT_NONE));
		return;
	}
	events = read_text(group->path, "memory.events");
	if (events && weir_proctext_number(events, "max", &hits))
		take_most(&group->hits_count, hits);
	free(events);
	take_most(&group->peak_bytes, read_number(group->path, "memory.peak", OUTPUT_NONE));
}

/* The kernel may take a moment to let go of a process that has ended. */
void memory_group_close(memory_group *group)
{
	const struct timespec wait = {.tv_nsec = REMOVE_WAIT_NS};

	if (!group->procs[0])
		return;
	for (int i = 0; i < REMOVE_TRIES && rmdir(group->path) < 0 && errno != ENOENT; i++)
		nanosleep(&wait, NULL);
	group->procs[0] = group->path[0] = '\0';
}
