/*
 * test_checkpoint_faults.c - the Nth allocation and the Nth system call fail, for every N: each open ends with the right code,
 * and nothing leaks.
 *
 * The program defines malloc's family and the file calls itself, so that the library's calls (and jansson's) come here first.
 * A sanitizer wants the allocator for itself: then only the file calls are replaced.
 */
#include "format_testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOREIGN_ALLOCATOR 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOREIGN_ALLOCATOR 1
#endif

/* A countdown: the call that finds `left` at 1 fails, and those after it do not.  0: none fails. */
typedef struct countdown {
	unsigned long left;
	bool fired;
} countdown;

static countdown allocations, calls;
static int calls_errno; /* what a failing call gives */
static size_t read_bytes_most; /* what a read gives at most; 0: all */
static long blocks_live; /* allocated and not freed */

static bool strikes(countdown *count)
{
	bool now = count->left && !--count->left;

	count->fired |= now;
	return now;
}

#ifndef FOREIGN_ALLOCATOR
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

void *malloc(size_t size)
{
	void *block = strikes(&allocations) ? NULL : __libc_malloc(size);

	blocks_live += block != NULL;
	return block;
}

void *calloc(size_t count, size_t size)
{
	void *block = strikes(&allocations) ? NULL : __libc_calloc(count, size);

	blocks_live += block != NULL;
	return block;
}

void *realloc(void *old, size_t size)
{
	void *block = strikes(&allocations) ? NULL : __libc_realloc(old, size);

	blocks_live += block && !old;
	return block;
}

void free(void *block)
{
	blocks_live -= block != NULL;
	__libc_free(block);
}
#endif

/* -1 with errno set when this call is the one. */
static int call_fails(void)
{
	if (!strikes(&calls))
		return 0;
	errno = calls_errno;
	return -1;
}

int open(const char *path, int flags, ...)
{
	return call_fails() ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
}

ssize_t pread(int descriptor, void *buffer, size_t size, off_t offset)
{
	if (call_fails())
		return -1;
	if (read_bytes_most && size > read_bytes_most)
		size = read_bytes_most;
	return syscall(SYS_pread64, descriptor, buffer, size, offset);
}

int fstat(int descriptor, struct stat *status)
{
	return call_fails() ? -1 : (int)syscall(SYS_fstat, descriptor, status);
}

int stat(const char *path, struct stat *status)
{
	return call_fails() ? -1 : (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

/* Opens, walks and maps: everything that the library does with a file. */
static int use(const char *path, weir_error *error)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mapping;
	int code = weir_checkpoint_open(path, NULL, &checkpoint, error);

	if (code)
		return code;
	code = weir_mapping_open(checkpoint, 0, &mapping, error);
	if (!code)
		code = weir_checkpoint_check_unchanged(checkpoint, error);
	else
		mapping = NULL;
	weir_mapping_close(mapping);
	weir_checkpoint_close(checkpoint);
	return code;
}

static int next_descriptor(void)
{
	int descriptor = dup(0);

	close(descriptor);
	return descriptor;
}

/* Fails the Nth for N = 1, 2, ... until nothing fails any more.  Gives how many failed. */
static unsigned long fail_each(const char *path, countdown *count, int expected_code)
{
	int descriptor = next_descriptor();
	long blocks = blocks_live;

	for (unsigned long n = 1;; n++) {
		weir_error error = {0};
		int code;

		*count = (countdown){.left = n};
		code = use(path, &error);
		count->left = 0;
		assert_int_equal(next_descriptor(), descriptor);
		assert_int_equal(blocks_live, blocks);
		if (!count->fired) {
			assert_int_equal(code, WEIR_OK);
			return n - 1;
		}
		if (code != expected_code &&
		    !(code == WEIR_EFORMAT && expected_code == WEIR_ENOMEM && strstr(path, "safetensors")))
			fail_msg("%s, failing number %lu: %s '%s'", path, n, weir_error_name(code), error.message);
		assert_int_equal(error.code, code);
	}
}

#define SET_INDEX "{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}"
#define TENSOR(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static const char *const paths[] = {"model.gguf", "one.safetensors", "set.safetensors.index.json"};
enum { PATHS = sizeof paths / sizeof paths[0] };

static void write_all(void)
{
	bytes file = sample_gguf();

	write_file("model.gguf", &file);
	write_safetensors("one.safetensors", TENSOR("a"), 4);
	write_safetensors("two.safetensors", TENSOR("b"), 4);
	write_bytes("set.safetensors.index.json", SET_INDEX, strlen(SET_INDEX));
}

static void every_allocation_that_fails(void **state)
{
	(void)state;
#ifdef FOREIGN_ALLOCATOR
	skip();
#endif
	write_all();
	for (unsigned i = 0; i < PATHS; i++)
		assert_true(fail_each(paths[i], &allocations, WEIR_ENOMEM) > 5);
}

static void every_call_that_fails(void **state)
{
	(void)state;
	write_all();
	calls_errno = EIO;
	for (unsigned i = 0; i < PATHS; i++)
		assert_true(fail_each(paths[i], &calls, WEIR_EIO) > 5);
}

static void every_call_without_memory(void **state)
{
	(void)state;
	write_all();
	calls_errno = ENOMEM;
	for (unsigned i = 0; i < PATHS; i++)
		assert_true(fail_each(paths[i], &calls, WEIR_ENOMEM) > 5);
}

static void short_reads_are_resumed(void **state)
{
	(void)state;
	write_all();
	for (read_bytes_most = 1; read_bytes_most < 8; read_bytes_most++) {
		for (unsigned i = 0; i < PATHS; i++)
			weir_checkpoint_close(open_valid(paths[i]));
	}
	read_bytes_most = 0;
}

/* open and pread are tried again; stat and fstat are never interrupted. */
static void interrupted_reads_are_retried(void **state)
{
	weir_error error;
	unsigned interrupted = 0;

	(void)state;
	write_all();
	calls_errno = EINTR;
	for (unsigned long n = 1;; n++) {
		calls = (countdown){.left = n};
		if (!use("model.gguf", &error) && calls.fired)
			interrupted++;
		calls.left = 0;
		if (!calls.fired)
			break;
	}
	assert_true(interrupted >= 3); /* the header's open and pread, the mapping's open */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("fail the Nth allocation for every N", every_allocation_that_fails),
		RULE("EIO: fail the Nth call for every N", every_call_that_fails),
		RULE("ENOMEM: fail the Nth call for every N", every_call_without_memory),
		RULE("short reads resumed", short_reads_are_resumed),
		RULE("EINTR retried", interrupted_reads_are_retried),
	};

	return cmocka_run_group_tests_name("checkpoint_faults", tests, NULL, NULL);
}
