/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Function names of one ELF file: the build id, and which function covers an address.
 *
 * The file belongs to somebody else and is never trusted. It may be cut, damaged or made to harm
 * us, and it may shrink while we look: so everything is read with pread() into our own memory, each
 * offset and size is checked before it is used, and nothing is mapped. Work and memory are bounded
 * by the size of the file and by the limits below. Files are 64-bit little endian of any machine,
 * so traces of one architecture can be read on another.
 *
 * Which symbols count: functions and indirect functions of any binding, and untyped symbols that
 * are not local (assembler routines without a type), if they are defined in executable code. They
 * come from .symtab, or from .dynsym when there is none with functions, or from what PT_DYNAMIC
 * points to when there are no section headers.
 *
 * Which symbol covers an address: of those whose extent holds it, the one that starts last, as in
 * glibc's dladdr(). A symbol without a size reaches to the next symbol or to the end of its section
 * when it comes from .symtab, which lists all functions; from a dynamic table it covers its first
 * address only, because functions that are not exported may follow it (glibc does the same). It is
 * ignored inside a symbol that has a size. Of several symbols at one address the winner is the
 * first by: has a size; has a type; global before weak before local; fewer leading underscores;
 * earlier in the table.
 *
 * Not thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_ELF_H
#define MSCOPE_SYMBOLS_ELF_H

#include "base/compiler.h"

struct mscope_error;
struct elf;

/* Larger symbol or string tables are refused, names that are longer are taken for missing. */
#define ELF_TABLE_BYTES_MAX (UINT64_C(1) << 30)
#define ELF_NAME_BYTES_MAX  65536

/*
 * Reads the headers and the build id. Owns `fd` on success, leaves it to the caller on failure; the
 * file offset of `fd` is neither used nor moved. MSCOPE_E_FOREIGN: not a 64-bit little-endian
 * executable or shared object. MSCOPE_E_TRUNCATED, MSCOPE_E_DAMAGED, MSCOPE_E_LIMIT (more than 1024
 * program headers), or -errno.
 */
int elf_open(int fd, struct elf **out_elf, struct mscope_error *err);

void elf_close(struct elf *elf);

/* The descriptor of the file, until symbols are loaded; -1 afterwards. Borrowed. */
int elf_descriptor(const struct elf *elf);

/* Borrowed; NULL and *out_length 0 when the file has no build id. */
const uint8_t *elf_build_id(const struct elf *elf, size_t *out_length);

/*
 * The function that covers `vaddr`, a link-time address: the address in the process less the load
 * bias. The name is mangled, without a symbol version, and borrowed until elf_close().
 * MSCOPE_E_ABSENT when no function covers it.
 *
 * The first call reads the symbol table and closes the descriptor, whatever the result. If the
 * table cannot be read, this and each later call return the reason.
 */
int elf_lookup(struct elf *elf, uint64_t vaddr, const char **out_name, uint64_t *out_offset);

#endif
