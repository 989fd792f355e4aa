/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind_seed DIRECTORY: writes the tables of the objects that it has loaded and that are small, each with a few addresses.
 */
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "unwind_input.h"

static const char *directory;
static int made;

/* The n-th function of the index, from the index. */
static int32_t function_at(const uint8_t *index, uint32_t n)
{
	int32_t code;

	memcpy(&code, index + 12 + 8 * n, sizeof(code));
	return code;
}

static int dump(struct dl_phdr_info *info, size_t size, void *arg)
{
	const ElfW(Phdr) *index = NULL;
	uint32_t i, count, n;

	(void)size;
	(void)arg;
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
			index = &info->dlpi_phdr[i];
	}
	for (i = 0; i < info->dlpi_phnum && index != NULL; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		const uint8_t *start = (const uint8_t *)(info->dlpi_addr + p->p_vaddr);
		const uint8_t *at = (const uint8_t *)(info->dlpi_addr + index->p_vaddr);

		if (p->p_type != PT_LOAD || index->p_vaddr - p->p_vaddr >= p->p_memsz ||
		    p->p_memsz > 64 << 10)
			continue;
		memcpy(&count, at + 8, sizeof(count));
		for (n = 0; n < count && n < 24; n++) {
			struct unwind_input input = {.pc = (int32_t)(at - start) +
							   function_at(at, n) + (int32_t)(n * 3),
						     .index = (uint32_t)(at - start),
						     .known = 0xffff0000u | 0xffffu,
						     .registers = n * 77};
			char path[4096];
			FILE *file;

			(void)snprintf(path, sizeof(path), "%s/tables%d", directory, made++);
			file = fopen(path, "w");
			if (file == NULL)
				return 1;
			(void)fwrite(&input, sizeof(input), 1, file);
			(void)fwrite(start, 1, p->p_memsz, file);
			(void)fclose(file);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	directory = argv[1];
	(void)dl_iterate_phdr(dump, NULL);
	return made > 0 ? 0 : 1;
}
