/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file, in this order: header and program headers; symbols, strings, hash table, versions, one relocation; code, then the names;
 * and on a page of its own, writable, the dynamic section and the slot with the handler's address. Addresses are offsets in the file.
 *
 * A function is 16 bytes: the address of its name into the first argument, and a jump to where the slot points. The caller's return address
 * is untouched, so that the handler returns to it.
 */
#include "symbols/elf_stub.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define PAGE	    0x10000u /* the largest that these machines have */
#define CODE_BYTES  16u
#define SEGMENTS    4u /* code, data, dynamic section, stack */
#define DYNAMIC_MAX 16u

struct layout {
	uint64_t symbols, strings, hash, version_of, versions, relocation, code, names, dynamic;
	uint64_t slot, end;
	uint64_t symbol_count, string_bytes, name_bytes;
};

static uint64_t align(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

static uint32_t hash_of(const char *name)
{
	uint32_t hash = 0, high;

	for (; *name != '\0'; name++) {
		hash = (hash << 4) + (unsigned char)*name;
		high = hash & 0xf0000000u;
		hash = (hash ^ (high >> 24)) & ~high;
	}
	return hash;
}

static uint64_t string_bytes(const struct elf_stub *stub)
{
	uint64_t bytes =
		1 + strlen(stub->soname) + 1 + strlen(stub->needed) + 1 + strlen(stub->handler) + 1;
	size_t i;

	for (i = 0; i < stub->version_count; i++)
		bytes += strlen(stub->versions[i]) + 1;
	for (i = 0; i < stub->function_count; i++)
		bytes += strlen(stub->functions[i].name) + 1;
	return bytes;
}

static void lay_out(const struct elf_stub *stub, struct layout *out)
{
	/* The first is none, the second the handler. */
	out->symbol_count = stub->function_count + 2;
	out->string_bytes = string_bytes(stub);
	out->symbols = align(sizeof(Elf64_Ehdr) + SEGMENTS * sizeof(Elf64_Phdr), 8);
	out->strings = out->symbols + out->symbol_count * sizeof(Elf64_Sym);
	out->hash = align(out->strings + out->string_bytes, 8);
	/* As many buckets as symbols. */
	out->version_of = out->hash + 4 * (2 + 2 * out->symbol_count);
	out->versions = align(out->version_of + 2 * out->symbol_count, 8);
	out->relocation = align(out->versions + (stub->version_count + 1) * (sizeof(Elf64_Verdef) +
									     sizeof(Elf64_Verdaux)),
				8);
	out->code = align(out->relocation + sizeof(Elf64_Rela), CODE_BYTES);
	/* What a function passes on is its name in the table of strings. */
	out->names = out->code + CODE_BYTES * stub->function_count;
	out->dynamic = align(out->names, PAGE);
	out->slot = out->dynamic + DYNAMIC_MAX * sizeof(Elf64_Dyn);
	out->end = out->slot + 8;
}

/* ---- the parts ---- */

struct writer {
	const struct elf_stub *stub;
	struct layout at;
	uint8_t *file;
	uint64_t next_string; /* offset in the table of strings */
};

static void put(struct writer *writer, uint64_t where, const void *data, size_t bytes)
{
	memcpy(writer->file + where, data, bytes);
}

static uint32_t add_string(struct writer *writer, const char *text)
{
	uint64_t offset = writer->next_string;

	put(writer, writer->at.strings + offset, text, strlen(text) + 1);
	writer->next_string += strlen(text) + 1;
	return (uint32_t)offset;
}

static void put_segments(struct writer *writer)
{
	const struct layout *at = &writer->at;
	const Elf64_Phdr segments[SEGMENTS] = {
		{.p_type = PT_LOAD,
		 .p_flags = PF_R | PF_X,
		 .p_filesz = at->names,
		 .p_memsz = at->names,
		 .p_align = PAGE},
		{.p_type = PT_LOAD,
		 .p_flags = PF_R | PF_W,
		 .p_offset = at->dynamic,
		 .p_vaddr = at->dynamic,
		 .p_paddr = at->dynamic,
		 .p_filesz = at->end - at->dynamic,
		 .p_memsz = at->end - at->dynamic,
		 .p_align = PAGE},
		{.p_type = PT_DYNAMIC,
		 .p_flags = PF_R | PF_W,
		 .p_offset = at->dynamic,
		 .p_vaddr = at->dynamic,
		 .p_paddr = at->dynamic,
		 .p_filesz = DYNAMIC_MAX * sizeof(Elf64_Dyn),
		 .p_memsz = DYNAMIC_MAX * sizeof(Elf64_Dyn),
		 .p_align = 8},
		{.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16},
	};
	const Elf64_Ehdr header = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
			    EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = writer->stub->machine,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(Elf64_Ehdr),
		.e_ehsize = sizeof(Elf64_Ehdr),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = SEGMENTS,
		.e_shentsize = sizeof(Elf64_Shdr),
	};

	put(writer, 0, &header, sizeof(header));
	put(writer, sizeof(header), segments, sizeof(segments));
}

/* The number of a version: the library's own name is 1, which symbols without a version have too. */
static uint16_t version_number(const struct elf_stub *stub, const char *version)
{
	size_t i;

	for (i = 0; i < stub->version_count; i++) {
		if (strcmp(stub->versions[i], version) == 0)
			return (uint16_t)(i + 2);
	}
	return VER_NDX_GLOBAL;
}

static void put_versions(struct writer *writer, uint32_t soname)
{
	const struct elf_stub *stub = writer->stub;
	size_t count = stub->version_count + 1, i;
	uint64_t where = writer->at.versions;

	for (i = 0; i < count; i++) {
		const char *name = i == 0 ? stub->soname : stub->versions[i - 1];
		const Elf64_Verdaux aux = {.vda_name = i == 0 ? soname : add_string(writer, name)};
		const Elf64_Verdef version = {
			.vd_version = VER_DEF_CURRENT,
			.vd_flags = i == 0 ? VER_FLG_BASE : 0,
			.vd_ndx = (uint16_t)(i + 1),
			.vd_cnt = 1,
			.vd_hash = hash_of(name),
			.vd_aux = sizeof(version),
			.vd_next = i + 1 == count ? 0 : sizeof(version) + sizeof(aux),
		};

		put(writer, where, &version, sizeof(version));
		put(writer, where + sizeof(version), &aux, sizeof(aux));
		where += sizeof(version) + sizeof(aux);
	}
}

static void put_code_x86(struct writer *writer, uint64_t where, uint64_t name)
{
	uint8_t code[CODE_BYTES] = {0x48, 0x8d, 0x3d, 0, 0, 0,	  0,	0xff,
				    0x25, 0,	0,    0, 0, 0xcc, 0xcc, 0xcc};
	uint32_t to_name = (uint32_t)(name - (where + 7));
	uint32_t to_slot = (uint32_t)(writer->at.slot - (where + 13));

	memcpy(code + 3, &to_name, sizeof(to_name)); /* lea name(%rip), %rdi */
	memcpy(code + 9, &to_slot, sizeof(to_slot)); /* jmp *slot(%rip) */
	put(writer, where, code, sizeof(code));
}

/* The 21 bits of a distance in an instruction that takes it so. */
static uint32_t split_distance(int64_t distance)
{
	uint32_t bits = (uint32_t)distance & 0x1fffff;

	return (bits & 3) << 29 | (bits >> 2) << 5;
}

static void put_code_arm(struct writer *writer, uint64_t where, uint64_t name)
{
	const struct layout *at = &writer->at;
	const uint64_t pages = (at->slot & ~UINT64_C(0xfff)) - ((where + 4) & ~UINT64_C(0xfff));
	const uint32_t code[CODE_BYTES / 4] = {
		UINT32_C(0x10000000) | split_distance((int64_t)(name - where)), /* adr x0, name */
		UINT32_C(0x90000010) | split_distance((int64_t)(pages >> 12)),	/* adrp x16, slot */
		UINT32_C(0xf9400210) | (uint32_t)((at->slot & 0xfff) / 8)
					       << 10, /* ldr x16, [x16, ...] */
		UINT32_C(0xd61f0200),		      /* br x16 */
	};

	put(writer, where, code, sizeof(code));
}

static void put_symbol(struct writer *writer, uint64_t index, const Elf64_Sym *symbol,
		       const char *name, uint16_t version)
{
	const struct layout *at = &writer->at;
	uint32_t bucket = hash_of(name) % (uint32_t)at->symbol_count, before;
	uint64_t first = at->hash + 8 + 4 * bucket;
	uint64_t chain = at->hash + 8 + 4 * at->symbol_count + 4 * index;
	const uint32_t number = (uint32_t)index;

	put(writer, at->symbols + index * sizeof(*symbol), symbol, sizeof(*symbol));
	put(writer, at->version_of + 2 * index, &version, sizeof(version));
	memcpy(&before, writer->file + first, sizeof(before));
	put(writer, chain, &before, sizeof(before));
	put(writer, first, &number, sizeof(number));
}

static void put_symbols(struct writer *writer)
{
	const struct elf_stub *stub = writer->stub;
	const struct layout *at = &writer->at;
	const uint32_t counts[2] = {(uint32_t)at->symbol_count, (uint32_t)at->symbol_count};
	const Elf64_Sym handler = {.st_name = add_string(writer, stub->handler),
				   .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC)};
	const Elf64_Rela relocation = {
		.r_offset = at->slot,
		.r_info =
			ELF64_R_INFO(1, stub->machine == EM_X86_64 ? (uint64_t)R_X86_64_GLOB_DAT
								   : (uint64_t)R_AARCH64_GLOB_DAT),
	};
	size_t i;

	put(writer, at->hash, counts, sizeof(counts));
	put_symbol(writer, 1, &handler, stub->handler, VER_NDX_GLOBAL);
	put(writer, at->relocation, &relocation, sizeof(relocation));
	for (i = 0; i < stub->function_count; i++) {
		const struct elf_stub_function *function = &stub->functions[i];
		const uint64_t code = at->code + CODE_BYTES * i;
		const uint32_t name = add_string(writer, function->name);
		const Elf64_Sym symbol = {.st_name = name,
					  .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
					  /* Any number but 0: it is defined. */
					  .st_shndx = 1,
					  .st_value = code,
					  .st_size = CODE_BYTES};

		put_symbol(writer, i + 2, &symbol, function->name,
			   version_number(stub, function->version));
		if (stub->machine == EM_X86_64)
			put_code_x86(writer, code, at->strings + name);
		else
			put_code_arm(writer, code, at->strings + name);
	}
}

static void put_dynamic(struct writer *writer, uint32_t soname, uint32_t needed)
{
	const struct layout *at = &writer->at;
	const Elf64_Dyn entries[] = {
		{DT_SONAME, {soname}},
		{DT_NEEDED, {needed}},
		{DT_HASH, {at->hash}},
		{DT_STRTAB, {at->strings}},
		{DT_STRSZ, {at->string_bytes}},
		{DT_SYMTAB, {at->symbols}},
		{DT_SYMENT, {sizeof(Elf64_Sym)}},
		{DT_RELA, {at->relocation}},
		{DT_RELASZ, {sizeof(Elf64_Rela)}},
		{DT_RELAENT, {sizeof(Elf64_Rela)}},
		{DT_VERSYM, {at->version_of}},
		{DT_VERDEF, {at->versions}},
		{DT_VERDEFNUM, {writer->stub->version_count + 1}},
		{DT_NULL, {0}},
	};

	_Static_assert(sizeof(entries) <= DYNAMIC_MAX * sizeof(Elf64_Dyn), "they have room");
	put(writer, at->dynamic, entries, sizeof(entries));
}

int elf_stub_write(const struct elf_stub *stub, struct strbuf *out)
{
	struct writer writer = {.stub = stub, .next_string = 1};
	uint32_t soname, needed;

	if (stub->machine != EM_X86_64 && stub->machine != EM_AARCH64)
		return MSCOPE_E_FOREIGN;
	lay_out(stub, &writer.at);
	if (writer.at.end > INT32_MAX) /* code reaches no farther */
		return MSCOPE_E_LIMIT;
	writer.file = calloc(1, writer.at.end);
	if (writer.file == NULL)
		return -ENOMEM;
	put_segments(&writer);
	soname = add_string(&writer, stub->soname);
	needed = add_string(&writer, stub->needed);
	put_versions(&writer, soname);
	put_symbols(&writer);
	put_dynamic(&writer, soname, needed);
	strbuf_add(out, writer.file, (size_t)writer.at.end);
	free(writer.file);
	return strbuf_failed(out) ? -ENOMEM : 0;
}
