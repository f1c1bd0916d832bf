/*
 * test_pack_write.c - writing packs: killed at any moment, failing at any write, damaged in between; and checking them.
 *
 * pwrite, fsync and rename of the library are those below, so that the Nth of them can fail or kill the process.
 */
#include "pack_testing.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int calls_left = -1; /* before one fails; -1: none does */
static int failing_errno; /* 0: the process is killed instead */

static bool fails_now(void)
{
	int left = __atomic_fetch_sub(&calls_left, __atomic_load_n(&calls_left, __ATOMIC_RELAXED) > 0, __ATOMIC_RELAXED);

	if (left != 1)
		return false;
	if (!failing_errno)
		raise(SIGKILL);
	errno = failing_errno;
	return true;
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t offset)
{
	return fails_now() ? -1 : (ssize_t)syscall(SYS_pwrite64, fd, data, count, offset);
}

int fsync(int fd)
{
	return fails_now() ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
	return fails_now() ? -1 : (int)syscall(SYS_rename, from, to);
}

static void fail_call(int number, int sys_errno)
{
	calls_left = number;
	failing_errno = sys_errno;
}

static bytes expected; /* the pack as it should be */

static int make_model(void **state)
{
	if (enter_folder(state))
		return -1;
	calls_left = -1;
	write_model("m.gguf", 3, 8, 500, 7); /* 9 MB */
	pack_model("m.gguf", NULL);
	expected = load_file("m.weir");
	return unlink("m.weir");
}

static int drop_model(void **state)
{
	calls_left = -1;
	free(expected.data);
	expected = (bytes){0};
	return leave_folder(state);
}

/* Packs in a process of its own that is killed at its Nth write; true when it ended before that. */
static bool pack_and_die(int number)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (!child) {
		fail_call(number, 0);
		_exit(weir_pack_write("m.gguf", NULL, NULL, NULL) ? 1 : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status))
		return false;
	assert_int_equal(WEXITSTATUS(status), 0);
	return true;
}

static void a_kill_at_any_write_leaves_something_to_go_on_with(void **state)
{
	uint64_t resumed = 0;

	(void)state;
	for (int number = 1; !pack_and_die(number); number++) {
		weir_pack_result result;
		weir_error error = {0};

		assert_false(is_there("m.weir") && is_there("m.weir.part"));
		if (weir_pack_write("m.gguf", NULL, &result, &error))
			fail_msg("killed at write %d: %s", number, error.message);
		resumed += result.resumed_bytes;
		assert_false(is_there("m.weir.part"));
		expect_same_file("m.weir", &expected);
		unlink("m.weir");
	}
	assert_true(resumed > 0);
	expect_same_file("m.weir", &expected);
}

static void what_a_kill_left_may_be_damaged(void **state)
{
	uint64_t seed = 5;

	(void)state;
	for (int round = 0; round < 8; round++) {
		bytes part;

		pack_and_die(4 + (int)(next_random(&seed) % 6));
		if (!is_there("m.weir.part")) {
			unlink("m.weir");
			continue;
		}
		part = load_file("m.weir.part");
		for (int i = 0; i < 3; i++)
			part.data[next_random(&seed) % part.count] ^= (unsigned char)(1 + next_random(&seed) % 255);
		write_file("m.weir.part", &part);
		pack_model("m.gguf", NULL);
		expect_same_file("m.weir", &expected);
		unlink("m.weir");
	}
}

static void a_partial_pack_of_another_model_is_not_gone_on_with(void **state)
{
	(void)state;
	assert_false(pack_and_die(8));
	write_model("m.gguf", 3, 8, 500, 8);
	pack_model("m.gguf", NULL);
	assert_int_equal(weir_verify("m.weir", NULL, NULL, NULL), 0);
}

/* Every call that can fail fails once; what is left is either nothing or something that the next call goes on with. */
static void fail_each_call(int sys_errno, int code)
{
	weir_error error;
	int number = 1, got;

	for (;; number++) {
		fail_call(number, sys_errno);
		error = (weir_error){0};
		got = weir_pack_write("m.gguf", NULL, NULL, &error);
		if (!got)
			break;
		calls_left = -1;
		assert_int_equal(got, code);
		assert_string_not_equal(error.message, "");
		assert_string_not_equal(error.file, "");
		if (sys_errno == ENOSPC)
			assert_false(is_there("m.weir.part"));
		if (is_there("m.weir")) /* only making the new name safe failed */
			assert_int_equal(weir_verify("m.weir", NULL, NULL, NULL), 0);
		pack_model("m.gguf", NULL);
		expect_same_file("m.weir", &expected);
		unlink("m.weir");
	}
	calls_left = -1;
	assert_true(number > 5);
	expect_same_file("m.weir", &expected);
}

static void a_full_drive_leaves_nothing(void **state)
{
	(void)state;
	fail_each_call(ENOSPC, WEIR_ENOSPACE);
}

static void a_failing_drive_leaves_something_to_go_on_with(void **state)
{
	(void)state;
	fail_each_call(EIO, WEIR_EIO);
}

static int stop_at_half(const char *stage, uint64_t done, uint64_t total, void *user)
{
	assert_non_null(stage);
	assert_true(done <= total);
	assert_ptr_equal(user, &expected);
	return done * 2 > total;
}

static void progress_may_stop_the_work(void **state)
{
	const weir_pack_options options = {.threads = 1, .progress = stop_at_half, .user = &expected};
	weir_pack_result result;

	(void)state;
	assert_int_equal(weir_pack_write("m.gguf", &options, NULL, NULL), WEIR_EINTERRUPTED);
	assert_false(is_there("m.weir"));
	assert_int_equal(weir_pack_write("m.gguf", NULL, &result, NULL), 0);
	assert_true(result.resumed_bytes > 0);
	expect_same_file("m.weir", &expected);
}

/* Says that it was called, and sleeps for good. */
static int wait_for_a_byte(const char *stage, uint64_t done, uint64_t total, void *user)
{
	(void)stage, (void)done, (void)total;
	if (write(((int *)user)[1], "!", 1) == 1)
		pause();
	return 0;
}

static void two_at_once_are_refused(void **state)
{
	weir_error error;
	int ends[2], status;
	char byte;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(ends), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		const weir_pack_options options = {.progress = wait_for_a_byte, .user = ends};

		_exit(weir_pack_write("m.gguf", &options, NULL, NULL) != WEIR_EINTERRUPTED);
	}
	assert_int_equal(read(ends[0], &byte, 1), 1); /* it is at work and holds the lock */
	assert_int_equal(weir_pack_write("m.gguf", NULL, NULL, &error), WEIR_EBUSY);
	assert_non_null(strstr(error.message, "another process"));
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	pack_model("m.gguf", NULL);
	expect_same_file("m.weir", &expected);
}

static void expect_found(uint64_t at, unsigned bit)
{
	weir_error error = {0};
	FILE *file = fopen("m.weir", "r+b");
	int code;

	assert_non_null(file);
	fseek(file, (long)at, SEEK_SET);
	fputc(expected.data[at] ^ 1 << bit, file);
	fclose(file);
	code = weir_verify("m.weir", NULL, NULL, &error);
	if (code != WEIR_ECHECKSUM && code != WEIR_EFORMAT && code != WEIR_EUNSUPPORTED)
		fail_msg("bit %u of byte %llu: %s", bit, (unsigned long long)at, weir_error_name(code));
	assert_string_equal(error.file, "m.weir");
	file = fopen("m.weir", "r+b");
	fseek(file, (long)at, SEEK_SET);
	fputc(expected.data[at], file);
	fclose(file);
}

static void verify_finds_any_flipped_bit(void **state)
{
	uint64_t seed = 3;

	(void)state;
	pack_model("m.gguf", NULL);
	assert_int_equal(weir_verify("m.weir", NULL, NULL, NULL), 0);
	for (int i = 0; i < 25; i++)
		expect_found(next_random(&seed) % expected.count, (unsigned)(next_random(&seed) % 8));
	for (int i = 0; i < 40; i++) /* header, index, table and the padding between them */
		expect_found(next_random(&seed) % 12288, (unsigned)(next_random(&seed) % 8));
	assert_int_equal(weir_verify("m.weir", NULL, NULL, NULL), 0);
}

static void replace_frees_experts_only_and_is_gone_on_with(void **state)
{
	const weir_pack_options options = {.replace = true};
	weir_pack_result result;
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	if (weir_pack_write("m.gguf", &options, &result, &error) == WEIR_EUNSUPPORTED)
		skip(); /* this file system frees no parts of files */
	assert_true(result.freed_bytes > 8 << 20);
	assert_int_equal(weir_verify("m.gguf", NULL, NULL, &error), 0);
	checkpoint = open_valid("m.gguf");
	assert_int_equal(weir_checkpoint_check_holes(checkpoint, &error), WEIR_EUNSUPPORTED);
	assert_non_null(strstr(error.message, "exps"));
	for (uint32_t i = 0; i < weir_checkpoint_tensors_count(checkpoint); i++) {
		weir_mapping *mapping;
		bool expert = weir_checkpoint_tensor(checkpoint, i)->rank == 3;

		assert_int_equal(weir_mapping_open(checkpoint, i, &mapping, NULL), expert ? WEIR_EUNSUPPORTED : 0);
		if (!expert)
			weir_mapping_close(mapping);
	}
	weir_checkpoint_close(checkpoint);
	assert_int_equal(weir_pack_write("m.gguf", &options, &result, &error), 0);
	assert_true(result.up_to_date);
	assert_int_equal(result.freed_bytes, 0);
}

static void nothing_is_freed_for_a_pack_that_is_not_right(void **state)
{
	const weir_pack_options options = {.replace = true};
	weir_checkpoint *checkpoint;
	weir_error error;
	FILE *file;

	(void)state;
	pack_model("m.gguf", NULL);
	file = fopen("m.weir", "r+b");
	assert_non_null(file);
	fseek(file, (long)expected.count - 5000, SEEK_SET);
	fputc(expected.data[expected.count - 5000] ^ 1, file);
	fclose(file);
	assert_int_equal(weir_pack_write("m.gguf", &options, NULL, &error), WEIR_ECHECKSUM);
	checkpoint = open_valid("m.gguf");
	assert_int_equal(weir_checkpoint_check_holes(checkpoint, NULL), 0);
	weir_checkpoint_close(checkpoint);
}

#define PACK_RULE(text, function)                                                                                              \
	{                                                                                                                      \
		(text), (function), make_model, drop_model, NULL                                                               \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PACK_RULE("killed at any write, the next call goes on", a_kill_at_any_write_leaves_something_to_go_on_with),
		PACK_RULE("what is gone on with is checked first", what_a_kill_left_may_be_damaged),
		PACK_RULE("another model's partial pack is begun anew", a_partial_pack_of_another_model_is_not_gone_on_with),
		PACK_RULE("a full drive at any write leaves nothing behind", a_full_drive_leaves_nothing),
		PACK_RULE("a failing drive at any write is an error once", a_failing_drive_leaves_something_to_go_on_with),
		PACK_RULE("progress may stop the work", progress_may_stop_the_work),
		PACK_RULE("two at once are refused, and a lock ends with its process", two_at_once_are_refused),
		PACK_RULE("verify finds any flipped bit", verify_finds_any_flipped_bit),
		PACK_RULE("replace frees experts, after checking", replace_frees_experts_only_and_is_gone_on_with),
		PACK_RULE("nothing is freed for a pack that is not right", nothing_is_freed_for_a_pack_that_is_not_right),
	};

	return cmocka_run_group_tests_name("pack write", tests, NULL, NULL);
}
