/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of debug_file.c and dwarf_reader.c where elfutils was not there to build with: nothing has debug information. */
#include "base/status.h"
#include "symbols/debug_file.h"
#include "symbols/dwarf_reader.h"

int debug_file_find(const struct debug_wish *wish, struct debug_files *out_files)
{
	(void)wish;
	(void)out_files;
	return MSCOPE_E_ABSENT;
}

int dwarf_reader_open(int fd, int alt_fd, struct dwarf_reader **out_reader)
{
	(void)fd;
	(void)alt_fd;
	(void)out_reader;
	return MSCOPE_E_ABSENT;
}

void dwarf_reader_close(struct dwarf_reader *reader)
{
	(void)reader;
}

uint64_t dwarf_reader_unit(struct dwarf_reader *reader, uint64_t vaddr)
{
	(void)reader;
	(void)vaddr;
	return UINT64_MAX;
}

size_t dwarf_reader_frames(struct dwarf_reader *reader, uint64_t vaddr,
			   struct dwarf_frame frames[DWARF_FRAMES_MAX])
{
	(void)reader;
	(void)vaddr;
	(void)frames;
	return 0;
}
