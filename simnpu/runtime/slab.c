/* SPDX-License-Identifier: Apache-2.0 */
#include "slab.h"

#include <sys/mman.h>

static struct slab_entry *entry_at(char *base, const struct slab *s, uint32_t n)
{
	return (struct slab_entry *)(void *)(base + n * s->entry_bytes);
}

static char *open_table(struct slab *s)
{
	char *base = atomic_load_explicit(&s->base, memory_order_relaxed);
	void *map;

	if (base)
		return base;
	map = mmap(NULL, s->count_max * s->entry_bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	atomic_store_explicit(&s->base, map, memory_order_relaxed);
	return map;
}

void *slab_take(struct slab *s)
{
	struct slab_entry *entry = NULL;
	uint32_t count;
	char *base;

	base = open_table(s);
	count = atomic_load_explicit(&s->count, memory_order_relaxed);
	if (base && s->free_top) {
		entry = entry_at(base, s, s->free_top - 1);
		s->free_top = entry->next;
	} else if (base && count < s->count_max) {
		entry = entry_at(base, s, count);
		/* Pairs with the acquire in slab_count(), for `base`. */
		atomic_store_explicit(&s->count, count + 1, memory_order_release);
	}
	if (entry)
		atomic_store_explicit(&entry->live, true, memory_order_relaxed);
	return entry;
}

void slab_give(struct slab *s, void *object)
{
	struct slab_entry *entry = object;
	char *base;

	base = atomic_load_explicit(&s->base, memory_order_relaxed);
	atomic_store_explicit(&entry->live, false, memory_order_relaxed);
	entry->next = s->free_top;
	s->free_top = (uint32_t)((size_t)((char *)object - base) / s->entry_bytes) + 1;
}

uint32_t slab_count(struct slab *s)
{
	/* Pairs with the release in slab_take(). */
	return atomic_load_explicit(&s->count, memory_order_acquire);
}

void *slab_at(struct slab *s, uint32_t n)
{
	return entry_at(atomic_load_explicit(&s->base, memory_order_relaxed), s, n);
}

bool slab_holds(struct slab *s, const void *pointer)
{
	size_t end = slab_count(s) * s->entry_bytes;
	char *base = atomic_load_explicit(&s->base, memory_order_relaxed);
	size_t offset = (uintptr_t)pointer - (uintptr_t)base;
	const struct slab_entry *entry = pointer;

	return offset < end && offset % s->entry_bytes == 0 &&
	       atomic_load_explicit(&entry->live, memory_order_relaxed);
}
