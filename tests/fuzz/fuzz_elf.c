/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an ELF file: opening it and asking for names must end with an answer. The addresses
 * asked for are spread over the program headers that the input claims, where symbols may lie, and
 * over all of the address space.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbols/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void ask(struct elf *elf, uint64_t vaddr)
{
	const char *name = NULL;
	uint64_t into = 0;

	if (elf_lookup(elf, vaddr, &name, &into) < 0)
		return;
	if (name[0] == '\0' || strlen(name) > ELF_NAME_BYTES_MAX || into > vaddr)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct elf *elf = NULL;
	uint64_t i, base = 0, span = bytes;
	int fd = memfd_create("elf", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	if (elf_open(fd, &elf, NULL) < 0) {
		(void)close(fd);
		return 0;
	}
	if (bytes >= sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr)) {
		Elf64_Phdr segment;

		memcpy(&segment, data + sizeof(Elf64_Ehdr), sizeof(segment));
		base = segment.p_vaddr;
	}
	for (i = 0; i < 64; i++) {
		ask(elf, base + span * i / 64);
		ask(elf, i << 58);
	}
	ask(elf, UINT64_MAX);
	elf_close(elf);
	return 0;
}
