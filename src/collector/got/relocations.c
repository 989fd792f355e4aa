/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/got/relocations.h"

#include <elf.h>

#if defined(__x86_64__)
#define TYPE_CALL    R_X86_64_JUMP_SLOT
#define TYPE_ADDRESS R_X86_64_GLOB_DAT
#else
#define TYPE_CALL    R_AARCH64_JUMP_SLOT
#define TYPE_ADDRESS R_AARCH64_GLOB_DAT
#endif

enum { TABLE_CALLS = 0, TABLE_OTHERS = 1 };

/* The loader relocates these pointers in its copy of most objects, but not in the vDSO. */
static uintptr_t relocated(uintptr_t bias, uintptr_t value)
{
	return value < bias ? value + bias : value;
}

static const ElfW(Dyn) *
	find_parts(const struct dl_phdr_info *info, uintptr_t page_bytes, struct got_object *out)
{
	const ElfW(Dyn) *dynamic = NULL;
	uint32_t i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_DYNAMIC)
			dynamic = (const ElfW(Dyn) *)start;
		/* Rounded as the loader does it: a page that is shared with other data stays writable. */
		if (p->p_type == PT_GNU_RELRO) {
			out->relro = start & ~(page_bytes - 1);
			out->relro_end = (start + p->p_memsz) & ~(page_bytes - 1);
		}
	}
	if (out->relro_end < out->relro)
		out->relro_end = out->relro;
	return dynamic;
}

bool got_open(const struct dl_phdr_info *info, uintptr_t page_bytes, struct got_object *out)
{
	size_t call_bytes = 0, other_bytes = 0, relative = 0, kind = DT_RELA;
	const ElfW(Dyn) * d;

	*out = (struct got_object){.bias = info->dlpi_addr,
				   .headers = info->dlpi_phdr,
				   .header_count = info->dlpi_phnum};
	d = find_parts(info, page_bytes, out);
	out->dynamic = (uintptr_t)d;
	for (; d != NULL && d->d_tag != DT_NULL; d++) {
		uintptr_t at = relocated(out->bias, d->d_un.d_ptr);

		if (d->d_tag == DT_SYMTAB)
			out->symbols = (const ElfW(Sym) *)at;
		else if (d->d_tag == DT_STRTAB)
			out->names = (const char *)at;
		else if (d->d_tag == DT_JMPREL)
			out->tables[TABLE_CALLS] = (const ElfW(Rela) *)at;
		else if (d->d_tag == DT_PLTRELSZ)
			call_bytes = d->d_un.d_val;
		else if (d->d_tag == DT_PLTREL)
			kind = d->d_un.d_val;
		else if (d->d_tag == DT_RELA)
			out->tables[TABLE_OTHERS] = (const ElfW(Rela) *)at;
		else if (d->d_tag == DT_RELASZ)
			other_bytes = d->d_un.d_val;
		else if (d->d_tag == DT_RELACOUNT)
			relative = d->d_un.d_val;
	}
	if (out->tables[TABLE_CALLS] != NULL && kind == DT_RELA)
		out->counts[TABLE_CALLS] = call_bytes / sizeof(ElfW(Rela));
	if (out->tables[TABLE_OTHERS] != NULL)
		out->counts[TABLE_OTHERS] = other_bytes / sizeof(ElfW(Rela));
	/* The relative ones come first. */
	if (relative <= out->counts[TABLE_OTHERS]) {
		out->tables[TABLE_OTHERS] += relative;
		out->counts[TABLE_OTHERS] -= relative;
	}
	return out->symbols != NULL && out->names != NULL &&
	       out->counts[TABLE_CALLS] + out->counts[TABLE_OTHERS] != 0;
}

void got_each(const struct got_object *object, got_match *match, got_take *take, void *arg)
{
	uint32_t table;
	size_t i;

	for (table = TABLE_CALLS; table <= TABLE_OTHERS; table++) {
		for (i = 0; i < object->counts[table]; i++) {
			const ElfW(Rela) *r = &object->tables[table][i];
			uint32_t type = (uint32_t)ELF64_R_TYPE(r->r_info), row;
			struct got_place place;

			if ((type != TYPE_CALL && type != TYPE_ADDRESS) || r->r_addend != 0)
				continue;
			place.symbol = &object->symbols[ELF64_R_SYM(r->r_info)];
			row = match(object->names + place.symbol->st_name, arg);
			if (row == GOT_NO_ROW)
				continue;
			place.slot = (_Atomic uintptr_t *)(object->bias + r->r_offset);
			place.call = type == TYPE_CALL;
			if ((uintptr_t)place.slot % sizeof(uintptr_t) == 0)
				take(&place, row, arg);
		}
	}
}

uint64_t got_identity(const struct got_object *object)
{
	uint64_t words[] = {
		(uintptr_t)object->symbols - object->bias,
		(uintptr_t)object->names - object->bias,
		object->counts[TABLE_CALLS],
		object->counts[TABLE_OTHERS],
		object->header_count,
	};
	uint64_t mixed = 0;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(words); i++)
		mixed = (mixed ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
	return mixed;
}

static bool is_in_segment(const struct got_object *object, uintptr_t address, uint32_t flag)
{
	uint32_t i;

	for (i = 0; i < object->header_count; i++) {
		const ElfW(Phdr) *p = &object->headers[i];

		if (p->p_type == PT_LOAD && (p->p_flags & flag) != 0 &&
		    address - (object->bias + p->p_vaddr) < p->p_memsz)
			return true;
	}
	return false;
}

bool got_is_data(const struct got_object *object, uintptr_t address)
{
	return is_in_segment(object, address, PF_W);
}

bool got_is_lazy(const struct got_object *object, const struct got_place *place, uintptr_t value)
{
	/* An object that defines the function itself may be bound to that. */
	if (!place->call || (place->symbol->st_shndx != SHN_UNDEF &&
			     value == object->bias + place->symbol->st_value))
		return false;
	return is_in_segment(object, value, PF_X);
}

bool got_is_relro(const struct got_object *object, uintptr_t address)
{
	return address >= object->relro && address < object->relro_end;
}
