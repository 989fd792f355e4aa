/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shared object or a program asks of others: the libraries that it needs by name, and the symbols that it does not define, with the
 * library and the version where it names them. And the symbols that it exports.
 *
 * As in elf.h, the file is not trusted: it is read with pread(), each offset and size is checked. Not thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_ELF_IMPORTS_H
#define MSCOPE_SYMBOLS_ELF_IMPORTS_H

#include <stdbool.h>

#include "base/compiler.h"

struct mscope_error;

struct elf_symbol {
	const char *name;
	const char *library; /* "" if no version is asked for */
	const char *version; /* "" likewise */
	bool defined;
};

struct elf_imports {
	uint16_t machine;   /* EM_X86_64, ... */
	const char *soname; /* "" if it has none */
	const char **needed;
	size_t needed_count;
	struct elf_symbol *symbols;
	size_t symbol_count;
	char *strings; /* what the others point into */
};

/* 0, with `out` that needs elf_imports_fini(); MSCOPE_E_ABSENT: it has no dynamic section. The descriptor stays the caller's. */
int elf_imports_read(int fd, struct elf_imports *out, struct mscope_error *err);
void elf_imports_fini(struct elf_imports *imports);

#endif
