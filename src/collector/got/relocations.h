/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slots of one loaded object through which it calls functions of others, read from its own relocations:
 *
 *     JUMP_SLOT   .got.plt, calls through the PLT; until the first call a lazy slot points back into the PLT
 *     GLOB_DAT    .got, calls by -fno-plt, and functions whose address is taken
 *
 * Not taken: addresses in data (R_X86_64_64, R_AARCH64_ABS64), which the program may have changed since. Packed relocations (RELR)
 * are relative and name no function. Pure functions of what the loader has mapped; the caller keeps it mapped.
 */
#ifndef MSCOPE_COLLECTOR_GOT_RELOCATIONS_H
#define MSCOPE_COLLECTOR_GOT_RELOCATIONS_H

#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/compiler.h"

#define GOT_NO_ROW UINT32_MAX

struct got_object {
	uintptr_t bias;
	uintptr_t dynamic;
	const ElfW(Phdr) * headers;
	uint32_t header_count;
	const ElfW(Sym) * symbols;
	const char *names;
	const ElfW(Rela) * tables[2]; /* of the PLT, and the others without the relative ones */
	size_t counts[2];
	uintptr_t relro, relro_end; /* pages that the loader makes read-only; equal: none */
};

struct got_place {
	_Atomic uintptr_t *slot;
	const ElfW(Sym) * symbol;
	bool call; /* JUMP_SLOT: it may be lazy */
};

/* What is wanted of that name: a number of the caller's, or GOT_NO_ROW. */
typedef uint32_t got_match(const char *name, void *arg);
typedef void got_take(const struct got_place *place, uint32_t row, void *arg);

/* False: the object has no relocations that can be read. */
bool got_open(const struct dl_phdr_info *info, uintptr_t page_bytes, struct got_object *out);

/* Calls take() for each slot whose function match() wants. A slot may come twice. */
void got_each(const struct got_object *object, got_match *match, got_take *take, void *arg);

/* A number that differs for objects of other tables at the same place. */
uint64_t got_identity(const struct got_object *object);

/* Whether the slot lies in memory that the object has for data. */
bool got_is_data(const struct got_object *object, uintptr_t address);

/* Whether the slot still points into the object's own PLT: it has not been called yet, or not since it was given back. */
bool got_is_lazy(const struct got_object *object, const struct got_place *place, uintptr_t value);

/* Whether the loader has made the page read-only when the object was ready. */
bool got_is_relro(const struct got_object *object, uintptr_t address);

#endif
