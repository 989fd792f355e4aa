/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the file that has the DWARF of a module, which is the module's own file or one that was split off:
 *
 *     the module itself                                    when it has .debug_info
 *     /usr/lib/debug/.build-id/ab/cdef.debug               by build id
 *     DIR/NAME, DIR/.debug/NAME, /usr/lib/debug/DIR/NAME   by .gnu_debuglink; DIR is the module's directory
 *
 * each below the root of the module and below our own. A file that was split off counts when it has the same build id, or,
 * when there is none to compare, the checksum that .gnu_debuglink asks for. Nothing is asked of the network.
 *
 * Files are not trusted, as elf.h says. No state.
 */
#ifndef MSCOPE_SYMBOLS_DEBUG_FILE_H
#define MSCOPE_SYMBOLS_DEBUG_FILE_H

#include "base/compiler.h"

/* The module whose DWARF is wanted. */
struct debug_wish {
	int fd;		  /* its file, borrowed; -1 when it has to be opened */
	const char *root; /* where `path` begins: "" or "/proc/PID/root" */
	const char *path; /* absolute */
	const uint8_t *build_id;
	size_t build_id_length; /* 0 when the file has none */
};

/* Descriptors that the caller closes. */
struct debug_files {
	int fd;
	int alt_fd; /* what .gnu_debugaltlink names, DWARF shared between files; -1 when there is none */
};

/* MSCOPE_E_ABSENT when there is no such file. */
int debug_file_find(const struct debug_wish *wish, struct debug_files *out_files);

#endif
