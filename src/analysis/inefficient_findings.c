/* SPDX-License-Identifier: Apache-2.0 */
/* What inefficient memory costs: a finding for each pool that has some, with its call sites, those that would lower the peak most first. */
#include <errno.h>
#include <stdlib.h>

#include "analysis/inefficient.h"

/* Call sites of a pool in JSON, unless all are asked for. */
#define JSON_PLACES 1000u

/* Call sites of a pool that are listed; those beyond are summed up as one. */
#define SITES_MOST 10000u

/* A place with what mending it would save. */
struct priced {
	const struct waste_place *place;
	uint64_t saved;	     /* bytes of the pool's peak */
	uint64_t step_saved; /* of the peak of a group of steps: the group where that is most */
	uint32_t group;
};

struct priced_pool {
	const struct usage *usage;
	uint64_t peak;
	uint64_t mended;  /* the peak if all were mended */
	uint64_t outside; /* the peak, if it was when nothing was recorded; else 0 */
	struct priced *list;
	size_t count;
};

/* ---- prices ---- */

static void price(const struct inefficient *s, const struct priced_pool *pool,
		  const struct waste_place *place, struct priced *out)
{
	const struct waste_pool *of = s->pools[place->pool];
	uint64_t most = account_most(&place->account, NO_GROUP);
	uint32_t i;

	*out = (struct priced){
		.place = place,
		.saved = less_u64(pool->peak, most > pool->outside ? most : pool->outside)};
	for (i = 0; i < WASTE_GROUPS && s->steps > 0 && !s->steps_restarted; i++) {
		uint64_t saved = less_u64(of->tops[i], account_most(&place->account, i));

		if (saved > out->step_saved) {
			out->step_saved = saved;
			out->group = i;
		}
	}
}

static int by_price(const void *a, const void *b)
{
	const struct priced *x = a, *y = b;

	return ORDER_DOWN(x->saved, y->saved) ?:
	       ORDER_DOWN(x->step_saved, y->step_saved) ?:
	       ORDER_DOWN(x->place->bytes, y->place->bytes) ?:
	       ORDER_UP(x->place->first, y->place->first);
}

static void priced_fini(struct priced_pool *pools, size_t count)
{
	size_t i;

	for (i = 0; i < count && pools != NULL; i++)
		free(pools[i].list);
	free(pools);
}

/* All pools of the replay, also those without a finding. The caller gives them to priced_fini(). */
static int price_all(const struct inefficient *s, const struct replay *replay,
		     struct priced_pool **out)
{
	size_t count, i;
	const struct usage *usages = replay_usages(replay, &count);
	struct priced_pool *pools = calloc(s->pool_count + 1, sizeof(*pools));

	if (pools == NULL)
		return -ENOMEM;
	for (i = 0; i < s->pool_count && i < count; i++) {
		uint64_t highest = s->pools[i]->tide.highest;

		pools[i].usage = &usages[i];
		pools[i].peak = highest > usages[i].peak_bytes ? highest : usages[i].peak_bytes;
		pools[i].outside = highest < usages[i].peak_bytes ? usages[i].peak_bytes : 0;
		pools[i].list = calloc(s->place_count + 1, sizeof(*pools[i].list));
		if (pools[i].list == NULL) {
			priced_fini(pools, s->pool_count);
			return -ENOMEM;
		}
	}
	for (i = 0; i < s->place_count; i++) {
		const struct waste_place *place = &s->places[i];
		struct priced_pool *pool = &pools[place->pool];
		struct priced priced;

		if (place->found == 0 || place->pool >= count)
			continue;
		price(s, pool, place, &priced);
		if (place->stack == WASTE_POOL)
			pool->mended = pool->peak - priced.saved;
		else
			pool->list[pool->count++] = priced;
	}
	for (i = 0; i < s->pool_count; i++) {
		struct priced_pool *pool = &pools[i];

		qsort(pool->list, pool->count, sizeof(*pool->list), by_price);
	}
	*out = pools;
	return 0;
}

/* ---- findings ---- */

static uint32_t last_of(const struct inefficient *s, uint32_t group)
{
	uint32_t last = group * s->group_steps + s->group_steps - 1;

	return last > s->steps ? s->steps : last;
}

/* What each group of steps would gain if all were mended. 0 or -ENOMEM. */
static int add_steps(const struct inefficient *s, size_t index, struct finding_range *range,
		     struct findings *out)
{
	const struct waste_pool *pool = s->pools[index];
	uint32_t i;

	for (i = 0; i < WASTE_GROUPS && s->steps > 0 && !s->steps_restarted && pool->all != 0 &&
		    i * s->group_steps <= s->steps;
	     i++) {
		uint64_t mended = account_most(&s->places[pool->all - 1].account, i);
		struct finding_waste_steps *steps = FINDINGS_ADD_TO(out, waste_steps, range);

		if (steps == NULL)
			return -ENOMEM;
		*steps = (struct finding_waste_steps){.first = (uint64_t)i * s->group_steps,
						      .last = last_of(s, i),
						      .peak_bytes = pool->tops[i],
						      .saved_bytes =
							      less_u64(pool->tops[i], mended)};
	}
	return 0;
}

static struct finding_waste_site site_of(const struct inefficient *s, const struct priced *priced)
{
	const struct waste_place *place = priced->place;
	bool stepwise = priced->step_saved > 0;

	return (struct finding_waste_site){
		.text = "",
		.inefficient_type = place->found,
		.saved_bytes = priced->saved,
		.step_saved_bytes = priced->step_saved,
		.step = stepwise ? (uint64_t)priced->group * s->group_steps : 0,
		.last_step = stepwise ? last_of(s, priced->group) : 0,
		.call_sites = 1,
		.blocks = place->any_blocks,
		.bytes = place->bytes,
		.early_blocks = place->blocks[0],
		.late_blocks = place->blocks[1],
		.idle_blocks = place->blocks[2],
		.first_allocation_id = place->first,
		.size_class = place->size_class,
		.stack = place->stack,
	};
}

/* The first ones by themselves, all others as one. 0 or -ENOMEM. */
static int add_sites(const struct inefficient *s, const struct priced_pool *pool,
		     struct finding_range *range, struct findings *out)
{
	struct finding_waste_site *site = NULL, next;
	size_t i;

	for (i = 0; i < pool->count; i++) {
		next = site_of(s, &pool->list[i]);
		if (i > SITES_MOST) {
			waste_join(site, &next);
			continue;
		}
		site = FINDINGS_ADD_TO(out, waste_site, range);
		if (site == NULL)
			return -ENOMEM;
		*site = next;
		site->rest = i == SITES_MOST;
		if (site->rest)
			site->stack = 0;
	}
	return 0;
}

int inefficient_judge(const void *state, struct replay *replay, struct findings *out)
{
	const struct inefficient *s = state;
	struct priced_pool *pools;
	size_t i;
	int r = 0;

	out->unused_asked = true;
	out->unused_seen = s->saw_access;
	if (price_all(s, replay, &pools) < 0)
		return -ENOMEM;
	for (i = 0; i < s->pool_count && r == 0; i++) {
		const struct priced_pool *pool = &pools[i];
		struct finding_range steps = {0}, places = {0};
		struct finding_waste *waste;

		if (pool->count == 0)
			continue;
		r = add_steps(s, i, &steps, out);
		if (r == 0)
			r = add_sites(s, pool, &places, out);
		waste = r == 0 ? FINDINGS_ADD(out, waste) : NULL;
		if (waste == NULL)
			r = -ENOMEM;
		else
			*waste = (struct finding_waste){
				.device = pool->usage->device,
				.event_type = pool->usage->pool,
				.peak_bytes = pool->peak,
				.saved_bytes = less_u64(pool->peak, pool->mended),
				.steps = steps,
				.places = places,
			};
	}
	priced_fini(pools, s->pool_count);
	return r;
}

int inefficient_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	wastes_text(view->found, view->replay, view->lines, view->frames, out);
	return 0;
}

int inefficient_json(void *state, const struct analysis_view *view, struct json *json)
{
	(void)state;
	findings_json(view->found, FINDING_waste, "inefficient",
		      view->lines == UINT32_MAX ? SIZE_MAX : JSON_PLACES, json);
	return 0;
}
