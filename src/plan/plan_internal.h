/*
 * plan_internal.h - what the files of the plan share; pure functions, any thread.
 */
#ifndef WEIR_PLAN_PLAN_INTERNAL_H
#define WEIR_PLAN_PLAN_INTERNAL_H

#include "weir/plan.h"

/* Expected share of hits when `share` (0..1) of a class's chunks have a slot.  Rises from 0 to 1, never below `share`. */
double weir_plan_hit_rate(double share);

/* Fills the expectation (hit rate, bytes, times, limit) of a plan whose memory is divided. */
void weir_plan_forecast(const weir_plan_facts *facts, weir_plan *plan);

#endif
