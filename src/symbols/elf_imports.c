/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_imports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "symbols/elf_file.h"

#define DYNAMIC_MAX  4096
#define TABLE_MAX    (UINT64_C(1) << 30)
#define VERSIONS_MAX 0x8000u

struct file {
	struct elf_file elf;
	uint64_t dynamic[DT_NUM]; /* by tag; 0: none */
	uint64_t gnu_hash, version_of, needs, needs_count;
	Elf64_Dyn *entries;
	size_t entry_count;
	uint64_t string_bytes;
};

/* New memory with what is at an address, ended by a NUL. */
static int take(const struct file *file, uint64_t address, uint64_t bytes, void *out)
{
	uint64_t offset, there;

	if (bytes > TABLE_MAX)
		return MSCOPE_E_LIMIT;
	if (!elf_file_place(&file->elf, address, &offset, &there) || bytes > there)
		return MSCOPE_E_DAMAGED;
	return elf_file_read(&file->elf, offset, bytes, TABLE_MAX, out);
}

static int read_dynamic(struct file *file)
{
	const Elf64_Phdr *dynamic = elf_file_segment(&file->elf, PT_DYNAMIC);
	size_t i;
	int r;

	if (dynamic == NULL)
		return MSCOPE_E_FOREIGN;
	file->entry_count = dynamic->p_filesz / sizeof(*file->entries);
	if (file->entry_count > DYNAMIC_MAX)
		return MSCOPE_E_LIMIT;
	r = take(file, dynamic->p_vaddr, file->entry_count * sizeof(*file->entries),
		 &file->entries);
	for (i = 0; r == 0 && i < file->entry_count; i++) {
		const Elf64_Dyn *entry = &file->entries[i];

		if (entry->d_tag == DT_NULL)
			break;
		if (entry->d_tag > 0 && entry->d_tag < DT_NUM)
			file->dynamic[entry->d_tag] = entry->d_un.d_val;
		else if (entry->d_tag == DT_GNU_HASH)
			file->gnu_hash = entry->d_un.d_ptr;
		else if (entry->d_tag == DT_VERSYM)
			file->version_of = entry->d_un.d_ptr;
		else if (entry->d_tag == DT_VERNEED)
			file->needs = entry->d_un.d_ptr;
		else if (entry->d_tag == DT_VERNEEDNUM)
			file->needs_count = entry->d_un.d_val;
	}
	file->entry_count = r == 0 ? i : 0;
	return r;
}

/* A string; "" for an offset outside of the table, which ends with a NUL of ours. */
static const char *string_at(const struct elf_imports *imports, const struct file *file,
			     uint64_t offset)
{
	return offset < file->string_bytes ? imports->strings + offset : "";
}

static int take_needed(struct elf_imports *out, const struct file *file)
{
	size_t i;

	out->needed = calloc(file->entry_count + 1, sizeof(*out->needed));
	if (out->needed == NULL)
		return -ENOMEM;
	for (i = 0; i < file->entry_count; i++) {
		if (file->entries[i].d_tag == DT_NEEDED)
			out->needed[out->needed_count++] =
				string_at(out, file, file->entries[i].d_un.d_val);
	}
	out->soname = string_at(out, file, file->dynamic[DT_SONAME]);
	if (file->dynamic[DT_SONAME] == 0)
		out->soname = "";
	return 0;
}

/* Raises the count above the symbols that a table of relocations refers to. */
static int count_relocated(const struct file *file, uint64_t address, uint64_t bytes,
			   uint64_t *count)
{
	Elf64_Rela *table = NULL;
	uint64_t i;
	int r = address == 0 ? 0 : take(file, address, bytes, &table);

	for (i = 0; table != NULL && i < bytes / sizeof(*table); i++) {
		if (ELF64_R_SYM(table[i].r_info) >= *count)
			*count = ELF64_R_SYM(table[i].r_info) + 1;
	}
	free(table);
	return r;
}

/*
 * Of the old hash table all symbols; of the new one those before its first, which are the undefined ones. Where a file exports nothing
 * the linker writes an empty new table that begins at symbol 1, and relocations say what is imported.
 */
static int count_symbols(const struct file *file, uint64_t *out)
{
	const uint64_t *dynamic = file->dynamic;
	uint32_t *words = NULL;
	int r;

	*out = 0;
	if (dynamic[DT_HASH] == 0 && file->gnu_hash == 0)
		return 0;
	r = take(file, dynamic[DT_HASH] != 0 ? dynamic[DT_HASH] : file->gnu_hash, 8, &words);
	if (r == 0)
		*out = words[1];
	free(words);
	if (r < 0 || dynamic[DT_HASH] != 0 || *out > 1)
		return r;
	r = count_relocated(file, dynamic[DT_RELA], dynamic[DT_RELASZ], out);
	return r < 0 ? r : count_relocated(file, dynamic[DT_JMPREL], dynamic[DT_PLTRELSZ], out);
}

/* A version of a library that is needed, by its number. */
struct needed_version {
	const char *library, *name;
};

/* Names the versions that are needed; a damaged list ends where it is damaged. */
static int take_versions(const struct elf_imports *imports, const struct file *file,
			 struct needed_version *versions)
{
	uint64_t at = file->needs, i, left = VERSIONS_MAX;
	int r = 0;

	for (i = 0; r == 0 && at != 0 && i < file->needs_count && i < VERSIONS_MAX; i++) {
		Elf64_Verneed *need = NULL;
		uint64_t part, step, count;

		r = take(file, at, sizeof(*need), &need);
		if (r < 0)
			break;
		part = at + need->vn_aux;
		for (count = need->vn_cnt; r == 0 && count > 0 && left > 0; count--, left--) {
			Elf64_Vernaux *aux = NULL;

			r = take(file, part, sizeof(*aux), &aux);
			if (r < 0)
				break;
			if (aux->vna_other < VERSIONS_MAX) {
				versions[aux->vna_other].library =
					string_at(imports, file, need->vn_file);
				versions[aux->vna_other].name =
					string_at(imports, file, aux->vna_name);
			}
			part = aux->vna_next == 0 ? 0 : part + aux->vna_next;
			free(aux);
			if (part == 0)
				break;
		}
		step = need->vn_next;
		free(need);
		if (step == 0)
			break;
		at += step;
	}
	return r == -ENOMEM ? r : 0;
}

static int take_symbols(struct elf_imports *out, const struct file *file)
{
	struct needed_version *versions = calloc(VERSIONS_MAX, sizeof(*versions));
	uint16_t *numbers = NULL;
	Elf64_Sym *table = NULL;
	uint64_t count, i;
	int r = versions == NULL ? -ENOMEM : count_symbols(file, &count);

	if (r == 0)
		r = take_versions(out, file, versions);
	if (r == 0)
		r = take(file, file->dynamic[DT_SYMTAB], count * sizeof(*table), &table);
	if (r == 0 && file->version_of != 0)
		r = take(file, file->version_of, count * sizeof(*numbers), &numbers);
	if (r == 0)
		out->symbols = calloc((size_t)count + 1, sizeof(*out->symbols));
	if (r == 0 && out->symbols == NULL)
		r = -ENOMEM;
	for (i = 1; r == 0 && i < count; i++) {
		struct elf_symbol *symbol = &out->symbols[out->symbol_count];
		const struct needed_version *version =
			numbers == NULL ? NULL : &versions[numbers[i] & (VERSIONS_MAX - 1)];

		symbol->name = string_at(out, file, table[i].st_name);
		symbol->defined = table[i].st_shndx != SHN_UNDEF;
		symbol->library =
			version == NULL || version->library == NULL ? "" : version->library;
		symbol->version = version == NULL || version->name == NULL ? "" : version->name;
		if (symbol->name[0] != '\0')
			out->symbol_count++;
	}
	free(versions);
	free(numbers);
	free(table);
	return r;
}

int elf_imports_read(int fd, struct elf_imports *out, struct mscope_error *err)
{
	struct file *file = calloc(1, sizeof(*file));
	int r = file == NULL ? -ENOMEM : 0;

	*out = (struct elf_imports){0};
	if (r == 0)
		r = elf_file_open(fd, &file->elf, NULL);
	if (r == 0)
		r = file->elf.header.e_type == ET_DYN ? read_dynamic(file) : MSCOPE_E_FOREIGN;
	if (r == 0) {
		file->string_bytes = file->dynamic[DT_STRSZ];
		out->machine = file->elf.header.e_machine;
		r = take(file, file->dynamic[DT_STRTAB], file->string_bytes, &out->strings);
	}
	if (r == 0)
		r = take_needed(out, file);
	if (r == 0)
		r = take_symbols(out, file);
	if (file != NULL) {
		elf_file_fini(&file->elf);
		free(file->entries);
	}
	free(file);
	if (r < 0) {
		elf_imports_fini(out);
		return error_set(err, r, "%s", mscope_status_str(r));
	}
	return 0;
}

void elf_imports_fini(struct elf_imports *imports)
{
	free(imports->needed);
	free(imports->symbols);
	free(imports->strings);
	*imports = (struct elf_imports){0};
}
