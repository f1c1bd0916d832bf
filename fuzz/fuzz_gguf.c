/*
 * fuzz_gguf.c - the input is a GGUF file without its first four bytes.
 */
#include "fuzz_testing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_open_bytes("GGUF", 4, data, size);
	return 0;
}
