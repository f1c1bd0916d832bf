/*
 * replay.c - runs a fuzzer's entry over files, without libFuzzer: what fuzzing found stays a plain regression test.
 *
 *   fuzz_NAME_replay FILE|FOLDER...      every file, and every file directly in a folder, in order of name
 *
 * It checks nothing itself: the entry's own assertions, and the sanitizers of the build, do.  Prints how many inputs it ran,
 * as a test result; refuses to pass when there was none.
 */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PATH_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t bytes)
{
	uint8_t *data = malloc(bytes ? bytes : 1); /* exactly as long as the input: reading past it is seen */
	FILE *file = fopen(path, "rb");
	int failed = !data || !file || fread(data, 1, bytes, file) != bytes;

	if (failed)
		fprintf(stderr, "%s: cannot be read\n", path);
	else
		LLVMFuzzerTestOneInput(data, bytes);
	if (file)
		fclose(file);
	free(data);
	return failed ? -1 : 1;
}

/* Returns the number of inputs run, or -1. */
static int replay(const char *path)
{
	struct stat attributes;
	struct dirent **entries;
	int count, ran = 0;

	if (stat(path, &attributes) < 0) {
		fprintf(stderr, "%s: not there\n", path);
		return -1;
	}
	if (!S_ISDIR(attributes.st_mode))
		return replay_file(path, (size_t)attributes.st_size);
	count = scandir(path, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		char inner[PATH_BYTES];
		int length = snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);

		if (ran >= 0 && length > 0 && (size_t)length < sizeof inner && stat(inner, &attributes) == 0 &&
		    S_ISREG(attributes.st_mode))
			ran = replay_file(inner, (size_t)attributes.st_size) < 0 ? -1 : ran + 1;
		free(entries[i]);
	}
	if (count >= 0)
		free(entries);
	return ran;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int ran = replay(argv[i]);

		if (ran < 0)
			return 1;
		total += ran;
	}
	printf("%d passed, 0 failed\n", total);
	return total ? 0 : 1;
}
