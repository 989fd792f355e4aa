/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one reader of ELF files: headers, sections, the dynamic section, and parts of the file in memory of ours. As elf.h says, the file is
 * not trusted: it is read with pread(), and each offset and size is checked.
 */
#ifndef MSCOPE_SYMBOLS_ELF_FILE_H
#define MSCOPE_SYMBOLS_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>

#include "base/compiler.h"

#if defined(__x86_64__)
#define ELF_OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define ELF_OWN_MACHINE EM_AARCH64
#else
#error "name the ELF machine of this architecture"
#endif

struct mscope_error;

struct elf_file {
	int fd;		/* the caller's */
	uint64_t bytes; /* when it was opened */
	Elf64_Ehdr header;
	Elf64_Phdr *segments;
	size_t segment_count;
};

struct elf_sections {
	Elf64_Shdr *headers;
	size_t count; /* 0: the file has none */
};

/* What the dynamic section says, in the order of the file. */
struct elf_dynamic {
	Elf64_Dyn *entries;
	size_t count; /* without the DT_NULL at the end */
};

/*
 * Reads the headers of a 64-bit little-endian ELF file of any type and machine; the errors are those of elf_open(). Needs
 * elf_file_fini() also when it fails.
 */
int elf_file_open(int fd, struct elf_file *out, struct mscope_error *err);
void elf_file_fini(struct elf_file *file);

/* Whether the bytes were in the file when it was opened: checked before memory is taken for them. */
bool elf_file_has(const struct elf_file *file, uint64_t offset, uint64_t bytes);

/* New memory with a part of the file, ended by a NUL. `out` is the address of the typed pointer. */
int elf_file_read(const struct elf_file *file, uint64_t offset, uint64_t bytes, uint64_t max,
		  void *out);

/* The first segment of a type; NULL if there is none. */
const Elf64_Phdr *elf_file_segment(const struct elf_file *file, uint32_t type);

/* Where an address lies in the file, and how many bytes of its segment do from there on. */
bool elf_file_place(const struct elf_file *file, uint64_t address, uint64_t *out_offset,
		    uint64_t *out_bytes);

/* As elf_file_read(), by the address. MSCOPE_E_DAMAGED if no segment has all of it. */
int elf_file_take(const struct elf_file *file, uint64_t address, uint64_t bytes, uint64_t max,
		  void *out);

/* The section headers, which the caller frees. None is not an error. */
int elf_file_sections(const struct elf_file *file, struct elf_sections *out);

/* The dynamic section, whose entries the caller frees. MSCOPE_E_ABSENT if there is none. */
int elf_file_dynamic(const struct elf_file *file, struct elf_dynamic *out);

/* The value of the last entry with this tag, as the loader takes it; 0 if there is none. */
uint64_t elf_dynamic_value(const struct elf_dynamic *dynamic, int64_t tag);

/*
 * The number of symbols in the dynamic symbol table, by its hash table; 0 if it has none. The GNU table of a file that exports nothing does
 * not count what the file imports.
 */
int elf_dynamic_symbols(const struct elf_file *file, const struct elf_dynamic *dynamic,
			uint64_t *out_count);

#endif
