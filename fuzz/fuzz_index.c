/*
 * fuzz_index.c - the input is a safetensors index, beside which lie two valid shards: the JSON reader, and the map.
 */
#include "fuzz_testing.h"

#include <fcntl.h>

static char folder[] = "/dev/shm/weir-fuzz-XXXXXX"; /* in memory: a drive would set the pace */
static char index_path[64];

static void write_file(const char *name, const void *data, size_t size)
{
	char path[64];
	int descriptor;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	fuzz_require(descriptor >= 0, "a file could not be made");
	fuzz_write(descriptor, data, size);
	close(descriptor);
}

static void write_shard(const char *name, const char *tensor)
{
	char shard[128] = {0};
	int length = snprintf(shard + 8, sizeof shard - 8, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
			      tensor);

	shard[0] = (char)length;
	write_file(name, shard, (size_t)length + 12);
}

static void remove_folder(void)
{
	static const char *const names[] = {"one.safetensors", "two.safetensors", "i.json"};
	char path[64];

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

static void prepare(void)
{
	if (index_path[0])
		return;
	fuzz_require(mkdtemp(folder) != NULL, "no folder for the shards");
	snprintf(index_path, sizeof index_path, "%s/i.json", folder);
	write_shard("one.safetensors", "a");
	write_shard("two.safetensors", "b");
	atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	prepare();
	write_file("i.json", data, size);
	fuzz_open(index_path);
	return 0;
}
