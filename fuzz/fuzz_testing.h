/*
 * fuzz_testing.h - what the fuzzers of checkpoints share: an input as a file in memory, and a walk over all that opens.
 *
 * A fuzzer passes when nothing crashes, leaks or hangs, and when whatever the library accepts keeps the catalog's invariants.
 */
#ifndef FUZZ_TESTING_H
#define FUZZ_TESTING_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/catalog.h"
#include "weir/checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void fuzz_require(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

static inline void fuzz_write(int descriptor, const void *data, size_t size)
{
	fuzz_require(write(descriptor, data, size) == (ssize_t)size, "the input could not be written");
}

/* Touches the ends of each tensor's mapping: an extent beyond the file would be SIGBUS. */
static inline void fuzz_map(const weir_checkpoint *checkpoint, uint32_t tensor)
{
	weir_mapping *mapping;
	const volatile unsigned char *at;

	if (weir_mapping_open(checkpoint, tensor, &mapping, NULL))
		return;
	at = weir_mapping_data(mapping);
	if (weir_mapping_bytes(mapping)) {
		(void)at[0];
		(void)at[weir_mapping_bytes(mapping) - 1];
	}
	weir_mapping_close(mapping);
}

static inline void fuzz_open(const char *path)
{
	weir_checkpoint *checkpoint;
	weir_error error = {0};
	char line[2048];

	if (weir_checkpoint_open(path, NULL, &checkpoint, &error)) {
		fuzz_require(error.code < 0 && error.message[0], "a failure without code or message");
		weir_error_format(&error, line, sizeof line);
		for (const char *byte = line; *byte; byte++)
			fuzz_require((unsigned char)*byte >= 0x20 && *byte != 0x7F, "a raw control character in an error line");
		return;
	}
	fuzz_require(!weir_catalog_check(checkpoint), "an invariant of the catalog does not hold");
	for (uint32_t i = 0; i < weir_checkpoint_tensors_count(checkpoint) && i < 64; i++)
		fuzz_map(checkpoint, i);
	weir_checkpoint_close(checkpoint);
}

/* Opens head[0..head_size) followed by data[0..size) as one file. */
static inline void fuzz_open_bytes(const void *head, size_t head_size, const uint8_t *data, size_t size)
{
	int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
	char path[64];

	fuzz_require(descriptor >= 0, "no file in memory");
	fuzz_write(descriptor, head, head_size);
	fuzz_write(descriptor, data, size);
	snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
	fuzz_open(path);
	close(descriptor);
}

#endif
