/* SPDX-License-Identifier: Apache-2.0 */
#include "base/index.h"

#include <errno.h>
#include <stdlib.h>

void index_fini(struct index *index)
{
	free(index->slots);
	*index = (struct index){0};
}

static void place_slot(struct index *index, struct index_slot slot)
{
	size_t i = slot.tag & index->mask;

	while (index->slots[i].element != 0)
		i = (i + 1) & index->mask;
	index->slots[i] = slot;
}

static int make_room(struct index *index)
{
	struct index bigger = {.mask = index->slots == NULL ? 15 : index->mask * 2 + 1,
			       .count = index->count};
	size_t i;

	bigger.slots = calloc(bigger.mask + 1, sizeof(*bigger.slots));
	if (bigger.slots == NULL)
		return -ENOMEM;
	for (i = 0; index->slots != NULL && i <= index->mask; i++) {
		if (index->slots[i].element != 0)
			place_slot(&bigger, index->slots[i]);
	}
	free(index->slots);
	*index = bigger;
	return 0;
}

int index_add(struct index *index, uint64_t hash, size_t element)
{
	int r = element >= UINT32_MAX ? -ENOMEM : 0;

	if (r == 0 && (index->count + 1) * 8 > (index->slots == NULL ? 0 : index->mask + 1) * 7)
		r = make_room(index);
	if (r < 0)
		return r;
	place_slot(index,
		   (struct index_slot){.tag = index_tag(hash), .element = (uint32_t)element + 1});
	index->count++;
	return 0;
}
