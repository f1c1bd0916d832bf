/*
 * doctor.h - what the files of `weir doctor` share: a list of findings, each about one thing that limits weir on this machine.
 *
 * A finding states what was read from the system or what came of trying, never what is usual.  Advice is one line and only
 * there when something can be changed.  Checks change nothing and are run one after the other; main thread only.
 */
#ifndef WEIR_PROGRAMS_DOCTOR_H
#define WEIR_PROGRAMS_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "machine.h"

#define DOCTOR_FINDINGS_MAX 32
#define DOCTOR_LINE_BYTES 320

typedef enum doctor_verdict {
	DOCTOR_OK, /* does not limit weir */
	DOCTOR_NOTE, /* may, under conditions that the finding names */
	DOCTOR_WARNING, /* does, and can be changed as advised */
	DOCTOR_UNKNOWN /* the system does not tell */
} doctor_verdict;

typedef struct doctor_finding {
	const char *name; /* "direct reads" */
	doctor_verdict verdict;
	char says[DOCTOR_LINE_BYTES];
	char advice[DOCTOR_LINE_BYTES]; /* "" for none */
} doctor_finding;

typedef struct doctor {
	const char *path; /* a model, or a folder that models are in */
	bool measure; /* the drive may be read for a second */
	machine machine;
	machine_drive drive;
	doctor_finding findings[DOCTOR_FINDINGS_MAX];
	int findings_count;
} doctor;

/* Adds a finding; its lines are then written with doctor_say and doctor_advise.  Beyond the limit the last one is reused. */
doctor_finding *doctor_add(doctor *d, const char *name, doctor_verdict verdict);
__attribute__((format(printf, 2, 3))) void doctor_say(doctor_finding *finding, const char *format, ...);
__attribute__((format(printf, 2, 3))) void doctor_advise(doctor_finding *finding, const char *format, ...);

const char *doctor_verdict_name(doctor_verdict verdict);

void doctor_check_drive(doctor *d); /* doctor_drive.c */
void doctor_check_reading(doctor *d); /* doctor_reading.c: io_uring, page-locked buffers */
void doctor_check_memory(doctor *d); /* doctor_memory.c */
void doctor_check_processor(doctor *d); /* doctor_processor.c */

#endif
