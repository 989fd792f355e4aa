/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/alive.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/by_stack.h"
#include "base/array.h"

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

static uint64_t hash_of(const struct block *block)
{
	uint64_t hash =
		((uint64_t)block->context << 32 | block->stack) * UINT64_C(0x9e3779b97f4a7c15);

	return hash + block->size_bytes * UINT64_C(0xd6e8feb86659fd93);
}

/* The group of a block among those that are `known`; NULL if it is the first one of a group. */
static struct alive_group *group_of(const struct alive *alive, const struct by_stack *known,
				    const struct block *block)
{
	struct by_stack_search search = by_stack_search(known, block->stack, hash_of(block));
	uint32_t at;

	while (by_stack_next(known, &search, &at)) {
		const struct block *first = alive->groups[at].first;

		if (first->context == block->context && first->stack == block->stack &&
		    first->size_bytes == block->size_bytes)
			return &alive->groups[at];
	}
	return NULL;
}

static int add_known(struct by_stack *known, const struct block *first, size_t group)
{
	return by_stack_add(known, first->stack, hash_of(first), group);
}

/* Groups of all blocks, which are sorted. */
static int make_groups(struct alive *alive)
{
	struct by_stack known = {0};
	size_t i, room = 0;
	int r = 0;

	for (i = 0; i < alive->block_count && r == 0; i++) {
		const struct block *block = alive->blocks[i];
		struct alive_group *group = group_of(alive, &known, block);

		if (group == NULL) {
			r = ARRAY_RESERVE(alive->groups, room, alive->group_count + 1);
			if (r == 0)
				r = add_known(&known, block, alive->group_count);
			if (r == 0)
				alive->groups[alive->group_count++] = (struct alive_group){
					.first = block, .blocks = 1, .bytes = block->size_bytes};
		} else {
			group->blocks++;
			group->bytes += block->size_bytes;
		}
	}
	by_stack_fini(&known);
	return r;
}

/* Puts the blocks of each group together, in the order of the groups. */
static int fill_grouped(struct alive *alive)
{
	struct by_stack known = {0};
	size_t i;
	uint32_t at = 0;
	int r = 0;

	for (i = 0; i < alive->group_count && r == 0; i++) {
		alive->groups[i].at = at;
		at += alive->groups[i].blocks;
		r = add_known(&known, alive->groups[i].first, i);
	}
	for (i = 0; i < alive->block_count && r == 0; i++) {
		struct alive_group *group = group_of(alive, &known, alive->blocks[i]);

		alive->grouped[group->at++] = alive->blocks[i];
	}
	for (i = 0; i < alive->group_count; i++)
		alive->groups[i].at -= alive->groups[i].blocks;
	by_stack_fini(&known);
	return r;
}

int alive_find(const struct replay *replay, const struct alive_choice *choice, struct alive *out)
{
	struct alive alive = {0};
	const struct block *block;
	size_t cursor = 0, room = replay_count_at_end(replay) + 1;

	alive.blocks = calloc(room, sizeof(const struct block *));
	if (alive.blocks == NULL)
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
	qsort(alive.blocks, alive.block_count, sizeof(const struct block *), block_order);
	if (make_groups(&alive) < 0)
		goto fail;
	if (alive.group_count > 1)
		qsort_r(alive.groups, alive.group_count, sizeof(*alive.groups), by_order,
			(void *)(uintptr_t)choice);
	alive.grouped = calloc(room, sizeof(const struct block *));
	if (alive.grouped == NULL || fill_grouped(&alive) < 0)
		goto fail;
	*out = alive;
	return 0;
fail:
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
