/*
 * preload.h - libweir-mmap-preload.so, which keeps libllama from reading a whole model when it maps it.
 *
 * Programs that can be started anew name it in LD_PRELOAD.  A process that is running already loads it (dlopen) and binds the
 * library that is to map lazily.  The functions below are exported by that object, not by libweir.
 */
#ifndef WEIR_PRELOAD_H
#define WEIR_PRELOAD_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes the calls of mmap and posix_madvise in every loaded library of this name ("libllama.so") go to this object, which must
 * then stay loaded.  Returns how many call slots were bound: 0 when no such library is loaded, or on a platform where that
 * cannot be done.  Any thread, while no other loads libraries.
 */
typedef int (*weir_preload_bind_fn)(const char *library_name); /* "weir_preload_bind" */

#ifdef __cplusplus
}
#endif
#endif
