/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owners as a tree: the parts of an owner's text are its path, and what a node holds is the sum of what lies below it. What belongs
 * to an owner that others lie below has a node of its own there. Each instant is a column. Shares of one text, which differ in the
 * layer, are one node.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/decompose_state.h"
#include "base/array.h"

struct node {
	const char *text; /* of an owner whose first `length` bytes are the path of this node */
	size_t length;
	size_t share;	      /* first of the owner that ends here; SIZE_MAX: none does */
	uint32_t parent;      /* itself: a root */
	uint32_t first, next; /* child and sibling; 0: none */
	uint32_t children;
	size_t index; /* in the document */
	bool itself;  /* what the parent holds besides its other children */
};

struct tree {
	const struct decompose *d;
	const struct replay *replay;
	uint32_t usage;
	const struct instant **columns; /* NULL: the end */
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
	const struct instant *instant = tree->columns[column];
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
	if (ARRAY_RESERVE(tree->nodes, tree->node_room, tree->node_count + 1) < 0)
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
	if (ARRAY_RESERVE(tree->nodes, tree->node_room, 1) < 0)
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

static int tree_columns(struct tree *tree)
{
	const struct decompose *d = tree->d;
	size_t i;

	tree->columns = calloc(d->instant_count + 1, sizeof(struct instant *));
	if (tree->columns == NULL)
		return -ENOMEM;
	tree->columns[tree->column_count++] = &d->instants[INSTANT_PEAK];
	tree->columns[tree->column_count++] = NULL;
	for (i = INSTANT_OOM; i < d->instant_count; i++) {
		if (d->instants[i].taken)
			tree->columns[tree->column_count++] = &d->instants[i];
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

/* What a column sums up to. */
static uint64_t column_total(const struct tree *tree, size_t column)
{
	uint64_t bytes, blocks;

	if (tree->columns[column] != NULL)
		return instant_total(tree->columns[column], tree->usage);
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

/* ---- as findings ---- */

/* What a node, one share and those that follow it, or a pool had at each instant. */
struct moments {
	uint64_t peak_bytes, end_bytes, oom_bytes;
	struct finding_range steps;
};

static struct moments moments_of(const struct tree *tree, const uint64_t *values,
				 struct findings *out)
{
	struct moments moments = {values[0], values[1], UINT64_MAX, RANGE_NONE};
	struct finding_owner_step *step = NULL;
	size_t i;

	for (i = 2; i < tree->column_count; i++) {
		const struct instant *instant = tree->columns[i];

		if (instant->kind == INSTANT_OOM) {
			moments.oom_bytes = values[i];
		} else if (instant->kind == INSTANT_STEP_PEAK) {
			step = FINDINGS_ADD_TO(out, owner_step, &moments.steps);
			if (step != NULL)
				*step = (struct finding_owner_step){instant->step, values[i],
								    UINT64_MAX};
		} else if (step != NULL) {
			step->end_bytes = values[i];
		}
	}
	return moments;
}

#define SET_MOMENTS(to, moments)                                                                   \
	((to)->peak_bytes = (moments).peak_bytes, (to)->end_bytes = (moments).end_bytes,           \
	 (to)->oom_bytes = (moments).oom_bytes, (to)->steps = (moments).steps)

static void add_node(struct tree *tree, uint32_t at, struct findings *out)
{
	struct node *node = &tree->nodes[at];
	const struct node *parent = &tree->nodes[node->parent];
	struct moments moments = moments_of(tree, values_of(tree, at), out);
	struct finding_owner_node *to, *all;
	struct strbuf path = {0};
	const char *part;

	node->index = FINDINGS_COUNT(out, owner_node);
	to = FINDINGS_ADD(out, owner_node);
	if (to == NULL)
		return;
	strbuf_add(&path, node->text, node->length);
	to->owner = findings_text(out, strbuf_str(&path));
	strbuf_fini(&path);
	part = strrchr(to->owner, '@');
	to->name = node->itself ? "itself" : part == NULL ? to->owner : part + 1;
	SET_MOMENTS(to, moments);
	to->itself = node->itself;
	to->repeats = is_passed_over(tree, at);
	to->parent = UINT64_MAX;
	if (node->parent == 0)
		return;
	all = FINDINGS(out, owner_node);
	to->parent = parent->index;
	to->depth = all[parent->index].depth + !all[parent->index].repeats;
}

/* Children of a node lie one after the other, so they come level by level. */
static int add_nodes(struct tree *tree, struct findings *out, struct finding_range *roots)
{
	uint32_t *queue = calloc(tree->node_count, sizeof(*queue)), at;
	size_t first = 0, last = 1;

	if (queue == NULL)
		return -ENOMEM;
	for (; first < last; first++) {
		struct finding_range range = {FINDINGS_COUNT(out, owner_node), 0};

		for (at = tree->nodes[queue[first]].first; at != 0; at = tree->nodes[at].next) {
			add_node(tree, at, out);
			queue[last++] = at;
			range.count++;
		}
		if (out->failed)
			break;
		if (queue[first] == 0)
			*roots = range;
		else
			FINDINGS(out, owner_node)
		[tree->nodes[queue[first]].index].children = range;
	}
	free(queue);
	return out->failed ? -ENOMEM : 0;
}

static void add_owner(const struct tree *tree, size_t share, uint64_t *values, struct findings *out,
		      struct finding_range *owners)
{
	struct finding_owner_share *to;
	struct moments moments;
	size_t i;

	for (i = 0; i < tree->column_count; i++)
		values[i] = share_value(tree, share, i);
	moments = moments_of(tree, values, out);
	to = FINDINGS_ADD_TO(out, owner_share, owners);
	if (to == NULL)
		return;
	to->owner = findings_text(out, share_text(tree->replay, &tree->d->shares[share]));
	for (; share != SIZE_MAX; share = tree->next_share[share]) {
		to->live_bytes += tree->d->shares[share].live_bytes;
		to->live_blocks += tree->d->shares[share].live_blocks;
	}
	SET_MOMENTS(to, moments);
}

static int add_pool(struct tree *tree, struct findings *out)
{
	const struct usage *usage = usage_of(tree->replay, tree->usage);
	uint64_t *values = calloc(tree->column_count, sizeof(*values));
	struct finding_owned_pool *to = FINDINGS_ADD(out, owned_pool);
	struct moments moments;
	uint32_t at;
	size_t i;
	int r;

	if (values == NULL || to == NULL) {
		free(values);
		return -ENOMEM;
	}
	to->device = usage->device;
	to->event_type = usage->pool;
	to->live_bytes = tree->d->live_bytes[tree->usage];
	for (i = 0; i < tree->column_count; i++)
		values[i] = column_total(tree, i);
	moments = moments_of(tree, values, out);
	SET_MOMENTS(to, moments);
	for (at = node_after(tree, 0); at != 0; at = node_after(tree, at)) {
		if (tree->nodes[at].share != SIZE_MAX)
			add_owner(tree, tree->nodes[at].share, values, out, &to->owners);
	}
	r = add_nodes(tree, out, &to->tree);
	free(values);
	return r;
}

int owners_judge(const struct decompose *d, struct replay *replay, struct findings *out)
{
	struct tree tree = {.d = d, .replay = replay};
	size_t share = 0;
	bool *seen = calloc(d->live_count + d->share_count + 1, sizeof(*seen));
	int r = tree_columns(&tree);

	tree.next_share = calloc(d->share_count + 1, sizeof(*tree.next_share));
	if (seen == NULL || tree.next_share == NULL)
		r = -ENOMEM;
	while (r == 0 && tree_next(&tree, &share, seen)) {
		r = tree_build(&tree);
		if (r == 0)
			r = add_pool(&tree, out);
	}
	free(seen);
	tree_fini(&tree);
	return r;
}
