/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index of our own leads from an address to its compilation unit, because .debug_aranges, which libdw would use, is not
 * written by all compilers. A second index, of the unit in use, leads to the function; from there the walk goes down into the
 * blocks and inlined functions that hold the address:
 *
 *     units:  spans of all units, by address            one pass over the heads of units when the file is opened
 *     functions:  spans of functions of one unit        one pass over the unit, without the insides of functions
 *
 * Both hold offsets of DIEs, not pointers, so that libdw's own tables can be thrown away when they have grown large.
 */
#include "symbols/dwarf_reader.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "symbols/demangle.h"

#define NONE UINT64_MAX

/* Bounds of what a sane file has, each far beyond any real one. */
#define SPANS_MAX  (UINT64_C(1) << 24)
#define DEPTH_MAX  128
#define ORIGIN_MAX 16

/* Functions inside functions whose scopes are named. */
#define NESTED_MAX 4

/* When libdw's tables have grown by more than this, they are dropped; line tables of one unit rarely take 10 MiB. */
#define TABLES_BYTES_MAX (UINT64_C(512) << 20)

/* Addresses from `low` up to `high` belong to the DIE at this offset. */
struct span {
	uint64_t low;
	uint64_t high;
	uint64_t reach; /* the largest `high` of this and all earlier spans */
	uint64_t die;
};

struct spans {
	struct span *all; /* by `low`; of the same `low` the larger first */
	size_t count, room;
};

struct dwarf_reader {
	Elf *elf;
	Elf *alt_elf;
	Dwarf *dwarf;
	Dwarf *alt;
	uint64_t bytes_at_start; /* of the heap, after libdw has opened the file */
	struct spans units;
	struct spans functions; /* of the unit below */
	uint64_t functions_of;	/* offset of its DIE; NONE before the first */
	bool functions_deep;	/* functions inside functions and classes are among them */
	struct map names;	/* offset of a DIE -> char *, its name with scopes */
};

/* Where in the source. */
struct place {
	const char *file;
	uint32_t line;
};

static uint64_t heap_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return (uint64_t)info.uordblks + info.hblkhd;
}

static int add_spans(struct spans *spans, Dwarf_Die *die)
{
	uint64_t offset = dwarf_dieoffset(die);
	Dwarf_Addr base = 0, low, high;
	ptrdiff_t next = 0;
	int r;

	while ((next = dwarf_ranges(die, next, &base, &low, &high)) > 0) {
		/* The linker leaves functions that it dropped at address 0. */
		if (low == 0 || low >= high)
			continue;
		if (spans->count >= SPANS_MAX)
			return MSCOPE_E_LIMIT;
		r = ARRAY_RESERVE(spans->all, spans->room, spans->count + 1);
		if (r < 0)
			return r;
		spans->all[spans->count++] = (struct span){.low = low, .high = high, .die = offset};
	}
	return 0;
}

static int compare_spans(const void *x, const void *y)
{
	const struct span *a = x, *b = y;

	return ORDER_UP(a->low, b->low) ?: ORDER_DOWN(a->high, b->high) ?: ORDER_UP(a->die, b->die);
}

static void sort_spans(struct spans *spans)
{
	uint64_t reach = 0;
	size_t i;

	if (spans->count > 0)
		qsort(spans->all, spans->count, sizeof(*spans->all), compare_spans);
	for (i = 0; i < spans->count; i++) {
		if (spans->all[i].high > reach)
			reach = spans->all[i].high;
		spans->all[i].reach = reach;
	}
}

/* The DIE of the span that holds `address`, of several the one that begins last; NONE. */
static uint64_t find_span(const struct spans *spans, uint64_t address)
{
	size_t low = COUNT_FRONT(at, spans->count, spans->all[at].low <= address);

	while (low > 0 && spans->all[low - 1].reach > address) {
		low--;
		if (spans->all[low].high > address)
			return spans->all[low].die;
	}
	return NONE;
}

/* False when there is not even one unit. A later failure only means that less is found. */
static bool index_units(struct dwarf_reader *reader)
{
	Dwarf_CU *unit = NULL;
	Dwarf_Half version;
	bool found = false;
	uint8_t type;
	Dwarf_Die die;

	while (dwarf_get_units(reader->dwarf, unit, &unit, &version, &type, &die, NULL) == 0) {
		found = true;
		if ((type == DW_UT_compile || type == DW_UT_skeleton) &&
		    add_spans(&reader->units, &die) < 0)
			break;
	}
	sort_spans(&reader->units);
	return found;
}

int dwarf_reader_open(int fd, int alt_fd, struct dwarf_reader **out_reader)
{
	struct dwarf_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL)
		return -ENOMEM;
	reader->functions_of = NONE;
	(void)elf_version(EV_CURRENT);
	reader->elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (reader->elf == NULL || elf_kind(reader->elf) != ELF_K_ELF)
		goto fail;
	reader->dwarf = dwarf_begin_elf(reader->elf, DWARF_C_READ, NULL);
	if (reader->dwarf == NULL)
		goto fail;
	if (alt_fd >= 0) {
		reader->alt_elf = elf_begin(alt_fd, ELF_C_READ_MMAP, NULL);
		if (reader->alt_elf != NULL && elf_kind(reader->alt_elf) == ELF_K_ELF)
			reader->alt = dwarf_begin_elf(reader->alt_elf, DWARF_C_READ, NULL);
		if (reader->alt != NULL)
			dwarf_setalt(reader->dwarf, reader->alt);
	}
	reader->bytes_at_start = heap_bytes();
	if (!index_units(reader))
		goto fail;
	*out_reader = reader;
	return 0;

fail:
	dwarf_reader_close(reader);
	return MSCOPE_E_DAMAGED;
}

void dwarf_reader_close(struct dwarf_reader *reader)
{
	const struct map_slot *slot;
	size_t cursor = 0;

	if (reader == NULL)
		return;
	(void)dwarf_end(reader->dwarf);
	(void)dwarf_end(reader->alt);
	(void)elf_end(reader->elf);
	(void)elf_end(reader->alt_elf);
	while ((slot = map_next(&reader->names, &cursor)) != NULL)
		free((char *)(uintptr_t)slot->value);
	map_fini(&reader->names);
	free(reader->units.all);
	free(reader->functions.all);
	free(reader);
}

/* Drops what libdw has read so far when it has become much. The file stays open, and unpacked sections stay unpacked. */
static void drop_tables(struct dwarf_reader *reader)
{
	Dwarf *fresh;

	if (heap_bytes() < reader->bytes_at_start + TABLES_BYTES_MAX)
		return;
	fresh = dwarf_begin_elf(reader->elf, DWARF_C_READ, NULL);
	if (fresh == NULL)
		return;
	(void)dwarf_end(reader->dwarf);
	reader->dwarf = fresh;
	if (reader->alt != NULL)
		dwarf_setalt(reader->dwarf, reader->alt);
}

uint64_t dwarf_reader_unit(struct dwarf_reader *reader, uint64_t vaddr)
{
	uint64_t unit = find_span(&reader->units, vaddr);
	Dwarf_Die die;

	/* A unit may leave its addresses to .debug_aranges. */
	if (unit == NONE && dwarf_addrdie(reader->dwarf, vaddr, &die) != NULL)
		unit = dwarf_dieoffset(&die);
	return unit;
}

static bool is_c(Dwarf_Die *unit)
{
	switch (dwarf_srclang(unit)) {
	case DW_LANG_C89:
	case DW_LANG_C:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Mips_Assembler:
		return true;
	default:
		return false;
	}
}

/*
 * Adds the functions below `parent`. Those of classes stand outside of them in C++, and functions inside functions are rare:
 * they are looked for, `deep`, only when an address was not found without them.
 */
static int add_functions(struct dwarf_reader *reader, Dwarf_Die *parent, bool deep,
			 unsigned int depth)
{
	Dwarf_Die die;
	int r = 0;

	if (depth > DEPTH_MAX || dwarf_child(parent, &die) != 0)
		return 0;
	do {
		bool enter = false;

		switch (dwarf_tag(&die)) {
		case DW_TAG_subprogram:
			r = add_spans(&reader->functions, &die);
			enter = deep;
			break;
		case DW_TAG_namespace:
		case DW_TAG_module:
			enter = true;
			break;
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
		case DW_TAG_lexical_block:
			enter = deep;
			break;
		default:
			break;
		}
		if (enter && r == 0)
			r = add_functions(reader, &die, deep, depth + 1);
	} while (r == 0 && dwarf_siblingof(&die, &die) == 0);
	return r;
}

static void index_functions(struct dwarf_reader *reader, Dwarf_Die *unit, bool deep)
{
	reader->functions.count = 0;
	reader->functions_of = dwarf_dieoffset(unit);
	reader->functions_deep = deep;
	/* When memory is short, what was found so far has to do. */
	(void)add_functions(reader, unit, deep, 0);
	sort_spans(&reader->functions);
}

/* The function with code of its own that holds `vaddr`. */
static bool find_function(struct dwarf_reader *reader, Dwarf_Die *unit, uint64_t vaddr,
			  Dwarf_Die *out_die)
{
	uint64_t offset;

	if (reader->functions_of != dwarf_dieoffset(unit))
		index_functions(reader, unit, false);
	offset = find_span(&reader->functions, vaddr);
	if (offset == NONE && !reader->functions_deep) {
		index_functions(reader, unit, true);
		offset = find_span(&reader->functions, vaddr);
	}
	return offset != NONE && dwarf_offdie(reader->dwarf, offset, out_die) != NULL;
}

static bool has_addresses(Dwarf_Die *die)
{
	return dwarf_hasattr(die, DW_AT_low_pc) || dwarf_hasattr(die, DW_AT_ranges);
}

/*
 * Appends the inlined functions below `parent` that hold `vaddr`, outermost first. True when a block or function was entered.
 */
static bool add_inlined(Dwarf_Die *parent, uint64_t vaddr, Dwarf_Die *chain, size_t *count,
			unsigned int depth)
{
	Dwarf_Die die;

	if (depth > DEPTH_MAX || dwarf_child(parent, &die) != 0)
		return false;
	do {
		int tag = dwarf_tag(&die);

		switch (tag) {
		case DW_TAG_inlined_subroutine:
		case DW_TAG_lexical_block:
		case DW_TAG_try_block:
		case DW_TAG_catch_block:
			if (dwarf_haspc(&die, vaddr) > 0) {
				if (tag == DW_TAG_inlined_subroutine && *count < DEPTH_MAX)
					chain[(*count)++] = die;
				(void)add_inlined(&die, vaddr, chain, count, depth + 1);
				return true;
			}
			/* A block without addresses only groups. */
			if (tag != DW_TAG_inlined_subroutine && !has_addresses(&die) &&
			    add_inlined(&die, vaddr, chain, count, depth + 1))
				return true;
			break;
		default:
			break;
		}
	} while (dwarf_siblingof(&die, &die) == 0);
	return false;
}

/* The DIE that has the name: what an inlined or separately defined function refers to. */
static void find_origin(const Dwarf_Die *die, Dwarf_Die *out_origin)
{
	unsigned int i;

	*out_origin = *die;
	for (i = 0; i < ORIGIN_MAX; i++) {
		Dwarf_Attribute attribute;
		Dwarf_Die next;

		if (dwarf_attr(out_origin, DW_AT_abstract_origin, &attribute) == NULL &&
		    dwarf_attr(out_origin, DW_AT_specification, &attribute) == NULL)
			return;
		if (dwarf_formref_die(&attribute, &next) == NULL)
			return;
		*out_origin = next;
	}
}

/* Appends the name with the namespaces, classes and functions around it. `depth` counts functions inside functions. */
static void add_scoped_name(Dwarf_Die *origin, const char *name, unsigned int depth,
			    struct strbuf *text)
{
	size_t begin = text->length;
	Dwarf_Die *scopes = NULL, outer;
	int i, count = dwarf_getscopes_die(origin, &scopes);

	for (i = count - 1; i > 0 && text->length < DEMANGLE_OUT_BYTES_MAX; i--) {
		const char *scope = dwarf_diename(&scopes[i]);

		switch (dwarf_tag(&scopes[i])) {
		case DW_TAG_namespace:
			strbuf_add_str(text, scope != NULL ? scope : "(anonymous namespace)");
			strbuf_add_str(text, "::");
			break;
		case DW_TAG_subprogram:
			/* Its scopes are those of its declaration, which stands elsewhere. */
			find_origin(&scopes[i], &outer);
			scope = dwarf_diename(&outer);
			if (scope == NULL || depth == NESTED_MAX || strbuf_failed(text))
				break;
			if (outer.addr != scopes[i].addr) {
				text->length = begin;
				add_scoped_name(&outer, scope, depth + 1, text);
			} else {
				strbuf_add_str(text, scope);
			}
			strbuf_add_str(text, "::");
			break;
		case DW_TAG_class_type:
		case DW_TAG_structure_type:
		case DW_TAG_union_type:
		case DW_TAG_module:
			if (scope == NULL && i == 1 && strcmp(name, "operator()") == 0)
				scope = "{lambda}";
			if (scope != NULL) {
				strbuf_add_str(text, scope);
				strbuf_add_str(text, "::");
			}
			break;
		default:
			break;
		}
	}
	free(scopes);
	strbuf_add_str(text, name);
}

static char *make_scoped_name(Dwarf_Die *origin, const char *name)
{
	struct strbuf text = {0};

	add_scoped_name(origin, name, 0, &text);
	if (strbuf_failed(&text)) {
		strbuf_fini(&text);
		return NULL;
	}
	return text.data;
}

static const char *scoped_name(struct dwarf_reader *reader, Dwarf_Die *die)
{
	Dwarf_Die origin, unit;
	struct map_key key;
	const char *name;
	uint64_t *known;
	char *made;

	find_origin(die, &origin);
	name = dwarf_diename(&origin);
	if (name == NULL || dwarf_diecu(&origin, &unit, NULL, NULL) == NULL || is_c(&unit))
		return name;
	/* The second word tells DIEs of the shared file apart. */
	key = (struct map_key){dwarf_dieoffset(&origin),
			       dwarf_cu_getdwarf(origin.cu) == reader->alt};
	known = map_get(&reader->names, key);
	if (known != NULL)
		return (const char *)(uintptr_t)*known;
	made = make_scoped_name(&origin, name);
	if (made == NULL || map_put(&reader->names, key, (uint64_t)(uintptr_t)made) < 0) {
		free(made);
		return name;
	}
	return made;
}

static void set_names(struct dwarf_reader *reader, Dwarf_Die *die, struct dwarf_frame *frame)
{
	Dwarf_Attribute attribute;

	if (dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) != NULL ||
	    dwarf_attr_integrate(die, DW_AT_MIPS_linkage_name, &attribute) != NULL)
		frame->linkage_name = dwarf_formstring(&attribute);
	if (frame->linkage_name == NULL)
		frame->name = scoped_name(reader, die);
}

static struct place find_line(Dwarf_Die *unit, uint64_t vaddr)
{
	Dwarf_Line *line = dwarf_getsrc_die(unit, vaddr);
	struct place place = {0};
	int number;

	if (line == NULL)
		return place;
	place.file = dwarf_linesrc(line, NULL, NULL);
	if (dwarf_lineno(line, &number) == 0 && number > 0)
		place.line = (uint32_t)number;
	return place;
}

/* Where an inlined function was called. */
static struct place find_call(Dwarf_Die *unit, Dwarf_Die *inlined)
{
	struct place place = {0};
	Dwarf_Attribute attribute;
	Dwarf_Files *files;
	Dwarf_Word number;
	size_t count;

	if (dwarf_attr(inlined, DW_AT_call_file, &attribute) != NULL &&
	    dwarf_formudata(&attribute, &number) == 0 &&
	    dwarf_getsrcfiles(unit, &files, &count) == 0 && number < count)
		place.file = dwarf_filesrc(files, number, NULL, NULL);
	if (dwarf_attr(inlined, DW_AT_call_line, &attribute) != NULL &&
	    dwarf_formudata(&attribute, &number) == 0 && number <= UINT32_MAX)
		place.line = (uint32_t)number;
	return place;
}

size_t dwarf_reader_frames(struct dwarf_reader *reader, uint64_t vaddr,
			   struct dwarf_frame frames[DWARF_FRAMES_MAX])
{
	uint64_t offset = dwarf_reader_unit(reader, vaddr);
	Dwarf_Die unit, chain[1 + DEPTH_MAX];
	size_t chain_count = 0, count = 0;
	struct place place;

	if (offset == NONE)
		return 0;
	if (offset != reader->functions_of)
		drop_tables(reader);
	if (dwarf_offdie(reader->dwarf, offset, &unit) == NULL)
		return 0;
	place = find_line(&unit, vaddr);
	if (find_function(reader, &unit, vaddr, &chain[0])) {
		chain_count = 1;
		(void)add_inlined(&chain[0], vaddr, chain, &chain_count, 0);
	}
	if (chain_count == 0) {
		if (place.file == NULL)
			return 0;
		frames[0] = (struct dwarf_frame){.file = place.file, .line = place.line};
		return 1;
	}
	while (chain_count > 0 && count < DWARF_FRAMES_MAX) {
		Dwarf_Die *die = &chain[--chain_count];

		frames[count] = (struct dwarf_frame){.file = place.file, .line = place.line};
		set_names(reader, die, &frames[count++]);
		if (chain_count > 0)
			place = find_call(&unit, die);
	}
	return count;
}
