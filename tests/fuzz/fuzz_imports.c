/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a shared object whose imports are asked for: an error or an answer, and each text of the answer ends. The stand-in that is written
 * for these imports is read back: it has each function once, with its version.
 */
#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/strbuf.h"
#include "symbols/elf_imports.h"
#include "symbols/elf_stub.h"

#define FUNCTIONS_MAX 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int file_with(const void *data, size_t bytes)
{
	int fd = memfd_create("imports", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	return fd;
}

static size_t count_defined(const struct elf_imports *imports)
{
	size_t i, defined = 0;

	for (i = 0; i < imports->symbol_count; i++)
		defined += imports->symbols[i].defined;
	return defined;
}

static void write_back(const struct elf_imports *imports)
{
	struct elf_stub_function functions[FUNCTIONS_MAX];
	const char *versions[FUNCTIONS_MAX];
	struct elf_stub stub = {.machine = EM_X86_64,
				.soname = imports->soname,
				.needed = "libsimcuda.so",
				.handler = "simcuda_not_written",
				.functions = functions,
				.versions = versions};
	struct elf_imports again;
	struct strbuf file = {0};
	size_t i;
	int fd;

	for (i = 0; i < imports->symbol_count && stub.function_count < FUNCTIONS_MAX; i++) {
		const struct elf_symbol *symbol = &imports->symbols[i];

		functions[stub.function_count++] =
			(struct elf_stub_function){symbol->name, symbol->version};
		if (symbol->version[0] != '\0')
			versions[stub.version_count++] = symbol->version;
	}
	if (elf_stub_write(&stub, &file) < 0)
		abort();
	fd = file_with(file.data, file.length);
	if (elf_imports_read(fd, &again, NULL) < 0 || strcmp(again.soname, stub.soname) != 0 ||
	    count_defined(&again) != stub.function_count)
		abort();
	elf_imports_fini(&again);
	strbuf_fini(&file);
	(void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct elf_imports imports;
	int fd = file_with(data, bytes);
	size_t i, length = 0;

	if (elf_imports_read(fd, &imports, NULL) == 0) {
		length = strlen(imports.soname);
		for (i = 0; i < imports.needed_count; i++)
			length += strlen(imports.needed[i]);
		for (i = 0; i < imports.symbol_count; i++)
			length += strlen(imports.symbols[i].name) +
				  strlen(imports.symbols[i].library) +
				  strlen(imports.symbols[i].version);
		if (length > (imports.needed_count + 3 * imports.symbol_count + 1) * bytes)
			abort();
		write_back(&imports);
		elf_imports_fini(&imports);
	}
	(void)close(fd);
	return 0;
}
