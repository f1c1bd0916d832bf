/*
 * plan_internal.h - what the files of the plan share; pure functions, any thread.
 */
#ifndef WEIR_PLAN_PLAN_INTERNAL_H
#define WEIR_PLAN_PLAN_INTERNAL_H

#include "weir/plan.h"

/* Expected share of hits when `share` (0..1) of a class's chunks have a slot.  Rises from 0 to 1, never below `share`. */
double weir_plan_hit_rate(double share);

#define WEIR_PLAN_OVERLAP_LEAST (-4.0)

/* The same for the model of the facts, bent through what its runs have shown; and the expected read_share. */
double weir_plan_own_hit_rate(const weir_plan_facts *facts, double share);
double weir_plan_own_read_share(const weir_plan_facts *facts, double share);

/* points_count and the points are within their limits. */
bool weir_plan_points_are_sound(const weir_plan_facts *facts);

/* Fills the expectation (hit rate, bytes, times, limit) of a plan whose memory is divided. */
void weir_plan_forecast(const weir_plan_facts *facts, weir_plan *plan);

#endif
