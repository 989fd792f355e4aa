/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of input: a tiny ELF image spelled as a C struct, where each field can be set, cut
 * and flipped; the libc and the test program themselves, where dladdr() and backtrace_symbols() of
 * glibc know the answer; and copies of these, stripped or without section headers. Allocations and
 * reads go through wrappers that can fail on demand.
 */
#include "unit.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "failing.h"
#include "symbols/elf.h"
#include "symbols/elf_cache.h"
#include "symbols/modules.h"

#define BASE	  UINT64_C(0x400000)
#define LOADED	  UINT64_C(0x7f0000010000) /* where images are loaded in modules */
#define TEXT_SIZE 256u

enum {
	OUTER = 1,
	INNER,
	WEAK_ALIAS,
	UNDER_ALIAS,
	INSIDE,
	UNSIZED,
	VERSIONED,
	ASSEMBLER,
	LABEL,
	OBJECT,
	LAST,
	UNDEFINED,
	SYMTAB_COUNT
};
enum { DYN_OUTER = 1, DYN_UNSIZED, DYNSYM_COUNT };
enum {
	SECTION_TEXT = 1,
	SECTION_DYNSYM,
	SECTION_DYNSTR,
	SECTION_SYMTAB,
	SECTION_STRTAB,
	SECTION_COUNT
};
enum { SEGMENT_LOAD, SEGMENT_NOTE, SEGMENT_DYNAMIC, SEGMENT_COUNT };

/*
 * A whole executable; it is loaded as one segment, so that an address is BASE plus an offset in
 * this struct.
 */
struct image {
	Elf64_Ehdr header;
	Elf64_Phdr segments[SEGMENT_COUNT];
	struct {
		Elf64_Nhdr other_head;
		char other_name[8];
		uint8_t other_data[4];
		Elf64_Nhdr head;
		char name[4];
		uint8_t id[20];
	} note;
	Elf64_Dyn dynamic[6];
	struct {
		uint32_t head[4];
		uint64_t bloom;
		uint32_t buckets[2];
		uint32_t chains[DYNSYM_COUNT - 1];
	} gnu_hash;
	uint32_t hash[2 + 1 + DYNSYM_COUNT];
	Elf64_Sym dynsym[DYNSYM_COUNT];
	char dynstr[32];
	Elf64_Sym symtab[SYMTAB_COUNT];
	char strtab[128];
	Elf64_Shdr sections[SECTION_COUNT];
	uint8_t text[TEXT_SIZE];
};

#define ADDRESS(member) (BASE + offsetof(struct image, member))
#define TEXT		ADDRESS(text)

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset)
{
	if (fails_now()) {
		errno = EIO;
		return -1;
	}
	return __real_pread(fd, to, bytes, offset);
}

static uint32_t add_name(char *table, size_t room, const char *name)
{
	size_t at = 1;

	while (table[at] != '\0')
		at += strlen(table + at) + 1;
	assert_true(at + strlen(name) + 1 < room);
	strcpy(table + at, name);
	return (uint32_t)at;
}

static void set_symbol(struct image *image, unsigned int index, const char *name, unsigned int info,
		       uint64_t offset, uint64_t size)
{
	image->symtab[index] = (Elf64_Sym){
		.st_name = add_name(image->strtab, sizeof(image->strtab), name),
		.st_info = (unsigned char)info,
		.st_shndx = SECTION_TEXT,
		.st_value = TEXT + offset,
		.st_size = size,
	};
}

static void set_section(struct image *image, unsigned int index, uint32_t type, size_t offset,
			size_t bytes, uint32_t link)
{
	image->sections[index] = (Elf64_Shdr){
		.sh_type = type,
		.sh_flags = SHF_ALLOC | (type == SHT_PROGBITS ? SHF_EXECINSTR : 0),
		.sh_addr = BASE + offset,
		.sh_offset = offset,
		.sh_size = bytes,
		.sh_link = link,
		.sh_entsize = sizeof(Elf64_Sym),
	};
}

#define SET_SECTION(image, index, type, member, link)                                              \
	set_section(image, index, type, offsetof(struct image, member), sizeof((image)->member),   \
		    link)

static struct image *image_new(void)
{
	const unsigned int global = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
	const unsigned int local = ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
	struct image *image = calloc(1, sizeof(*image));
	unsigned int i;

	assert_non_null(image);
	image->header = (Elf64_Ehdr){
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_AARCH64,
		.e_version = EV_CURRENT,
		.e_phoff = offsetof(struct image, segments),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = SEGMENT_COUNT,
		.e_shoff = offsetof(struct image, sections),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = SECTION_COUNT,
	};
	image->segments[SEGMENT_LOAD] = (Elf64_Phdr){.p_type = PT_LOAD,
						     .p_flags = PF_R | PF_X,
						     .p_vaddr = BASE,
						     .p_filesz = sizeof(*image),
						     .p_memsz = sizeof(*image)};
	image->segments[SEGMENT_NOTE] = (Elf64_Phdr){.p_type = PT_NOTE,
						     .p_offset = offsetof(struct image, note),
						     .p_filesz = sizeof(image->note),
						     .p_align = 4};
	image->segments[SEGMENT_DYNAMIC] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
							.p_offset = offsetof(struct image, dynamic),
							.p_filesz = sizeof(image->dynamic)};

	image->note.other_head = (Elf64_Nhdr){.n_namesz = 5, .n_descsz = 3, .n_type = 3};
	strcpy(image->note.other_name, "none");
	image->note.head = (Elf64_Nhdr){.n_namesz = 4, .n_descsz = 20, .n_type = NT_GNU_BUILD_ID};
	strcpy(image->note.name, "GNU");
	for (i = 0; i < sizeof(image->note.id); i++)
		image->note.id[i] = (uint8_t)(i + 1);

	image->dynamic[0] = (Elf64_Dyn){DT_SYMTAB, {ADDRESS(dynsym)}};
	image->dynamic[1] = (Elf64_Dyn){DT_STRTAB, {ADDRESS(dynstr)}};
	image->dynamic[2] = (Elf64_Dyn){DT_STRSZ, {sizeof(image->dynstr)}};
	image->dynamic[3] = (Elf64_Dyn){DT_GNU_HASH, {ADDRESS(gnu_hash)}};
	image->gnu_hash.head[0] = 2;
	image->gnu_hash.head[1] = 1;
	image->gnu_hash.head[2] = 1;
	image->gnu_hash.buckets[0] = DYN_OUTER;
	image->gnu_hash.chains[DYN_UNSIZED - 1] = 1;
	image->hash[0] = 1;
	image->hash[1] = DYNSYM_COUNT;

	set_symbol(image, OUTER, "outer", global, 0, 64);
	set_symbol(image, INNER, "inner", local, 16, 16);
	set_symbol(image, WEAK_ALIAS, "alias", ELF64_ST_INFO(STB_WEAK, STT_FUNC), 0, 64);
	set_symbol(image, UNDER_ALIAS, "_outer", global, 0, 64);
	set_symbol(image, INSIDE, "inside", ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), 8, 0);
	set_symbol(image, UNSIZED, "unsized", local, 96, 0);
	set_symbol(image, VERSIONED, "versioned@@V_1", global, 128, 16);
	set_symbol(image, ASSEMBLER, "assembler", ELF64_ST_INFO(STB_GLOBAL, STT_NOTYPE), 160, 0);
	set_symbol(image, LABEL, "$x", ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE), 168, 0);
	set_symbol(image, OBJECT, "object", ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), 176, 8);
	set_symbol(image, LAST, "last", ELF64_ST_INFO(STB_GLOBAL, STT_GNU_IFUNC), 224, 0);
	set_symbol(image, UNDEFINED, "undefined", global, 200, 8);
	image->symtab[UNDEFINED].st_shndx = SHN_UNDEF;
	image->dynsym[DYN_OUTER] = image->symtab[OUTER];
	image->dynsym[DYN_OUTER].st_name = add_name(image->dynstr, sizeof(image->dynstr), "outer");
	image->dynsym[DYN_UNSIZED] = image->symtab[UNSIZED];
	image->dynsym[DYN_UNSIZED].st_name =
		add_name(image->dynstr, sizeof(image->dynstr), "unsized");

	SET_SECTION(image, SECTION_TEXT, SHT_PROGBITS, text, 0);
	SET_SECTION(image, SECTION_DYNSYM, SHT_DYNSYM, dynsym, SECTION_DYNSTR);
	SET_SECTION(image, SECTION_DYNSTR, SHT_STRTAB, dynstr, 0);
	SET_SECTION(image, SECTION_SYMTAB, SHT_SYMTAB, symtab, SECTION_STRTAB);
	SET_SECTION(image, SECTION_STRTAB, SHT_STRTAB, strtab, 0);
	return image;
}

static void drop_sections(Elf64_Ehdr *header)
{
	header->e_shoff = 0;
	header->e_shnum = 0;
	header->e_shstrndx = 0;
}

static struct elf *open_image(const struct image *image)
{
	struct elf *elf = NULL;

	assert_int_equal(elf_open(unit_memory_file(image, sizeof(*image)), &elf, NULL), 0);
	return elf;
}

/*
 * "name+offset" at an offset in the text of the image, or "" where no function is; valid until the
 * next call.
 */
static const char *name_at(struct elf *elf, uint64_t offset)
{
	static char text[200];
	const char *name;
	uint64_t into;
	int r = elf_lookup(elf, TEXT + offset, &name, &into);

	if (r < 0) {
		assert_int_equal(r, MSCOPE_E_ABSENT);
		return "";
	}
	(void)snprintf(text, sizeof(text), "%s+%u", name, (unsigned int)into);
	return text;
}

static void full_table_names_code_by_the_documented_rules(void **state)
{
	struct image *image = image_new();
	struct elf *elf = open_image(image);
	(void)state;

	assert_string_equal(name_at(elf, 0), "outer+0");
	assert_string_equal(name_at(elf, 9), "outer+9"); /* not the label without a size */
	assert_string_equal(name_at(elf, 16), "inner+0");
	assert_string_equal(name_at(elf, 31), "inner+15");
	assert_string_equal(name_at(elf, 32), "outer+32"); /* behind the nested one */
	assert_string_equal(name_at(elf, 63), "outer+63");
	assert_string_equal(name_at(elf, 64), "");
	assert_string_equal(name_at(elf, 95), "");
	assert_string_equal(name_at(elf, 127), "unsized+31");
	assert_string_equal(name_at(elf, 128), "versioned+0");
	assert_string_equal(name_at(elf, 143),
			    "versioned+15"); /* again, with the version cut off */
	assert_string_equal(name_at(elf, 144), "");
	assert_string_equal(name_at(elf, 180), "assembler+20");
	assert_string_equal(name_at(elf, 223), "assembler+63");
	assert_string_equal(name_at(elf, 255), "last+31");
	assert_string_equal(name_at(elf, 256), "");
	assert_string_equal(name_at(elf, (uint64_t)-1), "");
	assert_string_equal(name_at(elf, UINT64_MAX - TEXT), "");
	elf_close(elf);
	free(image);
}

static void order_in_the_table_does_not_decide_before_binding(void **state)
{
	struct image *image = image_new();
	Elf64_Sym outer = image->symtab[OUTER];
	struct elf *elf;
	(void)state;

	image->symtab[OUTER] = image->symtab[UNDER_ALIAS];
	image->symtab[UNDER_ALIAS] = image->symtab[WEAK_ALIAS];
	image->symtab[WEAK_ALIAS] = outer;
	elf = open_image(image);
	assert_string_equal(name_at(elf, 1), "outer+1");
	elf_close(elf);

	image->symtab[WEAK_ALIAS].st_size = 0; /* loses to those with a size */
	elf = open_image(image);
	assert_string_equal(name_at(elf, 1), "_outer+1");
	elf_close(elf);
	free(image);
}

static void check_dynamic_names(const struct image *image)
{
	struct elf *elf = open_image(image);

	assert_string_equal(name_at(elf, 5), "outer+5");
	assert_string_equal(name_at(elf, 20), "outer+20");
	assert_string_equal(name_at(elf, 96), "unsized+0");
	assert_string_equal(name_at(elf, 97), "");
	assert_string_equal(name_at(elf, 130), "");
	elf_close(elf);
}

static void dynamic_table_serves_when_it_is_all_there_is(void **state)
{
	struct image *image = image_new();
	(void)state;

	image->sections[SECTION_SYMTAB].sh_type = SHT_NULL;
	check_dynamic_names(image);

	drop_sections(&image->header); /* number of symbols by DT_GNU_HASH */
	check_dynamic_names(image);

	image->dynamic[3] = (Elf64_Dyn){DT_HASH, {ADDRESS(hash)}};
	check_dynamic_names(image);

	image->header.e_shoff = 1u << 30; /* section headers that are not there */
	image->header.e_shnum = SECTION_COUNT;
	check_dynamic_names(image);
	free(image);
}

static void damaged_section_table_falls_back_to_the_dynamic_one(void **state)
{
	struct image *image = image_new();
	(void)state;

	image->sections[SECTION_SYMTAB].sh_offset = UINT64_MAX - 8;
	check_dynamic_names(image);
	image->sections[SECTION_DYNSYM].sh_link = 77;
	check_dynamic_names(image);
	free(image);
}

static void file_without_any_table_has_no_names(void **state)
{
	struct image *image = image_new();
	struct elf *elf;
	(void)state;

	drop_sections(&image->header);
	image->segments[SEGMENT_DYNAMIC].p_type = PT_NULL;
	elf = open_image(image);
	assert_string_equal(name_at(elf, 0), "");
	elf_close(elf);
	free(image);
}

static int status_of_lookup(const struct image *image)
{
	struct elf *elf = open_image(image);
	const char *name;
	uint64_t into;
	int r = elf_lookup(elf, TEXT, &name, &into);

	assert_int_equal(elf_lookup(elf, TEXT, &name, &into), r);
	elf_close(elf);
	return r;
}

static void hostile_hash_tables_are_refused(void **state)
{
	struct image *image = image_new();
	(void)state;

	drop_sections(&image->header);
	image->segments[SEGMENT_LOAD].p_filesz =
		offsetof(struct image, gnu_hash) + sizeof(image->gnu_hash);
	image->gnu_hash.chains[DYN_UNSIZED - 1] = 0; /* a chain that never ends */
	assert_int_equal(status_of_lookup(image), MSCOPE_E_DAMAGED);
	image->gnu_hash.buckets[0] = UINT32_MAX;
	assert_int_equal(status_of_lookup(image), MSCOPE_E_DAMAGED);
	image->gnu_hash.head[0] = UINT32_MAX;
	assert_int_equal(status_of_lookup(image), MSCOPE_E_DAMAGED);
	image->gnu_hash.head[2] = UINT32_MAX;
	assert_int_equal(status_of_lookup(image), MSCOPE_E_DAMAGED);
	image->dynamic[3] = (Elf64_Dyn){DT_HASH, {ADDRESS(hash)}};
	image->segments[SEGMENT_LOAD].p_filesz = sizeof(*image);
	image->hash[1] = UINT32_MAX;
	assert_int_equal(status_of_lookup(image), MSCOPE_E_DAMAGED);
	free(image);
}

static void tables_beyond_the_limit_are_refused(void **state)
{
	struct image *image = image_new();
	struct elf *elf = NULL;
	const char *name;
	uint64_t into;
	int fd;
	(void)state;

	image->sections[SECTION_SYMTAB].sh_size = ELF_TABLE_BYTES_MAX + sizeof(Elf64_Sym);
	image->sections[SECTION_DYNSYM].sh_type = SHT_NULL;
	image->segments[SEGMENT_DYNAMIC].p_type = PT_NULL;
	fd = unit_memory_file(image, sizeof(*image));
	assert_int_equal(ftruncate(fd, INT64_C(5) << 30), 0);
	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	assert_int_equal(elf_lookup(elf, TEXT, &name, &into), MSCOPE_E_LIMIT);
	elf_close(elf);
	free(image);
}

static void build_id_needs_no_section_headers(void **state)
{
	struct image *image = image_new();
	const uint8_t *id;
	struct elf *elf;
	size_t length;
	(void)state;

	drop_sections(&image->header);
	elf = open_image(image);
	id = elf_build_id(elf, &length);
	assert_int_equal(length, sizeof(image->note.id));
	assert_memory_equal(id, image->note.id, length);
	elf_close(elf);

	image->note.head.n_descsz = UINT32_MAX;
	elf = open_image(image);
	assert_null(elf_build_id(elf, &length));
	assert_int_equal(length, 0);
	elf_close(elf);
	free(image);
}

static void check_refused(const struct image *image, size_t bytes, int code)
{
	int fd = unit_memory_file(image, bytes);
	struct mscope_error err = {0};
	struct elf *elf = NULL;

	assert_int_equal(elf_open(fd, &elf, &err), code);
	assert_int_equal(err.code, code);
	assert_true(err.message[0] != '\0');
	assert_null(elf);
	assert_int_equal(close(fd), 0); /* still the caller's */
}

static void foreign_files_are_refused(void **state)
{
	struct image *image = image_new();
	struct elf *elf = NULL;
	int fd;
	(void)state;

	check_refused(image, 0, MSCOPE_E_FOREIGN);
	check_refused(image, sizeof(Elf64_Ehdr) - 1, MSCOPE_E_TRUNCATED);
	image->header.e_ident[EI_CLASS] = ELFCLASS32;
	check_refused(image, sizeof(*image), MSCOPE_E_FOREIGN);
	image->header.e_ident[EI_CLASS] = ELFCLASS64;
	image->header.e_ident[EI_DATA] = ELFDATA2MSB;
	check_refused(image, sizeof(*image), MSCOPE_E_FOREIGN);
	image->header.e_ident[EI_DATA] = ELFDATA2LSB;
	image->header.e_type = ET_REL;
	check_refused(image, sizeof(*image), MSCOPE_E_FOREIGN);
	image->header.e_type = ET_DYN;
	image->header.e_phnum = PN_XNUM;
	check_refused(image, sizeof(*image), MSCOPE_E_LIMIT);
	image->header.e_phnum = SEGMENT_COUNT;
	image->header.e_phentsize = 32;
	check_refused(image, sizeof(*image), MSCOPE_E_DAMAGED);
	image->header.e_ident[0] = '#';
	check_refused(image, sizeof(*image), MSCOPE_E_FOREIGN);

	fd = open("/", O_RDONLY | O_CLOEXEC);
	assert_int_equal(elf_open(fd, &elf, NULL), MSCOPE_E_FOREIGN);
	close(fd);
	free(image);
}

/*
 * Opens whatever it is and asks for names everywhere; the answer does not matter, only that there
 * is one.
 */
static void exercise(int fd)
{
	struct elf *elf = NULL;
	const char *name;
	uint64_t offset, into;

	if (elf_open(fd, &elf, NULL) < 0) {
		close(fd);
		return;
	}
	for (offset = 0; offset < TEXT_SIZE; offset += 4) {
		if (elf_lookup(elf, TEXT + offset, &name, &into) == 0)
			assert_true(strlen(name) <= ELF_NAME_BYTES_MAX && into <= TEXT + offset);
	}
	elf_close(elf);
}

static void every_truncation_gets_an_answer(void **state)
{
	struct image *image = image_new();
	size_t bytes;
	(void)state;

	for (bytes = 0; bytes < sizeof(*image); bytes++)
		exercise(unit_memory_file(image, bytes));
	drop_sections(&image->header);
	for (bytes = 0; bytes < sizeof(*image); bytes++)
		exercise(unit_memory_file(image, bytes));
	free(image);
}

static void flip_every_bit(struct image *image)
{
	uint8_t *bytes = (uint8_t *)image;
	size_t i;

	for (i = 0; i < offsetof(struct image, text) * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		exercise(unit_memory_file(image, sizeof(*image)));
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
	}
}

static void every_bit_flip_gets_an_answer(void **state)
{
	struct image *image = image_new();
	(void)state;

	flip_every_bit(image);
	drop_sections(&image->header);
	flip_every_bit(image);
	free(image);
}

static void file_that_shrinks_while_open_is_an_error(void **state)
{
	struct image *image = image_new();
	int fd = unit_memory_file(image, sizeof(*image)), other = dup(fd);
	struct elf *elf = NULL;
	const char *name;
	uint64_t into;
	(void)state;

	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	assert_int_equal(ftruncate(other, 100), 0);
	assert_int_equal(elf_lookup(elf, TEXT, &name, &into), MSCOPE_E_TRUNCATED);
	elf_close(elf);
	close(other);
	free(image);
}

static void every_failing_call_is_survived(void **state)
{
	struct image *image = image_new();
	unsigned long n;
	bool done = false;
	(void)state;

	for (n = 1; !done; n++) {
		struct elf_cache cache = {0};
		struct modules modules;
		struct module *module = NULL;
		struct strbuf text = {0};
		struct module_info info = {.id = 1,
					   .base = BASE,
					   .end = BASE + sizeof(*image),
					   .build_id = image->note.id,
					   .build_id_length = sizeof(image->note.id)};
		int fd = unit_memory_file(image, sizeof(*image));
		char path[64];

		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		info.path = path;
		modules_init(&modules, &cache);
		fail_at = n;
		if (modules_load(&modules, &info, 0, &module) == 0) {
			(void)module_pin(module, "");
			if (module_symbolise(module, "", TEXT + 1, &text) == 0)
				assert_non_null(strstr(strbuf_str(&text), "[0x4"));
		}
		done = fail_at > 0;
		fail_at = 0;
		strbuf_fini(&text);
		modules_fini(&modules);
		elf_cache_fini(&cache);
		close(fd);
	}
	assert_in_range(n, 10, 100);
	free(image);
}

static void overlapping_symbols_by_the_thousand_stay_quick(void **state)
{
	enum { COUNT = 600000, NAME = 101 }; /* about what libtorch has */
	const size_t names_bytes = (size_t)COUNT * NAME + 1;
	struct image *image = image_new();
	Elf64_Sym *symbols = calloc(COUNT, sizeof(*symbols));
	char *names = malloc(names_bytes);
	struct elf *elf = NULL;
	unsigned int i, x = 1;
	int fd;
	(void)state;

	assert_true(symbols != NULL && names != NULL);
	memset(names, 'n', names_bytes);
	names[0] = '\0';
	for (i = 0; i < COUNT; i++) {
		uint32_t place =
			(uint32_t)((uint64_t)i * 389999 % COUNT); /* not in order of address */

		(void)snprintf(names + 1 + (size_t)i * NAME, 8, "%07u", place);
		names[1 + (size_t)i * NAME + 7] = 'n';
		names[(size_t)(i + 1) * NAME] = '\0';
		symbols[i] = (Elf64_Sym){.st_name = 1 + i * NAME,
					 .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					 .st_shndx = SECTION_TEXT,
					 .st_value = TEXT + place * 16u,
					 .st_size = 24};
	}
	image->sections[SECTION_TEXT].sh_size = COUNT * 16u + 8;
	image->sections[SECTION_SYMTAB].sh_offset = sizeof(*image);
	image->sections[SECTION_SYMTAB].sh_size = COUNT * sizeof(*symbols);
	image->sections[SECTION_STRTAB].sh_offset = sizeof(*image) + COUNT * sizeof(*symbols);
	image->sections[SECTION_STRTAB].sh_size = names_bytes;
	fd = unit_memory_file(image, sizeof(*image));
	assert_int_equal(lseek(fd, 0, SEEK_END), sizeof(*image));
	assert_int_equal(write(fd, symbols, COUNT * sizeof(*symbols)), COUNT * sizeof(*symbols));
	assert_int_equal(write(fd, names, names_bytes), names_bytes);
	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	for (i = 0; i < 10000; i++) {
		uint32_t place = (x = x * 1664525u + 1013904223u) % COUNT;
		const char *name;
		uint64_t into;

		assert_int_equal(elf_lookup(elf, TEXT + place * 16u + 3, &name, &into), 0);
		assert_int_equal(strtoul(name, NULL, 10), place);
		assert_int_equal(strlen(name), NAME - 1);
		assert_int_equal(into, 3);
	}
	elf_close(elf);
	free(names);
	free(symbols);
	free(image);
}

/* The shared object of this process that holds `inside`. */
struct object {
	const void *inside;
	char path[PATH_MAX];
	uint64_t bias, base, end, text, text_end;
	uint8_t build_id[64];
	size_t build_id_length;
};

static int fill_object(struct dl_phdr_info *info, size_t bytes, void *data)
{
	struct object *object = data;
	uint64_t base = UINT64_MAX, end = 0, text = 0, text_end = 0;
	unsigned int i;
	(void)bytes;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *segment = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type != PT_LOAD)
			continue;
		base = start < base ? start : base;
		end = start + segment->p_memsz > end ? start + segment->p_memsz : end;
		if (segment->p_flags & PF_X) {
			text = start;
			text_end = start + segment->p_memsz;
		}
	}
	if ((uintptr_t)object->inside < base || (uintptr_t)object->inside >= end)
		return 0;
	object->bias = info->dlpi_addr;
	object->base = base;
	object->end = end;
	object->text = text;
	object->text_end = text_end;
	if (info->dlpi_name[0] == '\0')
		assert_true(readlink("/proc/self/exe", object->path, sizeof(object->path) - 1) > 0);
	else
		assert_true(strlen(info->dlpi_name) < sizeof(object->path));
	if (info->dlpi_name[0] != '\0')
		strcpy(object->path, info->dlpi_name);
	return 1;
}

static struct elf *open_path(const char *path)
{
	struct elf *elf = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(elf_open(fd, &elf, NULL), 0);
	return elf;
}

static struct object object_of(const void *inside)
{
	struct object object = {.inside = inside};
	const uint8_t *build_id;
	struct elf *elf;

	assert_int_equal(dl_iterate_phdr(fill_object, &object), 1);
	elf = open_path(object.path);
	build_id = elf_build_id(elf, &object.build_id_length);
	assert_true(object.build_id_length <= sizeof(object.build_id));
	if (object.build_id_length > 0)
		memcpy(object.build_id, build_id, object.build_id_length);
	elf_close(elf);
	return object;
}

static struct object libc_object(void)
{
	void *handle = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
	struct object object;

	assert_non_null(handle);
	object = object_of(dlsym(handle, "qsort")); /* not what a sanitizer puts before it */
	dlclose(handle);
	return object;
}

/* What glibc knows of an address; false where it means data that lies between code. */
static bool ask_glibc(uint64_t address, Dl_info *info)
{
	const Elf64_Sym *symbol = NULL;

	assert_int_not_equal(dladdr1((void *)address, info, (void **)&symbol, RTLD_DL_SYMENT), 0);
	return symbol == NULL || ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT;
}

static struct module_info info_of(const struct object *object, uint64_t id)
{
	return (struct module_info){
		.id = id,
		.base = object->base,
		.end = object->end,
		.bias = object->bias,
		.path = object->path,
		.build_id = object->build_id,
		.build_id_length = object->build_id_length,
	};
}

static void names_of_libc_agree_with_dladdr(void **state)
{
	struct object libc = libc_object();
	struct elf *elf = open_path(libc.path);
	void *handle = dlopen(libc.path, RTLD_LAZY | RTLD_NOLOAD);
	unsigned int same = 0, aliases = 0, odd = 0;
	uint64_t address, previous = 0;
	(void)state;

	assert_non_null(handle);
	for (address = libc.text; address < libc.text_end; address += 61) {
		const char *name = NULL;
		Dl_info info = {0};
		uint64_t into = 0;
		int r = elf_lookup(elf, address - libc.bias, &name, &into);

		if (!ask_glibc(address, &info))
			continue;
		if (info.dli_sname == NULL) {
			assert_int_equal(r, MSCOPE_E_ABSENT);
			continue;
		}
		assert_int_equal(r, 0);
		assert_int_equal(address - into, (uintptr_t)info.dli_saddr);
		if (address - into == previous)
			continue;
		previous = address - into;
		if (strcmp(name, info.dli_sname) == 0) {
			same++;
		} else if (dlsym(handle, name) == (void *)(address - into)) {
			aliases++; /* another name of the same function */
		} else {
			odd++; /* the same, but indirect or of an old version */
		}
	}
	assert_true(same >= 300);
	assert_true(aliases < same / 2);
	assert_true(odd < same / 10);
	dlclose(handle);
	elf_close(elf);
}

static void frames_read_as_backtrace_symbols_prints_them(void **state)
{
	struct object libc = libc_object();
	struct module_info info = info_of(&libc, 1);
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *module;
	struct strbuf text = {0};
	unsigned int named = 0, nameless = 0;
	uint64_t address;
	(void)state;

	modules_init(&modules, &cache);
	assert_int_equal(modules_load(&modules, &info, 0, NULL), 0);
	for (address = libc.text; address < libc.text_end; address += 509) {
		void *frame = (void *)address;
		char **expected;
		Dl_info ignored;

		if (!ask_glibc(address, &ignored))
			continue;
		expected = backtrace_symbols(&frame, 1);
		assert_non_null(expected);
		module = modules_find(&modules, address);
		assert_non_null(module);
		strbuf_reset(&text);
		assert_int_equal(module_symbolise(module, "", address, &text), 0);
		if (strstr(expected[0], "(+") != NULL) {
			assert_string_equal(strbuf_str(&text), expected[0]);
			nameless++;
		} else if (strcmp(strbuf_str(&text), expected[0]) == 0) {
			named++;
		} else {
			/* An alias: all but the name is the same. */
			assert_string_equal(strrchr(strbuf_str(&text), '+'),
					    strrchr(expected[0], '+'));
		}
		free(expected);
	}
	assert_true(named >= 200);
	assert_true(nameless >= 20);
	strbuf_fini(&text);
	modules_fini(&modules);
	elf_cache_fini(&cache);
}

static void check_frame(struct module *module, uint64_t address, const char *expected)
{
	struct strbuf text = {0};

	assert_int_equal(module_symbolise(module, "", address, &text), 0);
	assert_string_equal(strbuf_str(&text), expected);
	strbuf_fini(&text);
}

static void frames_without_a_name_keep_what_is_known(void **state)
{
	struct module_info info = {.id = 1, .base = 0x1000, .end = 0x2000, .path = "/none/lib.so"};
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *fixed, *moved;
	(void)state;

	modules_init(&modules, &cache);
	assert_int_equal(modules_load(&modules, &info, 0, &fixed), 0);
	info = (struct module_info){
		.id = 2, .base = 0x8000, .end = 0x9000, .bias = 0x8800, .path = "vdso"};
	assert_int_equal(modules_load(&modules, &info, 0, &moved), 0);
	check_frame(NULL, 0xabc, "[0xabc]");
	check_frame(fixed, 0x1234, "/none/lib.so() [0x1234]");
	check_frame(moved, 0x8801, "vdso(+0x1) [0x8801]");
	check_frame(moved, 0x8800, "vdso(+0) [0x8800]");
	check_frame(moved, 0x87f0, "vdso(-0x10) [0x87f0]");
	assert_int_equal(fixed->file_status, -ENOENT);
	assert_int_equal(module_pin(moved, ""), -ENOENT);
	modules_fini(&modules);
	elf_cache_fini(&cache);
}

/* Seen by dlsym() thanks to the exported symbols of this program, even when it is stripped. */
MSCOPE_EXPORT int symbols_test_exported(int x);

__attribute__((noinline)) int symbols_test_exported(int x)
{
	return x * 3 + 1;
}

static __attribute__((noinline)) int test_local(int x)
{
	return x * 5 + 7;
}

static void check_own_name(const char *path, const struct object *self, const void *function,
			   const char *expected)
{
	struct elf *elf = open_path(path);
	const char *name = NULL;
	uint64_t into = 99;
	int r = elf_lookup(elf, (uintptr_t)function - self->bias, &name, &into);

	if (expected != NULL) {
		assert_int_equal(r, 0);
		assert_string_equal(name, expected);
		assert_int_equal(into, 0);
	} else {
		assert_int_equal(r, MSCOPE_E_ABSENT);
	}
	elf_close(elf);
}

static void own_program_names_its_local_functions(void **state)
{
	struct object self = object_of((const void *)symbols_test_exported);
	(void)state;

	assert_int_equal(symbols_test_exported(1) + test_local(1), 16);
	check_own_name(self.path, &self, (const void *)symbols_test_exported,
		       "symbols_test_exported");
	check_own_name(self.path, &self, (const void *)test_local, "test_local");
}

/* Writes a file into the test's directory and gives its path, valid until the next call. */
static const char *write_file(const char *name, const void *data, size_t bytes)
{
	const char *path = unit_path(name);
	int fd;

	(void)unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, bytes), bytes);
	close(fd);
	return path;
}

static void stripped_program_still_names_what_it_exports(void **state)
{
	struct object self = object_of((const void *)symbols_test_exported);
	const char *path = unit_path("stripped");
	char command[3 * PATH_MAX];
	int status;
	(void)state;

	(void)snprintf(command, sizeof(command), "'%s' -s -o '%s' '%s'", STRIP_TOOL, path,
		       self.path);
	status = system(command);
	if (status == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
		skip(); /* no strip on this machine */
	assert_int_equal(status, 0);
	check_own_name(path, &self, (const void *)symbols_test_exported, "symbols_test_exported");
	check_own_name(path, &self, (const void *)test_local, NULL);
}

static void libc_without_section_headers_gives_the_same_names(void **state)
{
	struct object libc = libc_object();
	struct elf *whole = open_path(libc.path), *bare;
	size_t bytes, length;
	uint8_t *data = unit_read_file(libc.path, &bytes);
	unsigned int named = 0;
	uint64_t vaddr;
	(void)state;

	drop_sections((Elf64_Ehdr *)data);
	bare = open_path(write_file("bare.so", data, bytes));
	assert_memory_equal(elf_build_id(bare, &length), libc.build_id, libc.build_id_length);
	for (vaddr = libc.text - libc.bias; vaddr < libc.text_end - libc.bias; vaddr += 127) {
		const char *x = NULL, *y = NULL;
		uint64_t into_x = 0, into_y = 0;
		int r = elf_lookup(bare, vaddr, &y, &into_y);

		assert_int_equal(elf_lookup(whole, vaddr, &x, &into_x), r);
		if (r < 0)
			continue;
		assert_string_equal(x, y);
		assert_int_equal(into_x, into_y);
		named++;
	}
	assert_true(named >= 300);
	elf_close(whole);
	elf_close(bare);
	free(data);
}

static struct module *load_at(struct modules *modules, uint64_t id, uint64_t base, uint64_t end)
{
	struct module_info info = {.id = id, .base = base, .end = end, .path = "/none"};
	struct module *module = NULL;

	assert_int_equal(modules_load(modules, &info, id * 10, &module), 0);
	return module;
}

static void address_belongs_to_the_module_loaded_there_now(void **state)
{
	struct modules modules;
	struct module *a, *b, *c, *d;
	(void)state;

	modules_init(&modules, NULL);
	assert_null(modules_find(&modules, 0));
	b = load_at(&modules, 2, 300, 400);
	a = load_at(&modules, 1, 100, 200);
	c = load_at(&modules, 3, 400, 500);
	assert_null(modules_find(&modules, 99));
	assert_ptr_equal(modules_find(&modules, 100), a);
	assert_ptr_equal(modules_find(&modules, 199), a);
	assert_null(modules_find(&modules, 200));
	assert_ptr_equal(modules_find(&modules, 399), b);
	assert_ptr_equal(modules_find(&modules, 400), c);
	assert_null(modules_find(&modules, 500));

	assert_int_equal(modules_unload(&modules, 2, 77), 0);
	assert_null(modules_find(&modules, 300));
	assert_ptr_equal(modules_get(&modules, 2), b);
	assert_int_equal(b->unloaded_ns, 77);
	assert_int_equal(modules_unload(&modules, 2, 78), MSCOPE_E_STATE);
	assert_int_equal(modules_unload(&modules, 9, 78), MSCOPE_E_ABSENT);

	/* Loaded over two whose unload was lost. */
	d = load_at(&modules, 4, 150, 450);
	assert_ptr_equal(modules_find(&modules, 150), d);
	assert_ptr_equal(modules_find(&modules, 449), d);
	assert_null(modules_find(&modules, 120));
	assert_null(modules_find(&modules, 460));
	assert_int_equal(a->unloaded_ns, 40);
	assert_int_equal(c->unloaded_ns, 40);
	assert_int_equal(d->unloaded_ns, UINT64_MAX);
	assert_int_equal(modules.replaced_count, 2);
	assert_int_equal(modules.loaded_count, 1);
	modules_fini(&modules);
}

static void senseless_loads_are_refused(void **state)
{
	struct module_info info = {.id = 1, .base = 200, .end = 200, .path = "/none"};
	struct modules modules;
	(void)state;

	modules_init(&modules, NULL);
	assert_int_equal(modules_load(&modules, &info, 0, NULL), MSCOPE_E_DAMAGED);
	info.end = 100;
	assert_int_equal(modules_load(&modules, &info, 0, NULL), MSCOPE_E_DAMAGED);
	info.end = 300;
	assert_int_equal(modules_load(&modules, &info, 0, NULL), 0);
	assert_int_equal(modules_load(&modules, &info, 0, NULL), MSCOPE_E_DAMAGED);
	assert_int_equal(modules.loaded_count, 1);
	modules_fini(&modules);
}

static unsigned int open_descriptors(void)
{
	unsigned int count = 0;
	int fd;

	for (fd = 0; fd < 4096; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

/* The frame two bytes into the text of a loaded image. */
static void expect_frame(struct module *module, const char *inside)
{
	const uint64_t address = LOADED + offsetof(struct image, text) + 2;
	struct strbuf expected = {0};

	strbuf_addf(&expected, "%s(%s) [0x%" PRIx64 "]", module->info.path, inside, address);
	check_frame(module, address, strbuf_str(&expected));
	strbuf_fini(&expected);
}

/* A module whose file is `path`; its build id ends in `mark`, which also makes its id. */
static struct module *load_image(struct modules *modules, const char *path, uint8_t mark)
{
	uint8_t build_id[20];
	struct module_info info = {.id = mark,
				   .base = LOADED,
				   .end = LOADED + 0x10000,
				   .bias = LOADED - BASE,
				   .path = path,
				   .build_id = build_id,
				   .build_id_length = sizeof(build_id)};
	struct image *image = image_new();
	struct module *module = NULL;

	memcpy(build_id, image->note.id, sizeof(build_id));
	build_id[19] = mark;
	assert_int_equal(modules_load(modules, &info, 0, &module), 0);
	free(image);
	return module;
}

static void pinned_file_is_named_after_it_vanished(void **state)
{
	struct image *image = image_new();
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *pinned, *late, *replaced;
	unsigned int before = open_descriptors();
	char *path, nameless[32];
	(void)state;

	(void)snprintf(nameless, sizeof(nameless), "+0x%" PRIx64, TEXT + 2);
	modules_init(&modules, &cache);
	image->note.id[19] = 1;
	path = strdup(write_file("pinned.so", image, sizeof(*image)));
	pinned = load_image(&modules, path, 1);
	assert_int_equal(module_pin(pinned, ""), 0);
	assert_int_equal(cache.pinned_count, 1);
	assert_int_equal(open_descriptors(), before + 1);
	assert_int_equal(unlink(path), 0);
	expect_frame(pinned, "outer+0x2");
	assert_int_equal(cache.pinned_count, 0); /* its symbols are in memory now */
	assert_int_equal(open_descriptors(), before);
	expect_frame(pinned, "outer+0x2");

	late = load_image(&modules, path, 2);
	expect_frame(late, nameless);
	assert_int_equal(late->file_status, -ENOENT);

	/*
	 * Another file under the same name, with build id 1 again but not the one that was loaded.
	 */
	write_file("pinned.so", image, sizeof(*image));
	replaced = load_image(&modules, path, 3);
	expect_frame(replaced, nameless);
	assert_int_equal(replaced->file_status, MSCOPE_E_ABSENT);
	assert_int_equal(open_descriptors(), before);
	modules_fini(&modules);
	elf_cache_fini(&cache);
	free(path);
	free(image);
}

static void processes_share_one_file(void **state)
{
	struct image *image = image_new();
	struct elf_cache cache = {0};
	struct modules modules[2];
	struct module *x, *y;
	struct module_info info = {.id = 7, .base = 1, .end = 2};
	char *path;
	(void)state;

	modules_init(&modules[0], &cache);
	modules_init(&modules[1], &cache);
	image->note.id[19] = 1;
	path = strdup(write_file("shared.so", image, sizeof(*image)));
	x = load_image(&modules[0], path, 1);
	assert_int_equal(module_pin(x, ""), 0);
	y = load_image(&modules[1], "/in/another/container.so", 1);
	assert_int_equal(module_pin(y, "/proc/self/root"), 0);
	assert_ptr_equal(x->file, y->file);

	/* Without a build id the file itself tells. */
	image->note.head.n_type = 99;
	write_file("shared.so", image, sizeof(*image));
	info.path = path;
	assert_int_equal(modules_load(&modules[0], &info, 0, &x), 0);
	assert_int_equal(modules_load(&modules[1], &info, 0, &y), 0);
	assert_int_equal(module_pin(x, ""), 0);
	assert_int_equal(module_pin(y, "/proc/self/root"), 0);
	assert_ptr_equal(x->file, y->file);
	assert_int_equal(cache.file_count, 2);
	assert_int_equal(cache.pinned_count, 2);
	modules_fini(&modules[0]);
	modules_fini(&modules[1]);
	elf_cache_fini(&cache);
	free(path);
	free(image);
}

static void descriptors_are_pinned_up_to_the_limit_only(void **state)
{
	enum { EXTRA = 3 };
	struct image *image = image_new();
	unsigned int before = open_descriptors(), i;
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *module = NULL;
	struct rlimit limit;
	(void)state;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < before + ELF_CACHE_PINNED_MAX + 8)
		skip();
	modules_init(&modules, &cache);
	for (i = 0; i < ELF_CACHE_PINNED_MAX + EXTRA; i++) {
		struct module_info info = {.id = i,
					   .base = LOADED,
					   .end = LOADED + 0x10000,
					   .bias = LOADED - BASE,
					   .build_id = image->note.id,
					   .build_id_length = sizeof(image->note.id)};

		memcpy(image->note.id, &i, sizeof(i));
		info.path = write_file("many.so", image, sizeof(*image));
		assert_int_equal(modules_load(&modules, &info, 0, &module), 0);
		assert_int_equal(module_pin(module, ""),
				 i < ELF_CACHE_PINNED_MAX ? 0 : MSCOPE_E_LIMIT);
	}
	assert_int_equal(open_descriptors(), before + ELF_CACHE_PINNED_MAX);

	/* Not pinned, but its file is still there: opened and closed when its name is wanted. */
	expect_frame(module, "outer+0x2");
	assert_int_equal(open_descriptors(), before + ELF_CACHE_PINNED_MAX);
	assert_int_equal(cache.pinned_count, ELF_CACHE_PINNED_MAX);
	modules_fini(&modules);
	elf_cache_fini(&cache);
	assert_int_equal(open_descriptors(), before);
	free(image);
}

static void links_are_followed_inside_the_root_of_the_process(void **state)
{
	struct open_how how = {.flags = O_PATH, .resolve = RESOLVE_IN_ROOT};
	struct image *image = image_new();
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *module;
	long fd;
	(void)state;

	fd = syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));
	if (fd < 0) {
		free(image);
		skip(); /* a kernel before 5.6, or an emulator */
	}
	close((int)fd);
	image->note.id[19] = 5;
	write_file("only-inside.so", image, sizeof(*image));
	assert_int_equal(symlink("/only-inside.so", unit_path("link.so")), 0);
	modules_init(&modules, &cache);
	module = load_image(&modules, "/link.so", 5);
	assert_int_equal(module_pin(module, unit_directory), 0);
	modules_fini(&modules);
	elf_cache_fini(&cache);
	free(image);
}

static void fifo_instead_of_a_library_does_not_block(void **state)
{
	struct elf_cache cache = {0};
	struct modules modules;
	struct module *module;
	(void)state;

	assert_int_equal(mkfifo(unit_path("fifo.so"), 0600), 0);
	modules_init(&modules, &cache);
	module = load_image(&modules, unit_path("fifo.so"), 1);
	assert_int_equal(module_pin(module, ""), MSCOPE_E_FOREIGN);
	modules_fini(&modules);
	elf_cache_fini(&cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_table_names_code_by_the_documented_rules),
		cmocka_unit_test(order_in_the_table_does_not_decide_before_binding),
		cmocka_unit_test(dynamic_table_serves_when_it_is_all_there_is),
		cmocka_unit_test(damaged_section_table_falls_back_to_the_dynamic_one),
		cmocka_unit_test(file_without_any_table_has_no_names),
		cmocka_unit_test(hostile_hash_tables_are_refused),
		cmocka_unit_test(tables_beyond_the_limit_are_refused),
		cmocka_unit_test(build_id_needs_no_section_headers),
		cmocka_unit_test(foreign_files_are_refused),
		cmocka_unit_test(every_truncation_gets_an_answer),
		cmocka_unit_test(every_bit_flip_gets_an_answer),
		cmocka_unit_test(file_that_shrinks_while_open_is_an_error),
		cmocka_unit_test(every_failing_call_is_survived),
		cmocka_unit_test(overlapping_symbols_by_the_thousand_stay_quick),
		cmocka_unit_test(names_of_libc_agree_with_dladdr),
		cmocka_unit_test(frames_read_as_backtrace_symbols_prints_them),
		cmocka_unit_test(frames_without_a_name_keep_what_is_known),
		cmocka_unit_test(own_program_names_its_local_functions),
		cmocka_unit_test(stripped_program_still_names_what_it_exports),
		cmocka_unit_test(libc_without_section_headers_gives_the_same_names),
		cmocka_unit_test(address_belongs_to_the_module_loaded_there_now),
		cmocka_unit_test(senseless_loads_are_refused),
		cmocka_unit_test(pinned_file_is_named_after_it_vanished),
		cmocka_unit_test(processes_share_one_file),
		cmocka_unit_test(descriptors_are_pinned_up_to_the_limit_only),
		cmocka_unit_test(links_are_followed_inside_the_root_of_the_process),
		cmocka_unit_test(fifo_instead_of_a_library_does_not_block),
	};

	return cmocka_run_group_tests(tests, unit_make_directory, unit_remove_directory);
}
