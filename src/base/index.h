/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds elements of an array by a hash of what tells them apart: 8 bytes a slot where a map (map.h) has 32. The elements have their
 * keys, and the caller compares them:
 *
 *     struct index_search search = index_search(hash);
 *     while (index_next(&index, &search, &element))
 *             if (all[element] is it) ...
 *     r = index_add(&index, hash, count++);
 *
 * Open addressing with linear probing, power-of-two size, at most 7/8 full; nothing is removed. An element is a number below
 * UINT32_MAX. Not thread-safe. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_BASE_INDEX_H
#define MSCOPE_BASE_INDEX_H

#include <stdbool.h>

#include "base/compiler.h"

struct index_slot {
	uint32_t tag;	  /* of the hash */
	uint32_t element; /* + 1, 0: free */
};

struct index {
	struct index_slot *slots;
	size_t mask; /* slots - 1, 0 while there are none */
	size_t count;
};

/* A search that goes on. */
struct index_search {
	uint32_t tag;
	size_t steps;
};

void index_fini(struct index *index);

/* Adds an element. 0 or -ENOMEM; unchanged on failure. */
int index_add(struct index *index, uint64_t hash, size_t element);

static inline uint32_t index_tag(uint64_t hash)
{
	return (uint32_t)((hash ^ hash >> 32) * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

static inline struct index_search index_search(uint64_t hash)
{
	return (struct index_search){.tag = index_tag(hash)};
}

/* The next element that may have this hash; false: there are no more. */
static inline bool index_next(const struct index *index, struct index_search *search,
			      uint32_t *out_element)
{
	const struct index_slot *slot;

	if (index->count == 0)
		return false;
	do {
		slot = &index->slots[(search->tag + search->steps++) & index->mask];
	} while (slot->element != 0 && slot->tag != search->tag);
	*out_element = slot->element - 1;
	return slot->element != 0;
}

#endif
