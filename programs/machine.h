/*
 * machine.h - what figures were taken on: processor, memory, kernel, and the drive below a file; as the system tells, texts
 * empty and numbers 0 where it does not.
 *
 * Main thread only.  Reads /proc, /sys and statfs; changes nothing.
 */
#ifndef WEIR_PROGRAMS_MACHINE_H
#define WEIR_PROGRAMS_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define MACHINE_TEXT_BYTES 128

typedef struct machine {
	char system[MACHINE_TEXT_BYTES]; /* "Linux 6.18.0" */
	char architecture[MACHINE_TEXT_BYTES]; /* "x86_64" */
	char processor[MACHINE_TEXT_BYTES]; /* its name */
	uint32_t processors; /* that this process may use */
	bool virtual_machine; /* the processor says that a hypervisor is there */
	uint64_t memory_bytes;
} machine;

typedef struct machine_drive {
	char filesystem[MACHINE_TEXT_BYTES]; /* "ext4" */
	char mount[MACHINE_TEXT_BYTES];
	char device[MACHINE_TEXT_BYTES]; /* "/dev/nvme0n1p2" */
	char block[MACHINE_TEXT_BYTES]; /* folder in /sys/block of the whole drive, "" when it has none */
	char model[MACHINE_TEXT_BYTES];
	char scheduler[MACHINE_TEXT_BYTES]; /* the one in use */
	int rotational; /* 1, 0; -1 unknown */
} machine_drive;

void machine_read(machine *found);
void machine_drive_read(const char *path, machine_drive *drive);

/* {system, architecture, processor, processors, virtual_machine, memory_bytes, filesystem, drive, drive_model,
 * drive_rotational, drive_scheduler}; the caller lets go of it. */
json_t *machine_json(const machine *found, const machine_drive *drive);

/* The whole of a small file of the system without the newline at its end; false and "" when it is not there. */
bool machine_file(const char *path, char *text, size_t bytes);

#endif
