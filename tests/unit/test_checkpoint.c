/*
 * test_checkpoint.c - what holds for every format: where a checkpoint is looked for, files that change, mappings.
 */
#include "format_testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

static void write_sample(const char *path)
{
	bytes file = sample_gguf();

	write_file(path, &file);
}

/* ---- where it is ---- */

static void arguments_must_be_given(void **state)
{
	weir_checkpoint *checkpoint;
	weir_error error;

	(void)state;
	assert_int_equal(weir_checkpoint_open(NULL, NULL, &checkpoint, &error), WEIR_EINVAL);
	assert_int_equal(weir_checkpoint_open("", NULL, &checkpoint, &error), WEIR_EINVAL);
	assert_int_equal(weir_checkpoint_open("a.gguf", NULL, NULL, NULL), WEIR_EINVAL);
	weir_checkpoint_close(NULL);
	weir_mapping_close(NULL);
}

static void files_that_are_not_there(void **state)
{
	(void)state;
	expect_refused("absent.gguf", WEIR_ENOTFOUND, "cannot open");
	expect_refused("absent", WEIR_ENOTFOUND, "cannot open");
	expect_refused("absent/model.safetensors", WEIR_ENOTFOUND, "cannot open");
}

static void content_tells_the_format_where_the_name_does_not(void **state)
{
	weir_checkpoint *checkpoint;

	(void)state;
	write_sample("blob");
	checkpoint = open_valid("blob");
	assert_int_equal(weir_checkpoint_format(checkpoint), WEIR_FORMAT_GGUF);
	weir_checkpoint_close(checkpoint);
	write_safetensors("blob", "{}", 0);
	checkpoint = open_valid("blob");
	assert_int_equal(weir_checkpoint_format(checkpoint), WEIR_FORMAT_SAFETENSORS);
	weir_checkpoint_close(checkpoint);
	write_bytes("blob", "text", 4);
	expect_refused("blob", WEIR_EFORMAT, "neither GGUF");
	write_bytes("blob", "", 0);
	expect_refused("blob", WEIR_EFORMAT, "neither GGUF");
}

static void a_directory_holds_exactly_one(void **state)
{
	(void)state;
	assert_int_equal(mkdir("models", 0700), 0);
	expect_refused("models", WEIR_EUNSUPPORTED, "holds no checkpoint");
	write_bytes("models/config.json", "{}", 2);
	expect_refused("models", WEIR_EUNSUPPORTED, "holds no checkpoint");
	write_sample("models/model.gguf");
	weir_checkpoint_close(open_valid("models"));
	weir_checkpoint_close(open_valid("models/"));
	write_safetensors("models/model.safetensors", "{}", 0);
	expect_refused("models", WEIR_EUNSUPPORTED, "holds 2 checkpoints: name the file");
}

static void regular_files_only(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket.gguf"};
	int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
	weir_mapping *mapping;

	(void)state;
	assert_int_equal(mkfifo("fifo.gguf", 0600), 0);
	expect_refused("fifo.gguf", WEIR_ENOTREGULAR, "this is a FIFO");
	assert_int_equal(rename("fifo.gguf", "fifo"), 0);
	expect_refused("fifo", WEIR_ENOTREGULAR, "this is a FIFO");
	assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
	expect_refused("socket.gguf", WEIR_ENOTREGULAR, "this is a socket");
	close(descriptor);
	expect_refused("/dev/zero", WEIR_ENOTREGULAR, "this is a device");
	assert_int_equal(symlink("/dev/zero", "zero.safetensors"), 0);
	expect_refused("zero.safetensors", WEIR_ENOTREGULAR, "this is a device");
	assert_int_equal(mkdir("folder.gguf", 0700), 0);
	expect_refused("folder.gguf", WEIR_EUNSUPPORTED, "holds no checkpoint");
	assert_int_equal(weir_mapping_open_extent("fifo", 0, 0, &mapping, NULL), WEIR_ENOTREGULAR);
}

static void too_many_open_files(void **state)
{
	struct rlimit before, none;

	(void)state;
	write_sample("model.gguf");
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = before;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	expect_refused("model.gguf", WEIR_ELIMIT, "cannot open");
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void no_descriptor_stays_open(void **state)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mapping;
	int before = dup(0), after;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(weir_mapping_open(checkpoint, 0, &mapping, NULL), WEIR_OK);
	expect_refused("absent.gguf", WEIR_ENOTFOUND, "");
	after = dup(0);
	assert_int_equal(after, before + 1);
	close(before);
	close(after);
	weir_mapping_close(mapping);
	weir_checkpoint_close(checkpoint);
}

/* ---- shapes and values ---- */

static void shapes_in_row_major_order(void **state)
{
	uint64_t shape[WEIR_RANK_MAX];
	weir_checkpoint *checkpoint;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	weir_tensor_shape_row_major(checkpoint, weir_checkpoint_find(checkpoint, "matrix"), shape);
	assert_int_equal(shape[0], 1);
	assert_int_equal(shape[1], 32);
	assert_int_equal(shape[2], 1);
	weir_checkpoint_close(checkpoint);
	write_safetensors("m.safetensors", "{\"m\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}}", 6);
	checkpoint = open_valid("m.safetensors");
	weir_tensor_shape_row_major(checkpoint, weir_checkpoint_find(checkpoint, "m"), shape);
	assert_int_equal(shape[0], 2);
	assert_int_equal(shape[1], 3);
	weir_checkpoint_close(checkpoint);
}

static void names_of_formats_types_and_values(void **state)
{
	(void)state;
	assert_string_equal(weir_format_name(WEIR_FORMAT_GGUF), "gguf");
	assert_string_equal(weir_format_name((weir_format)99), "unknown");
	assert_string_equal(weir_value_type_name(WEIR_VALUE_FLOAT64), "float64");
	assert_string_equal(weir_value_type_name((weir_value_type)13), "unknown");
	assert_null(weir_dtype_describe(WEIR_DTYPE_NONE));
	assert_null(weir_dtype_describe((weir_dtype)30));
	assert_null(weir_dtype_describe((weir_dtype)1000));
	assert_string_equal(weir_dtype_describe(WEIR_DTYPE_MXFP4)->name, "MXFP4");
}

/* ---- files that change ---- */

static void expect_changed(const weir_checkpoint *checkpoint)
{
	weir_mapping *mapping;
	weir_error error;

	assert_int_equal(weir_checkpoint_check_unchanged(checkpoint, &error), WEIR_ECHANGED);
	assert_string_equal(error.file, "model.gguf");
	assert_int_equal(weir_mapping_open(checkpoint, 0, &mapping, &error), WEIR_ECHANGED);
	assert_null(mapping);
}

static void an_unchanged_file(void **state)
{
	weir_checkpoint *checkpoint;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(weir_checkpoint_check_unchanged(checkpoint, NULL), WEIR_OK);
	weir_checkpoint_close(checkpoint);
}

static void a_file_of_another_size(void **state)
{
	weir_checkpoint *checkpoint;
	struct stat status;
	struct timespec times[2];

	(void)state;
	write_sample("model.gguf");
	assert_int_equal(stat("model.gguf", &status), 0);
	checkpoint = open_valid("model.gguf");
	assert_int_equal(truncate("model.gguf", 100), 0);
	times[0] = times[1] = status.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, "model.gguf", times, 0), 0);
	expect_changed(checkpoint);
	weir_checkpoint_close(checkpoint);
}

static void a_file_of_another_time(void **state)
{
	weir_checkpoint *checkpoint;
	struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000, .tv_nsec = 1}};

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(utimensat(AT_FDCWD, "model.gguf", times, 0), 0);
	expect_changed(checkpoint);
	weir_checkpoint_close(checkpoint);
}

static void a_file_that_was_replaced(void **state)
{
	weir_checkpoint *checkpoint;
	struct stat status;
	struct timespec times[2];

	(void)state;
	write_sample("model.gguf");
	assert_int_equal(stat("model.gguf", &status), 0);
	checkpoint = open_valid("model.gguf");
	write_sample("other");
	times[0] = times[1] = status.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, "other", times, 0), 0);
	assert_int_equal(rename("other", "model.gguf"), 0);
	expect_changed(checkpoint);
	weir_checkpoint_close(checkpoint);
}

static void a_file_that_was_removed(void **state)
{
	weir_checkpoint *checkpoint;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(unlink("model.gguf"), 0);
	assert_int_equal(weir_checkpoint_check_unchanged(checkpoint, NULL), WEIR_ENOTFOUND);
	weir_checkpoint_close(checkpoint);
}

/* ---- mappings ---- */

static void expect_counting(const weir_mapping *mapping, unsigned from, uint64_t count)
{
	const unsigned char *data = weir_mapping_data(mapping);

	assert_int_equal(weir_mapping_bytes(mapping), count);
	for (uint64_t i = 0; i < count; i++)
		assert_int_equal(data[i], (from + i) & 0xFF);
}

static void a_tensor_is_mapped_and_outlives_its_checkpoint(void **state)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mappings[2];

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(weir_mapping_open(checkpoint, 0, &mappings[0], NULL), WEIR_OK);
	assert_int_equal(weir_mapping_open(checkpoint, weir_checkpoint_index(checkpoint, "matrix"), &mappings[1], NULL),
			 WEIR_OK);
	weir_checkpoint_close(checkpoint);
	assert_int_equal(unlink("model.gguf"), 0);
	expect_counting(mappings[0], 0, 8);
	expect_counting(mappings[1], 32, 18);
	weir_mapping_close(mappings[0]);
	expect_counting(mappings[1], 32, 18);
	weir_mapping_close(mappings[1]);
}

static void a_mapping_survives_replacement_by_rename(void **state)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mapping;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(weir_mapping_open(checkpoint, 1, &mapping, NULL), WEIR_OK);
	write_bytes("other", "short", 5);
	assert_int_equal(rename("other", "model.gguf"), 0);
	expect_counting(mapping, 32, 18);
	weir_mapping_close(mapping);
	weir_checkpoint_close(checkpoint);
}

static void a_tensor_that_does_not_exist(void **state)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mapping;
	weir_error error;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	assert_int_equal(weir_mapping_open(checkpoint, 2, &mapping, &error), WEIR_EINVAL);
	assert_non_null(strstr(error.message, "the checkpoint has 2"));
	assert_int_equal(weir_mapping_open(checkpoint, UINT32_MAX, &mapping, &error), WEIR_EINVAL);
	weir_checkpoint_close(checkpoint);
}

static void a_tensor_without_bytes(void **state)
{
	weir_checkpoint *checkpoint;
	weir_mapping *mapping;

	(void)state;
	write_safetensors("z.safetensors", "{\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0);
	checkpoint = open_valid("z.safetensors");
	assert_int_equal(weir_mapping_open(checkpoint, 0, &mapping, NULL), WEIR_OK);
	assert_int_equal(weir_mapping_bytes(mapping), 0);
	assert_non_null(weir_mapping_data(mapping));
	weir_mapping_close(mapping);
	weir_checkpoint_close(checkpoint);
}

static void an_extent_over_pages_of_any_file(void **state)
{
	enum { BYTES = 3 * 4096 + 77 };
	static unsigned char content[BYTES];
	static const uint64_t offsets[] = {0, 1, 100, 4095, 4096, 4097, 8192, BYTES - 1, BYTES};
	weir_mapping *mapping;

	(void)state;
	for (unsigned i = 0; i < BYTES; i++)
		content[i] = (unsigned char)i;
	write_bytes("raw", content, BYTES);
	for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
		assert_int_equal(weir_mapping_open_extent("raw", offsets[i], BYTES - offsets[i], &mapping, NULL), WEIR_OK);
		expect_counting(mapping, (unsigned)offsets[i], BYTES - offsets[i]);
		weir_mapping_close(mapping);
	}
}

static void an_extent_past_the_end(void **state)
{
	static const uint64_t extents[][2] = {{0, 101},	       {100, 1},	{101, 0}, {50, 51},
					      {UINT64_MAX, 2}, {2, UINT64_MAX}, {4096, 1}};
	weir_mapping *mapping;
	weir_error error;

	(void)state;
	write_bytes("raw", (char[100]){0}, 100);
	for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
		assert_int_equal(weir_mapping_open_extent("raw", extents[i][0], extents[i][1], &mapping, &error), WEIR_EINVAL);
		assert_null(mapping);
		assert_non_null(strstr(error.message, "which has 100: check offset, shape and type"));
	}
	assert_int_equal(weir_mapping_open_extent("absent", 0, 1, &mapping, &error), WEIR_ENOTFOUND);
	assert_int_equal(weir_mapping_open_extent(NULL, 0, 1, &mapping, &error), WEIR_EINVAL);
}

static void *close_mapping(void *mapping)
{
	weir_mapping_close(mapping);
	return NULL;
}

static void any_thread_may_close(void **state)
{
	enum { COUNT = 64 };
	pthread_t threads[COUNT];
	weir_checkpoint *checkpoint;

	(void)state;
	write_sample("model.gguf");
	checkpoint = open_valid("model.gguf");
	for (unsigned i = 0; i < COUNT; i++) {
		weir_mapping *mapping;

		assert_int_equal(weir_mapping_open(checkpoint, i % 2, &mapping, NULL), WEIR_OK);
		assert_int_equal(pthread_create(&threads[i], NULL, close_mapping, mapping), 0);
	}
	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	weir_checkpoint_close(checkpoint);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RULE("arguments must be given", arguments_must_be_given),
		RULE("files that are not there", files_that_are_not_there),
		RULE("content tells the format where the name does not", content_tells_the_format_where_the_name_does_not),
		RULE("a directory holds exactly one checkpoint", a_directory_holds_exactly_one),
		RULE("reads never block on a FIFO, a socket, a device: regular files only", regular_files_only),
		RULE("EMFILE reported with file", too_many_open_files),
		RULE("no descriptor stays open", no_descriptor_stays_open),
		RULE("shapes in row-major order", shapes_in_row_major_order),
		RULE("names of formats, types and values", names_of_formats_types_and_values),
		RULE("an unchanged file", an_unchanged_file),
		RULE("files that change: size", a_file_of_another_size),
		RULE("files that change: mtime", a_file_of_another_time),
		RULE("files that change: replacement", a_file_that_was_replaced),
		RULE("files that change: removal", a_file_that_was_removed),
		RULE("a mapping outlives its checkpoint", a_tensor_is_mapped_and_outlives_its_checkpoint),
		RULE("replacement while mapped does not harm", a_mapping_survives_replacement_by_rename),
		RULE("a tensor that does not exist", a_tensor_that_does_not_exist),
		RULE("a tensor without bytes", a_tensor_without_bytes),
		RULE("an extent over pages of any file", an_extent_over_pages_of_any_file),
		RULE("an extent past the end", an_extent_past_the_end),
		RULE("any thread may close a mapping", any_thread_may_close),
	};

	return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}
