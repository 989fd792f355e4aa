/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What inefficient memory costs, for people and as JSON: by pool, the places that would lower its peak first. Places that would not
 * are counted in a line, and listed where everything is asked for.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/inefficient.h"
#include "analysis/peak.h"
#include "findings/site.h"
#include "base/hash.h"

/* Places of a pool in JSON, unless all are asked for. */
#define JSON_PLACES 1000u

/* A place with what mending it would save. */
struct priced {
	const struct waste_place *place;
	uint64_t saved;	     /* bytes of the pool's peak */
	uint64_t step_saved; /* of the peak of a group of steps: the group where that is most */
	uint32_t group;
	bool several; /* stands for others that are shown alike: as much is saved at least */
	uint64_t any_blocks, blocks[WASTE_KINDS], bytes;
};

struct priced_pool {
	const struct usage *usage;
	uint64_t peak;
	uint64_t mended;  /* the peak if all were mended */
	uint64_t outside; /* the peak, if it was when nothing was recorded; else 0 */
	struct priced *list;
	size_t count;
	size_t useful; /* the first so many lower the peak */
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
		.saved = less_u64(pool->peak, most > pool->outside ? most : pool->outside),
		.any_blocks = place->any_blocks,
		.bytes = place->bytes};
	for (i = 0; i < WASTE_KINDS; i++)
		out->blocks[i] = place->blocks[i];
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

	if (x->saved != y->saved)
		return x->saved > y->saved ? -1 : 1;
	if (x->step_saved != y->step_saved)
		return x->step_saved > y->step_saved ? -1 : 1;
	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->place->first < y->place->first ? -1 : x->place->first > y->place->first;
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
		while (pool->useful < pool->count && pool->list[pool->useful].saved > 0)
			pool->useful++;
	}
	*out = pools;
	return 0;
}

/* ---- for people ---- */

static void place_text(struct replay *replay, const struct waste_place *place, struct strbuf *out)
{
	if (!site_line(replay, place->stack, out))
		size_class_words(place->size_class, true, out);
}

/* Places that are shown alike become one. What one of them saves is the least that all of them do. */
static int fold(struct replay *replay, struct priced_pool *pool)
{
	struct strbuf text = {0};
	struct map by_text = {0};
	size_t i, k, kept = 0;
	int r = 0;

	for (i = 0; i < pool->count && r == 0; i++) {
		struct map_key key;
		const uint64_t *known;
		struct priced *first;

		strbuf_reset(&text);
		place_text(replay, pool->list[i].place, &text);
		key = (struct map_key){hash_text(strbuf_str(&text)), text.length};
		known = map_get(&by_text, key);
		if (known == NULL) {
			pool->list[kept] = pool->list[i];
			r = strbuf_failed(&text) ? -ENOMEM : map_put(&by_text, key, kept++);
			continue;
		}
		first = &pool->list[*known];
		first->several |= pool->list[i].saved > 0;
		first->any_blocks += pool->list[i].any_blocks;
		first->bytes += pool->list[i].bytes;
		for (k = 0; k < WASTE_KINDS; k++)
			first->blocks[k] += pool->list[i].blocks[k];
	}
	pool->count = kept;
	for (pool->useful = 0; pool->useful < kept && pool->list[pool->useful].saved > 0;)
		pool->useful++;
	map_fini(&by_text);
	strbuf_fini(&text);
	return r;
}

static void pool_name(const struct usage *usage, struct strbuf *out)
{
	char device[16];

	device_text(usage->device, device);
	strbuf_addf(out, "%s on %s%s", pool_event_type(usage->pool),
		    usage->device == DEVICE_HOST || usage->device == DEVICE_UNKNOWN ? ""
										    : "device ",
		    device);
}

static void group_text(const struct inefficient *s, uint32_t group, struct strbuf *out)
{
	uint32_t first = group * s->group_steps, last = first + s->group_steps - 1;

	last = last > s->steps ? s->steps : last;
	if (last == 0)
		strbuf_add_str(out, "the time before step 1");
	else if (first >= last)
		strbuf_addf(out, "step %u", last);
	else
		strbuf_addf(out, "steps %u to %u", first == 0 ? 1 : first, last);
}

/* "3 blocks allocated too early: allocate at the first use"; of several kinds without what to do. */
static void advice_text(const struct priced *priced, struct strbuf *out)
{
	static const struct {
		const char *what;
		const char *todo;
	} kinds[WASTE_KINDS] = {
		{"allocated too early", "allocate at the first use"},
		{"freed too late", "free after the last use"},
		{"idle for long between two uses", "free or offload meanwhile"},
	};
	size_t k, named = 0, last = 0;

	for (k = 0; k < WASTE_KINDS; k++) {
		if (priced->blocks[k] == 0)
			continue;
		if (named++ > 0)
			strbuf_addf(out, ", %llu", (unsigned long long)priced->blocks[k]);
		else
			strbuf_add_count(out, priced->blocks[k], "block", "blocks");
		strbuf_addf(out, " %s", kinds[k].what);
		last = k;
	}
	if (named == 1)
		strbuf_addf(out, ": %s", kinds[last].todo);
}

/* With `frames` there is room for more. */
static void waste_line(const struct inefficient *s, struct replay *replay,
		       const struct priced *priced, uint32_t frames, struct strbuf *out)
{
	strbuf_add_str(out, "  ");
	if (priced->saved > 0) {
		strbuf_add_str(out, priced->several ? "at least " : "");
		strbuf_add_size(out, priced->saved);
		strbuf_add_str(out, " less: ");
	} else {
		strbuf_add_str(out, "no less: ");
	}
	place_text(replay, priced->place, out);
	strbuf_add_str(out, "\n    ");
	advice_text(priced, out);
	strbuf_add_char(out, '\n');
	if (frames == 0)
		return;
	strbuf_add_str(out, "    ");
	strbuf_add_size(out, priced->bytes);
	strbuf_add_str(out, " in ");
	strbuf_add_count(out, priced->any_blocks, "block", "blocks");
	strbuf_addf(out, ", first is allocation_id %llu", (unsigned long long)priced->place->first);
	if (priced->step_saved > 0) {
		strbuf_add_str(out, "; peak of ");
		group_text(s, priced->group, out);
		strbuf_add_str(out, " ");
		strbuf_add_size(out, priced->step_saved);
		strbuf_add_str(out, " less");
	}
	strbuf_add_char(out, '\n');
	site_text(replay, priced->place->stack, frames, out);
}

static void head_line(const struct priced_pool *pool, struct strbuf *out)
{
	uint64_t saved = less_u64(pool->peak, pool->mended);

	strbuf_add_str(out, "Inefficient memory: ");
	pool_name(pool->usage, out);
	strbuf_add_str(out, " peaks at ");
	strbuf_add_size(out, pool->peak);
	if (saved == 0) {
		strbuf_add_str(out, ", and would if all of it were mended\n");
		return;
	}
	strbuf_add_str(out, "; with all of it mended at ");
	strbuf_add_size(out, pool->mended);
	strbuf_addf(out, ", %.0f %% less\n", 100.0 * (double)saved / (double)pool->peak);
}

/* What each step would gain if all were mended. */
static void steps_text(const struct inefficient *s, size_t index, struct strbuf *out)
{
	const struct waste_pool *pool = s->pools[index];
	uint32_t i;

	for (i = 0; i < WASTE_GROUPS && s->steps > 0 && !s->steps_restarted && pool->all != 0;
	     i++) {
		uint64_t mended = account_most(&s->places[pool->all - 1].account, i);

		if (less_u64(pool->tops[i], mended) == 0)
			continue;
		strbuf_add_str(out, "  peak of ");
		group_text(s, i, out);
		strbuf_add_str(out, ": ");
		strbuf_add_size(out, pool->tops[i]);
		strbuf_add_str(out, ", all mended ");
		strbuf_add_size(out, mended);
		strbuf_add_char(out, '\n');
	}
}

static void pool_text(const struct inefficient *s, size_t index, const struct priced_pool *pool,
		      const struct analysis_view *view, struct strbuf *out)
{
	bool all = view->lines == UINT32_MAX;
	uint32_t lines = all ? view->lines : view->lines / 2;
	size_t i, shown = all ? pool->count : pool->useful;

	head_line(pool, out);
	if (all)
		steps_text(s, index, out);
	for (i = 0; i < shown && i < lines; i++)
		waste_line(s, view->replay, &pool->list[i], all ? view->frames : 0, out);
	if (shown > i)
		strbuf_addf(out, "  ... %zu more %s; report.txt has all of them\n", shown - i,
			    shown - i == 1 ? "place" : "places");
	if (!all && pool->count > pool->useful) {
		strbuf_add_str(out, "  ");
		strbuf_add_count(out, pool->count - pool->useful, "place", "places");
		strbuf_addf(out, " would not lower the peak alone: report.txt has %s\n",
			    pool->count - pool->useful == 1 ? "it" : "them");
	}
}

int inefficient_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	struct inefficient *s = state;
	struct priced_pool *pools;
	bool any = false;
	size_t i;
	int r = 0;

	if (!s->saw_access) {
		strbuf_add_str(out, "Inefficient memory: cannot be judged, no operator told which "
				    "memory it uses.\n");
		return 0;
	}
	if (price_all(s, view->replay, &pools) < 0)
		return -ENOMEM;
	for (i = 0; i < s->pool_count && r == 0; i++) {
		if (pools[i].count == 0)
			continue;
		any = true;
		r = fold(view->replay, &pools[i]);
		if (r == 0)
			pool_text(s, i, &pools[i], view, out);
	}
	if (!any)
		strbuf_add_str(out, "Inefficient memory: none found.\n");
	priced_fini(pools, s->pool_count);
	return r;
}

/* ---- for scripts ---- */

static void steps_json(const struct inefficient *s, size_t index, struct json *json)
{
	const struct waste_pool *pool = s->pools[index];
	uint32_t i;

	json_array(json, "steps");
	for (i = 0; i < WASTE_GROUPS && s->steps > 0 && !s->steps_restarted && pool->all != 0;
	     i++) {
		uint32_t first = i * s->group_steps, last = first + s->group_steps - 1;
		uint64_t mended = account_most(&s->places[pool->all - 1].account, i);

		if (first > s->steps)
			break;
		json_object(json, NULL);
		json_u64(json, "first", first);
		json_u64(json, "last", last > s->steps ? s->steps : last);
		json_u64(json, "peak_bytes", pool->tops[i]);
		json_u64(json, "saved_bytes", less_u64(pool->tops[i], mended));
		json_end(json);
	}
	json_end(json);
}

static void place_json(const struct inefficient *s, struct replay *replay,
		       const struct priced *priced, struct json *json)
{
	static const char *const keys[WASTE_KINDS] = {"early_blocks", "late_blocks", "idle_blocks"};
	struct strbuf text = {0};
	size_t k;

	json_object(json, NULL);
	place_text(replay, priced->place, &text);
	json_string(json, "text", strbuf_str(&text));
	strbuf_reset(&text);
	inefficiency_text(priced->place->found, &text);
	json_string(json, "inefficient_type", strbuf_str(&text));
	json_u64(json, "saved_bytes", priced->saved);
	json_u64(json, "step_saved_bytes", priced->step_saved);
	json_u64(json, "step", priced->step_saved == 0 ? 0 : priced->group * s->group_steps);
	json_u64(json, "blocks", priced->any_blocks);
	json_u64(json, "bytes", priced->bytes);
	for (k = 0; k < WASTE_KINDS; k++)
		json_u64(json, keys[k], priced->blocks[k]);
	json_u64(json, "first_allocation_id", priced->place->first);
	site_json(replay, priced->place->stack, "frames", json);
	json_end(json);
	strbuf_fini(&text);
}

int inefficient_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct inefficient *s = state;
	struct priced_pool *pools;
	bool all = view->lines == UINT32_MAX;
	char device[16];
	size_t i, k;

	if (price_all(s, view->replay, &pools) < 0)
		return -ENOMEM;
	json_array(json, "inefficient");
	for (i = 0; i < s->pool_count; i++) {
		const struct priced_pool *pool = &pools[i];

		if (pool->count == 0)
			continue;
		device_text(pool->usage->device, device);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(pool->usage->pool));
		json_u64(json, "peak_bytes", pool->peak);
		json_u64(json, "saved_bytes", less_u64(pool->peak, pool->mended));
		steps_json(s, i, json);
		json_array(json, "places");
		for (k = 0; k < pool->count && (all || k < JSON_PLACES); k++)
			place_json(s, view->replay, &pool->list[k], json);
		json_end(json);
		json_end(json);
	}
	json_end(json);
	priced_fini(pools, s->pool_count);
	return 0;
}
