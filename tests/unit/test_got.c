/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims about got/relocations.c: of objects with random tables exactly the slots are found that are meant, whatever else is in the
 * tables; and of this program itself, the slot of a function that it calls, which can be changed and given back.
 */
#include "unit.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collector/got/relocations.h"

#define SYMBOLS 40u
#define RELOCS	200u
#define OBJECTS 300u

#if defined(__x86_64__)
#define TYPE_CALL     R_X86_64_JUMP_SLOT
#define TYPE_ADDRESS  R_X86_64_GLOB_DAT
#define TYPE_RELATIVE R_X86_64_RELATIVE
#define TYPE_ABSOLUTE R_X86_64_64
#else
#define TYPE_CALL     R_AARCH64_JUMP_SLOT
#define TYPE_ADDRESS  R_AARCH64_GLOB_DAT
#define TYPE_RELATIVE R_AARCH64_RELATIVE
#define TYPE_ABSOLUTE R_AARCH64_ABS64
#endif

/* A loaded object as the loader leaves it in memory. */
struct fake {
	uint64_t slots[2 * RELOCS];
	Elf64_Sym symbols[SYMBOLS];
	char names[SYMBOLS * 16];
	Elf64_Rela calls[RELOCS], others[RELOCS];
	Elf64_Dyn dynamic[16];
	Elf64_Phdr headers[4];
};

struct truth {
	uint32_t rows[2 * RELOCS]; /* wanted of that slot, GOT_NO_ROW: nothing */
	bool calls[2 * RELOCS];
	uint32_t seen[2 * RELOCS];
	const struct fake *fake;
};

static uint32_t random_below(uint32_t limit)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 20) % limit;
}

/* Wanted are the names wanted0, wanted1, ... */
static uint32_t match(const char *name, void *arg)
{
	(void)arg;
	return strncmp(name, "wanted", 6) == 0 ? (uint32_t)atoi(name + 6) : GOT_NO_ROW;
}

static void take(const struct got_place *place, uint32_t row, void *arg)
{
	struct truth *truth = arg;
	size_t at = (size_t)((const uint64_t *)(const void *)place->slot - truth->fake->slots);

	assert_true(at < 2 * RELOCS);
	assert_int_equal(row, truth->rows[at]);
	assert_int_equal(place->call, truth->calls[at]);
	truth->seen[at]++;
}

static uint32_t random_type(void)
{
	const uint32_t types[] = {TYPE_CALL, TYPE_ADDRESS, TYPE_ABSOLUTE, TYPE_RELATIVE};

	return types[random_below(4)];
}

static void fill_table(struct fake *fake, struct truth *truth, Elf64_Rela *table, size_t first,
		       uint32_t relative, bool calls)
{
	uint32_t i;

	for (i = 0; i < RELOCS; i++) {
		size_t at = first + i;
		uint32_t symbol = random_below(SYMBOLS);
		uint32_t type = i < relative ? TYPE_RELATIVE : calls ? TYPE_CALL : random_type();
		bool shifted = random_below(10) == 0;
		const char *name = fake->names + fake->symbols[symbol].st_name;

		table[i].r_offset = (uint64_t)((const char *)&fake->slots[at] - (const char *)fake);
		table[i].r_info = ELF64_R_INFO((uint64_t)symbol, type);
		table[i].r_addend = shifted ? 8 : 0;
		truth->calls[at] = type == TYPE_CALL;
		truth->rows[at] = (type == TYPE_CALL || type == TYPE_ADDRESS) && !shifted
					  ? match(name, NULL)
					  : GOT_NO_ROW;
	}
}

static void fill(struct fake *fake, struct truth *truth, bool relocated, bool counted)
{
	uint64_t base = relocated ? (uint64_t)(uintptr_t)fake : 0;
	uint32_t relative = random_below(RELOCS), i;
	Elf64_Dyn *d = fake->dynamic;
	char *name = fake->names;

#define OFFSET(member) ((uint64_t)((const char *)&fake->member - (const char *)fake))
	for (i = 0; i < SYMBOLS; i++) {
		fake->symbols[i].st_name = (uint32_t)(name - fake->names);
		name += sprintf(name, "%s%u", random_below(3) == 0 ? "wanted" : "other", i) + 1;
	}
	fill_table(fake, truth, fake->calls, 0, 0, true);
	fill_table(fake, truth, fake->others, RELOCS, relative, false);
	*d++ = (Elf64_Dyn){.d_tag = DT_SYMTAB, .d_un.d_ptr = base + OFFSET(symbols)};
	*d++ = (Elf64_Dyn){.d_tag = DT_STRTAB, .d_un.d_ptr = base + OFFSET(names)};
	*d++ = (Elf64_Dyn){.d_tag = DT_JMPREL, .d_un.d_ptr = base + OFFSET(calls)};
	*d++ = (Elf64_Dyn){.d_tag = DT_PLTRELSZ, .d_un.d_val = sizeof(fake->calls)};
	*d++ = (Elf64_Dyn){.d_tag = DT_PLTREL, .d_un.d_val = DT_RELA};
	*d++ = (Elf64_Dyn){.d_tag = DT_RELA, .d_un.d_ptr = base + OFFSET(others)};
	*d++ = (Elf64_Dyn){.d_tag = DT_RELASZ, .d_un.d_val = sizeof(fake->others)};
	if (counted)
		*d++ = (Elf64_Dyn){.d_tag = DT_RELACOUNT, .d_un.d_val = relative};
	fake->headers[0] =
		(Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_memsz = sizeof(*fake)};
	fake->headers[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC, .p_vaddr = OFFSET(dynamic)};
	fake->headers[2] =
		(Elf64_Phdr){.p_type = PT_GNU_RELRO, .p_vaddr = 4096, .p_memsz = 4096 + 100};
}

static void slots_are_found_as_they_are_meant(void **state)
{
	uint32_t round, i;

	(void)state;
	for (round = 0; round < OBJECTS; round++) {
		struct fake *fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE,
					 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct truth *truth = calloc(1, sizeof(*truth));
		struct dl_phdr_info info = {.dlpi_addr = (Elf64_Addr)(uintptr_t)fake,
					    .dlpi_phnum = 3};
		struct got_object object;

		assert_true(fake != MAP_FAILED && truth != NULL);
		info.dlpi_phdr = fake->headers;
		truth->fake = fake;
		fill(fake, truth, round % 2 == 0, round % 3 != 0);
		assert_true(got_open(&info, 4096, &object));
		got_each(&object, match, take, truth);
		for (i = 0; i < 2 * RELOCS; i++)
			assert_int_equal(truth->seen[i], truth->rows[i] != GOT_NO_ROW);
		assert_true(got_is_data(&object, (uintptr_t)&fake->slots[1]));
		assert_false(got_is_data(&object, (uintptr_t)fake + sizeof(*fake)));
		/* The page that RELRO only begins stays writable. */
		assert_false(got_is_relro(&object, (uintptr_t)fake + 4095));
		assert_true(got_is_relro(&object, (uintptr_t)fake + 4096));
		assert_true(got_is_relro(&object, (uintptr_t)fake + 8191));
		assert_false(got_is_relro(&object, (uintptr_t)fake + 8192));
		free(truth);
		(void)munmap(fake, sizeof(*fake));
	}
}

static void an_object_without_tables_is_left_alone(void **state)
{
	Elf64_Dyn none[] = {{.d_tag = DT_NULL}};
	Elf64_Phdr header = {.p_type = PT_DYNAMIC, .p_vaddr = (uint64_t)(uintptr_t)none};
	struct dl_phdr_info info = {.dlpi_phdr = &header, .dlpi_phnum = 1};
	struct got_object object;

	(void)state;
	assert_false(got_open(&info, 4096, &object));
	info.dlpi_phnum = 0;
	assert_false(got_open(&info, 4096, &object));
}

/* ---- this program ---- */

struct own {
	struct got_object object;
	struct got_place place;
	uint32_t found;
};

static uint32_t match_getppid(const char *name, void *arg)
{
	(void)arg;
	return strcmp(name, "getppid") == 0 ? 0 : GOT_NO_ROW;
}

static void take_own(const struct got_place *place, uint32_t row, void *arg)
{
	struct own *own = arg;

	(void)row;
	own->place = *place;
	own->found++;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct own *own = arg;

	(void)size;
	if (got_open(info, (uintptr_t)getauxval(AT_PAGESZ), &own->object))
		got_each(&own->object, match_getppid, take_own, own);
	return 1;
}

static pid_t ours(void)
{
	return 4711;
}

static void a_call_of_this_program_is_redirected_and_given_back(void **state)
{
	pid_t before = getppid();
	struct own own = {0};
	uintptr_t value;
	char *page;

	(void)state;
	(void)dl_iterate_phdr(first_object, &own);
	assert_int_equal(own.found, 1);
	assert_true(got_is_data(&own.object, (uintptr_t)own.place.slot));
	value = atomic_load(own.place.slot);
	/* It was called: no longer lazy. */
	assert_false(got_is_lazy(&own.object, &own.place, value));
	page = (char *)((uintptr_t)own.place.slot & ~((uintptr_t)getauxval(AT_PAGESZ) - 1));
	if (got_is_relro(&own.object, (uintptr_t)own.place.slot))
		assert_int_equal(mprotect(page, getauxval(AT_PAGESZ), PROT_READ | PROT_WRITE), 0);
	atomic_store(own.place.slot, (uintptr_t)ours);
	assert_int_equal(getppid(), 4711);
	atomic_store(own.place.slot, value);
	assert_int_equal(getppid(), before);
	/* An address in this program's own code is what a lazy slot has. */
	if (own.place.call)
		assert_true(got_is_lazy(&own.object, &own.place, (uintptr_t)ours));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_found_as_they_are_meant),
		cmocka_unit_test(an_object_without_tables_is_left_alone),
		cmocka_unit_test(a_call_of_this_program_is_redirected_and_given_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
