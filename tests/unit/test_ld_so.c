/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the loader would find, on files made here: libraries of one ELF header, caches of a few entries, whole and damaged.
 */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "base/files.h"
#include "cli/ld_so.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#else
#define OWN_MACHINE EM_AARCH64
#endif

struct place {
	char directory[64];
};

static int set_up(void **state)
{
	struct place *place = calloc(1, sizeof(*place));

	assert_non_null(place);
	(void)snprintf(place->directory, sizeof(place->directory), "/tmp/test_loader-XXXXXX");
	assert_non_null(mkdtemp(place->directory));
	*state = place;
	return 0;
}

static int tear_down(void **state)
{
	struct place *place = *state;

	assert_int_equal(files_remove(place->directory), 0);
	free(place);
	return 0;
}

static void path_of(const struct place *place, const char *name, char *out)
{
	(void)snprintf(out, PATH_MAX, "%s/%s", place->directory, name);
}

static void make_library(const struct place *place, const char *name, unsigned int machine)
{
	Elf64_Ehdr header = {.e_ident = ELFMAG, .e_type = ET_DYN, .e_machine = (Elf64_Half)machine};
	char path[PATH_MAX];

	header.e_ident[EI_CLASS] = ELFCLASS64;
	header.e_ident[EI_DATA] = ELFDATA2LSB;
	path_of(place, name, path);
	unit_write_file(path, &header, sizeof(header));
}

/* A cache as ldconfig writes it: header, entries of (name, path), their texts. `before` bytes stand in front. */
static size_t make_cache(char *out, size_t before, const char *const entries[][2], uint32_t count)
{
	char *cache = out + before;
	size_t at = 48 + (size_t)count * 24;
	uint32_t i;

	memset(out, 0, before + at);
	memcpy(cache, "glibc-ld.so.cache1.1", 20);
	memcpy(cache + 20, &count, 4);
	for (i = 0; i < count; i++) {
		uint32_t entry[4] = {0x303, (uint32_t)at, 0, 0};

		memcpy(cache + at, entries[i][0], strlen(entries[i][0]) + 1);
		at += strlen(entries[i][0]) + 1;
		entry[2] = (uint32_t)at;
		memcpy(cache + at, entries[i][1], strlen(entries[i][1]) + 1);
		at += strlen(entries[i][1]) + 1;
		memcpy(cache + 48 + i * 24, entry, sizeof(entry));
	}
	return before + at;
}

static void the_first_directory_with_a_fitting_file_wins(void **state)
{
	const struct place *place = *state;
	char first[PATH_MAX], second[PATH_MAX], list[2 * PATH_MAX + 16], found[PATH_MAX],
		wanted[PATH_MAX];

	path_of(place, "first", first);
	path_of(place, "second", second);
	assert_int_equal(mkdir(first, 0700) | mkdir(second, 0700), 0);
	make_library(place, "first/libx.so", EM_MIPS);
	make_library(place, "second/libx.so", OWN_MACHINE);
	(void)snprintf(list, sizeof(list), "/nowhere;%s:%s", first, second);
	assert_int_equal(ld_so_find_along(list, "libx.so", found, sizeof(found)), 0);
	path_of(place, "second/libx.so", wanted);
	assert_string_equal(found, wanted);
	make_library(place, "first/libx.so", OWN_MACHINE);
	assert_int_equal(ld_so_find_along(list, "libx.so", found, sizeof(found)), 0);
	path_of(place, "first/libx.so", wanted);
	assert_string_equal(found, wanted);
	assert_int_equal(ld_so_find_along(list, "liby.so", found, sizeof(found)), -ENOENT);
	assert_int_equal(ld_so_find_along(list, "libx.so", found, 8), -ENOENT);
}

static void an_empty_directory_is_the_current_one(void **state)
{
	const struct place *place = *state;
	char before[PATH_MAX], found[PATH_MAX];

	make_library(place, "libhere.so", OWN_MACHINE);
	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(place->directory), 0);
	assert_int_equal(ld_so_find_along("/nowhere::", "libhere.so", found, sizeof(found)), 0);
	assert_string_equal(found, "./libhere.so");
	assert_int_equal(chdir(before), 0);
}

static void only_shared_objects_of_this_machine_fit(void **state)
{
	const struct place *place = *state;
	char path[PATH_MAX];

	make_library(place, "good.so", OWN_MACHINE);
	path_of(place, "good.so", path);
	assert_true(ld_so_fits(path));
	make_library(place, "bad.so", EM_386);
	path_of(place, "bad.so", path);
	assert_false(ld_so_fits(path));
	unit_write_file(path, "\177ELF", 4);
	assert_false(ld_so_fits(path));
	assert_false(ld_so_fits(place->directory));
	path_of(place, "absent.so", path);
	assert_false(ld_so_fits(path));
}

static void the_cache_is_read_in_both_layouts(void **state)
{
	const struct place *place = *state;
	char good[PATH_MAX], other[PATH_MAX], cache[PATH_MAX], found[PATH_MAX], data[8192];
	const char *entries[][2] = {
		{"libz.so", other}, {"libx.so.1", good}, {"libx.so", other}, {"libx.so", good}};
	size_t before;

	make_library(place, "good.so", OWN_MACHINE);
	make_library(place, "other.so", EM_MIPS);
	path_of(place, "good.so", good);
	path_of(place, "other.so", other);
	path_of(place, "cache", cache);
	for (before = 0; before <= 64; before += 64) {
		unit_write_file(cache, data, make_cache(data, before, entries, 4));
		assert_int_equal(ld_so_find_cached(cache, "libx.so", found, sizeof(found)), 0);
		assert_string_equal(found, good);
		assert_int_equal(ld_so_find_cached(cache, "libz.so", found, sizeof(found)),
				 -ENOENT);
		assert_int_equal(ld_so_find_cached(cache, "liby.so", found, sizeof(found)),
				 -ENOENT);
	}
	assert_int_equal(ld_so_find_cached("/nowhere", "libx.so", found, sizeof(found)), -ENOENT);
}

/* Every cut, and every word of it set to something absurd: an answer, and no read outside the file (under ASan). */
static void a_damaged_cache_gives_an_answer(void **state)
{
	static const uint32_t absurd[] = {0, 1, 0x7fffffff, 0xffffffff};
	const struct place *place = *state;
	char good[PATH_MAX], cache[PATH_MAX], found[PATH_MAX], data[2048], bent[2048];
	const char *entries[][2] = {{"libw.so", good}, {"libx.so", good}};
	size_t bytes, i, k;

	make_library(place, "good.so", OWN_MACHINE);
	path_of(place, "good.so", good);
	path_of(place, "cache", cache);
	bytes = make_cache(data, 0, entries, 2);
	for (i = 1; i < bytes; i++) {
		unit_write_file(cache, data, i);
		assert_int_equal(ld_so_find_cached(cache, "libx.so", found, sizeof(found)),
				 -ENOENT);
	}
	for (i = 20; i + 4 <= 96; i += 4) {
		for (k = 0; k < MSCOPE_COUNT(absurd); k++) {
			int r;

			memcpy(bent, data, bytes);
			memcpy(bent + i, &absurd[k], 4);
			unit_write_file(cache, bent, bytes);
			r = ld_so_find_cached(cache, "libx.so", found, sizeof(found));
			assert_true(r == 0 || r == -ENOENT);
		}
	}
}

static void glibc_says_its_version(void **state)
{
	static const struct {
		const char *text;
		const char *version; /* NULL: none */
	} cases[] = {
		{"xx\0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version "
		 "2.36.\nCopyright",
		 "2.36"},
		{"xx\0GNU C Library (GNU libc) release release version 2.17, by Roland McGrath et "
		 "al.\n",
		 "2.17"},
		{"xx\0GNU C Library (GNU libc) stable release version 2.38", "2.38"},
		{"xx\0GNU C Library (GNU libc) stable release version ", NULL},
		{"xx\0GNU C Library without any number", NULL},
		{"xx\0musl libc, whatever the version 1.2.3 is", NULL},
	};
	const struct place *place = *state;
	char path[PATH_MAX], version[16];
	size_t i;

	path_of(place, "libc.so.6", path);
	for (i = 0; i < MSCOPE_COUNT(cases); i++) {
		int r;

		unit_write_file(path, cases[i].text, 3 + strlen(cases[i].text + 3));
		r = ld_so_glibc_version(path, version, sizeof(version));
		assert_int_equal(r, cases[i].version == NULL ? MSCOPE_E_ABSENT : 0);
		if (r == 0)
			assert_string_equal(version, cases[i].version);
	}
	assert_int_equal(ld_so_glibc_version("/nowhere", version, sizeof(version)),
			 MSCOPE_E_ABSENT);
}

static void the_c_library_of_this_machine_is_found(void **state)
{
	char path[PATH_MAX], version[16];

	(void)state;
	/* Not under an emulator, where the machine's own is for another processor. */
	if (ld_so_find("libc.so.6", path, sizeof(path)) != 0)
		skip();
	assert_int_equal(ld_so_glibc_version(path, version, sizeof(version)), 0);
	assert_int_equal(version[0], '2');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_first_directory_with_a_fitting_file_wins,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_empty_directory_is_the_current_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(only_shared_objects_of_this_machine_fit, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(the_cache_is_read_in_both_layouts, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_cache_gives_an_answer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(glibc_says_its_version, set_up, tear_down),
		cmocka_unit_test(the_c_library_of_this_machine_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
