/* version.c - the version of the library that is loaded. */
#include "weir/version.h"

const char *weir_version(void)
{
	return WEIR_VERSION;
}
