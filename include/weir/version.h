/* version.h - the one place where the version number stands. */
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#define WEIR_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif
const char *weir_version(void); /* of the library that is loaded */
#ifdef __cplusplus
}
#endif
#endif
