/*
 * mapping.c - a mapped extent: whole pages around it, and where in them it begins.
 *
 *      page       page       page
 *   |---------|---------|---------|      base ──────────► the first byte of the first page (what munmap wants)
 *        [== extent ==]                  data = base + offset within the page
 *
 * A mapping owns its pages and nothing else: no descriptor, no checkpoint.  So it may outlive both, and any thread may close
 * it.
 */
#include "os/mapping.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/fail.h"

struct weir_mapping {
	void *base; /* NULL when the extent is empty */
	size_t base_bytes;
	const unsigned char *data;
	uint64_t bytes;
};

static const unsigned char nothing[1]; /* where an empty extent points */

static int map_pages(const weir_file *file, uint64_t offset, weir_mapping *mapping, weir_error *error)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t lead = offset & (page_bytes - 1);
	int sys_errno;

	if (!mapping->bytes)
		return WEIR_OK;
	mapping->base_bytes = (size_t)(lead + mapping->bytes);
	mapping->base = mmap(NULL, mapping->base_bytes, PROT_READ, MAP_SHARED, file->descriptor, (off_t)(offset - lead));
	if (mapping->base == MAP_FAILED) {
		sys_errno = errno;
		return weir_fail(error, weir_code_of_errno(sys_errno), file->path, offset, sys_errno, "cannot map %llu bytes",
				 (unsigned long long)mapping->bytes);
	}
	mapping->data = (const unsigned char *)mapping->base + lead;
	return WEIR_OK;
}

int weir_mapping_of_file(const weir_file *file, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error)
{
	weir_mapping *made;
	int code;

	if (!weir_extent_within(offset, bytes, file->identity.bytes))
		return weir_fail(
			error, WEIR_EINVAL, file->path, offset, 0,
			"%llu bytes from here reach past the end of the file, which has %llu: check offset, shape and type",
			(unsigned long long)bytes, (unsigned long long)file->identity.bytes);
	made = calloc(1, sizeof *made);
	if (!made)
		return weir_fail(error, WEIR_ENOMEM, file->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	*made = (weir_mapping){.data = nothing, .bytes = bytes};
	code = map_pages(file, offset, made, error);
	if (code)
		free(made);
	else
		*mapping = made;
	return code;
}

int weir_mapping_open_extent(const char *path, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error)
{
	weir_file file;
	int code;

	if (!path || !mapping)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "path and mapping must be given");
	*mapping = NULL;
	code = weir_file_open(path, &file, error);
	if (!code)
		code = weir_mapping_of_file(&file, offset, bytes, mapping, error);
	weir_file_close(&file);
	return code;
}

const void *weir_mapping_data(const weir_mapping *mapping)
{
	return mapping->data;
}

uint64_t weir_mapping_bytes(const weir_mapping *mapping)
{
	return mapping->bytes;
}

void weir_mapping_close(weir_mapping *mapping)
{
	if (!mapping)
		return;
	if (mapping->base)
		munmap(mapping->base, mapping->base_bytes);
	free(mapping);
}
