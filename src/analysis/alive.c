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

static int by_bytes(const void *a, const void *b)
{
	const struct alive_group *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->first->allocation_id < y->first->allocation_id ? -1 : 1;
}

int alive_find(const struct replay *replay, struct alive *out)
{
	struct alive alive = {0};
	struct map index = {0};
	const struct block *block;
	size_t cursor = 0, i;
	int r = -ENOMEM;

	alive.blocks = calloc(replay_count_at_end(replay) + 1, sizeof(const struct block *));
	alive.groups = calloc(replay_count_at_end(replay) + 1, sizeof(*alive.groups));
	if (alive.blocks == NULL || alive.groups == NULL)
		goto fail;
	while ((block = replay_next_at_end(replay, &cursor)) != NULL) {
		alive.blocks[alive.block_count++] = block;
		alive.bytes += block->size_bytes;
	}
	qsort(alive.blocks, alive.block_count, sizeof(const struct block *), by_id);
	for (i = 0; i < alive.block_count; i++) {
		struct map_key key;
		uint64_t *known;

		block = alive.blocks[i];
		key = (struct map_key){(uint64_t)block->context << 32 | block->stack,
				       block->size_bytes};
		known = map_get(&index, key);
		if (known == NULL) {
			if (map_put(&index, key, alive.group_count) < 0)
				goto fail;
			alive.groups[alive.group_count++] = (struct alive_group){
				.first = block, .blocks = 1, .bytes = block->size_bytes};
		} else {
			alive.groups[*known].blocks++;
			alive.groups[*known].bytes += block->size_bytes;
		}
	}
	qsort(alive.groups, alive.group_count, sizeof(*alive.groups), by_bytes);
	map_fini(&index);
	*out = alive;
	return 0;
fail:
	map_fini(&index);
	alive_fini(&alive);
	return r;
}

void alive_fini(struct alive *alive)
{
	free(alive->blocks);
	free(alive->groups);
	*alive = (struct alive){0};
}
