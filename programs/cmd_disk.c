/*
 * cmd_disk.c - "weir disk PATH": measures the drive that holds PATH, shows the table, and remembers the result.
 *
 * A result that is already remembered is shown again, unless --refresh asks for a new one.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cli.h"
#include "commands.h"
#include "interrupt.h"
#include "os/pagecache.h"
#include "output.h"
#include "weir/disk.h"

#define SMALL_FILE_BYTES ((uint64_t)256 << 20)
#define MIB_PER_SECOND 1048576.0

typedef struct disk_run {
	cli_common common;
	const char *path;
	bool refresh;
	bool use_cache;
	bool cached; /* the result was remembered, not measured now */
	double seconds;
	bool page_cache_known;
	uint64_t page_cache_bytes; /* what the page cache held of the file before anything was read */
	weir_disk disk;
} disk_run;

static bool show_progress(double fraction, void *context)
{
	const disk_run *run = context;

	cli_progress(&run->common, "measuring", fraction);
	return !interrupt_seen();
}

static int measure(disk_run *run, weir_error *error)
{
	const weir_disk_options options = {.seconds = run->seconds, .progress = show_progress, .context = run};
	int code;

	interrupt_catch();
	code = weir_disk_measure(run->path, &options, &run->disk, error);
	cli_progress_clear(&run->common);
	return code;
}

/* Not being able to remember is no failure of the measurement. */
static void remember(const disk_run *run)
{
	weir_error error;
	char line[1024];

	if (weir_disk_remember(run->path, &run->disk, &error) == 0)
		return;
	weir_error_format(&error, line, sizeof line);
	cli_note(&run->common, "the result is not remembered: %s", line);
}

static int get_result(disk_run *run, weir_error *error)
{
	struct stat status;
	bool known = stat(run->path, &status) == 0;
	bool lies_on_it = known && (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)); /* what lies in a FIFO does not */
	int code;

	run->page_cache_known =
		known && S_ISREG(status.st_mode) && weir_page_cache_file_bytes(run->path, &run->page_cache_bytes);
	run->cached = lies_on_it && run->use_cache && !run->refresh && weir_disk_cached(run->path, &run->disk) == 0;
	if (run->cached)
		return 0;
	code = measure(run, error);
	if (code == 0 && run->use_cache)
		remember(run);
	return code;
}

/* ---- JSON ---- */

static json_t *points_json(const weir_disk *disk)
{
	json_t *points = json_array();

	for (uint32_t i = 0; i < disk->points_count; i++) {
		const weir_disk_point *point = &disk->points[i];
		json_t *object = json_object();

		json_object_set_new(object, "method", json_string(point->method));
		output_put_count(object, "queue_depth", point->queue_depth);
		output_put_count(object, "piece_bytes", point->piece_bytes);
		output_put_real(object, "bytes_per_second", point->bytes_per_second);
		output_put_count(object, "slices_count", point->slices_count);
		json_array_append_new(points, object);
	}
	return points;
}

static json_t *result_json(const disk_run *run)
{
	const weir_disk *disk = &run->disk;
	json_t *object = json_object();

	output_put_text(object, "path", run->path);
	json_object_set_new(object, "method", json_string(disk->method));
	output_put_count(object, "queue_depth", disk->queue_depth);
	output_put_count(object, "piece_bytes", disk->piece_bytes);
	output_put_real(object, "bytes_per_second", disk->bytes_per_second);
	json_object_set_new(object, "direct", json_boolean(disk->direct));
	output_put_count(object, "offset_alignment_bytes", disk->offset_alignment_bytes);
	output_put_count(object, "memory_alignment_bytes", disk->memory_alignment_bytes);
	output_put_real(object, "read_latency_us_p50", disk->read_latency_us_p50);
	output_put_real(object, "read_latency_us_p95", disk->read_latency_us_p95);
	output_put_real(object, "read_latency_us_p99", disk->read_latency_us_p99);
	output_put_real(object, "burst_latency_us", disk->burst_latency_us);
	output_put_count(object, "file_bytes", disk->file_bytes);
	json_object_set_new(object, "page_cache_bytes",
			    run->page_cache_known ? output_json_count(run->page_cache_bytes) : json_null());
	json_object_set_new(object, "measured_at_s", json_integer(disk->measured_at_s));
	json_object_set_new(object, "cached", json_boolean(run->cached));
	json_object_set_new(object, "points", points_json(disk));
	return object;
}

/* ---- table ---- */

/* The rate at a setting, or NAN. */
static double rate_at(const weir_disk *disk, const char *method, uint32_t queue_depth, uint32_t piece_bytes)
{
	for (uint32_t i = 0; i < disk->points_count; i++) {
		const weir_disk_point *point = &disk->points[i];

		if (!strcmp(point->method, method) && point->queue_depth == queue_depth && point->piece_bytes == piece_bytes)
			return point->bytes_per_second;
	}
	return NAN;
}

static bool has_method(const weir_disk *disk, const char *method)
{
	for (uint32_t i = 0; i < disk->points_count; i++)
		if (!strcmp(disk->points[i].method, method))
			return true;
	return false;
}

static bool has_row(const weir_disk *disk, const char *method, uint32_t piece_bytes)
{
	for (uint32_t i = 0; i < disk->points_count; i++)
		if (!strcmp(disk->points[i].method, method) && disk->points[i].piece_bytes == piece_bytes)
			return true;
	return false;
}

static void print_row(const weir_disk *disk, const char *method, uint32_t piece_bytes)
{
	char text[CLI_BYTES_TEXT];

	printf("  %10s", cli_bytes(piece_bytes, text));
	for (uint32_t depth = 1; depth <= 64; depth *= 2) {
		double rate = rate_at(disk, method, depth, piece_bytes);

		if (isnan(rate))
			printf("  %7s", "-");
		else
			printf("  %7.0f", rate / MIB_PER_SECOND);
	}
	printf("\n");
}

static void print_table(const weir_disk *disk, const char *method)
{
	if (!has_method(disk, method))
		return;
	printf("\n%s, MiB/s at queue depth\n  %10s", method, "read size");
	for (uint32_t depth = 1; depth <= 64; depth *= 2)
		printf("  %7" PRIu32, depth);
	printf("\n");
	for (uint32_t piece_bytes = 64u << 10; piece_bytes <= 8u << 20; piece_bytes *= 2)
		if (has_row(disk, method, piece_bytes))
			print_row(disk, method, piece_bytes);
}

static void print_when(const disk_run *run)
{
	time_t when = (time_t)run->disk.measured_at_s;
	struct tm local;
	char text[64];

	if (run->cached && localtime_r(&when, &local) && strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local))
		printf("measured         %s (--refresh measures again)\n", text);
}

static void print_page_cache(const disk_run *run)
{
	char bytes[CLI_BYTES_TEXT];

	if (run->page_cache_known && run->page_cache_bytes)
		printf("page cache       holds %s of the file, which weir reads from there while that is faster\n",
		       cli_bytes(run->page_cache_bytes, bytes));
}

static void print_chosen(const disk_run *run)
{
	const weir_disk *disk = &run->disk;
	char piece[CLI_BYTES_TEXT], rate[CLI_BYTES_TEXT];

	printf("rate             %s/s\n", cli_bytes((uint64_t)disk->bytes_per_second, rate));
	printf("with             %s, %s reads, queue depth %" PRIu32 "\n", disk->method, cli_bytes(disk->piece_bytes, piece),
	       disk->queue_depth);
	printf("one read alone   %.0f us (median), %.0f us (95 %%), %.0f us (99 %%)\n", disk->read_latency_us_p50,
	       disk->read_latency_us_p95, disk->read_latency_us_p99);
	if (disk->direct)
		printf("direct reads     yes, offsets aligned to %" PRIu32 " bytes, memory to %" PRIu32 "\n",
		       disk->offset_alignment_bytes, disk->memory_alignment_bytes);
	else
		printf("direct reads     no: this file system reads through the page cache\n");
	print_page_cache(run);
	print_when(run);
}

static int show(const disk_run *run)
{
	if (run->common.json)
		return output_json_print(&run->common, result_json(run));
	print_chosen(run);
	if (!run->common.quiet) {
		print_table(&run->disk, "uring");
		print_table(&run->disk, "threads");
	}
	if (run->disk.file_bytes < SMALL_FILE_BYTES)
		cli_note(&run->common, "the file is small: a cache in the drive may have answered");
	return cli_flush(&run->common);
}

/* ---- command ---- */

int cmd_disk(int argc, char **argv)
{
	disk_run run = {.use_cache = true};
	const cli_option options[] = {
		{.name = "refresh",
		 .kind = CLI_FLAG,
		 .target = &run.refresh,
		 .help = "measure, also when a result is remembered"},
		{.name = "no-cache",
		 .kind = CLI_CLEAR,
		 .target = &run.use_cache,
		 .help = "measure, and do not remember the result"},
		{.name = "seconds",
		 .kind = CLI_REAL,
		 .target = &run.seconds,
		 .value = "S",
		 .help = "about how long to read (default 5)",
		 .least = 0.1,
		 .most = 600},
	};
	const cli_command command = {
		.name = "disk",
		.operands = "PATH",
		.summary = "measures the drive that holds PATH the way weir will read it",
		.details = "PATH is a file, which is read at random places past the page cache, or a directory, in which a\n"
			   "temporary file of 512 MiB is written first.  Read sizes and queue depths are tried in turns; the\n"
			   "setting named is the lightest one within 5 % of the fastest.  The result is remembered for the\n"
			   "drive, and used by 'weir run', in ${XDG_CACHE_HOME:-~/.cache}/weir/disk.json.",
		.example = "  weir disk model.gguf\n"
			   "  weir disk --json --refresh /mnt/models | jq .bytes_per_second",
		CLI_OPTIONS(options),
		.operands_least = 1,
		.operands_most = 1,
	};
	char **operands;
	int operands_count;
	weir_error error;
	int exit_code = cli_parse(&command, &run.common, argc, argv, &operands, &operands_count);

	if (exit_code != CLI_CONTINUE)
		return exit_code;
	run.path = operands[0];
	if (get_result(&run, &error) != 0)
		return cli_fail(&run.common, &error);
	return show(&run);
}
