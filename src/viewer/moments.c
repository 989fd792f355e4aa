/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool held at one moment, and by whom; and the same of two moments, of one run or of two. All exact. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "analysis/peak.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/map.h"
#include "viewer/groups.h"

#define MOMENT_GROUPS	  200u /* that a moment names */
#define DIFFERENCE_GROUPS 500u

struct share {
	uint64_t key;
	const char *name; /* of struct shares */
	uint64_t bytes, blocks;
	/* Of blocks that were called leaked; others of a leaking place are not judged. */
	uint64_t leaked_bytes;
};

static int larger(const void *a, const void *b)
{
	const struct share *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* What each group holds at one moment. */
struct shares {
	struct share *list;
	size_t count, room;
	struct strbuf names; /* NUL-terminated */
};

static void shares_fini(struct shares *shares)
{
	free(shares->list);
	strbuf_fini(&shares->names);
}

/* Names them and sorts them: the largest first, equal ones by name, as findings have holders of a peak. */
static int shares_settle(struct model *model, struct shares *shares, enum answer_by by)
{
	const char *name;
	size_t i;

	for (i = 0; i < shares->count; i++) {
		group_name(model, shares->list[i].key, by, &shares->names);
		strbuf_add_char(&shares->names, '\0');
	}
	if (strbuf_failed(&shares->names))
		return -ENOMEM;
	name = shares->names.data;
	for (i = 0; i < shares->count; i++) {
		shares->list[i].name = name;
		name += strlen(name) + 1;
	}
	if (shares->count > 0)
		qsort(shares->list, shares->count, sizeof(*shares->list), larger);
	return 0;
}

/* Blocks that were called leaked, by their numbers. 0 or -ENOMEM. */
static int find_leaked(struct model *model, struct map *out)
{
	const struct leaks_findings *findings = model_leaks(model);
	size_t i, k;
	int r = 0;

	for (i = 0; findings != NULL && i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];

		for (k = 0; r == 0 && place->verdict == GROWTH_LEAK && k < place->list_count; k++)
			r = map_put(out, (struct map_key){place->list[k].allocation_id, 0}, 1);
	}
	return r;
}

/* Adds blocks to their group. 0 or -ENOMEM. */
static int add_share(struct shares *out, struct map *numbers, uint64_t group, uint64_t bytes,
		     uint64_t blocks, uint64_t leaked)
{
	struct map_key key = {group, 0};
	const uint64_t *number = map_get(numbers, key);
	size_t at = number == NULL ? out->count : *number;

	if (number == NULL) {
		if (array_reserve(&out->list, &out->room, out->count + 1, sizeof(*out->list)) < 0 ||
		    map_put(numbers, key, out->count) < 0)
			return -ENOMEM;
		out->list[out->count++] = (struct share){.key = group};
	}
	out->list[at].bytes += bytes;
	out->list[at].blocks += blocks;
	out->list[at].leaked_bytes += leaked;
	return 0;
}

/* What each group holds at the moment. 0 or -ENOMEM; the caller ends `out` in either case. */
static int shares_at(struct model *model, uint32_t pool, enum answer_by by, uint64_t time_ns,
		     struct shares *out)
{
	struct map numbers = {0}, leaked = {0};
	uint64_t i;
	int r = find_leaked(model, &leaked);

	for (i = 0; i < model->block_count && r == 0; i++) {
		const struct model_block *block = model_block(model, i);
		bool leaks;

		if (block == NULL || block->pool != pool + 1 || !model_lives(block, time_ns))
			continue;
		leaks = map_get(&leaked, (struct map_key){i, 0}) != NULL;
		r = add_share(out, &numbers, group_key(model, block, by), block->size_bytes, 1,
			      leaks ? block->size_bytes : 0);
	}
	map_fini(&numbers);
	map_fini(&leaked);
	return r < 0 ? r : shares_settle(model, out, by);
}

/* The same of a peak whose blocks are no longer in the trace. */
static int shares_of_peak(struct model *model, const struct peak *peak, enum answer_by by,
			  struct shares *out)
{
	struct map numbers = {0};
	size_t i;
	int r = 0;

	for (i = 0; i < peak->place_count && r == 0; i++) {
		struct model_block holder = model_holder(&peak->places[i]);

		r = add_share(out, &numbers, group_key(model, &holder, by), peak->places[i].bytes,
			      peak->places[i].blocks, 0);
	}
	map_fini(&numbers);
	return r < 0 ? r : shares_settle(model, out, by);
}

static void say_figures(const struct model_pool *pool, uint64_t time_ns, struct json *json)
{
	static const char *const names[MODEL_FIGURES] = {"used", "reserved", "device"};
	int figure;

	for (figure = 0; figure < MODEL_FIGURES; figure++) {
		struct line_range range;

		if (line_range(&pool->lines[figure], time_ns, time_ns, &range))
			json_u64(json, names[figure], range.most);
	}
}

static void say_shares(const struct shares *shares, struct json *json)
{
	uint64_t rest = 0;
	size_t i;

	json_array(json, "groups");
	for (i = 0; i < shares->count; i++) {
		const struct share *share = &shares->list[i];

		if (i >= MOMENT_GROUPS) {
			rest += share->bytes;
			continue;
		}
		json_object(json, NULL);
		json_string(json, "name", share->name);
		json_u64(json, "bytes", share->bytes);
		json_u64(json, "blocks", share->blocks);
		if (share->leaked_bytes > 0)
			json_u64(json, "leaked_bytes", share->leaked_bytes);
		json_end(json);
	}
	json_end(json);
	json_u64(json, "others", rest);
}

static int say_dropped_peak(struct model *model, const struct model_pool *pool, enum answer_by by,
			    struct json *json)
{
	struct shares shares = {0};
	const struct peak *peak;
	struct peaks peaks;
	int r = 0;

	peak = model_dropped_peak(model, pool, &peaks);
	json_u64(json, "step", peak == NULL ? 0 : peak->step);
	json_u64(json, "used", pool->peak_bytes);
	if (peak != NULL && peak->reserved_bytes != 0)
		json_u64(json, "reserved", peak->reserved_bytes);
	if (peak != NULL)
		r = shares_of_peak(model, peak, by, &shares);
	if (r == 0)
		say_shares(&shares, json);
	shares_fini(&shares);
	peaks_fini(&peaks);
	return r;
}

static int say_moment(struct model *model, const struct model_pool *pool,
		      const struct question *question, struct json *json)
{
	struct shares shares = {0};
	int r = shares_at(model, question->pool, question->by, question->at_ns, &shares);

	json_u64(json, "step", model_step(model, question->at_ns));
	if (r == 0) {
		say_figures(pool, question->at_ns, json);
		say_shares(&shares, json);
	}
	shares_fini(&shares);
	return r;
}

void answer_moment(struct model *model, const struct question *question, struct json *json)
{
	const struct model_pool *pool = question_pool(model, question);
	int r = 0;

	json_u64(json, "at_ns", model_since(model, question->at_ns));
	if (pool == NULL)
		json_string(json, "error", "no such pool");
	else if (question->what == OF_PEAK && pool->dropped_peak)
		r = say_dropped_peak(model, pool, question->by, json);
	else
		r = say_moment(model, pool, question, json);
	if (r < 0)
		json_string(json, "error", "no memory");
}

void answer_highest(struct model *model, const struct question *question, struct json *json)
{
	const struct model_pool *pool = question_pool(model, question);
	uint64_t time_ns, bytes;

	if (pool == NULL || !line_highest(&pool->lines[MODEL_USED], question->from_ns,
					  question->to_ns, &time_ns, &bytes)) {
		json_string(json, "error", "the pool held nothing then");
		return;
	}
	json_u64(json, "at_ns", model_since(model, time_ns));
	json_u64(json, "bytes", bytes);
}

/* ---- two moments ---- */

/* A group of both sides: groups with the same name are the same one, also in another run. */
struct pair {
	char *name;
	uint64_t bytes[2], blocks[2];
};

struct pairs {
	struct pair *list;
	size_t count, room;
	struct map by_name;
};

static int add_side(struct pairs *pairs, int side, const struct shares *shares)
{
	size_t i;
	int r = 0;

	for (i = 0; i < shares->count && r == 0; i++) {
		const struct share *share = &shares->list[i];
		struct map_key key = {hash_text(share->name), strlen(share->name)};
		const uint64_t *at = map_get(&pairs->by_name, key);
		size_t number = at == NULL ? pairs->count : *at;

		if (at == NULL) {
			if (array_reserve(&pairs->list, &pairs->room, number + 1,
					  sizeof(*pairs->list)) < 0 ||
			    map_put(&pairs->by_name, key, number) < 0)
				r = -ENOMEM;
			else
				pairs->list[pairs->count++] =
					(struct pair){.name = strdup(share->name)};
		}
		if (r == 0) {
			pairs->list[number].bytes[side] += share->bytes;
			pairs->list[number].blocks[side] += share->blocks;
		}
	}
	return r;
}

static uint64_t change_of(const struct pair *pair)
{
	return pair->bytes[1] > pair->bytes[0] ? pair->bytes[1] - pair->bytes[0]
					       : pair->bytes[0] - pair->bytes[1];
}

static int by_change(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	uint64_t of_x = change_of(x), of_y = change_of(y);

	if (of_x != of_y)
		return of_x > of_y ? -1 : 1;
	if (x->bytes[0] != y->bytes[0])
		return x->bytes[0] > y->bytes[0] ? -1 : 1;
	return strcmp(x->name == NULL ? "" : x->name, y->name == NULL ? "" : y->name);
}

static void say_pair(const struct pair *pair, const char *name, struct json *json)
{
	json_array(json, NULL);
	json_string(json, NULL, name == NULL ? "" : name);
	json_u64(json, NULL, pair->bytes[0]);
	json_u64(json, NULL, pair->blocks[0]);
	json_u64(json, NULL, pair->bytes[1]);
	json_u64(json, NULL, pair->blocks[1]);
	json_end(json);
}

static void say_pairs(struct pairs *pairs, struct json *json)
{
	struct pair rest = {0};
	size_t i;
	int side;

	if (pairs->count > 0)
		qsort(pairs->list, pairs->count, sizeof(*pairs->list), by_change);
	/* name, then bytes and blocks of A and of B. */
	json_array(json, "groups");
	for (i = 0; i < pairs->count; i++) {
		if (i < DIFFERENCE_GROUPS) {
			say_pair(&pairs->list[i], pairs->list[i].name, json);
			continue;
		}
		for (side = 0; side < 2; side++) {
			rest.bytes[side] += pairs->list[i].bytes[side];
			rest.blocks[side] += pairs->list[i].blocks[side];
		}
	}
	if (pairs->count > DIFFERENCE_GROUPS)
		say_pair(&rest, "all others", json);
	json_end(json);
}

void answer_difference(struct model *model, const struct question *question, struct json *json)
{
	struct model *const models[2] = {model, question->other == NULL ? model : question->other};
	const uint32_t pools[2] = {question->pool, question->other_pool};
	const uint64_t times[2] = {question->at_ns, question->and_ns};
	static const char *const sides[2] = {"a", "b"};
	struct pairs pairs = {0};
	int side, r = 0;
	size_t i;

	for (side = 0; side < 2 && r == 0; side++) {
		struct shares shares = {0};

		if (pools[side] >= models[side]->pool_count) {
			json_string(json, "error", "no such pool");
			break;
		}
		r = shares_at(models[side], pools[side], question->by, times[side], &shares);
		if (r == 0)
			r = add_side(&pairs, side, &shares);
		shares_fini(&shares);
		json_object(json, sides[side]);
		json_u64(json, "at_ns", model_since(models[side], times[side]));
		json_u64(json, "step", model_step(models[side], times[side]));
		say_figures(&models[side]->pools[pools[side]], times[side], json);
		json_end(json);
	}
	if (r < 0)
		json_string(json, "error", "no memory");
	say_pairs(&pairs, json);
	for (i = 0; i < pairs.count; i++)
		free(pairs.list[i].name);
	free(pairs.list);
	map_fini(&pairs.by_name);
}
