/*
 * bind.c - the third way for map_model.c's definitions to reach libllama: a process that is running already, such as a Python
 * interpreter, where neither a program's own symbols nor LD_PRELOAD can come first.
 *
 * A library calls mmap through a slot of its own that the dynamic linker filled:
 *
 *   libllama.so: call *slot ──► libc's mmap          before
 *   libllama.so: call *slot ──► map_model.c's mmap   after weir_preload_bind("libllama.so")
 *
 * Only the slots of the libraries that were named are changed, in memory; the files, and every other library, stay as they are.
 * Linux with glibc, x86-64 and AArch64; elsewhere nothing is found.
 *
 * Threads: any, while nobody else is loading or unloading libraries; calls that are under way end as they began.
 */
#undef _FILE_OFFSET_BITS
#undef _TIME_BITS
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "weir/preload.h"

#define PUBLIC __attribute__((visibility("default")))

#if defined __x86_64__
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined __aarch64__
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_SLOT(type) ((void)(type), false)
#endif

/* What the dynamic section of one library says. */
typedef struct library {
	const struct dl_phdr_info *info;
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Rela) * tables[2]; /* slots for calls, other relocations */
	size_t counts[2];
} library;

typedef struct search {
	const char *name;
	int bound;
} search;

static uintptr_t replacement_of(const char *name)
{
	if (!strcmp(name, "mmap"))
		return (uintptr_t)mmap;
	if (!strcmp(name, "mmap64"))
		return (uintptr_t)mmap64;
	if (!strcmp(name, "posix_madvise"))
		return (uintptr_t)posix_madvise;
	return 0;
}

/* "libllama.so" names /any/folder/libllama.so.0 too. */
static bool is_named(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
	size_t length = strlen(name);

	return !strncmp(file, name, length) && (!file[length] || file[length] == '.');
}

/* glibc has made the addresses in the dynamic section absolute. */
static void take_entry(library *self, const ElfW(Dyn) * entry)
{
	switch (entry->d_tag) {
	case DT_SYMTAB:
		self->symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
		break;
	case DT_STRTAB:
		self->names = (const char *)entry->d_un.d_ptr;
		break;
	case DT_JMPREL:
		self->tables[0] = (const ElfW(Rela) *)entry->d_un.d_ptr;
		break;
	case DT_PLTRELSZ:
		self->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
		break;
	case DT_RELA:
		self->tables[1] = (const ElfW(Rela) *)entry->d_un.d_ptr;
		break;
	case DT_RELASZ:
		self->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
		break;
	default:
		break;
	}
}

static bool read_library(library *self, const struct dl_phdr_info *info)
{
	const ElfW(Dyn) *entry = NULL;

	*self = (library){.info = info};
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	for (; entry && entry->d_tag != DT_NULL; entry++)
		take_entry(self, entry);
	return self->symbols && self->names;
}

/* The linker makes some slots read-only once they are filled (RELRO): those become so again. */
static bool is_sealed(const library *self, uintptr_t slot)
{
	for (int i = 0; i < self->info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &self->info->dlpi_phdr[i];
		uintptr_t start = self->info->dlpi_addr + header->p_vaddr;

		if (header->p_type == PT_GNU_RELRO && slot >= start && slot < start + header->p_memsz)
			return true;
	}
	return false;
}

static bool write_slot(const library *self, uintptr_t slot, uintptr_t function)
{
	uintptr_t page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	void *page = (void *)(slot & ~(page_bytes - 1));
	bool sealed = is_sealed(self, slot);

	if (sealed && mprotect(page, page_bytes, PROT_READ | PROT_WRITE))
		return false;
	__atomic_store_n((uintptr_t *)slot, function, __ATOMIC_RELEASE);
	if (sealed)
		mprotect(page, page_bytes, PROT_READ);
	return true;
}

static int bind_table(const library *self, const ElfW(Rela) * table, size_t count)
{
	int bound = 0;

	for (size_t i = 0; i < count; i++) {
		const ElfW(Sym) *symbol = &self->symbols[ELF64_R_SYM(table[i].r_info)];
		uintptr_t function;

		if (!IS_SLOT(ELF64_R_TYPE(table[i].r_info)))
			continue;
		function = replacement_of(self->names + symbol->st_name);
		if (function && write_slot(self, self->info->dlpi_addr + table[i].r_offset, function))
			bound++;
	}
	return bound;
}

static int visit(struct dl_phdr_info *info, size_t size, void *user)
{
	search *wanted = user;
	library self;

	(void)size;
	if (!info->dlpi_name || !is_named(info->dlpi_name, wanted->name) || !read_library(&self, info))
		return 0;
	for (int i = 0; i < 2; i++)
		wanted->bound += bind_table(&self, self.tables[i], self.tables[i] ? self.counts[i] : 0);
	return 0;
}

PUBLIC int weir_preload_bind(const char *library_name);

PUBLIC int weir_preload_bind(const char *library_name)
{
	search wanted = {.name = library_name};

	dl_iterate_phdr(visit, &wanted);
	return wanted.bound;
}
