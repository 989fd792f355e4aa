/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/elf_imports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "symbols/elf_file.h"

#define TABLE_MAX    (UINT64_C(1) << 30)
#define VERSIONS_MAX 0x8000u

struct file {
	struct elf_file elf;
	struct elf_dynamic dynamic;
	uint64_t string_bytes;
};

static uint64_t value_of(const struct file *file, int64_t tag)
{
	return elf_dynamic_value(&file->dynamic, tag);
}

static int take(const struct file *file, uint64_t address, uint64_t bytes, void *out)
{
	return elf_file_take(&file->elf, address, bytes, TABLE_MAX, out);
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

	out->needed = calloc(file->dynamic.count + 1, sizeof(*out->needed));
	if (out->needed == NULL)
		return -ENOMEM;
	for (i = 0; i < file->dynamic.count; i++) {
		const Elf64_Dyn *entry = &file->dynamic.entries[i];

		if (entry->d_tag == DT_NEEDED)
			out->needed[out->needed_count++] = string_at(out, file, entry->d_un.d_val);
	}
	out->soname = value_of(file, DT_SONAME) == 0
			      ? ""
			      : string_at(out, file, value_of(file, DT_SONAME));
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

/* Where a file exports nothing, the linker writes an empty GNU hash table that starts at symbol 1, and relocations say what is imported. */
static int count_symbols(const struct file *file, uint64_t *out)
{
	int r = elf_dynamic_symbols(&file->elf, &file->dynamic, out);

	if (r < 0 || *out != 1)
		return r;
	r = count_relocated(file, value_of(file, DT_RELA), value_of(file, DT_RELASZ), out);
	return r < 0 ? r
		     : count_relocated(file, value_of(file, DT_JMPREL), value_of(file, DT_PLTRELSZ),
				       out);
}

/* A version of a library that is needed, by its number. */
struct needed_version {
	const char *library, *name;
};

/* Names the versions that are needed; a damaged list ends where it is damaged. */
static int take_versions(const struct elf_imports *imports, const struct file *file,
			 struct needed_version *versions)
{
	uint64_t at = value_of(file, DT_VERNEED), needs = value_of(file, DT_VERNEEDNUM);
	uint64_t i, left = VERSIONS_MAX;
	int r = 0;

	for (i = 0; r == 0 && at != 0 && i < needs && i < VERSIONS_MAX; i++) {
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
	uint64_t count, i, version_of = value_of(file, DT_VERSYM);
	int r = versions == NULL ? -ENOMEM : count_symbols(file, &count);

	if (r == 0)
		r = take_versions(out, file, versions);
	if (r == 0)
		r = take(file, value_of(file, DT_SYMTAB), count * sizeof(*table), &table);
	if (r == 0 && version_of != 0)
		r = take(file, version_of, count * sizeof(*numbers), &numbers);
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
		r = elf_file_dynamic(&file->elf, &file->dynamic);
	if (r == 0) {
		file->string_bytes = value_of(file, DT_STRSZ);
		out->machine = file->elf.header.e_machine;
		r = take(file, value_of(file, DT_STRTAB), file->string_bytes, &out->strings);
	}
	if (r == 0)
		r = take_needed(out, file);
	if (r == 0)
		r = take_symbols(out, file);
	if (file != NULL) {
		elf_file_fini(&file->elf);
		free(file->dynamic.entries);
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
