/* doctor_drive.c - the drive below the path: its kind, direct reads, its rate, space for a pack.  See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli.h"
#include "doctor.h"
#include "os/direct.h"
#include "weir/disk.h"

#define MEASURE_SECONDS 1.0
#define FOLDER_SECONDS 2.0
#define FOLDER_FILE_BYTES (UINT64_C(256) << 20)
#define MEASURE_LEAST_BYTES (UINT64_C(16) << 20) /* of a file: a smaller one says nothing about a drive */
#define SLOW_BYTES_PER_SECOND (500e6) /* below what any NVMe drive gives */
#define PROBE_BYTES 65536

static bool is_folder(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- kind ---- */

static bool is_remote(const char *filesystem)
{
	static const char *const kinds[] = {"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "afs", "virtiofs"};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(filesystem, kinds[i]))
			return true;
	return !strncmp(filesystem, "fuse", 4);
}

static bool is_encrypted(const machine_drive *drive)
{
	char file[2 * MACHINE_TEXT_BYTES], uuid[MACHINE_TEXT_BYTES];

	snprintf(file, sizeof file, "%s/dm/uuid", drive->block);
	return drive->block[0] && machine_file(file, uuid, sizeof uuid) && !strncmp(uuid, "CRYPT-", 6);
}

static void check_kind(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "drive", DOCTOR_OK);
	const machine_drive *drive = &d->drive;

	if (!drive->device[0]) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "the mount that holds %s was not found", d->path);
		return;
	}
	doctor_say(finding, "%s on %s%s%s%s%s", drive->filesystem, drive->device, drive->model[0] ? ", " : "", drive->model,
		   drive->scheduler[0] ? ", scheduler " : "", drive->scheduler);
	if (is_remote(drive->filesystem)) {
		finding->verdict = DOCTOR_WARNING;
		doctor_advise(finding, "this is a network or user-space file system: keep models on a local drive");
	} else if (drive->rotational == 1 && !d->machine.virtual_machine) { /* virtual drives often claim it */
		finding->verdict = DOCTOR_WARNING;
		doctor_advise(finding, "the drive says that it rotates: weir reads at random places and needs an SSD");
	} else if (is_encrypted(drive)) {
		finding->verdict = DOCTOR_NOTE;
		doctor_advise(finding,
			      "the drive is encrypted (dm-crypt): decrypting takes processor time that generating wants");
	}
}

/* ---- direct reads ---- */

/* A file to try reads on: the path itself, or a temporary one without a name in the folder.  -1 with errno set. */
static int open_probe(const char *path)
{
	static char zeroes[PROBE_BYTES];
	int fd;

	if (!is_folder(path))
		return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 && (write(fd, zeroes, sizeof zeroes) != sizeof zeroes || fsync(fd) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void check_direct(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "direct reads", DOCTOR_OK);
	weir_direct direct;
	int fd = open_probe(d->path);

	if (fd < 0) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "no file could be tried: %s", strerror(errno));
		doctor_advise(finding, "name a model file instead of a folder");
		return;
	}
	weir_direct_enable(fd, &direct);
	close(fd);
	if (direct.works) {
		doctor_say(finding, "they work; offsets aligned to %" PRIu32 " bytes, memory to %" PRIu32, direct.offset_bytes,
			   direct.memory_bytes);
		return;
	}
	finding->verdict = DOCTOR_WARNING;
	doctor_say(finding, "%s does not do them here: every read goes through the page cache", d->drive.filesystem);
	doctor_advise(finding, "keep models on ext4, xfs or btrfs without compression");
}

/* ---- rate ---- */

static bool measure_folder(const char *path, double *rate, weir_error *error)
{
	const weir_disk_options options = {.seconds = FOLDER_SECONDS, .file_bytes = FOLDER_FILE_BYTES};
	weir_disk disk;

	if (weir_disk_measure(path, &options, &disk, error) < 0)
		return false;
	*rate = disk.bytes_per_second;
	return true;
}

static bool measure(const doctor *d, double *rate, weir_error *error)
{
	if (is_folder(d->path))
		return measure_folder(d->path, rate, error);
	return weir_disk_rate(d->path, NULL, 0, 0, UINT64_MAX, MEASURE_SECONDS, rate, error) == 0;
}

static void judge_rate(doctor_finding *finding, double rate, const char *when)
{
	char text[CLI_BYTES_TEXT];

	doctor_say(finding, "%s/s to random direct reads, %s", cli_bytes((uint64_t)rate, text), when);
	if (rate >= SLOW_BYTES_PER_SECOND)
		return;
	finding->verdict = DOCTOR_WARNING;
	doctor_advise(finding, "a streamed model is as fast as its drive: an NVMe drive gives five times this and more");
}

static void check_rate(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "drive rate", DOCTOR_OK);
	weir_error error;
	weir_disk disk;
	struct stat status;
	double rate;

	if (stat(d->path, &status) == 0 && S_ISREG(status.st_mode) && (uint64_t)status.st_size < MEASURE_LEAST_BYTES) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "%s is too small to measure a drive on", d->path);
	} else if (weir_disk_cached(d->path, &disk) == 0) {
		judge_rate(finding, disk.bytes_per_second, "as 'weir disk' measured it");
	} else if (!d->measure) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "not measured");
		doctor_advise(finding, "weir disk %s", d->path);
	} else if (measure(d, &rate, &error)) {
		judge_rate(finding, rate, "measured now for a moment");
	} else {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "it could not be measured: %s", error.message);
	}
}

/* ---- space ---- */

/* The folder itself, or the one that the file is in, by its whole name. */
static const char *folder_of(const char *path, char folder[PATH_MAX])
{
	char *slash;

	if (!realpath(path, folder))
		return path;
	slash = is_folder(folder) ? NULL : strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = '\0';
	return folder;
}

static void check_space(doctor *d)
{
	doctor_finding *finding = doctor_add(d, "space", DOCTOR_OK);
	char folder[PATH_MAX];
	char text[CLI_BYTES_TEXT], need[CLI_BYTES_TEXT];
	struct statvfs volume;
	struct stat status;
	uint64_t free_bytes;

	if (statvfs(d->path, &volume) < 0 || stat(d->path, &status) < 0) {
		finding->verdict = DOCTOR_UNKNOWN;
		doctor_say(finding, "not told: %s", strerror(errno));
		return;
	}
	free_bytes = (uint64_t)volume.f_bavail * volume.f_frsize;
	doctor_say(finding, "%s free in %s", cli_bytes(free_bytes, text), folder_of(d->path, folder));
	if (!S_ISREG(status.st_mode) || free_bytes >= (uint64_t)status.st_size)
		return;
	finding->verdict = DOCTOR_NOTE;
	doctor_advise(finding, "a pack of this model takes %s beside it", cli_bytes((uint64_t)status.st_size, need));
}

void doctor_check_drive(doctor *d)
{
	check_kind(d);
	check_direct(d);
	check_rate(d);
	check_space(d);
}
