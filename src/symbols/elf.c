/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading is in two steps. elf_open() takes the program headers, and from them the build id. The
 * first elf_lookup() finds a symbol table and its string table, keeps the functions as an array
 * sorted by address, 24 bytes each, and the string table as it is; then the descriptor is closed.
 *
 * Extents of symbols may overlap or nest. Each entry names as its parent the nearest earlier symbol
 * that may still reach beyond its start, so a lookup that misses the last symbol before an address
 * follows the parents. They always point to smaller indexes: the walk ends.
 */
#include "symbols/elf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/status.h"
#include "symbols/elf_file.h"

#define CODE_RANGES_MAX 16
#define NOTE_BYTES_MAX	(UINT64_C(1) << 16)
#define BLOCK_ENTRIES	1024

#define NO_PARENT UINT32_MAX

/*
 * The rank of a symbol among those of one address, smaller is better: preference above, place in
 * the table below. Bit 31 is also what marks a symbol without a size.
 */
#define RANK_INDEX_BITS 26
#define RANK_NO_SIZE	(UINT32_C(1) << 31)
#define RANK_NO_TYPE	(UINT32_C(1) << 30)
#define RANK_WEAK	(UINT32_C(1) << 28)
#define RANK_LOCAL	(UINT32_C(2) << 28)
#define RANK_UNDERSCORE (UINT32_C(1) << RANK_INDEX_BITS) /* times 0 to 3 */

_Static_assert(ELF_TABLE_BYTES_MAX / sizeof(Elf64_Sym) < UINT64_C(1) << RANK_INDEX_BITS,
	       "the rank of a symbol fits its index");

struct symbol {
	uint64_t start;
	uint32_t size; /* saturated; never 0 */
	uint32_t name; /* offset in names */
	uint32_t rank;
	uint32_t parent;
};

/* Addresses from start up to end. */
struct range {
	uint64_t start;
	uint64_t end;
};

struct elf {
	struct elf_file file; /* closed, and without segments, once symbols were loaded */
	uint8_t *build_id;
	size_t build_id_length;
	bool loaded;
	int load_status;
	struct symbol *symbols; /* by start, each start once */
	uint32_t symbol_count;
	char *names;
};

/* Where a symbol table and its strings lie in the file. */
struct table {
	uint64_t offset;
	uint64_t bytes;
	uint64_t names_offset;
	uint64_t names_bytes;
	bool complete; /* lists local functions too */
};

static uint64_t align_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

/* Looks for the build id in one note segment; 0 also when it is not there. */
static int scan_notes(struct elf *elf, const Elf64_Phdr *segment)
{
	uint64_t bytes = segment->p_filesz < NOTE_BYTES_MAX ? segment->p_filesz : NOTE_BYTES_MAX;
	uint64_t alignment = segment->p_align == 8 ? 8 : 4;
	uint64_t at = 0;
	uint8_t *notes;
	int r;

	r = elf_file_read(&elf->file, segment->p_offset, bytes, NOTE_BYTES_MAX, &notes);
	if (r < 0)
		return r;
	while (at < bytes && bytes - at >= sizeof(Elf64_Nhdr)) {
		uint64_t name_at = at + sizeof(Elf64_Nhdr), data_at;
		Elf64_Nhdr note;

		memcpy(&note, notes + at, sizeof(note));
		data_at = at + align_up(sizeof(note) + (uint64_t)note.n_namesz, alignment);
		if (data_at > bytes || note.n_descsz > bytes - data_at)
			break;
		if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && note.n_descsz > 0 &&
		    memcmp(notes + name_at, "GNU", 4) == 0) {
			elf->build_id = malloc(note.n_descsz);
			if (elf->build_id == NULL) {
				r = -ENOMEM;
				break;
			}
			memcpy(elf->build_id, notes + data_at, note.n_descsz);
			elf->build_id_length = note.n_descsz;
			break;
		}
		at = align_up(data_at + note.n_descsz, alignment);
	}
	free(notes);
	return r;
}

/* A note segment that cannot be read is as good as none; only lack of memory is an error. */
static int find_build_id(struct elf *elf)
{
	size_t i;

	for (i = 0; i < elf->file.segment_count && elf->build_id == NULL; i++) {
		if (elf->file.segments[i].p_type == PT_NOTE &&
		    scan_notes(elf, &elf->file.segments[i]) == -ENOMEM)
			return -ENOMEM;
	}
	return 0;
}

int elf_open(int fd, struct elf **out_elf, struct mscope_error *err)
{
	struct elf *elf = calloc(1, sizeof(*elf));
	int r;

	if (elf == NULL)
		return error_set(err, -ENOMEM, "out of memory");
	r = elf_file_open(fd, &elf->file, err);
	if (r == 0 && elf->file.header.e_type != ET_EXEC && elf->file.header.e_type != ET_DYN)
		r = error_set(err, MSCOPE_E_FOREIGN, "neither an executable nor a shared object");
	if (r == 0 && find_build_id(elf) < 0)
		r = error_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		elf->file.fd = -1;
		elf_close(elf);
		return r;
	}
	*out_elf = elf;
	return 0;
}

void elf_close(struct elf *elf)
{
	if (elf == NULL)
		return;
	if (elf->file.fd >= 0)
		(void)close(elf->file.fd); /* read only: nothing can be lost */
	elf_file_fini(&elf->file);
	free(elf->build_id);
	free(elf->symbols);
	free(elf->names);
	free(elf);
}

int elf_descriptor(const struct elf *elf)
{
	return elf->file.fd;
}

const uint8_t *elf_build_id(const struct elf *elf, size_t *out_length)
{
	*out_length = elf->build_id_length;
	return elf->build_id;
}

/*
 * How far code reaches from the address of a symbol: to the end of its section, or of its segment
 * when sections are not known. 0 when the symbol is not defined in code.
 */
static uint64_t code_ahead(const Elf64_Sym *sym, const struct elf_sections *sections,
			   const struct range *code, size_t code_count)
{
	size_t i;

	if (sym->st_shndx == SHN_UNDEF)
		return 0;
	if (sym->st_shndx >= SHN_LORESERVE && sym->st_shndx != SHN_XINDEX)
		return 0;
	if (sections->count > 0 && sym->st_shndx != SHN_XINDEX) {
		const Elf64_Shdr *section;
		uint64_t into;

		if (sym->st_shndx >= sections->count)
			return 0;
		section = &sections->headers[sym->st_shndx];
		if (!(section->sh_flags & SHF_EXECINSTR))
			return 0;
		into = sym->st_value - section->sh_addr;
		return into < section->sh_size ? section->sh_size - into : 0;
	}
	for (i = 0; i < code_count; i++) {
		if (sym->st_value >= code[i].start && sym->st_value < code[i].end)
			return code[i].end - sym->st_value;
	}
	return 0;
}

/*
 * Executable segments; more than a handful is not a real file, and each symbol is held against all
 * of them.
 */
static size_t code_ranges(const struct elf *elf, struct range *ranges)
{
	size_t i, count = 0;

	for (i = 0; i < elf->file.segment_count && count < CODE_RANGES_MAX; i++) {
		const Elf64_Phdr *segment = &elf->file.segments[i];

		if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) &&
		    segment->p_memsz <= UINT64_MAX - segment->p_vaddr)
			ranges[count++] = (struct range){segment->p_vaddr,
							 segment->p_vaddr + segment->p_memsz};
	}
	return count;
}

static uint32_t preference(const Elf64_Sym *sym, const char *name)
{
	uint32_t rank = 0;
	unsigned int i;

	if (sym->st_size == 0)
		rank |= RANK_NO_SIZE;
	if (ELF64_ST_TYPE(sym->st_info) == STT_NOTYPE)
		rank |= RANK_NO_TYPE;
	if (ELF64_ST_BIND(sym->st_info) == STB_WEAK)
		rank |= RANK_WEAK;
	else if (ELF64_ST_BIND(sym->st_info) == STB_LOCAL)
		rank |= RANK_LOCAL;
	for (i = 0; i < 3 && name[i] == '_'; i++)
		rank += RANK_UNDERSCORE;
	return rank;
}

static bool is_function(const Elf64_Sym *sym)
{
	switch (ELF64_ST_TYPE(sym->st_info)) {
	case STT_FUNC:
	case STT_GNU_IFUNC:
		return true;
	case STT_NOTYPE:
		return ELF64_ST_BIND(sym->st_info) != STB_LOCAL;
	default:
		return false;
	}
}

static int compare_symbols(const void *x, const void *y)
{
	const struct symbol *a = x, *b = y;

	return ORDER_UP(a->start, b->start) ?: ORDER_UP(a->rank, b->rank);
}

/*
 * One pass over the sorted symbols, in place: keeps the best of each address, ends those without a
 * size at their successor, drops those inside a symbol with a size, and links parents. The parents
 * of `top` are the stack of symbols that may still be open. One without a size is only ever alone
 * on it: it is closed by any successor, and never opened inside another.
 */
static uint32_t settle(struct symbol *symbols, uint32_t count)
{
	uint32_t i, kept = 0, top = NO_PARENT;

	for (i = 0; i < count; i++) {
		struct symbol s = symbols[i];

		if (kept > 0 && symbols[kept - 1].start == s.start)
			continue;
		while (top != NO_PARENT && s.start - symbols[top].start >= symbols[top].size)
			top = symbols[top].parent;
		if (top != NO_PARENT && (symbols[top].rank & RANK_NO_SIZE)) {
			symbols[top].size = (uint32_t)(s.start - symbols[top].start);
			top = NO_PARENT;
		}
		if (top != NO_PARENT && (s.rank & RANK_NO_SIZE))
			continue;
		s.parent = top;
		top = kept;
		symbols[kept++] = s;
	}
	return kept;
}

/* Reads one table into elf->symbols and elf->names; leaves both alone when it has no functions. */
static int load_table(struct elf *elf, const struct table *table,
		      const struct elf_sections *sections)
{
	uint64_t total = table->bytes / sizeof(Elf64_Sym), done, n;
	struct range code[CODE_RANGES_MAX];
	size_t code_count = code_ranges(elf, code);
	struct symbol *symbols = NULL, *fitted;
	Elf64_Sym block[BLOCK_ENTRIES];
	char *names = NULL;
	uint32_t count = 0;
	int r;

	if (table->bytes > ELF_TABLE_BYTES_MAX)
		return MSCOPE_E_LIMIT;
	if (!elf_file_has(&elf->file, table->offset, table->bytes))
		return MSCOPE_E_TRUNCATED;
	if (total == 0)
		return 0;
	r = elf_file_read(&elf->file, table->names_offset, table->names_bytes, ELF_TABLE_BYTES_MAX,
			  &names);
	if (r < 0)
		return r;

	/* Room for all of them costs address space only, and what is not used goes back. */
	symbols = malloc(total * sizeof(*symbols));
	if (symbols == NULL) {
		r = -ENOMEM;
		goto out;
	}
	for (done = 0; done < total; done += n) {
		uint64_t i;

		n = total - done < BLOCK_ENTRIES ? total - done : BLOCK_ENTRIES;
		r = io_read_at(elf->file.fd, block, n * sizeof(*block),
			       table->offset + done * sizeof(*block));
		if (r < 0)
			goto out;
		for (i = 0; i < n; i++) {
			const Elf64_Sym *sym = &block[i];
			uint64_t extent = sym->st_size, ahead;

			if (!is_function(sym) || sym->st_name >= table->names_bytes ||
			    names[sym->st_name] == '\0')
				continue;
			ahead = code_ahead(sym, sections, code, code_count);
			if (ahead == 0)
				continue;
			if (extent == 0)
				extent = table->complete ? ahead : 1;
			symbols[count++] = (struct symbol){
				.start = sym->st_value,
				.size = extent < UINT32_MAX ? (uint32_t)extent : UINT32_MAX,
				.name = sym->st_name,
				.rank = preference(sym, names + sym->st_name) |
					(uint32_t)(done + i),
			};
		}
	}
	if (count == 0)
		goto out;

	qsort(symbols, count, sizeof(*symbols), compare_symbols);
	elf->symbol_count = settle(symbols, count);
	fitted = realloc(symbols, elf->symbol_count * sizeof(*symbols));
	elf->symbols = fitted != NULL ? fitted : symbols;
	elf->names = names;
	return 0;

out:
	free(symbols);
	free(names);
	return r;
}

/* Loads the first table of a section type. */
static int load_section(struct elf *elf, const struct elf_sections *sections, uint32_t type)
{
	size_t i;

	for (i = 0; i < sections->count; i++) {
		const Elf64_Shdr *section = &sections->headers[i], *names;
		struct table table;

		if (section->sh_type != type)
			continue;
		if (section->sh_entsize != sizeof(Elf64_Sym) || section->sh_link >= sections->count)
			return MSCOPE_E_DAMAGED;
		names = &sections->headers[section->sh_link];
		if (names->sh_type != SHT_STRTAB)
			return MSCOPE_E_DAMAGED;
		table = (struct table){
			.offset = section->sh_offset,
			.bytes = section->sh_size,
			.names_offset = names->sh_offset,
			.names_bytes = names->sh_size,
			.complete = type == SHT_SYMTAB,
		};
		return load_table(elf, &table, sections);
	}
	return 0;
}

/* Loads the table that the run-time linker uses, found without section headers. */
static int load_dynamic(struct elf *elf)
{
	struct elf_dynamic dynamic = {0};
	struct table table = {0};
	uint64_t bytes, count, symtab, strtab;
	int r = elf_file_dynamic(&elf->file, &dynamic);

	if (r < 0)
		return r == MSCOPE_E_ABSENT ? 0 : r;
	r = elf_dynamic_symbols(&elf->file, &dynamic, &count);
	symtab = elf_dynamic_value(&dynamic, DT_SYMTAB);
	strtab = elf_dynamic_value(&dynamic, DT_STRTAB);
	table.names_bytes = elf_dynamic_value(&dynamic, DT_STRSZ);
	free(dynamic.entries);
	if (r < 0 || count == 0)
		return r;
	if (!elf_file_place(&elf->file, symtab, &table.offset, &bytes) ||
	    count > bytes / sizeof(Elf64_Sym))
		return MSCOPE_E_DAMAGED;
	table.bytes = count * sizeof(Elf64_Sym);
	if (!elf_file_place(&elf->file, strtab, &table.names_offset, &bytes) ||
	    table.names_bytes > bytes)
		return MSCOPE_E_DAMAGED;
	return load_table(elf, &table, &(struct elf_sections){0});
}

/*
 * Tries the tables from the fullest to the most robust; the first failure is told only when none
 * gives a symbol.
 */
static int load(struct elf *elf)
{
	struct elf_sections sections = {0};
	int first, r;

	first = elf_file_sections(&elf->file, &sections);
	if (first == 0)
		first = load_section(elf, &sections, SHT_SYMTAB);
	if (elf->symbol_count == 0) {
		r = load_section(elf, &sections, SHT_DYNSYM);
		first = first < 0 ? first : r;
	}
	if (elf->symbol_count == 0) {
		r = load_dynamic(elf);
		first = first < 0 ? first : r;
	}
	free(sections.headers);
	return elf->symbol_count > 0 ? 0 : first;
}

static void load_once(struct elf *elf)
{
	elf->load_status = load(elf);
	elf->loaded = true;
	(void)close(elf->file.fd); /* read only: nothing can be lost */
	elf->file.fd = -1;
	elf_file_fini(&elf->file);
}

int elf_lookup(struct elf *elf, uint64_t vaddr, const char **out_name, uint64_t *out_offset)
{
	uint32_t low, at;
	char *name, *version;
	size_t length;

	if (!elf->loaded)
		load_once(elf);
	if (elf->load_status < 0)
		return elf->load_status;

	low = (uint32_t)COUNT_FRONT(i, elf->symbol_count, elf->symbols[i].start <= vaddr);
	if (low == 0)
		return MSCOPE_E_ABSENT;
	for (at = low - 1; vaddr - elf->symbols[at].start >= elf->symbols[at].size;
	     at = elf->symbols[at].parent) {
		if (elf->symbols[at].parent == NO_PARENT)
			return MSCOPE_E_ABSENT;
	}

	name = elf->names + elf->symbols[at].name;
	length = strnlen(name, ELF_NAME_BYTES_MAX + 1);
	if (length == 0 || length > ELF_NAME_BYTES_MAX)
		return MSCOPE_E_ABSENT;
	/*
	 * .symtab spells versions into names (memcpy@@GLIBC_2.14). Names that share this tail lose
	 * the same suffix; one that is nothing but a suffix, which no compiler makes, ends up empty
	 * and counts as missing.
	 */
	version = memchr(name + 1, '@', length - 1);
	if (version != NULL)
		*version = '\0';
	*out_name = name;
	*out_offset = vaddr - elf->symbols[at].start;
	return 0;
}
