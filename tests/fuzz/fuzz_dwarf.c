/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an ELF file with DWARF: opening it and asking for frames must end with an answer. What is fuzzed here runs in a
 * process that may die (symbols/lines.h), so that a failure inside libdw costs no more than lines; it is worth knowing all the
 * same. Addresses are those of the seeds, whose code begins behind the headers, and a few far away.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/debug_file.h"
#include "symbols/dwarf_reader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Reads all texts to their ends. */
static void ask(struct dwarf_reader *reader, uint64_t vaddr)
{
	struct dwarf_frame frames[DWARF_FRAMES_MAX];
	size_t count = dwarf_reader_frames(reader, vaddr, frames), total = 0;

	if (count > DWARF_FRAMES_MAX)
		abort();
	while (count-- > 0) {
		const struct dwarf_frame *frame = &frames[count];

		total += frame->linkage_name == NULL ? 0 : strlen(frame->linkage_name);
		total += frame->name == NULL ? 0 : strlen(frame->name);
		total += frame->file == NULL ? 0 : strlen(frame->file);
	}
	if (total > (size_t)1 << 32)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct debug_wish wish = {
		.root = "/nonexistent", .path = "/module", .build_id = (const uint8_t *)""};
	struct dwarf_reader *reader = NULL;
	struct debug_files files;
	uint64_t i;

	wish.fd = memfd_create("dwarf", MFD_CLOEXEC);
	if (wish.fd < 0 || write(wish.fd, data, bytes) != (ssize_t)bytes)
		abort();
	if (debug_file_find(&wish, &files) == 0) {
		if (dwarf_reader_open(files.fd, files.alt_fd, &reader) == 0) {
			for (i = 0; i < 64; i++)
				ask(reader, 0x200 + i * 12);
			for (i = 0; i < 8; i++)
				ask(reader, i << 61 | i << 12);
		}
		dwarf_reader_close(reader);
		(void)close(files.fd);
		if (files.alt_fd >= 0)
			(void)close(files.alt_fd);
	}
	(void)close(wish.fd);
	return 0;
}
