/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners as a tree: the parts of an owner's text are its path, and what a node holds is the sum of what lies below it. What belongs
 * to an owner that others lie below has a node of its own there. The text leaves out nodes that only repeat a sum. Each instant
 * is a column. Shares of one text, which differ in the layer, are one node.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/decompose_state.h"
#include "base/array.h"
#include "base/shown.h"

/* One column of the table. */
struct tree_column {
	const struct instant *instant; /* NULL: the end */
	char title[32];
};

struct node {
	const char *text; /* of an owner whose first `length` bytes are the path of this node */
	size_t length;
	size_t share;	      /* first of the owner that ends here; SIZE_MAX: none does */
	uint32_t parent;      /* itself: a root */
	uint32_t first, next; /* child and sibling; 0: none */
	uint32_t children;
	uint32_t depth; /* of lines above it that contain it */
	bool itself;	/* what the parent holds besides its other children */
};

struct tree {
	const struct decompose *d;
	const struct replay *replay;
	uint32_t usage;
	struct tree_column *columns;
	size_t column_count;
	struct node *nodes; /* [0] contains all others */
	size_t node_count, node_room;
	uint64_t *values;   /* of each node: one for each column */
	size_t *next_share; /* of each share: the next one of its node, SIZE_MAX: none */
};

/* ---- building ---- */

static const struct usage *usage_of(const struct replay *replay, uint32_t index)
{
	size_t count;

	return &replay_usages(replay, &count)[index];
}

static const char *share_text(const struct replay *replay, const struct share *share)
{
	const char *text = replay_owner_text(replay, share->owner);

	return text[0] != '\0' ? text : pool_event_type(usage_of(replay, share->usage)->pool);
}

/* Of a share and all that follow it in their node. */
static uint64_t share_value(const struct tree *tree, size_t share, size_t column)
{
	const struct instant *instant = tree->columns[column].instant;
	uint64_t sum = 0;

	for (; share != SIZE_MAX; share = tree->next_share[share])
		sum += instant == NULL ? tree->d->shares[share].end_bytes
				       : instant_share(instant, share);
	return sum;
}

/* The child of a node with this path, new or known; 0: no memory. */
static uint32_t child_of(struct tree *tree, uint32_t parent, const char *text, size_t length)
{
	uint32_t at;

	for (at = tree->nodes[parent].first; at != 0; at = tree->nodes[at].next) {
		if (tree->nodes[at].length == length &&
		    memcmp(tree->nodes[at].text, text, length) == 0)
			return at;
	}
	if (array_reserve(&tree->nodes, &tree->node_room, tree->node_count + 1,
			  sizeof(*tree->nodes)) < 0)
		return 0;
	at = (uint32_t)tree->node_count++;
	tree->nodes[at] = (struct node){.text = text,
					.length = length,
					.share = SIZE_MAX,
					.parent = parent,
					.next = tree->nodes[parent].first};
	tree->nodes[parent].first = at;
	tree->nodes[parent].children++;
	return at;
}

static int add_share(struct tree *tree, size_t share)
{
	const char *text = share_text(tree->replay, &tree->d->shares[share]), *end = text;
	uint32_t at = 0;

	while (*end != '\0') {
		end = strchr(end + 1, '@');
		if (end == NULL)
			end = text + strlen(text);
		at = child_of(tree, at, text, (size_t)(end - text));
		if (at == 0)
			return -ENOMEM;
	}
	tree->next_share[share] = tree->nodes[at].share;
	tree->nodes[at].share = share;
	return 0;
}

static uint64_t *values_of(const struct tree *tree, uint32_t node)
{
	return &tree->values[node * tree->column_count];
}

static int compare_nodes(const struct tree *tree, uint32_t a, uint32_t b)
{
	const struct node *x = &tree->nodes[a], *y = &tree->nodes[b];
	size_t i, shorter = x->length < y->length ? x->length : y->length;
	int order;

	for (i = 0; i < tree->column_count; i++) {
		uint64_t p = values_of(tree, a)[i], q = values_of(tree, b)[i];

		if (p != q)
			return p > q ? -1 : 1;
	}
	order = memcmp(x->text, y->text, shorter);
	return order != 0 ? order : x->length < y->length ? -1 : 1;
}

/* Puts the children of a node in order: the largest first. Few nodes have many. */
static void sort_children(struct tree *tree, uint32_t parent)
{
	uint32_t sorted = 0, at = tree->nodes[parent].first, next, *to;

	for (; at != 0; at = next) {
		next = tree->nodes[at].next;
		for (to = &sorted; *to != 0 && compare_nodes(tree, *to, at) < 0;
		     to = &tree->nodes[*to].next)
			;
		tree->nodes[at].next = *to;
		*to = at;
	}
	tree->nodes[parent].first = sorted;
}

static void tree_fini(struct tree *tree)
{
	free(tree->columns);
	free(tree->nodes);
	free(tree->values);
	free(tree->next_share);
}

/* Everything that was ever held of one usage. 0 or -ENOMEM. */
static int tree_build(struct tree *tree)
{
	size_t i, column, count;

	tree->node_count = 0;
	if (array_reserve(&tree->nodes, &tree->node_room, 1, sizeof(*tree->nodes)) < 0)
		return -ENOMEM;
	tree->nodes[tree->node_count++] = (struct node){.text = "", .share = SIZE_MAX};
	for (i = 0; i < tree->d->share_count; i++) {
		if (tree->d->shares[i].usage == tree->usage && add_share(tree, i) < 0)
			return -ENOMEM;
	}
	count = tree->node_count;
	for (i = 0; i < count; i++) {
		struct node *node = &tree->nodes[i];
		size_t share = node->share;
		uint32_t itself;

		if (share == SIZE_MAX || node->children == 0)
			continue;
		node->share = SIZE_MAX;
		itself = child_of(tree, (uint32_t)i, node->text, node->length);
		if (itself == 0)
			return -ENOMEM;
		tree->nodes[itself].share = share;
		tree->nodes[itself].itself = true;
	}
	free(tree->values);
	tree->values = calloc(tree->node_count, tree->column_count * sizeof(*tree->values));
	if (tree->values == NULL)
		return -ENOMEM;
	/* Children come behind their parents. */
	for (i = tree->node_count; i-- > 0;) {
		const struct node *node = &tree->nodes[i];

		for (column = 0; column < tree->column_count; column++) {
			uint64_t *value = &values_of(tree, (uint32_t)i)[column];

			if (node->share != SIZE_MAX)
				*value += share_value(tree, node->share, column);
			if (i > 0)
				values_of(tree, node->parent)[column] += *value;
		}
	}
	for (i = 0; i < tree->node_count; i++)
		sort_children(tree, (uint32_t)i);
	return 0;
}

static struct tree_column *add_column(struct tree *tree, const struct instant *instant)
{
	struct tree_column *column = &tree->columns[tree->column_count++];

	column->instant = instant;
	return column;
}

static int tree_columns(struct tree *tree)
{
	const struct decompose *d = tree->d;
	size_t i;

	tree->columns = calloc(d->instant_count + 1, sizeof(*tree->columns));
	if (tree->columns == NULL)
		return -ENOMEM;
	strcpy(add_column(tree, &d->instants[INSTANT_PEAK])->title, "at its peak");
	strcpy(add_column(tree, NULL)->title, "at the end");
	for (i = INSTANT_OOM; i < d->instant_count; i++) {
		const struct instant *instant = &d->instants[i];
		struct tree_column *column;

		if (!instant->taken)
			continue;
		column = add_column(tree, instant);
		if (instant->kind == INSTANT_OOM)
			strcpy(column->title, "out of memory");
		else
			(void)snprintf(column->title, sizeof(column->title), "step %u %s",
				       instant->step,
				       instant->kind == INSTANT_STEP_PEAK ? "most" : "end");
	}
	return 0;
}

/* Begins with the next usage that has shares. False: there is none. */
static bool tree_next(struct tree *tree, size_t *share, bool *seen)
{
	const struct decompose *d = tree->d;

	for (; *share < d->share_count; (*share)++) {
		tree->usage = d->shares[*share].usage;
		if (!seen[tree->usage]) {
			seen[tree->usage] = true;
			return true;
		}
	}
	return false;
}

/* Calls `show` for each usage in turn. 0 or -ENOMEM. */
static int each_tree(struct decompose *d, struct replay *replay,
		     int (*show)(struct tree *tree, void *arg), void *arg)
{
	struct tree tree = {.d = d, .replay = replay};
	size_t share = 0;
	bool *seen;
	int r = decompose_prepare(d, replay);

	if (r == 0)
		r = tree_columns(&tree);
	tree.next_share = calloc(d->share_count + 1, sizeof(*tree.next_share));
	seen = calloc(d->live_count + d->share_count + 1, sizeof(*seen));
	if (seen == NULL || tree.next_share == NULL)
		r = -ENOMEM;
	while (r == 0 && tree_next(&tree, &share, seen)) {
		r = tree_build(&tree);
		if (r == 0)
			r = show(&tree, arg);
	}
	free(seen);
	tree_fini(&tree);
	return r;
}

/* What a column sums up to. */
static uint64_t column_total(const struct tree *tree, size_t column)
{
	uint64_t bytes, blocks;

	if (tree->columns[column].instant != NULL)
		return instant_total(tree->columns[column].instant, tree->usage);
	replay_usage_at_end(tree->replay, usage_of(tree->replay, tree->usage), &bytes, &blocks);
	return bytes;
}

/* The next node in reading order: child, sibling, sibling of what contains it; 0: none. */
static uint32_t node_after(const struct tree *tree, uint32_t at)
{
	if (tree->nodes[at].first != 0)
		return tree->nodes[at].first;
	while (at != 0 && tree->nodes[at].next == 0)
		at = tree->nodes[at].parent;
	return at == 0 ? 0 : tree->nodes[at].next;
}

/* It only repeats what its one child says, or what contains it. */
static bool is_passed_over(const struct tree *tree, uint32_t at)
{
	const struct node *node = &tree->nodes[at];

	return node->share == SIZE_MAX &&
	       (node->children == 1 || memcmp(values_of(tree, at), values_of(tree, node->parent),
					      tree->column_count * sizeof(*tree->values)) == 0);
}

/* ---- text ---- */

struct text_arg {
	struct strbuf *out;
	uint32_t lines;
};

static void add_values(const struct tree *tree, const uint64_t *values, struct strbuf *out)
{
	struct strbuf size = {0};
	size_t i;

	strbuf_add_char(out, ' ');
	for (i = 0; i < tree->column_count; i++) {
		strbuf_reset(&size);
		strbuf_add_size(&size, values[i]);
		strbuf_addf(out, " %*s", i < 2 ? 12 : 14, strbuf_str(&size));
	}
	strbuf_add_str(out, "  ");
	strbuf_fini(&size);
}

static bool is_empty(const struct tree *tree, uint32_t node)
{
	size_t i;

	for (i = 0; i < tree->column_count; i++) {
		if (values_of(tree, node)[i] != 0)
			return false;
	}
	return true;
}

static int show_text(struct tree *tree, void *arg)
{
	const struct text_arg *shown = arg;
	const struct usage *usage = usage_of(tree->replay, tree->usage);
	uint64_t *sums = calloc(tree->column_count, sizeof(*sums));
	uint32_t at, lines = 0, hidden = 0;
	struct strbuf *out = shown->out;
	char device[16];
	size_t i;

	if (sums == NULL)
		return -ENOMEM;
	device_text(usage->device, device);
	strbuf_addf(out, "%s memory of %s%s by owner\n ", pool_event_type(usage->pool),
		    usage->device == DEVICE_HOST ? "" : "device ", device);
	for (i = 0; i < tree->column_count; i++)
		strbuf_addf(out, " %*s", i < 2 ? 12 : 14, tree->columns[i].title);
	strbuf_add_char(out, '\n');
	for (at = node_after(tree, 0); at != 0; at = node_after(tree, at)) {
		struct node *node = &tree->nodes[at];
		const struct node *parent = &tree->nodes[node->parent];

		node->depth =
			parent->depth + (node->parent != 0 && !is_passed_over(tree, node->parent));
		if (is_passed_over(tree, at) || is_empty(tree, at))
			continue;
		if (lines >= shown->lines) {
			hidden += node->share != SIZE_MAX;
			for (i = 0; node->share != SIZE_MAX && i < tree->column_count; i++)
				sums[i] += share_value(tree, node->share, i);
			continue;
		}
		lines++;
		add_values(tree, values_of(tree, at), out);
		strbuf_addf(out, "%*s", (int)(2 * node->depth), "");
		strbuf_add_shown(out, node->text, node->length);
		if (node->itself)
			strbuf_add_str(out, " itself");
		strbuf_add_char(out, '\n');
	}
	if (hidden > 0) {
		add_values(tree, sums, out);
		strbuf_addf(out, "%u further %s; report.txt has all of them\n", hidden,
			    hidden == 1 ? "owner" : "owners");
	}
	for (i = 0; i < tree->column_count; i++)
		sums[i] = column_total(tree, i);
	add_values(tree, sums, out);
	strbuf_add_str(out, "total\n");
	free(sums);
	return 0;
}

int decompose_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	struct text_arg arg = {out, view->lines};
	int r = each_tree(state, view->replay, show_text, &arg);

	if (r == 0)
		layers_text(view, out);
	return r;
}

/* ---- JSON ---- */

static uint64_t value_at(const struct tree *tree, const uint64_t *values, size_t share,
			 size_t column)
{
	return values != NULL ? values[column] : share_value(tree, share, column);
}

/* Bytes at each instant, of a node or of one share. */
static void json_instants(const struct tree *tree, const uint64_t *values, size_t share,
			  struct json *json)
{
	size_t i;
	bool steps = false;

	json_u64(json, "peak_bytes", value_at(tree, values, share, 0));
	json_u64(json, "end_bytes", value_at(tree, values, share, 1));
	for (i = 2; i < tree->column_count; i++) {
		const struct instant *instant = tree->columns[i].instant;
		uint64_t value = value_at(tree, values, share, i);

		if (instant->kind == INSTANT_OOM) {
			json_u64(json, "oom_bytes", value);
			continue;
		}
		if (!steps)
			json_array(json, "steps");
		steps = true;
		if (instant->kind == INSTANT_STEP_PEAK) {
			json_object(json, NULL);
			json_u64(json, "step", instant->step);
			json_u64(json, "peak_bytes", value);
			if (i + 1 < tree->column_count &&
			    tree->columns[i + 1].instant->kind == INSTANT_STEP_END)
				json_u64(json, "end_bytes", value_at(tree, values, share, i + 1));
			json_end(json);
		}
	}
	if (steps)
		json_end(json);
}

static void json_live(const struct tree *tree, size_t share, struct json *json)
{
	uint64_t bytes = 0, blocks = 0;

	for (; share != SIZE_MAX; share = tree->next_share[share]) {
		bytes += tree->d->shares[share].live_bytes;
		blocks += tree->d->shares[share].live_blocks;
	}
	json_u64(json, "live_bytes", bytes);
	json_u64(json, "live_blocks", blocks);
}

#define NODE_LEVELS 8 /* more than a node without its children opens in JSON */

static void json_node(const struct tree *tree, uint32_t at, struct json *json)
{
	const struct node *node = &tree->nodes[at];
	const char *slash = node->text + node->length;
	struct strbuf path = {0};
	uint32_t child;

	while (slash > node->text && slash[-1] != '@')
		slash--;
	strbuf_add(&path, node->text, node->length);
	json_object(json, NULL);
	json_string(json, "name",
		    node->itself ? "itself" : strbuf_str(&path) + (slash - node->text));
	json_string(json, "owner", strbuf_str(&path));
	strbuf_fini(&path);
	json_instants(tree, values_of(tree, at), 0, json);
	json_array(json, "children");
	/* The list of owners has them all, however deep. */
	for (child = json->depth + NODE_LEVELS < JSON_DEPTH_MAX ? node->first : 0; child != 0;
	     child = tree->nodes[child].next)
		json_node(tree, child, json);
	json_end(json);
	json_end(json);
}

static int show_json(struct tree *tree, void *arg)
{
	struct json *json = arg;
	const struct usage *usage = usage_of(tree->replay, tree->usage);
	uint64_t *totals = calloc(tree->column_count, sizeof(*totals));
	uint32_t at;
	size_t i;
	char device[16];

	if (totals == NULL)
		return -ENOMEM;
	for (i = 0; i < tree->column_count; i++)
		totals[i] = column_total(tree, i);
	device_text(usage->device, device);
	json_object(json, NULL);
	json_string(json, "device", device);
	json_string(json, "event_type", pool_event_type(usage->pool));
	json_u64(json, "live_bytes", tree->d->live_bytes[tree->usage]);
	json_instants(tree, totals, 0, json);
	json_array(json, "owners");
	for (at = node_after(tree, 0); at != 0; at = node_after(tree, at)) {
		const struct node *node = &tree->nodes[at];

		if (node->share == SIZE_MAX)
			continue;
		json_object(json, NULL);
		json_string(json, "owner", share_text(tree->replay, &tree->d->shares[node->share]));
		json_live(tree, node->share, json);
		json_instants(tree, NULL, node->share, json);
		json_end(json);
	}
	json_end(json);
	json_array(json, "tree");
	for (at = tree->nodes[0].first; at != 0; at = tree->nodes[at].next)
		json_node(tree, at, json);
	json_end(json);
	json_end(json);
	free(totals);
	return 0;
}

int decompose_json(void *state, const struct analysis_view *view, struct json *json)
{
	int r;

	json_array(json, "decompose");
	r = each_tree(state, view->replay, show_json, json);
	json_end(json);
	return r;
}
