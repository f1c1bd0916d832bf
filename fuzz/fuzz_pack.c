/*
 * fuzz_pack.c - the input is the fields of a pack's header, its index and checksums; the hashes over them are made to fit.
 *
 *   bytes 0..95 of the input     header from offset 16 on: flags ... hash of the checksums
 *   the rest                     the file from offset 4096 on
 *
 * The file has the size that the header states, when that is not much more than the input: what data a pack holds is of no
 * concern to opening it.
 */
#include "fuzz_testing.h"

#include "format/pack.h"
#include "format/reader.h"

#define FIELDS_BYTES 96u
#define FILE_BYTES_MAX (1u << 20)

static void put64(unsigned char *to, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		to[i] = (unsigned char)(value >> 8 * i);
}

/* Bytes [from, to) of the file, zeros past the input. */
static void hash_region(const unsigned char *file, uint64_t from, uint64_t to, unsigned char *hash)
{
	if (from <= to && to <= FILE_BYTES_MAX)
		put64(hash, weir_pack_hash(file + from, to - from));
}

static void fit_hashes(unsigned char *file)
{
	uint64_t alignment = weir_little_endian(file + 32, 8), index = weir_little_endian(file + 40, 8);
	uint64_t done = weir_little_endian(file + 56, 8), sums = WEIR_PACK_HEADER_BYTES + index;

	if (alignment && alignment <= FILE_BYTES_MAX && index <= FILE_BYTES_MAX) {
		sums = (sums + alignment - 1) / alignment * alignment;
		hash_region(file, WEIR_PACK_HEADER_BYTES, sums, file + 96);
		if (done <= FILE_BYTES_MAX / 8)
			hash_region(file, sums, sums + done * 8, file + 104);
	}
	put64(file + 112, weir_pack_hash(file, 112));
}

static void look_at(const weir_pack *pack)
{
	fuzz_require(!weir_pack_check(pack), "an invariant of the pack does not hold");
	for (uint32_t i = 0; i < weir_pack_tensors_count(pack) && i < 64; i++) {
		const weir_pack_tensor *tensor = weir_pack_tensor_at(pack, i);

		fuzz_require(weir_pack_find(pack, tensor->source.name) == tensor, "a tensor is not found by its name");
		(void)weir_pack_checksum(pack, i, tensor->slices_count - 1, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char file[FILE_BYTES_MAX + 8];
	int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
	size_t rest = size > FIELDS_BYTES ? size - FIELDS_BYTES : 0;
	weir_error error = {0};
	weir_pack *pack;
	uint64_t bytes;
	char path[64];

	fuzz_require(descriptor >= 0, "no file in memory");
	rest = rest < FILE_BYTES_MAX - WEIR_PACK_HEADER_BYTES ? rest : FILE_BYTES_MAX - WEIR_PACK_HEADER_BYTES;
	memset(file, 0, sizeof file);
	memcpy(file, "WEIRPACK\1\0\0\0\0\20\0\0", 16);
	memcpy(file + 16, data, size < FIELDS_BYTES ? size : FIELDS_BYTES);
	if (rest)
		memcpy(file + WEIR_PACK_HEADER_BYTES, data + FIELDS_BYTES, rest);
	fit_hashes(file);
	bytes = weir_little_endian(file + 24, 8);
	fuzz_write(descriptor, file, bytes <= FILE_BYTES_MAX ? (size_t)bytes : rest + WEIR_PACK_HEADER_BYTES);
	snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
	if (weir_pack_open_any(path, &pack, &error)) {
		fuzz_require(error.code < 0 && error.message[0], "a failure without code or message");
	} else {
		look_at(pack);
		weir_pack_close(pack);
	}
	close(descriptor);
	return 0;
}
