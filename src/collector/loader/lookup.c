/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding the originals, without dlsym(): by walking the loaded objects and their symbol hash tables. This finds the driver
 * also when it was opened with local scope, never allocates, never fails into the program's dlerror(), and needs nothing from
 * libdl. The first object in load order that defines the name wins, copies of this library excepted. The original of a hook comes
 * from behind this library where there is one: a library before us that hooks the same function calls us as its original.
 *
 * One collector per process: the first loaded object that exports mscope_collector_v1 is the active one. Any other copy of
 * this library (copied wheels, cp -L) finds that one and passes every hook on to it.
 */
#include "collector/loader/lookup.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collector/collector.h"
#include "collector/loader/hook.h"
#include "collector/loader/walk.h"

/* Present in every copy; its address tells them apart. */
MSCOPE_EXPORT struct control_block mscope_collector_v1 = {
	.bytes = sizeof(mscope_collector_v1),
	.magic = CONTROL_MAGIC,
	.generation = &collector_switch.generation,
	.recording = &collector_switch.recording,
};

/* Only here: elsewhere the name may mean the one of another copy. */
struct control_block *lookup_own_block(void)
{
	return &mscope_collector_v1;
}

/* ---- one object's symbol table ---- */

struct symbols {
	uintptr_t bias;
	const ElfW(Sym) * table;
	const char *names;
	const uint32_t *gnu_hash;
	const uint32_t *sysv_hash;
	size_t found_bytes; /* size of the symbol that was found last */
};

/* The loader relocates these pointers in its copy of most objects, but not in the vDSO. */
static const void *relocated(uintptr_t bias, uintptr_t value)
{
	return (const void *)(value < bias ? value + bias : value);
}

static bool symbols_open(const struct dl_phdr_info *info, struct symbols *out)
{
	const ElfW(Dyn) *d = NULL;
	uint32_t i;

	*out = (struct symbols){.bias = info->dlpi_addr};
	for (i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	}
	for (; d != NULL && d->d_tag != DT_NULL; d++) {
		const void *p = relocated(info->dlpi_addr, d->d_un.d_ptr);

		if (d->d_tag == DT_SYMTAB)
			out->table = p;
		else if (d->d_tag == DT_STRTAB)
			out->names = p;
		else if (d->d_tag == DT_GNU_HASH)
			out->gnu_hash = p;
		else if (d->d_tag == DT_HASH)
			out->sysv_hash = p;
	}
	return out->table != NULL && out->names != NULL &&
	       (out->gnu_hash != NULL || out->sysv_hash != NULL);
}

static void *symbol_address(struct symbols *s, const ElfW(Sym) * sym, const char *name)
{
	if (sym->st_shndx == SHN_UNDEF || sym->st_value == 0 ||
	    strcmp(s->names + sym->st_name, name) != 0)
		return NULL;
	s->found_bytes = sym->st_size;
	if (ELF64_ST_TYPE(sym->st_info) == STT_GNU_IFUNC)
		return ((void *(*)(void))(s->bias + sym->st_value))();
	return (void *)(s->bias + sym->st_value);
}

static void *symbols_find_gnu(struct symbols *s, const char *name)
{
	uint32_t buckets = s->gnu_hash[0], first = s->gnu_hash[1], bloom_words = s->gnu_hash[2];
	const uint32_t *bucket = s->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = bucket + buckets;
	uint32_t hash = 5381, at;
	const char *c;

	for (c = name; *c != '\0'; c++)
		hash = hash * 33 + (uint8_t)*c;
	if (buckets == 0)
		return NULL;
	for (at = bucket[hash % buckets]; at >= first && at != 0; at++) {
		uint32_t entry = chain[at - first];

		if ((entry | 1) == (hash | 1)) {
			void *p = symbol_address(s, &s->table[at], name);

			if (p != NULL)
				return p;
		}
		if (entry & 1)
			break;
	}
	return NULL;
}

static void *symbols_find(struct symbols *s, const char *name)
{
	uint32_t i;

	if (s->gnu_hash != NULL)
		return symbols_find_gnu(s, name);
	/* Rare and old. The second word of the table is the number of symbols; a linear search is enough. */
	for (i = 0; i < s->sysv_hash[1]; i++) {
		void *p = symbol_address(s, &s->table[i], name);

		if (p != NULL)
			return p;
	}
	return NULL;
}

void *lookup_in_object(const struct dl_phdr_info *info, const char *name, size_t *out_bytes)
{
	struct symbols symbols;
	void *found = symbols_open(info, &symbols) ? symbols_find(&symbols, name) : NULL;

	*out_bytes = found != NULL ? symbols.found_bytes : 0;
	return found;
}

/* ---- all objects ---- */

struct search {
	const char *name;
	void *found;
	void *before;	    /* what was found before this library, where `behind` is set */
	size_t found_bytes; /* its size, when it was found outside the copies of this library */
	void *active;	    /* address of mscope_collector_v1 in the first copy */
	uint32_t copies;    /* of this library */
	uint64_t adds;	    /* loader's count of loads */
	bool only_active;   /* search in the active copy alone: this one is passive */
	bool behind;	    /* search behind this library first */
};

static int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *search = arg;
	struct symbols symbols;
	void *marker;

	if (size >= offsetof(struct dl_phdr_info, dlpi_adds) + sizeof(info->dlpi_adds))
		search->adds = info->dlpi_adds;
	if (!symbols_open(info, &symbols))
		return 0;
	marker = symbols_find(&symbols, "mscope_collector_v1");
	if (marker != NULL) {
		search->copies++;
		if (search->active == NULL) {
			search->active = marker;
			search->only_active = marker != (void *)&mscope_collector_v1;
			if (search->only_active && search->name != NULL)
				search->found = symbols_find(&symbols, search->name);
			if (!search->only_active && search->behind) {
				search->before = search->found;
				search->found = NULL;
			}
		}
		return 0;
	}
	if (search->name != NULL && search->found == NULL) {
		search->found = symbols_find(&symbols, search->name);
		search->found_bytes = symbols.found_bytes;
	}
	return 0;
}

static MSCOPE_AT_START _Atomic bool comes_last;

void lookup_come_last(void)
{
	atomic_store(&comes_last, true);
}

MSCOPE_COLD void *hook_lookup_slow(struct hook *hook)
{
	struct search search = {.name = hook->name, .behind = !atomic_load(&comes_last)};
	int saved_errno = errno;

	if (atomic_load(&hook->missing_at) != 0) {
		struct search counts = {0};

		(void)loader_walk(visit, &counts);
		if (counts.adds + 1 == atomic_load(&hook->missing_at))
			return NULL;
	}
	(void)loader_walk(visit, &search);
	if (search.found == NULL)
		search.found = search.before;
	if (search.found != NULL)
		atomic_store_explicit(&hook->original, search.found, memory_order_release);
	else
		atomic_store(&hook->missing_at, search.adds + 1);
	errno = saved_errno;
	return search.found;
}

void *lookup_symbol_sized(const char *name, size_t *out_bytes)
{
	struct search search = {.name = name};
	int saved_errno = errno;

	(void)loader_walk(visit, &search);
	errno = saved_errno;
	*out_bytes = search.found_bytes;
	return search.found;
}

void *lookup_symbol(const char *name)
{
	size_t bytes;

	return lookup_symbol_sized(name, &bytes);
}

void *lookup_function(struct lookup_function *function)
{
	void *address = atomic_load_explicit(&function->address, memory_order_acquire);

	if (address == NULL) {
		address = lookup_symbol(function->name);
		atomic_store_explicit(&function->address, address, memory_order_release);
	}
	return address;
}

void lookup_forget(struct lookup_function *function)
{
	atomic_store(&function->address, NULL);
}

bool lookup_is_passive_quiet(void)
{
	struct search search = {0};

	(void)loader_walk(visit, &search);
	return search.only_active;
}

bool lookup_is_passive(void)
{
	struct search search = {0};

	(void)loader_walk(visit, &search);
	if (search.only_active) {
		atomic_fetch_add((_Atomic uint32_t *)search.active, 1);
		return true;
	}
	if (search.copies > 1)
		collector_note(
			"%u more copies of the collector are loaded in this process; they are inactive",
			search.copies - 1);
	return false;
}

struct functions {
	const char *name;    /* a symbol of the object */
	const void *address; /* that it has there */
	lookup_visit *visit;
	void *arg;
};

/* All symbols that an object defines are in its hash table, in the order of its buckets. */
static int visit_functions(struct dl_phdr_info *info, size_t size, void *arg)
{
	const struct functions *of = arg;
	uint32_t buckets, first, last = 0, at, i;
	const uint32_t *bucket, *chain;
	struct symbols symbols;

	(void)size;
	if (!symbols_open(info, &symbols) || symbols.gnu_hash == NULL ||
	    symbols_find(&symbols, of->name) != of->address)
		return 0;
	buckets = symbols.gnu_hash[0];
	first = symbols.gnu_hash[1];
	bucket = symbols.gnu_hash + 4 + symbols.gnu_hash[2] * (sizeof(ElfW(Addr)) / 4);
	chain = bucket + buckets;
	for (i = 0; i < buckets; i++)
		last = bucket[i] > last ? bucket[i] : last;
	for (at = first; at != 0; at++) {
		const ElfW(Sym) *sym = &symbols.table[at];

		if (ELF64_ST_TYPE(sym->st_info) == STT_FUNC && sym->st_shndx != SHN_UNDEF)
			of->visit(symbols.names + sym->st_name,
				  (void *)(symbols.bias + sym->st_value), sym->st_size, of->arg);
		if (at >= last && (chain[at - first] & 1) != 0)
			break;
	}
	return 1;
}

void lookup_functions_beside(const char *name, const void *address, lookup_visit *call, void *arg)
{
	struct functions of = {.name = name, .address = address, .visit = call, .arg = arg};

	(void)loader_walk(visit_functions, &of);
}

void lookup_own_functions(lookup_visit *call, void *arg)
{
	lookup_functions_beside("mscope_collector_v1", &mscope_collector_v1, call, arg);
}

struct two {
	uintptr_t a, b;
	bool same;
};

static int visit_two(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct two *two = arg;
	bool has_a = false, has_b = false;
	uint32_t i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		has_a = has_a || (p->p_type == PT_LOAD && two->a - start < p->p_memsz);
		has_b = has_b || (p->p_type == PT_LOAD && two->b - start < p->p_memsz);
	}
	two->same = has_a && has_b;
	return has_a || has_b;
}

bool lookup_is_same_object(const void *a, const void *b)
{
	struct two two = {.a = (uintptr_t)a, .b = (uintptr_t)b};

	(void)loader_walk(visit_two, &two);
	return two.same;
}

struct own {
	char *out;
	size_t bytes;
};

static int visit_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct own *own = arg;
	uintptr_t here = (uintptr_t)&mscope_collector_v1;
	uint32_t i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && here >= start && here < start + p->p_memsz) {
			const char *slash = strrchr(info->dlpi_name, '/');

			if (slash != NULL && (size_t)(slash + 1 - info->dlpi_name) < own->bytes) {
				memcpy(own->out, info->dlpi_name,
				       (size_t)(slash + 1 - info->dlpi_name));
				own->out[slash + 1 - info->dlpi_name] = '\0';
			}
			return 1;
		}
	}
	return 0;
}

void lookup_own_directory(char *out, size_t bytes)
{
	struct own own = {.out = out, .bytes = bytes};

	out[0] = '\0';
	(void)loader_walk(visit_own, &own);
}
