/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes by call stack, as a tree: what a flame graph shows. */
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "analysis/peak.h"
#include "base/array.h"
#include "base/hash.h"
#include "base/map.h"
#include "viewer/groups.h"

#define NODES_MAX   200000u
#define SHARE_LEAST 2000u /* what is less than one part in 2,000 is not shown */

struct node {
	char *name;  /* of the function */
	char *where; /* "file:line", or NULL */
	bool user;
	uint32_t parent,
		next; /* indices, 0: none; node 0 is the root. `next` has the same key in `by_key` */
	uint64_t bytes[2]; /* of the two moments */
	uint64_t blocks[2];
};

struct tree {
	struct node *nodes;
	size_t count, room;
	struct map by_key; /* the last node of a key, see child_key() */
	bool failed;
};

/* What blocks of one place hold. */
struct held {
	uint64_t key;
	uint64_t bytes, blocks;
};

struct all_held {
	struct held *list;
	size_t count, room;
	struct map by_key;
	bool failed;
};

static void hold(struct all_held *all, uint64_t key, uint64_t bytes, uint64_t blocks)
{
	const uint64_t *at = map_get(&all->by_key, (struct map_key){key, 0});
	size_t i = at == NULL ? all->count : *at;

	if (at == NULL) {
		if (ARRAY_RESERVE(all->list, all->room, all->count + 1) < 0 ||
		    map_put(&all->by_key, (struct map_key){key, 0}, all->count) < 0) {
			all->failed = true;
			return;
		}
		all->list[all->count++] = (struct held){.key = key};
	}
	all->list[i].bytes += bytes;
	all->list[i].blocks += blocks;
}

static void hold_leaks(struct model *model, uint32_t pool, struct all_held *all)
{
	const struct leaks_findings *findings = model_leaks(model);
	size_t i, k;

	for (i = 0; findings != NULL && i < findings->place_count; i++) {
		const struct leaks_place *place = &findings->places[i];

		for (k = 0; place->verdict == GROWTH_LEAK && k < place->list_count; k++) {
			uint64_t id = place->list[k].allocation_id;
			const struct model_block *block =
				id < model->block_count ? model_block(model, id) : NULL;

			if (block != NULL && block->pool == pool + 1)
				hold(all, group_key(model, block, BY_STACK), block->size_bytes, 1);
		}
	}
}

/* Blocks of one moment; 0: all. */
static void hold_blocks(struct model *model, uint32_t pool, uint64_t time_ns, struct all_held *all)
{
	uint64_t i;

	for (i = 0; i < model->block_count; i++) {
		const struct model_block *block = model_block(model, i);

		if (block != NULL && block->pool == pool + 1 &&
		    (time_ns == 0 || model_lives(block, time_ns)))
			hold(all, group_key(model, block, BY_STACK), block->size_bytes, 1);
	}
}

/* Who held a peak whose blocks are no longer in the trace. */
static void hold_dropped(struct model *model, uint32_t pool, struct all_held *all)
{
	const struct peak *peak;
	struct peaks peaks;
	size_t i;

	peak = model_dropped_peak(model, &model->pools[pool], &peaks);
	for (i = 0; peak != NULL && i < peak->place_count; i++) {
		struct model_block holder = model_holder(&peak->places[i]);

		hold(all, group_key(model, &holder, BY_STACK), peak->places[i].bytes,
		     peak->places[i].blocks);
	}
	peaks_fini(&peaks);
}

/* One side of the question: its own run, pool and moment. */
static void hold_side(struct model *model, const struct question *question, uint32_t pool,
		      uint64_t time_ns, struct all_held *all)
{
	if (question->what == OF_LEAKS)
		hold_leaks(model, pool, all);
	else if (question->what == OF_ALL)
		hold_blocks(model, pool, 0, all);
	else if (question->what == OF_PEAK && pool < model->pool_count &&
		 model->pools[pool].dropped_peak)
		hold_dropped(model, pool, all);
	else if (time_ns != 0)
		hold_blocks(model, pool, time_ns, all);
}

/* ---- the tree ---- */

static bool same(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static struct map_key child_key(uint32_t parent, const char *name, const char *where)
{
	return (struct map_key){hash_text(name),
				(where == NULL ? 0 : hash_text(where)) ^ (uint64_t)parent << 32};
}

/* The child with this name, made if it is new; 0: the tree is full. */
static uint32_t child_of(struct tree *tree, uint32_t parent, const char *name, const char *where,
			 bool user)
{
	struct map_key key = child_key(parent, name, where);
	const uint64_t *known = map_get(&tree->by_key, key);
	uint32_t last = known == NULL ? 0 : (uint32_t)*known, at;
	struct node *node;

	for (at = last; at != 0; at = node->next) {
		node = &tree->nodes[at];
		if (node->parent == parent && same(node->name, name) && same(node->where, where))
			return at;
	}
	if (tree->count >= NODES_MAX)
		return 0;
	if (ARRAY_RESERVE(tree->nodes, tree->room, tree->count + 1) < 0 ||
	    map_put(&tree->by_key, key, tree->count) < 0) {
		tree->failed = true;
		return 0;
	}
	at = (uint32_t)tree->count++;
	node = &tree->nodes[at];
	*node = (struct node){.name = strdup(name),
			      .where = where == NULL ? NULL : strdup(where),
			      .user = user,
			      .parent = parent,
			      .next = last};
	tree->failed |= node->name == NULL;
	return at;
}

static void add_to(struct tree *tree, uint32_t at, const struct held *held, int side)
{
	tree->nodes[at].bytes[side] += held->bytes;
	tree->nodes[at].blocks[side] += held->blocks;
}

static void plant(struct model *model, struct tree *tree, const struct held *held, int side)
{
	uint32_t count = 0, at = 0, i;
	const struct stack_line *lines = NULL;
	struct strbuf text = {0};

	if (held->key <= UINT32_MAX)
		lines = replay_stack_lines(model->pass.replay, (uint32_t)held->key, &count);
	add_to(tree, 0, held, side);
	if (lines == NULL || count == 0) {
		group_name(model, held->key, BY_PLACE, &text);
		at = child_of(tree, 0, strbuf_str(&text), NULL, false);
		if (at != 0)
			add_to(tree, at, held, side);
	}
	for (i = lines == NULL ? 0 : count; i > 0; i--) {
		const struct stack_line *line = &lines[i - 1];
		const char *file = line->file != NULL ? line->file : line->module, *base;

		if (line->origin == ORIGIN_TOOL)
			continue;
		strbuf_reset(&text);
		base = file == NULL ? NULL : strrchr(file, '/');
		base = base == NULL ? file : base + 1;
		if (base != NULL && line->line != 0)
			strbuf_addf(&text, "%s:%u", base, line->line);
		else if (base != NULL)
			strbuf_add_str(&text, base);
		at = child_of(tree, at, line->function != NULL ? line->function : "?",
			      base == NULL ? NULL : strbuf_str(&text), line->origin == ORIGIN_USER);
		if (at == 0)
			break;
		add_to(tree, at, held, side);
	}
	strbuf_fini(&text);
}

static void say_tree(const struct tree *tree, bool two, struct json *json)
{
	uint64_t least = (tree->nodes[0].bytes[0] + tree->nodes[0].bytes[1]) / SHARE_LEAST;
	uint32_t *number = calloc(tree->count, sizeof(*number)), shown = 0;
	size_t i;

	json_array(json, "nodes");
	/* Parents come before their children. */
	for (i = 0; number != NULL && i < tree->count; i++) {
		const struct node *node = &tree->nodes[i];

		if (i > 0 && (node->bytes[0] + node->bytes[1] < least || number[node->parent] == 0))
			continue;
		number[i] = ++shown;
		json_array(json, NULL);
		json_i64(json, NULL, i == 0 ? -1 : (int64_t)number[node->parent] - 1);
		json_string(json, NULL, node->name == NULL ? "all" : node->name);
		json_string(json, NULL, node->where == NULL ? "" : node->where);
		json_bool(json, NULL, node->user);
		json_u64(json, NULL, node->bytes[0]);
		json_u64(json, NULL, node->blocks[0]);
		if (two) {
			json_u64(json, NULL, node->bytes[1]);
			json_u64(json, NULL, node->blocks[1]);
		}
		json_end(json);
	}
	json_end(json);
	json_u64(json, "left_out", tree->count - shown);
	free(number);
}

/* More bytes first: what finds no room any more stays in the bytes of its callers. */
static int by_bytes(const void *a, const void *b)
{
	const struct held *x = a, *y = b;

	return ORDER_DOWN(x->bytes, y->bytes) ?: ORDER_UP(x->key, y->key);
}

void answer_tree(struct model *model, const struct question *question, struct json *json)
{
	struct model *const models[2] = {model, question->other == NULL ? model : question->other};
	const uint32_t pools[2] = {question->pool, question->other_pool};
	const uint64_t times[2] = {question->at_ns, question->and_ns};
	bool two = question->other != NULL || (question->what != OF_LEAKS &&
					       question->what != OF_ALL && question->and_ns != 0);
	struct tree tree = {0};
	size_t i;
	int side;

	tree.failed = ARRAY_RESERVE(tree.nodes, tree.room, 1) < 0;
	if (!tree.failed)
		tree.nodes[tree.count++] = (struct node){0};
	for (side = 0; side < (two ? 2 : 1) && !tree.failed; side++) {
		struct all_held all = {0};

		hold_side(models[side], question, pools[side], times[side], &all);
		if (all.count > NODES_MAX / 32)
			qsort(all.list, all.count, sizeof(*all.list), by_bytes);
		for (i = 0; i < all.count; i++)
			plant(models[side], &tree, &all.list[i], side);
		tree.failed |= all.failed;
		free(all.list);
		map_fini(&all.by_key);
	}
	if (tree.count > 0)
		say_tree(&tree, two, json);
	if (tree.failed)
		json_string(json, "error", "the tree is incomplete: out of memory");
	for (i = 0; i < tree.count; i++) {
		free(tree.nodes[i].name);
		free(tree.nodes[i].where);
	}
	free(tree.nodes);
	map_fini(&tree.by_key);
}
