/*
 * giveup.h - the ways in which the engine ends a process, caught (internal; the programs use it).
 *
 * libllama and ggml assert what they believe of a model and end the process when it does not hold; an exception that leaves
 * them ends it too.  Nothing of the engine can be used after that, but the process can still say what happened.
 */
#ifndef WEIR_ENGINE_GIVEUP_H
#define WEIR_ENGINE_GIVEUP_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on a failed assertion or an exception that nobody catches calls `give_up` with what the engine says about it, on the
 * thread where it happens.  It must not return, and must not enter the engine.  For the whole process; NULL undoes it. */
void weir_engine_on_give_up(void (*give_up)(const char *message));

/* Whether the engine's message, of an assertion too, speaks of memory, descriptors or a drive that it lacks: then nothing is
 * wrong with the file that it was reading. */
bool weir_engine_lacks_resources(const char *message);

#ifdef __cplusplus
}
#endif
#endif
