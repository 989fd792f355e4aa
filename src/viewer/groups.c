/* SPDX-License-Identifier: Apache-2.0 */
#include "viewer/groups.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "findings/findings.h"
#include "findings/say.h"
#include "base/map.h"

/*
 * A key of call sites: the lower half is the call site, or of blocks without a stack the class of their size. Above it is the owner
 * whom the name shows, 0: none; so the findings tell holders of a peak apart.
 */
#define WITHOUT_STACK (UINT64_C(1) << 63)
#define NOT_RECORDED  (UINT64_C(1) << 62) /* allocated while recording was off */
#define OWNER_AT      32u
#define OWNER_MASK    0x3fffffffu

/* The smallest class that has a name of its own. */
#define LEAST_CLASS 10u

static uint64_t size_class(uint64_t bytes)
{
	unsigned bits = bytes == 0 ? 0 : 64u - (unsigned)__builtin_clzll(bytes);

	return bits < LEAST_CLASS ? LEAST_CLASS : bits;
}

static uint64_t owner_bits(struct model *model, const struct model_block *block)
{
	return replay_owner_shown(model->pass.replay, block->owner)[0] == '\0'
		       ? 0
		       : (uint64_t)(model_owner(model, block->owner) & OWNER_MASK) << OWNER_AT;
}

uint64_t group_key(struct model *model, const struct model_block *block, enum answer_by by)
{
	uint64_t owner = by == BY_PLACE ? owner_bits(model, block) : 0;

	if (by == BY_OWNER)
		return model_owner(model, block->owner);
	if (by == BY_LAYER)
		return model_layer(model, block->owner);
	if (block->outside && (by == BY_PLACE || block->stack == 0))
		return WITHOUT_STACK | NOT_RECORDED | owner;
	if (block->stack == 0)
		return WITHOUT_STACK | size_class(block->size_bytes) | owner;
	return owner | (by == BY_PLACE ? model_place(model, block->stack)
				       : model_site(model, block->stack));
}

uint32_t group_stack(uint64_t key)
{
	return key & WITHOUT_STACK ? 0 : (uint32_t)key;
}

const char *group_owner(const struct model *model, uint64_t key)
{
	uint32_t owner = (uint32_t)(key >> OWNER_AT) & OWNER_MASK;

	return owner == 0 ? "" : replay_owner_text(model->pass.replay, owner);
}

/* Adds a path with '@' for each dot, so that layers are a tree as owners are. */
static void add_path(const char *path, size_t bytes, struct strbuf *out)
{
	size_t i;

	strbuf_add_char(out, '@');
	for (i = 0; i < bytes; i++)
		strbuf_add_char(out, path[i] == '.' ? '@' : path[i]);
}

/* "HOST@Net@layers@1@up@weight@gradients": pool, model, path, tensor, class. */
static void layer_name(const struct replay *replay, uint32_t owner, struct strbuf *out)
{
	const char *text = replay_owner_text(replay, owner);
	const char *layer = replay_owner_layer(replay, owner);
	const char *class = say_class((uint32_t)replay_owner_class(replay, owner));
	size_t part, bytes;

	strbuf_add(out, text, strcspn(text, "@"));
	if (layer[0] == '\0')
		strbuf_add_str(out, "@of no layer");
	for (part = 0; layer[0] != '\0'; part++) {
		bytes = strcspn(layer, "@");
		if (part == 1 && bytes > 0)
			add_path(layer, bytes, out);
		else if (part == 3)
			strbuf_addf(out, " (also %.*s)", (int)bytes, layer);
		else if (part != 1)
			strbuf_addf(out, "@%.*s", (int)bytes, layer);
		layer += bytes + (layer[bytes] == '@');
	}
	strbuf_addf(out, "@%s", class == NULL ? "other" : class);
}

static void add_site(struct model *model, uint64_t key, struct strbuf *out)
{
	if (key & WITHOUT_STACK)
		size_class_words(key & 127, !(key & NOT_RECORDED), out);
	else if (!model_name(model, (uint32_t)key, out))
		strbuf_add_str(out, "no stack");
}

void group_name(struct model *model, uint64_t key, enum answer_by by, struct strbuf *out)
{
	struct replay *replay = model->pass.replay;
	const char *owner;

	if (by == BY_OWNER) {
		owner = replay_owner_text(replay, (uint32_t)key);
		strbuf_add_str(out, owner[0] == '\0' ? "unknown owner" : owner);
		return;
	}
	if (by == BY_LAYER) {
		layer_name(replay, (uint32_t)key, out);
		return;
	}
	add_site(model, key, out);
	owner = group_owner(model, key);
	if (owner[0] != '\0')
		strbuf_addf(out, "  (%s)", owner);
}

void group_owned_json(struct model *model, uint64_t key, const char *name, struct json *json)
{
	const char *owner = group_owner(model, key);
	struct strbuf site = {0};

	if (owner[0] == '\0')
		return;
	add_site(model, key, &site);
	json_array(json, NULL);
	json_string(json, NULL, name);
	json_string(json, NULL, strbuf_str(&site));
	json_string(json, NULL, owner);
	json_end(json);
	strbuf_fini(&site);
}

struct weight {
	uint64_t key;
	uint64_t value;
};

static int heavier(const void *a, const void *b)
{
	const struct weight *x = a, *y = b;

	return ORDER_DOWN(x->value, y->value) ?: ORDER_UP(x->key, y->key);
}

int groups_find(struct model *model, const struct question *question, struct groups *out)
{
	/* Bytes and time in units that keep their sums in a word. */
	unsigned shift = 0;
	const struct map_slot *slot;
	struct weight *weights;
	struct map sums = {0};
	size_t cursor = 0, count = 0;
	uint64_t i;
	int r = 0;

	*out = (struct groups){0};
	while ((question->to_ns - question->from_ns) >> shift > 4095)
		shift++;
	for (i = 0; i < model->block_count && r == 0; i++) {
		const struct model_block *block = model_block(model, i);
		uint64_t time, weight;
		const uint64_t *sum;
		struct map_key key;

		if (block == NULL || block->pool != question->pool + 1)
			continue;
		time = block_within(block, question->from_ns, question->to_ns);
		if (time == 0)
			continue;
		weight = ((time >> shift) + 1) * ((block->size_bytes >> 9) + 1);
		key = (struct map_key){group_key(model, block, question->by), 0};
		sum = map_get(&sums, key);
		r = map_put(&sums, key, (sum == NULL ? 0 : *sum) + weight);
	}
	weights = r == 0 ? calloc(sums.count + 1, sizeof(*weights)) : NULL;
	if (weights == NULL)
		r = -ENOMEM;
	while (r == 0 && (slot = map_next(&sums, &cursor)) != NULL)
		weights[count++] = (struct weight){slot->key.a, slot->value};
	if (count > 0)
		qsort(weights, count, sizeof(*weights), heavier);
	for (out->count = 0; out->count < count && out->count < ANSWER_GROUPS; out->count++)
		out->keys[out->count] = weights[out->count].key;
	out->rest = count > ANSWER_GROUPS;
	free(weights);
	map_fini(&sums);
	return r;
}

uint32_t groups_number(const struct groups *groups, uint64_t key)
{
	uint32_t i;

	for (i = 0; i < groups->count && groups->keys[i] != key; i++)
		;
	return i;
}

void groups_json(struct model *model, const struct groups *groups, enum answer_by by,
		 struct json *json)
{
	struct strbuf name = {0};
	uint32_t i;

	json_array(json, "groups");
	for (i = 0; i < groups->count; i++) {
		strbuf_reset(&name);
		group_name(model, groups->keys[i], by, &name);
		json_string(json, NULL, strbuf_str(&name));
	}
	if (groups->rest)
		json_string(json, NULL, "all others");
	json_end(json);
	json_array(json, "owned");
	for (i = 0; by == BY_PLACE && i < groups->count; i++) {
		strbuf_reset(&name);
		group_name(model, groups->keys[i], by, &name);
		group_owned_json(model, groups->keys[i], strbuf_str(&name), json);
	}
	json_end(json);
	strbuf_fini(&name);
}
