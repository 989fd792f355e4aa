/* SPDX-License-Identifier: Apache-2.0 */
/* Shared objects that are written without a compiler: the loader takes them, their functions pass on their names, our own reader reads them. */
#include "unit.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "symbols/elf_imports.h"
#include "symbols/elf_stub.h"

#if defined(__aarch64__)
#define MACHINE EM_AARCH64
#else
#define MACHINE EM_X86_64
#endif
#define MANY 1000

static const struct elf_stub_function functions[] = {
	{"alpha", "lib.so.1"}, {"beta", ""}, {"gamma", "OTHER"}};
static const char *const versions[] = {"lib.so.1", "OTHER", "UNUSED"};

/* The handler returns its argument's length. */
static const struct elf_stub example = {.machine = MACHINE,
					.soname = "lib.so.1",
					.needed = "libc.so.6",
					.handler = "strlen",
					.functions = functions,
					.function_count = 3,
					.versions = versions,
					.version_count = 3};

/* A file with it; `path` is a template of mkstemp(). */
static int write_file(char *path, const struct elf_stub *stub)
{
	struct strbuf file = {0};
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(elf_stub_write(stub, &file), 0);
	assert_int_equal(write(fd, file.data, file.length), (ssize_t)file.length);
	strbuf_fini(&file);
	return fd;
}

static size_t call(void *found)
{
	size_t (*function)(void);

	assert_non_null(found);
	memcpy(&function, &found, sizeof(function));
	return function();
}

static void its_functions_pass_on_their_names(void **state)
{
	char path[] = "/tmp/elf_stub.XXXXXX";
	void *library;

	(void)state;
	(void)close(write_file(path, &example));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	assert_int_equal(call(dlvsym(library, "alpha", "lib.so.1")), strlen("alpha"));
	assert_int_equal(call(dlsym(library, "beta")), strlen("beta"));
	assert_int_equal(call(dlvsym(library, "gamma", "OTHER")), strlen("gamma"));
	assert_null(dlvsym(library, "alpha", "OTHER"));
	assert_null(dlsym(library, "delta"));
	assert_int_equal(dlclose(library), 0);
	(void)unlink(path);
}

static void a_thousand_functions_are_found(void **state)
{
	static struct elf_stub_function many[MANY];
	static char names[MANY][32];
	struct elf_stub stub = example;
	char path[] = "/tmp/elf_stub.XXXXXX";
	void *library;
	size_t i;

	(void)state;
	for (i = 0; i < MANY; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "function_%zu", i * i);
		many[i] = (struct elf_stub_function){names[i], ""};
	}
	stub.functions = many;
	stub.function_count = MANY;
	(void)close(write_file(path, &stub));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	assert_non_null(library);
	for (i = 0; i < MANY; i++)
		assert_int_equal(call(dlsym(library, names[i])), strlen(names[i]));
	(void)dlclose(library);
	(void)unlink(path);
}

static void it_is_read_as_it_was_written(void **state)
{
	char path[] = "/tmp/elf_stub.XXXXXX";
	int fd = write_file(path, &example);
	struct mscope_error err = {0};
	struct elf_imports imports;
	size_t i, defined = 0;

	(void)state;
	(void)unlink(path);
	assert_int_equal(elf_imports_read(fd, &imports, &err), 0);
	assert_string_equal(imports.soname, "lib.so.1");
	assert_int_equal(imports.machine, MACHINE);
	assert_int_equal(imports.needed_count, 1);
	assert_string_equal(imports.needed[0], "libc.so.6");
	assert_int_equal(imports.symbol_count, 4);
	for (i = 0; i < imports.symbol_count; i++)
		defined += imports.symbols[i].defined;
	assert_int_equal(defined, 3);
	assert_string_equal(imports.symbols[0].name, "strlen");
	assert_false(imports.symbols[0].defined);
	elf_imports_fini(&imports);
	(void)close(fd);
}

static void what_a_program_imports_has_its_library_and_version(void **state)
{
	struct mscope_error err = {0};
	struct elf_imports imports;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
	    r = elf_imports_read(fd, &imports, &err);
	bool found = false;
	size_t i;

	(void)state;
	/* An executable at a fixed address is no shared object. */
	assert_true(r == 0 || r == MSCOPE_E_FOREIGN);
	for (i = 0; r == 0 && i < imports.symbol_count; i++) {
		if (strcmp(imports.symbols[i].name, "lseek") == 0 ||
		    strcmp(imports.symbols[i].name, "lseek64") == 0)
			found = strncmp(imports.symbols[i].version, "GLIBC_", 6) == 0 &&
				strncmp(imports.symbols[i].library, "lib", 3) == 0;
	}
	assert_true(r != 0 || found);
	if (r == 0)
		elf_imports_fini(&imports);
	(void)close(fd);
}

/* Bytes of headers and tables changed one by one, and the file cut at many sizes. */
static void a_damaged_file_gives_an_error_or_an_answer(void **state)
{
	char path[] = "/tmp/elf_stub.XXXXXX";
	int fd = write_file(path, &example);
	struct mscope_error err = {0};
	struct elf_imports imports;
	off_t bytes = lseek(fd, 0, SEEK_END), i;

	(void)state;
	(void)unlink(path);
	for (i = 0; i < bytes; i += i < 0x600 || i >= 0x10000 ? 1 : 997) {
		char whole, changed;

		assert_int_equal(pread(fd, &whole, 1, i), 1);
		changed = (char)(whole ^ (1 << i % 8));
		assert_int_equal(pwrite(fd, &changed, 1, i), 1);
		err.code = 0;
		if (elf_imports_read(fd, &imports, &err) == 0)
			elf_imports_fini(&imports);
		else
			assert_true(err.code < 0);
		assert_int_equal(pwrite(fd, &whole, 1, i), 1);
	}
	/* The last eight bytes, which only the loader fills, are not looked at. */
	for (i = bytes - 9; i >= 0; i -= 61) {
		assert_int_equal(ftruncate(fd, i), 0);
		assert_true(elf_imports_read(fd, &imports, &err) < 0);
	}
	(void)close(fd);
}

static void another_machine_is_refused(void **state)
{
	struct elf_stub stub = example;
	struct strbuf file = {0};

	(void)state;
	stub.machine = EM_PPC64;
	assert_true(elf_stub_write(&stub, &file) < 0);
	strbuf_fini(&file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(its_functions_pass_on_their_names),
		cmocka_unit_test(a_thousand_functions_are_found),
		cmocka_unit_test(it_is_read_as_it_was_written),
		cmocka_unit_test(what_a_program_imports_has_its_library_and_version),
		cmocka_unit_test(a_damaged_file_gives_an_error_or_an_answer),
		cmocka_unit_test(another_machine_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
