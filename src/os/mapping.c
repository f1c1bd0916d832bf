/*
 * mapping.c - a mapped extent: whole pages around it, and where in them it begins.
 *
 *      page       page       page
 *   |---------|---------|---------|      base ──────────► the first byte of the first page (what munmap wants)
 *        [== extent ==]                  data = base + offset within the page
 *
 * Pages are the file's, mapped private, so that even a process that may write to them cannot change the file; or pages of our
 * own that the extent was read into.  A mapping owns them and nothing else: no descriptor, no checkpoint.  So it may outlive
 * both, and any thread may drop the last reference to it.
 */
#include "os/mapping.h"

#include <errno.h>
#include <stdatomic.h>
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
	atomic_uint references;
	bool copied; /* pages of our own */
};

static const unsigned char nothing[1]; /* where an empty extent points */

static int fail_to_map(const weir_file *file, uint64_t offset, uint64_t bytes, weir_error *error)
{
	int sys_errno = errno;

	return weir_fail(error, weir_code_of_errno(sys_errno), file->path, offset, sys_errno, "cannot map %llu bytes",
			 (unsigned long long)bytes);
}

static int map_pages(const weir_file *file, uint64_t offset, weir_mapping *mapping, weir_error *error)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t lead = offset & (page_bytes - 1);

	mapping->base_bytes = (size_t)(lead + mapping->bytes);
	mapping->base = mmap(NULL, mapping->base_bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file->descriptor,
			     (off_t)(offset - lead));
	if (mapping->base == MAP_FAILED)
		return fail_to_map(file, offset, mapping->bytes, error);
	mapping->data = (const unsigned char *)mapping->base + lead;
	return WEIR_OK;
}

static int read_pages(const weir_file *file, uint64_t offset, weir_mapping *mapping, weir_error *error)
{
	int code;

	mapping->copied = true;
	mapping->base_bytes = (size_t)mapping->bytes;
	mapping->base = mmap(NULL, mapping->base_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapping->base == MAP_FAILED)
		return fail_to_map(file, offset, mapping->bytes, error);
	mapping->data = mapping->base;
	code = weir_file_read(file, offset, mapping->base, mapping->base_bytes, error);
	if (!code && mprotect(mapping->base, mapping->base_bytes, PROT_READ))
		code = fail_to_map(file, offset, mapping->bytes, error);
	if (code)
		munmap(mapping->base, mapping->base_bytes);
	return code;
}

int weir_mapping_of_file(const weir_file *file, uint64_t offset, uint64_t bytes, bool copy, weir_mapping **mapping,
			 weir_error *error)
{
	weir_mapping *made;
	int code = WEIR_OK;

	if (!weir_extent_within(offset, bytes, file->identity.bytes))
		return weir_fail(
			error, WEIR_EINVAL, file->path, offset, 0,
			"%llu bytes from here reach past the end of the file, which has %llu: check offset, shape and type",
			(unsigned long long)bytes, (unsigned long long)file->identity.bytes);
	made = calloc(1, sizeof *made);
	if (!made)
		return weir_fail(error, WEIR_ENOMEM, file->path, WEIR_ERROR_NO_OFFSET, 0, "out of memory");
	*made = (weir_mapping){.data = nothing, .bytes = bytes, .references = 1};
	if (bytes)
		code = copy ? read_pages(file, offset, made, error) : map_pages(file, offset, made, error);
	if (code)
		free(made);
	else
		*mapping = made;
	return code;
}

static int open_extent(const char *path, uint64_t offset, uint64_t bytes, bool copy, weir_mapping **mapping, weir_error *error)
{
	weir_file file;
	int code;

	if (!path || !mapping)
		return weir_fail(error, WEIR_EINVAL, path, WEIR_ERROR_NO_OFFSET, 0, "path and mapping must be given");
	*mapping = NULL;
	code = weir_file_open(path, &file, error);
	if (!code)
		code = weir_mapping_of_file(&file, offset, bytes, copy, mapping, error);
	weir_file_close(&file);
	return code;
}

int weir_mapping_open_extent(const char *path, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error)
{
	return open_extent(path, offset, bytes, false, mapping, error);
}

int weir_mapping_read_extent(const char *path, uint64_t offset, uint64_t bytes, weir_mapping **mapping, weir_error *error)
{
	return open_extent(path, offset, bytes, true, mapping, error);
}

int weir_mapping_allow_writes(weir_mapping *mapping, weir_error *error)
{
	int sys_errno;

	if (!mapping->base || !mprotect(mapping->base, mapping->base_bytes, PROT_READ | PROT_WRITE))
		return WEIR_OK;
	sys_errno = errno;
	return weir_fail(error, weir_code_of_errno(sys_errno), NULL, WEIR_ERROR_NO_OFFSET, sys_errno,
			 "cannot make %llu bytes writable", (unsigned long long)mapping->bytes);
}

const void *weir_mapping_data(const weir_mapping *mapping)
{
	return mapping->data;
}

uint64_t weir_mapping_bytes(const weir_mapping *mapping)
{
	return mapping->bytes;
}

bool weir_mapping_copied(const weir_mapping *mapping)
{
	return mapping->copied;
}

weir_mapping *weir_mapping_retain(weir_mapping *mapping)
{
	atomic_fetch_add_explicit(&mapping->references, 1, memory_order_relaxed);
	return mapping;
}

void weir_mapping_close(weir_mapping *mapping)
{
	if (!mapping || atomic_fetch_sub_explicit(&mapping->references, 1, memory_order_acq_rel) > 1)
		return;
	if (mapping->base)
		munmap(mapping->base, mapping->base_bytes);
	free(mapping);
}
