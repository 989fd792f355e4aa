/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/alive.h"

#include <errno.h>
#include <stdlib.h>

static int by_id(const void *a, const void *b)
{
	const struct block *x = *(const struct block *const *)a,
			   *y = *(const struct block *const *)b;

	return x->allocation_id < y->allocation_id ? -1 : x->allocation_id > y->allocation_id;
}

/* The order asked for, then that of bytes, then that of the first block. */
static int by_order(const void *a, const void *b, void *arg)
{
	const struct alive_group *x = a, *y = b;
	const struct alive_choice *choice = arg;
	int order = choice == NULL || choice->order == NULL ? 0 : choice->order(x, y);

	if (order != 0)
		return order;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->first->allocation_id < y->first->allocation_id ? -1 : 1;
}

static struct map_key key_of(const struct block *block)
{
	return (struct map_key){(uint64_t)block->context << 32 | block->stack, block->size_bytes};
}

/* Groups of all blocks, which are sorted; `index` gets the number of each. */
static int make_groups(struct alive *alive, struct map *index)
{
	size_t i;

	for (i = 0; i < alive->block_count; i++) {
		const struct block *block = alive->blocks[i];
		uint64_t *known = map_get(index, key_of(block));

		if (known == NULL) {
			if (map_put(index, key_of(block), alive->group_count) < 0)
				return -ENOMEM;
			alive->groups[alive->group_count++] = (struct alive_group){
				.first = block, .blocks = 1, .bytes = block->size_bytes};
		} else {
			alive->groups[*known].blocks++;
			alive->groups[*known].bytes += block->size_bytes;
		}
	}
	return 0;
}

/* Puts the blocks of each group together, in the order of the groups. */
static void fill_grouped(struct alive *alive, struct map *index)
{
	size_t i, at = 0;

	for (i = 0; i < alive->group_count; i++) {
		*map_get(index, key_of(alive->groups[i].first)) = at;
		alive->groups[i].at = at;
		at += alive->groups[i].blocks;
	}
	for (i = 0; i < alive->block_count; i++) {
		uint64_t *next = map_get(index, key_of(alive->blocks[i]));

		alive->grouped[(*next)++] = alive->blocks[i];
	}
}

int alive_find(const struct replay *replay, const struct alive_choice *choice, struct alive *out)
{
	struct alive alive = {0};
	struct map index = {0};
	const struct block *block;
	size_t cursor = 0, room = replay_count_at_end(replay) + 1;

	alive.blocks = calloc(room, sizeof(const struct block *));
	alive.grouped = calloc(room, sizeof(const struct block *));
	alive.groups = calloc(room, sizeof(*alive.groups));
	if (alive.blocks == NULL || alive.grouped == NULL || alive.groups == NULL)
		goto fail;
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		if (choice != NULL && choice->wants != NULL &&
		    !choice->wants(choice->arg, replay, block))
			continue;
		if (choice != NULL && choice->each_byte_once && block->segment_of != 0) {
			alive.taken_blocks++;
			alive.taken_bytes += block->size_bytes;
			continue;
		}
		alive.blocks[alive.block_count++] = block;
		alive.bytes += block->size_bytes;
	}
	qsort(alive.blocks, alive.block_count, sizeof(const struct block *), by_id);
	if (make_groups(&alive, &index) < 0)
		goto fail;
	qsort_r(alive.groups, alive.group_count, sizeof(*alive.groups), by_order,
		(void *)(uintptr_t)choice);
	fill_grouped(&alive, &index);
	map_fini(&index);
	*out = alive;
	return 0;
fail:
	map_fini(&index);
	alive_fini(&alive);
	return -ENOMEM;
}

void alive_fini(struct alive *alive)
{
	free(alive->blocks);
	free(alive->grouped);
	free(alive->groups);
	*alive = (struct alive){0};
}
