/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions, files and lines of addresses by the DWARF of one ELF file, inlined functions included.
 *
 * Reads through the low level of elfutils' libdw. libdw trusts files more than we do: damaged ones make it crash, run for
 * hours, or leave the process when memory is short. So a reader is used only in a process that may die (symbols/lines.h).
 * DWARF 2 to 5; of split DWARF the part that is in the file itself, which has lines but no functions.
 *
 * Not thread-safe.
 */
#ifndef MSCOPE_SYMBOLS_DWARF_READER_H
#define MSCOPE_SYMBOLS_DWARF_READER_H

#include "base/compiler.h"

struct dwarf_reader;

/* Deeper inlining is cut: the outermost frames are left out. */
#define DWARF_FRAMES_MAX 64

/* Where an instruction stands in the source, or the call of the inlined function before it. */
struct dwarf_frame {
	const char *linkage_name; /* mangled; NULL when DWARF has none */
	const char *name;	  /* as in the source, with its scopes; NULL when DWARF has none */
	const char *file;	  /* NULL when unknown */
	uint32_t line;		  /* 0 when unknown */
};

/*
 * Opens a file that has DWARF. `alt_fd` is the file that it shares DWARF with (.gnu_debugaltlink), or -1. Both descriptors stay
 * the caller's and stay open while the reader lives. MSCOPE_E_DAMAGED: no DWARF, or none that libdw reads.
 */
int dwarf_reader_open(int fd, int alt_fd, struct dwarf_reader **out_reader);

void dwarf_reader_close(struct dwarf_reader *reader);

/*
 * A number of the compilation unit that holds `vaddr`, UINT64_MAX if none does. Asking for addresses in the order of units is
 * fast: of what a unit holds, only the last one is kept for sure.
 */
uint64_t dwarf_reader_unit(struct dwarf_reader *reader, uint64_t vaddr);

/*
 * Frames of a link-time address, innermost first; the last one is the function that has code of its own, unless there are more
 * than DWARF_FRAMES_MAX. Returns their number, 0 when DWARF does not tell of the address. Texts are borrowed until the next
 * call.
 */
size_t dwarf_reader_frames(struct dwarf_reader *reader, uint64_t vaddr,
			   struct dwarf_frame frames[DWARF_FRAMES_MAX]);

#endif
