/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a small shared object without a compiler: a library of a given name and versions, whose functions all pass their own name to one
 * function of another library. So a library that a program asks for can be there with each of its functions failing by name.
 */
#ifndef MSCOPE_SYMBOLS_ELF_STUB_H
#define MSCOPE_SYMBOLS_ELF_STUB_H

#include "base/compiler.h"
#include "base/strbuf.h"

struct elf_stub_function {
	const char *name;
	const char *version; /* "": none */
};

struct elf_stub {
	uint16_t machine; /* EM_X86_64 or EM_AARCH64 */
	const char *soname;
	const char *needed;  /* library with the function that all call */
	const char *handler; /* that function: long handler(const char *name) */
	const struct elf_stub_function *functions;
	size_t function_count;
	const char *const *versions; /* all of the library, also without a function here */
	size_t version_count;
};

/* Adds the file's bytes to `out`. 0, -ENOMEM, or MSCOPE_E_FOREIGN for another machine. */
int elf_stub_write(const struct elf_stub *stub, struct strbuf *out);

#endif
