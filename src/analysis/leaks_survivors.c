/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lives, in order. There may be millions of blocks: they are counted and put where they belong, since sorting all of them would take
 * another array.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/leaks_judge.h"

static int by_age(const void *a, const void *b)
{
	const struct survivor *x = a, *y = b;

	if (x->step != y->step)
		return x->step < y->step ? -1 : 1;
	return survivor_id(x) < survivor_id(y) ? -1 : 1;
}

void leaks_make_room(struct judge *j)
{
	const struct leaks *leaks = j->leaks;
	const struct block *block;
	size_t cursor = 0, i;
	uint32_t at = 0;

	for (i = 0; i < j->merged_count; i++)
		j->merged[i].at = 0;
	while ((block = replay_next_observed(j->replay, &cursor)) != NULL) {
		uint32_t place = leaks_place_of(leaks, j->replay, block);

		if (place != UINT32_MAX)
			j->merged[j->canon[place]].at++;
	}
	for (i = 0; i < leaks->freed_count; i++)
		j->merged[j->canon[leaks->freed[i].place]].at++;
	for (i = 0; i < j->merged_count; i++) {
		uint32_t count = j->merged[i].at;

		j->merged[i].at = at;
		at += count;
	}
	j->survivor_count = at;
}

void leaks_sort_survivors(struct judge *j)
{
	size_t i, first = 0, count = 0;

	for (i = 0; i < j->survivor_count; i++) {
		if (j->survivors[i].of == NULL)
			continue;
		if (count > 0 && j->survivors[count - 1].place != j->survivors[i].place) {
			qsort(j->survivors + first, count - first, sizeof(*j->survivors), by_age);
			first = count;
		}
		j->survivors[count++] = j->survivors[i];
	}
	if (count > first)
		qsort(j->survivors + first, count - first, sizeof(*j->survivors), by_age);
	j->survivor_count = count;
}

void leaks_forget_places(struct judge *j)
{
	size_t i;

	for (i = 0; i < j->survivor_count && j->merged != NULL; i++)
		j->survivors[i].place =
			merged_place(j, &j->merged[j->survivors[i].place])->group & INT32_MAX;
	for (i = 0; i < j->merged_count; i++) {
		if (j->merged[i].growth != NULL)
			growth_fini(j->merged[i].growth);
		free(j->merged[i].growth);
	}
	free(j->canon);
	free(j->next);
	free(j->merged);
	j->canon = j->next = NULL;
	j->merged = NULL;
	j->merged_count = 0;
}

static int by_step(const void *a, const void *b)
{
	const struct growth_survivor *x = a, *y = b;

	return ORDER_UP(x->step, y->step);
}

int leaks_pool_survivors(struct judge *j, const struct group *group, size_t *out_count)
{
	size_t i, steps = (size_t)j->leaks->ended + 2;
	bool many = j->survivor_count > steps;
	size_t *end = many ? calloc(steps, sizeof(*end)) : NULL;
	int pass;

	*out_count = 0;
	if (many && end == NULL)
		return -ENOMEM;
	for (pass = many ? 0 : 1; pass < 2; pass++) {
		for (i = 0; i < j->survivor_count; i++) {
			const struct survivor *s = &j->survivors[i];

			if (!leaks_same_pool(&j->leaks->groups[s->place], group))
				continue;
			if (pass == 0)
				end[s->step + 1]++;
			else
				j->few[many ? end[s->step]++ : *out_count] =
					(struct growth_survivor){.step = s->step,
								 .bytes = survivor_bytes(s)};
			*out_count += (size_t)pass;
		}
		for (i = 1; i < steps && pass == 0; i++)
			end[i] += end[i - 1];
	}
	free(end);
	if (!many)
		qsort(j->few, *out_count, sizeof(*j->few), by_step);
	return 0;
}
