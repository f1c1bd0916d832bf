/*
 * fuzz_safetensors.c - the input is u16 n, then a safetensors file without its length: n bytes of header, and data.
 *
 * The length is made to fit the input, so that the fuzzer spends its time behind it; what a wrong length does is for the unit
 * tests.
 */
#include "fuzz_testing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t length[8] = {0};
	size_t header;

	if (size < 2)
		return 0;
	header = (size_t)data[0] | (size_t)data[1] << 8;
	if (header > size - 2)
		header = size - 2;
	length[0] = (uint8_t)header;
	length[1] = (uint8_t)(header >> 8);
	fuzz_open_bytes(length, sizeof length, data + 2, size - 2);
	return 0;
}
