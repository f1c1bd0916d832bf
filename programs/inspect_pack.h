/* inspect_pack.h - `weir inspect` of a pack: what lies where in it.  Main thread only. */
#ifndef WEIR_PROGRAMS_INSPECT_PACK_H
#define WEIR_PROGRAMS_INSPECT_PACK_H

#include "cli.h"

/* Opens the pack, which validates it, and shows it.  The exit code. */
int inspect_pack(const cli_common *common, const char *path);

#endif
