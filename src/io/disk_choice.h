/*
 * disk_choice.h - which settings of a drive are measured further, and which one is used: pure functions over their rates.
 *
 * Internal to the disk measurement.
 */
#ifndef WEIR_IO_DISK_CHOICE_H
#define WEIR_IO_DISK_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/disk.h"

#define WEIR_DISK_SLICES_MAX 48

/* What was measured of one point. */
typedef struct weir_disk_slices {
	bool running; /* still measured */
	uint32_t count;
	double rates[WEIR_DISK_SLICES_MAX]; /* ascending */
} weir_disk_slices;

/* All points run, nothing is measured yet. */
void weir_disk_slices_begin(weir_disk_slices *slices, uint32_t count);

/* Adds a slice to a point, and sets its rate to the median.  Does nothing when there are WEIR_DISK_SLICES_MAX. */
void weir_disk_slices_add(weir_disk_slices *slices, weir_disk_point *point, double bytes_per_second);

/* Stops the points that stage 1 or 2 need not look at: of those not far below the fastest it keeps the first few in the order
 * in which they would be chosen, and the fastest. */
void weir_disk_choice_narrow(const weir_disk *disk, weir_disk_slices *slices, uint32_t stage);

/* The point to use, of those that ran to the end (all when `slices` is NULL); by the rule in weir/disk.h.  WEIR_ENOTFOUND when
 * there is none. */
int weir_disk_choice_make(const weir_disk *disk, const weir_disk_slices *slices, weir_disk_point *chosen);

/* The same among the points of one method. */
int weir_disk_choice_of_method(const weir_disk *disk, const char *method, weir_disk_point *chosen);

#endif
