/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers of an ELF file, and parts of it in memory of ours. As elf.h says, the file is not trusted: it is read with pread(), and each
 * offset and size is checked.
 */
#ifndef MSCOPE_SYMBOLS_ELF_FILE_H
#define MSCOPE_SYMBOLS_ELF_FILE_H

#include <elf.h>
#include <stdbool.h>

#include "base/compiler.h"

struct mscope_error;

struct elf_file {
	int fd;		/* the caller's */
	uint64_t bytes; /* when it was opened */
	Elf64_Ehdr header;
	Elf64_Phdr *segments;
	size_t segment_count;
};

/* Reads the headers, as elf_open() says. Needs elf_file_fini() also when it fails. */
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

#endif
