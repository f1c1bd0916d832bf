/*
 * test_limits.c - what a process may use: the text of cgroups and /proc as tables, and whole folders that stand for "/".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/limits.h"
#include "os/process.h"
#include "os/proctext.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* ---- text ---- */

static void paths_are_found(void **state)
{
	static const struct {
		const char *text;
		weir_cgroup_version version;
		const char *path; /* NULL: none */
	} rows[] = {
		{"0::/user.slice/a.scope\n", WEIR_CGROUP_V2, "/user.slice/a.scope"},
		{"0::/user.slice/a.scope\n", WEIR_CGROUP_V1, NULL},
		{"0::/\n", WEIR_CGROUP_V2, "/"},
		{"9:name=systemd:/x\n4:memory:/jobs/7\n0::/y\n", WEIR_CGROUP_V1, "/jobs/7"},
		{"9:name=systemd:/x\n4:memory:/jobs/7\n0::/y\n", WEIR_CGROUP_V2, "/y"},
		{"3:cpu,cpuacct:/a\n2:hugetlb,memory:/b\n", WEIR_CGROUP_V1, "/b"},
		{"3:cpu,memoryx:/a\n", WEIR_CGROUP_V1, NULL},
		{"4:memory:/with:colons: and spaces", WEIR_CGROUP_V1, "/with:colons: and spaces"},
		{"10::/x\n", WEIR_CGROUP_V2, NULL},
		{"4:memory:\n", WEIR_CGROUP_V1, NULL},
		{"4:memory", WEIR_CGROUP_V1, NULL},
		{"::::\n\n:\n", WEIR_CGROUP_V1, NULL},
		{"", WEIR_CGROUP_V2, NULL},
	};
	char path[WEIR_LIMITS_PATH_BYTES];

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool found = weir_cgroup_parse_path(rows[i].text, rows[i].version, path);

		assert_int_equal(found, rows[i].path != NULL);
		if (found)
			assert_string_equal(path, rows[i].path);
	}
}

static void a_path_too_long_is_no_path(void **state)
{
	char text[WEIR_LIMITS_PATH_BYTES + 64], path[WEIR_LIMITS_PATH_BYTES];

	(void)state;
	memset(text, 'a', sizeof text);
	memcpy(text, "0::/", 4);
	text[sizeof text - 1] = '\0';
	assert_false(weir_cgroup_parse_path(text, WEIR_CGROUP_V2, path));
	text[4 + WEIR_LIMITS_PATH_BYTES - 2] = '\0';
	assert_true(weir_cgroup_parse_path(text, WEIR_CGROUP_V2, path));
}

static void mounts_are_found(void **state)
{
	static const struct {
		const char *text;
		weir_cgroup_version version;
		const char *path;
		const char *folder; /* NULL: no mount */
	} rows[] = {
		{"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", WEIR_CGROUP_V2, "/a/b",
		 "/sys/fs/cgroup/a/b"},
		{"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", WEIR_CGROUP_V2, "/", "/sys/fs/cgroup"},
		{"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", WEIR_CGROUP_V1, "/", NULL},
		{"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", WEIR_CGROUP_V1, "/j/7",
		 "/sys/fs/cgroup/memory/j/7"},
		{"35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", WEIR_CGROUP_V1, "/j/7", NULL},
		{"35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro master:1 - cgroup cgroup rw,memory\n", WEIR_CGROUP_V1,
		 "/docker/ab/job", "/sys/fs/cgroup/memory/job"},
		{"35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", WEIR_CGROUP_V1, "/docker/ab",
		 "/sys/fs/cgroup/memory"},
		{"35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n", WEIR_CGROUP_V1, "/docker/abc",
		 "/sys/fs/cgroup/memory"},
		{"35 31 0:32 / /cg rw - cgroup2 cgroup2 rw\n", WEIR_CGROUP_V2, "/../other", "/cg"},
		{"35 31 0:32 / /with\\040space\\134x rw - cgroup2 c rw\n", WEIR_CGROUP_V2, "/a", "/with space\\x/a"},
		/* the mount that shows the most ancestors, wherever it stands */
		{"1 1 0:1 /a /part rw - cgroup2 c rw\n2 1 0:1 / /whole rw - cgroup2 c rw\n", WEIR_CGROUP_V2, "/a/b",
		 "/whole/a/b"},
		{"2 1 0:1 / /whole rw - cgroup2 c rw\n1 1 0:1 /a /part rw - cgroup2 c rw\n", WEIR_CGROUP_V2, "/a/b",
		 "/whole/a/b"},
		{"1 1 0:1 /x /other rw - cgroup2 c rw\n2 1 0:1 /a /mine rw - cgroup2 c rw\n", WEIR_CGROUP_V2, "/a/b",
		 "/mine/b"},
		{"garbage\n\n - \n1 2 3\n", WEIR_CGROUP_V2, "/", NULL},
		{"1 1 0:1 / /cg rw", WEIR_CGROUP_V2, "/", NULL},
		{"", WEIR_CGROUP_V1, "/", NULL},
	};
	char folder[WEIR_LIMITS_PATH_BYTES];
	weir_cgroup_mount mount;

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool found = weir_cgroup_parse_mount(rows[i].text, rows[i].version, rows[i].path, &mount);

		assert_int_equal(found, rows[i].folder != NULL);
		if (!found)
			continue;
		assert_true(weir_cgroup_folder(&mount, rows[i].path, folder));
		assert_string_equal(folder, rows[i].folder);
	}
}

static void limits_are_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t limit;
	} rows[] = {
		{"max\n", WEIR_LIMITS_NONE},
		{"4294967296\n", 4 * GIB},
		{"4294967296", 4 * GIB},
		{"0\n", 0},
		{"9223372036854771712\n", WEIR_LIMITS_NONE}, /* v1: no limit, pages of 4 KiB */
		{"9223372036854710272\n", WEIR_LIMITS_NONE}, /* ... of 64 KiB */
		{"18446744073709551616\n", WEIR_LIMITS_NONE},
		{"-1\n", WEIR_LIMITS_NONE},
		{"12 34\n", WEIR_LIMITS_NONE},
		{"", WEIR_LIMITS_NONE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_true(weir_cgroup_parse_limit(rows[i].text) == rows[i].limit);
}

static void held_memory_leaves_page_cache_out(void **state)
{
	static const struct {
		const char *text;
		weir_cgroup_version version;
		uint64_t held;
	} rows[] = {
		{"anon 100\nfile 900\nkernel 50\nshmem 7\nsock 3\nslab_reclaimable 20\nslab_unreclaimable 9\n", WEIR_CGROUP_V2,
		 100 + 7 + 3 + 30},
		{"anon 100\nfile 900\nkernel_stack 1\npagetables 2\npercpu 4\nslab_unreclaimable 8\nshmem 16\n", WEIR_CGROUP_V2,
		 100 + 15 + 16},
		{"anon 1\nkernel 5\nslab_reclaimable 20\n", WEIR_CGROUP_V2, 1},
		{"anon 18446744073709551615\nshmem 18446744073709551615\n", WEIR_CGROUP_V2, UINT64_MAX},
		{"cache 900\nrss 5\nshmem 6\ntotal_cache 990\ntotal_rss 70\ntotal_shmem 8\n", WEIR_CGROUP_V1, 78},
		{"cache 900\nrss 5\nshmem 6\n", WEIR_CGROUP_V1, 11},
		{"anonymous 5\n", WEIR_CGROUP_V2, 0},
		{"", WEIR_CGROUP_V1, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		assert_true(weir_cgroup_parse_held(rows[i].text, rows[i].version) == rows[i].held);
}

static void process_status_is_read(void **state)
{
	weir_process_memory memory;

	(void)state;
	weir_process_parse("Name:\tVmRSS: 9 kB\nVmSize:\t 4000 kB\nVmHWM:\t  300 kB\nVmRSS:\t  200 kB\nRssAnon:\t 120 kB\n"
			   "RssFile:\t  70 kB\nRssShmem:\t  10 kB\nVmData:\t 999 kB\n",
			   &memory);
	assert_int_equal(memory.virtual_bytes, 4000 * 1024);
	assert_int_equal(memory.rss_peak_bytes, 300 * 1024);
	assert_int_equal(memory.rss_bytes, 200 * 1024);
	assert_int_equal(memory.anon_bytes, 120 * 1024);
	assert_int_equal(memory.file_bytes, 70 * 1024);
	assert_int_equal(memory.shmem_bytes, 10 * 1024);
	assert_int_equal(memory.data_bytes, 999 * 1024);
	weir_process_parse("VmRSS:\nVmHWM:\tmany kB\nRssAnon:\t18446744073709551615 kB", &memory);
	assert_int_equal(memory.rss_bytes + memory.rss_peak_bytes + memory.anon_bytes, 0);
}

static void this_process_is_seen(void **state)
{
	uint64_t bytes = 32 * MIB;
	weir_process_memory before, after;
	weir_process_faults faults, later;
	volatile char *block = malloc(bytes);

	(void)state;
	assert_non_null((void *)(uintptr_t)block);
	assert_int_equal(weir_process_memory_read(&before, NULL), 0);
	weir_process_faults_read(&faults);
	for (uint64_t at = 0; at < bytes; at += 4096)
		block[at] = 1;
	assert_int_equal(weir_process_memory_read(&after, NULL), 0);
	weir_process_faults_read(&later);
	assert_true(after.rss_bytes >= before.rss_bytes + bytes - MIB);
	assert_true(after.rss_peak_bytes >= after.rss_bytes - MIB);
	assert_true(after.anon_bytes >= before.anon_bytes + bytes - MIB);
	assert_true(later.minor_count > faults.minor_count);
	free((void *)(uintptr_t)block);
}

/* ---- whole machines ---- */

struct machine {
	char root[64];
};

static int make_machine(void **state)
{
	struct machine *machine = calloc(1, sizeof *machine);

	if (!machine)
		return -1;
	snprintf(machine->root, sizeof machine->root, "/tmp/weir-limits-XXXXXX");
	*state = machine;
	return mkdtemp(machine->root) ? 0 : -1;
}

static int remove_machine(void **state)
{
	struct machine *machine = *state;
	char command[128];
	int result;

	snprintf(command, sizeof command, "rm -r '%s'", machine->root);
	result = system(command);
	free(machine);
	return result;
}

static void put(const struct machine *machine, const char *path, const char *text)
{
	char whole[512];
	FILE *file;

	snprintf(whole, sizeof whole, "%s%s", machine->root, path);
	for (char *slash = whole + strlen(machine->root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(whole, 0777);
		*slash = '/';
	}
	file = fopen(whole, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

/* 16 GiB available; this process holds 100 MiB of its own. */
static void put_plain_machine(const struct machine *machine)
{
	put(machine, "/proc/meminfo", "MemTotal: 25165824 kB\nMemAvailable:   16777216 kB\n");
	put(machine, "/proc/self/status", "VmSize: 500000 kB\nVmRSS: 122880 kB\nRssAnon: 102400 kB\nRssFile: 20480 kB\n");
}

static void put_v2(const struct machine *machine, const char *path)
{
	char text[128];

	put_plain_machine(machine);
	snprintf(text, sizeof text, "0::%s\n", path);
	put(machine, "/proc/self/cgroup", text);
	put(machine, "/proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
}

static void without_cgroups_memory_available_counts(void **state)
{
	weir_limits limits;

	put_plain_machine(*state);
	weir_limits_read_under(((struct machine *)*state)->root, &limits);
	assert_true(limits.usable_bytes == 16 * GIB + 100 * MIB);
	assert_int_equal(limits.source, WEIR_LIMITS_AVAILABLE);
	assert_true(limits.cgroup_bytes == WEIR_LIMITS_NONE);
	assert_string_equal(limits.cgroup_path, "");
	assert_true(limits.auto_bytes == limits.usable_bytes - limits.margin_bytes);
}

static void v2_takes_the_tightest_ancestor(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_v2(machine, "/user/app/job");
	put(machine, "/sys/fs/cgroup/user/memory.max", "8589934592\n");
	put(machine, "/sys/fs/cgroup/user/app/memory.max", "4294967296\n");
	put(machine, "/sys/fs/cgroup/user/app/job/memory.max", "max\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 4 * GIB);
	assert_int_equal(limits.source, WEIR_LIMITS_CGROUP);
	assert_string_equal(limits.cgroup_path, "/sys/fs/cgroup/user/app");
	assert_true(limits.margin_bytes == 256 * MIB);
	assert_true(limits.auto_bytes == 4 * GIB - 256 * MIB);
}

static void v2_high_counts_as_a_limit(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_v2(machine, "/job");
	put(machine, "/sys/fs/cgroup/job/memory.max", "4294967296\n");
	put(machine, "/sys/fs/cgroup/job/memory.high", "3221225472\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 3 * GIB);
}

/* 1 GiB of anonymous memory of which 100 MiB are ours; page cache does not count. */
static void what_others_hold_is_taken_off(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_v2(machine, "/job");
	put(machine, "/sys/fs/cgroup/job/memory.max", "4294967296\n");
	put(machine, "/sys/fs/cgroup/job/memory.stat", "anon 1073741824\nfile 3000000000\nkernel 0\nshmem 0\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 3 * GIB + 100 * MIB);
}

/* A wider limit shared with a heavy neighbour can be the tighter one. */
static void a_full_ancestor_is_tighter_than_a_small_one(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_v2(machine, "/pod/job");
	put(machine, "/sys/fs/cgroup/pod/job/memory.max", "4294967296\n");
	put(machine, "/sys/fs/cgroup/pod/memory.max", "8589934592\n");
	put(machine, "/sys/fs/cgroup/pod/memory.stat", "anon 7516192768\nkernel 0\n");
	weir_limits_read_under(machine->root, &limits);
	assert_string_equal(limits.cgroup_path, "/sys/fs/cgroup/pod");
	assert_true(limits.usable_bytes == 1 * GIB + 100 * MIB);
}

static void v1_in_a_container_is_read_through_its_mount(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_plain_machine(machine);
	put(machine, "/proc/self/cgroup", "4:memory:/docker/ab/job\n0::/\n");
	put(machine, "/proc/self/mountinfo", "35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
	put(machine, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
	put(machine, "/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 2 * GIB);
	assert_string_equal(limits.cgroup_path, "/sys/fs/cgroup/memory");
}

/* v1 counts memory while v2 is mounted beside it, and the other way round. */
static void hybrid_hierarchies_are_both_read(void **state)
{
	const struct machine *machine = *state;
	weir_limits limits;

	put_plain_machine(machine);
	put(machine, "/proc/self/cgroup", "4:memory:/a\n0::/b\n");
	put(machine, "/proc/self/mountinfo",
	    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 "
	    "c rw\n");
	put(machine, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2147483648\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 2 * GIB);
	put(machine, "/sys/fs/cgroup/unified/b/memory.max", "1073741824\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 1 * GIB);
}

static void what_is_over_the_limit_leaves_nothing(void **state)
{
	const struct machine *machine = *state;
	weir_size size = {.kind = WEIR_SIZE_AUTO};
	weir_limits limits;

	put_v2(machine, "/job");
	put(machine, "/sys/fs/cgroup/job/memory.max", "1048576\n");
	put(machine, "/sys/fs/cgroup/job/memory.stat", "anon 1073741824\n");
	weir_limits_read_under(machine->root, &limits);
	assert_true(limits.usable_bytes == 0 && limits.auto_bytes == 0);
	assert_true(weir_limits_resolve(&limits, &size) == 1);
}

static void address_space_limits_count(void **state)
{
	const struct rlimit limit = {1 * GIB, RLIM_INFINITY};
	weir_limits limits;
	int status;
	pid_t child = fork();

	put_plain_machine(*state);
	assert_true(child >= 0);
	if (!child) {
		setrlimit(RLIMIT_DATA, &limit);
		weir_limits_read_under(((struct machine *)*state)->root, &limits);
		_exit(limits.source == WEIR_LIMITS_DATA && limits.usable_bytes == 1 * GIB ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void this_machine_has_a_limit(void **state)
{
	weir_limits limits;

	(void)state;
	weir_limits_read(&limits);
	assert_true(limits.usable_bytes > 0 && limits.usable_bytes < UINT64_C(1) << 50);
	assert_true(limits.auto_bytes < limits.usable_bytes);
}

/* ---- arithmetic ---- */

static void margins_are_as_stated(void **state)
{
	(void)state;
	assert_true(weir_limits_margin(0) == 0);
	assert_true(weir_limits_margin(100 * MIB) == 50 * MIB);
	assert_true(weir_limits_margin(512 * MIB) == 64 * MIB);
	assert_true(weir_limits_margin(4 * GIB) == 256 * MIB);
	assert_true(weir_limits_margin(32 * GIB) == 2 * GIB);
	assert_true(weir_limits_margin(512 * GIB) == 2 * GIB);
}

static void sizes_are_resolved(void **state)
{
	const weir_limits limits = {.usable_bytes = 10 * GIB, .auto_bytes = 9 * GIB};
	const weir_size automatic = {.kind = WEIR_SIZE_AUTO}, bytes = {.kind = WEIR_SIZE_BYTES, .bytes = 20 * GIB},
			share = {.kind = WEIR_SIZE_SHARE, .share_ppm = 600000};

	(void)state;
	assert_true(weir_limits_resolve(&limits, &automatic) == 9 * GIB);
	assert_true(weir_limits_resolve(&limits, &bytes) == 20 * GIB);
	assert_true(weir_limits_resolve(&limits, &share) == 6 * GIB);
}

static void long_files_are_read_whole(void **state)
{
	const struct machine *machine = *state;
	char path[128], *text, *long_text = malloc(100001);

	assert_non_null(long_text);
	memset(long_text, 'x', 100000);
	long_text[100000] = '\0';
	put(machine, "/long", long_text);
	snprintf(path, sizeof path, "%s/long", machine->root);
	text = weir_proctext_read(path);
	assert_non_null(text);
	assert_string_equal(text, long_text);
	free(text);
	free(long_text);
	snprintf(path, sizeof path, "%s/none", machine->root);
	assert_null(weir_proctext_read(path));
	assert_null(weir_proctext_read(machine->root));
}

#define ON_MACHINE(test) cmocka_unit_test_setup_teardown(test, make_machine, remove_machine)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_are_found),
		cmocka_unit_test(a_path_too_long_is_no_path),
		cmocka_unit_test(mounts_are_found),
		cmocka_unit_test(limits_are_read),
		cmocka_unit_test(held_memory_leaves_page_cache_out),
		cmocka_unit_test(process_status_is_read),
		cmocka_unit_test(this_process_is_seen),
		ON_MACHINE(without_cgroups_memory_available_counts),
		ON_MACHINE(v2_takes_the_tightest_ancestor),
		ON_MACHINE(v2_high_counts_as_a_limit),
		ON_MACHINE(what_others_hold_is_taken_off),
		ON_MACHINE(a_full_ancestor_is_tighter_than_a_small_one),
		ON_MACHINE(v1_in_a_container_is_read_through_its_mount),
		ON_MACHINE(hybrid_hierarchies_are_both_read),
		ON_MACHINE(what_is_over_the_limit_leaves_nothing),
		ON_MACHINE(address_space_limits_count),
		cmocka_unit_test(this_machine_has_a_limit),
		cmocka_unit_test(margins_are_as_stated),
		cmocka_unit_test(sizes_are_resolved),
		ON_MACHINE(long_files_are_read_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
