/*
 * test_outfile.c - an output is whole or not there, whatever ends its writer, with files without a name and where there are
 * none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/outfile.h"

static char folder[64], target[128];

static int make_folder(void **unused)
{
	(void)unused;
	snprintf(folder, sizeof folder, "/tmp/weir-outfile-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(target, sizeof target, "%s/out", folder);
	return 0;
}

static const char *content(void)
{
	static char text[64];
	FILE *stream = fopen(target, "r");
	size_t bytes;

	if (!stream)
		return NULL;
	bytes = fread(text, 1, sizeof text - 1, stream);
	text[bytes] = '\0';
	fclose(stream);
	return text;
}

/* Names in the folder; the last of them other than the target's is kept. */
static int files(char other[256])
{
	DIR *dir = opendir(folder);
	int count = 0;

	assert_non_null(dir);
	other[0] = '\0';
	for (struct dirent *entry; (entry = readdir(dir));) {
		if (entry->d_name[0] == '.')
			continue;
		count++;
		if (strcmp(entry->d_name, "out") != 0)
			snprintf(other, 256, "%s", entry->d_name);
	}
	closedir(dir);
	return count;
}

static int remove_folder(void **unused)
{
	char other[256], path[512];

	(void)unused;
	while (files(other) && other[0]) {
		snprintf(path, sizeof path, "%s/%s", folder, other);
		unlink(path);
	}
	unlink(target);
	return rmdir(folder);
}

static bool has_nameless_files(void)
{
	int fd = open(folder, O_WRONLY | O_TMPFILE, 0600);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* From here on this process is on a file system without them, as far as it can see. */
static void take_nameless_files_away(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_TMPFILE & ~O_DIRECTORY, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof rules / sizeof *rules, .filter = rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(3);
	if (open(folder, O_WRONLY | O_TMPFILE, 0600) >= 0 || errno != EOPNOTSUPP)
		_exit(4);
}

/* Opens the target, writes `text` and does `then` with it; for a child.  The exit code is 0 when all went as it should. */
typedef enum ending { FINISH, DISCARD, KILLED, ABANDON } ending;

static int write_target(const char *text, ending then)
{
	weir_outfile file;
	weir_error error;

	if (weir_outfile_open(target, &file, &error) || fputs(text, file.stream) < 0 || fflush(file.stream))
		return 1;
	switch (then) {
	case FINISH:
		return weir_outfile_finish(&file, &error) ? 2 : 0;
	case DISCARD:
		weir_outfile_discard(&file);
		return 0;
	case ABANDON:
		weir_outfile_abandon_all();
		return 0;
	case KILLED:
		raise(SIGKILL);
	}
	return 5;
}

static void in_child(const char *text, ending then, bool nameless)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (!nameless)
			take_nameless_files_away();
		_exit(write_target(text, then));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (then == KILLED)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		assert_int_equal(status, 0);
}

static void check_endings(bool nameless)
{
	char other[256];

	in_child("first", DISCARD, nameless);
	assert_int_equal(files(other), 0);
	in_child("first", ABANDON, nameless);
	assert_int_equal(files(other), 0);
	in_child("first", FINISH, nameless);
	assert_int_equal(files(other), 1);
	assert_string_equal(content(), "first");
	in_child("second", DISCARD, nameless);
	assert_int_equal(files(other), 1);
	assert_string_equal(content(), "first");
	in_child("second", FINISH, nameless);
	assert_int_equal(files(other), 1);
	assert_string_equal(content(), "second");
}

static void whole_or_not_there(void **unused)
{
	(void)unused;
	check_endings(true);
}

static void without_nameless_files_too(void **unused)
{
	(void)unused;
	check_endings(false);
}

static void nothing_is_left_of_a_killed_writer(void **unused)
{
	char other[256];

	(void)unused;
	if (!has_nameless_files())
		skip();
	in_child("half", KILLED, true);
	assert_int_equal(files(other), 0);
	in_child("whole", FINISH, true);
	in_child("half", KILLED, true);
	assert_int_equal(files(other), 1);
	assert_string_equal(content(), "whole");
}

/* Where it has a name, that is left; the next writer does not trip over it, and the target is as it was. */
static void a_name_that_is_left_is_in_nobodys_way(void **unused)
{
	char other[256];

	(void)unused;
	in_child("whole", FINISH, false);
	in_child("half", KILLED, false);
	assert_int_equal(files(other), 2);
	assert_non_null(strstr(other, ".part"));
	assert_string_equal(content(), "whole");
	in_child("next", FINISH, false);
	assert_string_equal(content(), "next");
}

static void two_writers_do_not_disturb_each_other(void **unused)
{
	weir_outfile a, b;
	char other[256];

	(void)unused;
	assert_int_equal(weir_outfile_open(target, &a, NULL), 0);
	assert_int_equal(weir_outfile_open(target, &b, NULL), 0);
	fputs("a", a.stream);
	fputs("b", b.stream);
	in_child("c", FINISH, true);
	assert_int_equal(weir_outfile_finish(&b, NULL), 0);
	assert_string_equal(content(), "b");
	assert_int_equal(weir_outfile_finish(&a, NULL), 0);
	assert_string_equal(content(), "a");
	assert_int_equal(files(other), 1);
}

static void modes_are_those_of_any_new_file(void **unused)
{
	mode_t before = umask(027);
	struct stat status;

	(void)unused;
	in_child("text", FINISH, true);
	umask(before);
	assert_int_equal(stat(target, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0640);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
	const struct CMUnitTest tests[] = {
		CASE(whole_or_not_there),
		CASE(without_nameless_files_too),
		CASE(nothing_is_left_of_a_killed_writer),
		CASE(a_name_that_is_left_is_in_nobodys_way),
		CASE(two_writers_do_not_disturb_each_other),
		CASE(modes_are_those_of_any_new_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
