/*
 * cgroup.c - the text of cgroups: where the memory hierarchy is mounted, where in it this process is, what its files say.
 *
 * An example, cgroup v1 in a container that sees a part of the hierarchy:
 *
 *   /proc/self/cgroup      4:memory:/docker/ab12/job
 *   /proc/self/mountinfo   35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
 *                                     └── root       └── point
 *   folder                 /sys/fs/cgroup/memory/job   and, above it, /sys/fs/cgroup/memory
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/limits.h"
#include "os/proctext.h"

#define V1_NO_LIMIT (UINT64_C(1) << 62) /* v1 writes LONG_MAX rounded down to a page for "no limit" */

/* One word of a line: not ended by NUL. */
struct word {
	const char *text;
	size_t length;
};

static bool word_is(struct word word, const char *text)
{
	return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

/* Whether a comma-separated list holds `item`. */
static bool list_holds(struct word list, const char *item)
{
	struct word part;

	for (size_t at = 0; at <= list.length; at += part.length + 1) {
		part.text = list.text + at;
		for (part.length = 0; at + part.length < list.length && part.text[part.length] != ',';)
			part.length++;
		if (word_is(part, item))
			return true;
	}
	return false;
}

/* The next word of the line and the place after it; an empty word at its end. */
static struct word next_word(const char **at, const char *separators)
{
	struct word word = {*at, strcspn(*at, separators)};

	*at += word.length;
	if (**at && **at != '\n')
		++*at;
	return word;
}

static bool copy_word(struct word word, char out[WEIR_LIMITS_PATH_BYTES])
{
	if (word.length >= WEIR_LIMITS_PATH_BYTES)
		return false;
	memcpy(out, word.text, word.length);
	out[word.length] = '\0';
	return true;
}

bool weir_cgroup_parse_path(const char *text, weir_cgroup_version version, char path[WEIR_LIMITS_PATH_BYTES])
{
	for (const char *line = text; line && *line; line = weir_proctext_next(line)) {
		const char *at = line;
		struct word number = next_word(&at, ":\n");
		struct word controllers = next_word(&at, ":\n");
		struct word rest = next_word(&at, "\n");
		bool unified = word_is(number, "0") && !controllers.length;

		if (version == WEIR_CGROUP_V2 ? !unified : !list_holds(controllers, "memory"))
			continue;
		return rest.length && rest.text[0] == '/' && copy_word(rest, path);
	}
	return false;
}

static bool is_octal(const char *text)
{
	return text[0] >= '0' && text[0] <= '3' && text[1] >= '0' && text[1] <= '7' && text[2] >= '0' && text[2] <= '7';
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static bool copy_unescaped(struct word word, char out[WEIR_LIMITS_PATH_BYTES])
{
	size_t length = 0;

	for (size_t at = 0; at < word.length; at++) {
		char byte = word.text[at];

		if (length + 1 >= WEIR_LIMITS_PATH_BYTES)
			return false;
		if (byte == '\\' && at + 3 < word.length && is_octal(word.text + at + 1)) {
			byte = (char)((word.text[at + 1] - '0') << 6 | (word.text[at + 2] - '0') << 3 |
				      (word.text[at + 3] - '0'));
			at += 3;
		}
		out[length++] = byte;
	}
	out[length] = '\0';
	return true;
}

/* One line of mountinfo; false when it is no hierarchy that counts memory. */
static bool parse_mount_line(const char *line, weir_cgroup_version version, weir_cgroup_mount *mount)
{
	struct word root, point, word, options;
	const char *at = line;

	for (int i = 0; i < 3; i++)
		next_word(&at, " \n");
	root = next_word(&at, " \n");
	point = next_word(&at, " \n");
	do
		word = next_word(&at, " \n");
	while (word.length && !word_is(word, "-"));
	word = next_word(&at, " \n");
	next_word(&at, " \n");
	options = next_word(&at, " \n");
	if (!word_is(word, version == WEIR_CGROUP_V2 ? "cgroup2" : "cgroup"))
		return false;
	if (version == WEIR_CGROUP_V1 && !list_holds(options, "memory"))
		return false;
	return point.length && copy_unescaped(root, mount->root) && copy_unescaped(point, mount->point);
}

/* What of `path` lies below `root`, or NULL when it is elsewhere ("/.." leads out of a cgroup namespace). */
static const char *path_below(const char *root, const char *path)
{
	size_t length = strcmp(root, "/") ? strlen(root) : 0;

	if (!strncmp(path, "/..", 3) || strncmp(path, root, length) || (path[length] && path[length] != '/'))
		return NULL;
	return path + length;
}

bool weir_cgroup_parse_mount(const char *text, weir_cgroup_version version, const char *path, weir_cgroup_mount *mount)
{
	weir_cgroup_mount candidate;
	bool found = false, inside = false;

	for (const char *line = text; line && *line; line = weir_proctext_next(line)) {
		bool covers;

		if (!parse_mount_line(line, version, &candidate))
			continue;
		covers = path_below(candidate.root, path) != NULL;
		if (found && (inside > covers || (inside == covers && strlen(candidate.root) >= strlen(mount->root))))
			continue;
		*mount = candidate;
		found = true;
		inside = covers;
	}
	return found;
}

bool weir_cgroup_folder(const weir_cgroup_mount *mount, const char *path, char folder[WEIR_LIMITS_PATH_BYTES])
{
	const char *below = path_below(mount->root, path);
	int length = snprintf(folder, WEIR_LIMITS_PATH_BYTES, "%s%s", mount->point, below ? below : "");

	if (length < 0 || length >= WEIR_LIMITS_PATH_BYTES)
		return false;
	while (length > 1 && folder[length - 1] == '/')
		folder[--length] = '\0';
	return true;
}

uint64_t weir_cgroup_parse_limit(const char *text)
{
	uint64_t limit;
	char *end;

	if (*text < '0' || *text > '9')
		return WEIR_LIMITS_NONE;
	errno = 0;
	limit = strtoull(text, &end, 10);
	if (errno || (*end && *end != '\n') || limit >= V1_NO_LIMIT)
		return WEIR_LIMITS_NONE;
	return limit;
}

/* The sum of those fields that are there; it stays at the largest number rather than wrap. */
static uint64_t sum_fields(const char *text, const char *const *keys)
{
	uint64_t sum = 0, value;

	for (; *keys; keys++)
		if (weir_proctext_number(text, *keys, &value) && __builtin_add_overflow(sum, value, &sum))
			sum = UINT64_MAX;
	return sum;
}

uint64_t weir_cgroup_parse_held(const char *text, weir_cgroup_version version)
{
	static const char *const v1_all[] = {"total_rss", "total_shmem", NULL};
	static const char *const v1_own[] = {"rss", "shmem", NULL};
	static const char *const v2[] = {"anon", "shmem", "sock", NULL};
	static const char *const v2_kernel[] = {"kernel_stack", "pagetables", "percpu", "slab_unreclaimable", NULL};
	uint64_t kernel, reclaimable, sum;

	if (version == WEIR_CGROUP_V1)
		return weir_proctext_number(text, "total_rss", &sum) ? sum_fields(text, v1_all) : sum_fields(text, v1_own);
	if (!weir_proctext_number(text, "kernel", &kernel))
		kernel = sum_fields(text, v2_kernel);
	else if (weir_proctext_number(text, "slab_reclaimable", &reclaimable))
		kernel -= reclaimable < kernel ? reclaimable : kernel;
	return __builtin_add_overflow(sum_fields(text, v2), kernel, &sum) ? UINT64_MAX : sum;
}
