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
#include "findings/differ.h"
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

	return ORDER_DOWN(x->bytes, y->bytes) ?: strcmp(x->name, y->name);
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
		if (ARRAY_RESERVE(out->list, out->room, out->count + 1) < 0 ||
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

static void say_shares(struct model *model, const struct shares *shares, enum answer_by by,
		       struct json *json)
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
	json_array(json, "owned");
	for (i = 0; by == BY_PLACE && i < shares->count && i < MOMENT_GROUPS; i++)
		group_owned_json(model, shares->list[i].key, shares->list[i].name, json);
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
		say_shares(model, &shares, by, json);
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
		say_shares(model, &shares, question->by, json);
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

/* A group of both sides. */
struct both {
	const char *name;    /* as the later side says it; borrowed */
	struct model *model; /* of that side */
	uint64_t key;
	int64_t bytes[2];
	uint64_t blocks[2];
};

struct couple {
	struct model *models[2];
	struct shares shares[2];
	struct differ differ;
	struct both *list; /* by the line of `differ` */
	size_t room;
};

/* Groups of one run are the same by their keys; of two runs call sites by their stacks, and others by their names. */
static struct differ_keys keys_of(const struct couple *couple, int side, const struct share *share,
				  enum answer_by by)
{
	struct model *model = couple->models[side];
	uint32_t stack = by == BY_OWNER || by == BY_LAYER ? 0 : group_stack(share->key);
	struct differ_keys keys = {share->key, share->key};

	if (couple->models[0] == couple->models[1])
		return keys;
	keys.exact = keys.loose =
		hash_text(stack == 0 ? share->name : group_owner(model, share->key));
	differ_add_stack(&keys, model->pass.replay, stack);
	return keys;
}

static int add_side(struct couple *couple, int side, enum answer_by by)
{
	const struct shares *shares = &couple->shares[side];
	size_t i;
	int r = 0;

	for (i = 0; i < shares->count && r == 0; i++) {
		const struct share *share = &shares->list[i];
		uint32_t line;

		r = differ_add(&couple->differ, side, 0, keys_of(couple, side, share, by), &line);
		if (r < 0 || ARRAY_RESERVE(couple->list, couple->room, couple->differ.count) < 0)
			return -ENOMEM;
		if (!couple->differ.lines[line].there[!side])
			couple->list[line] = (struct both){0};
		couple->differ.lines[line].alike[side][0] = share->bytes;
		couple->differ.lines[line].alike[side][1] = share->blocks;
		couple->list[line].name = share->name;
		couple->list[line].model = couple->models[side];
		couple->list[line].key = share->key;
		couple->list[line].bytes[side] = (int64_t)share->bytes;
		couple->list[line].blocks[side] = share->blocks;
	}
	return r;
}

static void add_figures(struct both *to, const struct both *from)
{
	int side;

	for (side = 0; side < 2; side++) {
		to->bytes[side] += from->bytes[side];
		to->blocks[side] += from->blocks[side];
	}
}

/* Those that are one become one. How many are left; negative: no memory. */
static int join_sides(struct couple *couple, size_t *out_count)
{
	size_t i, count = 0;
	int r = differ_pair(&couple->differ);

	for (i = 0; i < couple->differ.count && r == 0; i++) {
		uint32_t line = differ_line(&couple->differ, (uint32_t)i);

		/* What moved has the name of the later side. */
		if (line != i) {
			couple->list[line].name = couple->list[i].name;
			couple->list[line].model = couple->list[i].model;
			couple->list[line].key = couple->list[i].key;
		}
	}
	for (i = 0; i < couple->differ.count && r == 0; i++)
		r = differ_join(&couple->differ, (uint32_t)i, couple->list[i].name);
	for (i = couple->differ.count; i-- > 0 && r == 0;) {
		uint32_t line = differ_line(&couple->differ, (uint32_t)i);

		if (line != i)
			add_figures(&couple->list[line], &couple->list[i]);
	}
	for (i = 0; i < couple->differ.count && r == 0; i++) {
		if (differ_line(&couple->differ, (uint32_t)i) == i)
			couple->list[count++] = couple->list[i];
	}
	*out_count = count;
	return r;
}

static int by_change(const void *a, const void *b)
{
	const struct both *x = a, *y = b;
	int order = differ_order(x->bytes, y->bytes);

	return order != 0 ? order : strcmp(x->name, y->name);
}

static void say_both(const struct both *both, const char *name, struct json *json)
{
	int side;

	json_array(json, NULL);
	json_string(json, NULL, name);
	for (side = 0; side < 2; side++) {
		json_i64(json, NULL, both->bytes[side]);
		json_u64(json, NULL, both->blocks[side]);
	}
	json_end(json);
}

static void say_differences(struct both *list, size_t count, enum answer_by by, struct json *json)
{
	struct both rest = {0};
	size_t i;

	if (count > 0)
		qsort(list, count, sizeof(*list), by_change);
	/* name, then bytes and blocks of A and of B. */
	json_array(json, "groups");
	for (i = 0; i < count; i++) {
		if (i < DIFFERENCE_GROUPS)
			say_both(&list[i], list[i].name, json);
		else
			add_figures(&rest, &list[i]);
	}
	if (count > DIFFERENCE_GROUPS)
		say_both(&rest, "all others", json);
	json_end(json);
	json_array(json, "owned");
	for (i = 0; by == BY_PLACE && i < count && i < DIFFERENCE_GROUPS; i++)
		group_owned_json(list[i].model, list[i].key, list[i].name, json);
	json_end(json);
}

void answer_difference(struct model *model, const struct question *question, struct json *json)
{
	struct couple couple = {
		.models = {model, question->other == NULL ? model : question->other}};
	const uint32_t pools[2] = {question->pool, question->other_pool};
	const uint64_t times[2] = {question->at_ns, question->and_ns};
	static const char *const sides[2] = {"a", "b"};
	size_t count = 0;
	int side, r = 0;

	for (side = 0; side < 2 && r == 0; side++) {
		struct model *of = couple.models[side];

		if (pools[side] >= of->pool_count) {
			json_string(json, "error", "no such pool");
			break;
		}
		r = shares_at(of, pools[side], question->by, times[side], &couple.shares[side]);
		if (r == 0)
			r = add_side(&couple, side, question->by);
		json_object(json, sides[side]);
		json_u64(json, "at_ns", model_since(of, times[side]));
		json_u64(json, "step", model_step(of, times[side]));
		say_figures(&of->pools[pools[side]], times[side], json);
		json_end(json);
	}
	if (r == 0)
		r = join_sides(&couple, &count);
	if (r < 0)
		json_string(json, "error", "no memory");
	say_differences(couple.list, r < 0 ? 0 : count, question->by, json);
	free(couple.list);
	differ_fini(&couple.differ);
	for (side = 0; side < 2; side++)
		shares_fini(&couple.shares[side]);
}
