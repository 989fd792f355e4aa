/* SPDX-License-Identifier: Apache-2.0 */
#include "views/profile.h"

#include <errno.h>
#include <stdlib.h>

#include "analysis/leaks.h"
#include "analysis/peak.h"
#include "base/array.h"

const char *const profile_meanings[PROFILE_KINDS] = {
#define PROFILE(symbol, word, meaning) [PROFILE_##symbol] = meaning,
	PROFILES(PROFILE)
#undef PROFILE
};

void profile_fini(struct profile *profile)
{
	free(profile->places);
	map_fini(&profile->index);
	*profile = (struct profile){0};
}

static int add(struct profile *profile, enum profile_kind kind, uint8_t pool, uint32_t device,
	       uint32_t stack, uint64_t bytes, uint64_t blocks)
{
	struct map_key key = {(uint64_t)pool << 32 | device, stack};
	const uint64_t *known = map_get(&profile->index, key);
	size_t at = known == NULL ? profile->count : *known;

	if (known == NULL) {
		if (ARRAY_RESERVE(profile->places, profile->room, profile->count + 1) < 0 ||
		    map_put(&profile->index, key, profile->count) < 0)
			return -ENOMEM;
		profile->places[profile->count++] =
			(struct profile_place){.pool = pool, .device = device, .site = stack};
	}
	profile->places[at].bytes[kind] += bytes;
	profile->places[at].blocks[kind] += blocks;
	return 0;
}

int profile_row(struct profile *profile, const struct row *row)
{
	if (row->kind != ROW_MALLOC)
		return 0;
	return add(profile, PROFILE_TOTAL, row->context->pool, row->context->device, row->stack,
		   row->block->size_bytes, 1);
}

static int add_peaks(struct profile *profile, const struct view *view)
{
	struct peaks peaks = {0};
	int r = peaks_find(view->analyses, view->first, SIZE_MAX, &peaks);
	size_t i, k;

	for (i = 0; i < peaks.count && r == 0; i++) {
		const struct peak *peak = &peaks.all[i];

		for (k = 0; k < peak->place_count && r == 0; k++)
			r = add(profile, PROFILE_PEAK, peak->pool, peak->device,
				peak->places[k].site, peak->places[k].bytes,
				peak->places[k].blocks);
	}
	peaks_fini(&peaks);
	return r;
}

static int add_end(struct profile *profile, const struct view *view)
{
	const struct block *block;
	size_t cursor = 0;
	int r = 0;

	while (r == 0 && (block = replay_next_at_end(view->first, &cursor)) != NULL) {
		const struct context *context = replay_context(view->first, block->context);

		r = add(profile, PROFILE_END, context->pool, context->device,
			block->outside_window ? 0 : block->stack, block->size_bytes, 1);
	}
	return r;
}

static int add_leaks(struct profile *profile, const struct view *view)
{
	struct leaks_findings *findings = leaks_findings(view->analyses, view->first);
	size_t i, k;
	int r = 0;

	for (i = 0; findings != NULL && i < findings->place_count && r == 0; i++) {
		const struct leaks_place *place = &findings->places[i];

		if (place->verdict != GROWTH_LEAK)
			continue;
		/* What the driver gave by handles has no list of blocks. */
		if (place->list_count == 0)
			r = add(profile, PROFILE_LEAKED, place->pool, place->device, place->stack,
				place->overdue_bytes, place->overdue_blocks);
		for (k = 0; k < place->list_count && r == 0; k++)
			r = add(profile, PROFILE_LEAKED, place->pool, place->device,
				place->list[k].stack, place->list[k].size_bytes, 1);
	}
	leaks_findings_free(findings);
	return r;
}

static int by_place(const void *a, const void *b)
{
	const struct profile_place *x = a, *y = b;

	return ORDER_UP(x->pool, y->pool) ?:
	       ORDER_UP(x->device, y->device) ?:
	       ORDER_UP(x->site, y->site);
}

int profile_end(struct profile *profile, const struct view *view)
{
	struct profile_place *places;
	size_t i, to = 0, kind;
	int r = add_peaks(profile, view);

	if (r == 0)
		r = add_end(profile, view);
	if (r == 0)
		r = add_leaks(profile, view);
	if (r < 0 || profile->count == 0)
		return r;
	places = profile->places;
	for (i = 0; i < profile->count; i++)
		places[i].site = replay_site(view->first, places[i].site);
	qsort(places, profile->count, sizeof(*places), by_place);
	for (i = 1; i < profile->count; i++) {
		if (by_place(&places[to], &places[i]) != 0) {
			places[++to] = places[i];
			continue;
		}
		for (kind = 0; kind < PROFILE_KINDS; kind++) {
			places[to].bytes[kind] += places[i].bytes[kind];
			places[to].blocks[kind] += places[i].blocks[kind];
		}
	}
	profile->count = to + 1;
	return 0;
}
