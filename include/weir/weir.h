/* weir.h - everything that libweir offers; see the header of each noun. */
#ifndef WEIR_H
#define WEIR_H

#include "weir/array.h"
#include "weir/budget.h"
#include "weir/checkpoint.h"
#include "weir/disk.h"
#include "weir/error.h"
#include "weir/pack.h"
#include "weir/plan.h"
#include "weir/plugin.h"
#include "weir/preload.h"
#include "weir/simulate.h"
#include "weir/store.h"
#include "weir/version.h"

#endif
