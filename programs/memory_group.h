/*
 * memory_group.h - holds a child process to a number of bytes, by whatever this system offers to this user:
 *
 *   a cgroup of its own   version 1 or 2, below the group that this process is in (version 2: or beside it), as root or where
 *                         the tree is delegated
 *   systemd-run           a scope of the user's own systemd, where there is one
 *   nothing               the reason is kept, and nothing is limited
 *
 * A group is made for one child and removed after it.  Nothing is swapped in it.  What the limits above this process allow is
 * not changed.  Main thread only; memory_group_enter runs in the child, after fork.
 */
#ifndef WEIR_PROGRAMS_MEMORY_GROUP_H
#define WEIR_PROGRAMS_MEMORY_GROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/limits.h"
#include "weir/error.h"

typedef enum memory_group_kind { MEMORY_GROUP_NONE, MEMORY_GROUP_V1, MEMORY_GROUP_V2, MEMORY_GROUP_SYSTEMD } memory_group_kind;

/* What this system offers; found once. */
typedef struct memory_group_method {
	memory_group_kind kind;
	char folder[WEIR_LIMITS_PATH_BYTES]; /* V1, V2: groups are made in it */
	char reason[128]; /* NONE: why not */
} memory_group_method;

/* One child's group.  Counts stay those last read. */
typedef struct memory_group {
	memory_group_kind kind;
	char path[WEIR_LIMITS_PATH_BYTES + 64]; /* its folder; "" until it is known (SYSTEMD) or when there is none */
	char procs[WEIR_LIMITS_PATH_BYTES + 96]; /* the file that takes the child's number; "" for none */
	uint64_t bytes;
	uint64_t peak_bytes, hits_count; /* most that was charged; how often the limit was met; OUTPUT_NONE: not counted */
	bool enforced; /* the kernel has the limit */
} memory_group;

#define MEMORY_GROUP_WORDS_MAX 12

void memory_group_find(memory_group_method *method);
const char *memory_group_name(memory_group_kind kind); /* "cgroup v1", ..., "none" */

/* Makes a group of `bytes`; 0 bytes, or a method of kind NONE: no limit, and memory_group_close has nothing to do. */
int memory_group_open(const memory_group_method *method, uint64_t bytes, memory_group *group, weir_error *error);

/* Words to put before a command (SYSTEMD), in `words`, their text in `text`; how many. */
int memory_group_words(const memory_group *group, const char *words[MEMORY_GROUP_WORDS_MAX], char text[2][48]);

/* In the child, before it becomes another program: false when it could not enter. */
bool memory_group_enter(const memory_group *group);

/* While the child runs, and after it. */
void memory_group_read(memory_group *group, pid_t child);

/* Removes the group once its child has ended. */
void memory_group_close(memory_group *group);

#endif
