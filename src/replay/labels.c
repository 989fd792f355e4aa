/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/labels.h"

#include <errno.h>
#include <stdlib.h>

#include "base/word_list.h"
#include "replay/facts.h"
#include "replay/state.h"

void labels_fini(struct replay *replay)
{
	owners_fini(&replay->labels.owners);
}

int labels_owner(struct replay *replay, uint32_t context, const struct trace_event *event,
		 uint32_t *out_owner)
{
	if (MSCOPE_LIKELY(!replay->labels.followed) &&
	    (!replay->labels.labelled || !owners_has_labels(&replay->labels.owners, event->tid)))
		return 0;
	return owners_of(&replay->labels.owners, replay_context(replay, context), event->tid,
			 replay_operation(replay, event->writer, LAYER_ATEN) != NULL, out_owner);
}

const char *labels_row_text(const struct replay *replay, const struct block *block)
{
	const struct facts *known = replay->setup.known;
	const struct owners *owners = &replay->labels.owners;
	uint32_t owner = block->owner, later = 0;
	const char *text;

	if (known != NULL && known->owners != NULL)
		later = facts_get(known, block->allocation_id).owner;
	if (later != 0) {
		owners = known->owners;
		owner = later;
	}
	if (owner == 0 || (!replay->labels.shown && !owners_is_labelled(owners, owner)))
		return NULL;
	text = owners_text(owners, owner);
	return text[0] == '\0' ? NULL : text;
}

/* What was allocated after stop() is added when a window begins: nobody counts it yet. */
static void notify(struct replay *replay, const struct block *block, const struct usage *usage,
		   uint32_t before)
{
	if (!ending_is_outside(replay, block))
		replay_notify_block(replay, BLOCK_RELABELLED, block, usage, before);
}

/* Gives a block another owner. Its row came already in this pass, so a later pass has to know. */
static int label_block(struct replay *replay, struct block *block, enum label_kind kind,
		       const char *label)
{
	struct facts *facts = replay->setup.facts;
	uint32_t owner, before = block->owner;
	const struct usage *usage;
	struct fact *fact;
	int r = 0;

	owner = before;
	if (before == 0)
		r = owners_of(&replay->labels.owners, replay_context(replay, block->context), 0,
			      false, &owner);
	if (r == 0)
		r = owners_label(&replay->labels.owners, owner, kind, label, &owner);
	if (r < 0 || owner == before)
		return r;
	usage = usages_of(replay, block->context);
	if (usage == NULL)
		return -ENOMEM;
	block->owner = owner;
	notify(replay, block, usage, before);
	/* Rows do not show layers. */
	if (facts == NULL || block->hidden || kind == LABEL_LAYER)
		return 0;
	fact = facts_at(facts, block->allocation_id);
	if (fact != NULL) {
		fact->owner = owner;
		facts->owners = &replay->labels.owners;
		facts->changed = true;
	}
	return 0;
}

/* True if a label of this kind counts. The user's own count in any case. */
static bool is_followed(struct replay *replay, uint64_t kind)
{
	replay->labels.labelled |= kind == LABEL_TENSOR || kind == LABEL_PUSH;
	return replay->labels.followed || kind == LABEL_TENSOR || kind == LABEL_PUSH ||
	       kind == LABEL_POP;
}

int labels_take_label(struct replay *replay, const struct trace_event *event)
{
	const char *text;
	struct event_label label;
	const struct block *block;
	uint32_t device;

	event_label_decode(event->words, &label);
	text = texts_find(replay, event, label.text);
	if (text == NULL || !is_followed(replay, label.kind))
		return 0;
	switch (label.kind) {
	case LABEL_MODEL:
	case LABEL_TENSOR:
	case LABEL_LAYER:
		/* Its first byte or one inside: a tensor may be a part of what was allocated. */
		device = event->context == 0
				 ? DEVICE_UNKNOWN
				 : replay_context(replay, definitions_context(replay, event))
					   ->device;
		block = replay_block_at(replay, device, label.address);
		/* An address alone does not say where it is: describer() names the accelerator. */
		if (block == NULL && label.kind == LABEL_TENSOR)
			block = replay_block_at(replay, DEVICE_HOST, label.address);
		return block == NULL ? 0
				     : label_block(replay,
						   &replay->blocks.all[block - replay->blocks.all],
						   (enum label_kind)label.kind, text);
	case LABEL_PUSH:
		return owners_push(&replay->labels.owners, event->tid, text);
	case LABEL_POP:
		owners_pop(&replay->labels.owners, event->tid, text);
		return 0;
	case LABEL_CLASS_PUSH:
	case LABEL_LAYER_PUSH:
		return owners_enter(&replay->labels.owners, event->tid, (enum label_kind)label.kind,
				    text);
	case LABEL_CLASS_POP:
	case LABEL_LAYER_POP:
		owners_leave(&replay->labels.owners, event->tid, (enum label_kind)label.kind, text);
		return 0;
	default:
		return 0;
	}
}

/* ---- in a checkpoint ---- */

static uint32_t save_part(struct checkpoint *cp, const struct owners *owners, uint32_t text)
{
	return text == 0 ? 0 : checkpoint_text(cp, owners_part(owners, text));
}

static void save_open(const struct owners *owners, struct keeping *k, uint32_t tid,
		      enum label_kind kind, uint32_t text)
{
	(void)words_next(&k->words, kind);
	(void)words_next(&k->words, tid);
	(void)words_next(&k->words, save_part(k->cp, owners, text));
}

static int load_open(struct replay *replay, struct keeping *k)
{
	struct owners *owners = &replay->labels.owners;
	uint64_t kind;
	int r = 0;

	while (r == 0 && (kind = words_next(&k->words, 0)) != 0) {
		uint32_t tid = (uint32_t)words_next(&k->words, 0);
		const char *text = texts_find(replay, k->event, words_next(&k->words, 0));

		if (text == NULL || !is_followed(replay, kind))
			continue;
		if (kind == LABEL_PUSH)
			r = owners_push(owners, tid, text);
		else if (kind == LABEL_CLASS_PUSH || kind == LABEL_LAYER_PUSH)
			r = owners_enter(owners, tid, (enum label_kind)kind, text);
	}
	return r;
}

/* Labels that threads have open, outermost first. */
int labels_keep(struct replay *replay, struct keeping *k)
{
	const struct owners *owners = &replay->labels.owners;
	uint32_t depth;
	size_t t, i;

	if (words_load(&k->words))
		return load_open(replay, k);
	for (t = 0; t < owners->thread_count; t++) {
		const struct owner_thread *thread = &owners->threads[t];

		for (i = 0; i < thread->label_count; i++)
			for (depth = 0; depth < thread->depths[i]; depth++)
				save_open(owners, k, thread->tid, LABEL_PUSH, thread->labels[i]);
		for (i = 0; i < thread->classes.count; i++)
			save_open(owners, k, thread->tid, LABEL_CLASS_PUSH,
				  thread->classes.texts[i]);
		for (i = 0; i < thread->layers.count; i++)
			save_open(owners, k, thread->tid, LABEL_LAYER_PUSH,
				  thread->layers.texts[i]);
	}
	(void)words_next(&k->words, 0);
	return 0;
}

int owners_keep(struct replay *replay, struct keeping *k)
{
	struct owners *owners = &replay->labels.owners;
	size_t count = words_count(&k->words, owners->count), i, p;

	for (i = 1; i < count; i++) {
		struct owner none = {0};
		const struct owner *owner = words_load(&k->words) ? &none : &owners->all[i];
		const uint32_t texts[] = {owner->framework, owner->class, owner->user, owner->rest,
					  owner->layer};
		const char *parts[MSCOPE_COUNT(texts)];
		uint32_t added;

		for (p = 0; p < MSCOPE_COUNT(texts); p++) {
			uint64_t id = words_next(
				&k->words,
				words_load(&k->words) ? 0 : save_part(k->cp, owners, texts[p]));

			parts[p] = words_load(&k->words) ? texts_find(replay, k->event, id) : NULL;
			if (parts[p] == NULL)
				parts[p] = "";
		}
		if (!words_load(&k->words))
			continue;
		replay->labels.labelled |= parts[2][0] != '\0';
		if (owners_add(owners, parts[0], parts[1], parts[2], parts[3], parts[4], &added) <
		    0)
			return -ENOMEM;
	}
	return 0;
}

int labels_load_owner(struct replay *replay, struct block *block)
{
	const struct owners *owners = &replay->labels.owners;
	bool known = block->owner < owners->count &&
		     (replay->labels.followed || owners_is_labelled(owners, block->owner));

	if (known && block->owner != 0)
		return 0;
	block->owner = 0;
	/* Owners were not followed when the checkpoint was made. */
	return replay->labels.followed
		       ? owners_of(&replay->labels.owners, replay_context(replay, block->context),
				   0, false, &block->owner)
		       : 0;
}

/* ---- queries ---- */

int replay_decompose(struct replay *replay)
{
	struct block **blocks;
	size_t count, i;
	int r = 0;

	if (replay->labels.followed)
		return 0;
	blocks = blocks_sorted(&replay->blocks, &count);
	if (blocks == NULL)
		return -ENOMEM;
	replay->labels.followed = true;
	for (i = 0; i < count && r == 0; i++) {
		uint32_t before = blocks[i]->owner;

		/* It has a label of the user's. */
		if (before != 0)
			continue;
		r = owners_of(&replay->labels.owners, replay_context(replay, blocks[i]->context), 0,
			      false, &blocks[i]->owner);
		if (r == 0)
			notify(replay, blocks[i], replay_usage(replay, blocks[i]), before);
	}
	free(blocks);
	return r;
}

void replay_show_owners(struct replay *replay, bool show)
{
	replay->labels.shown = show;
}

const char *replay_owner_text(const struct replay *replay, uint32_t owner)
{
	return owners_text(&replay->labels.owners, owner);
}

const char *replay_owner_shown(const struct replay *replay, uint32_t owner)
{
	const struct owners *owners = &replay->labels.owners;

	return replay->labels.shown || owners_is_labelled(owners, owner)
		       ? owners_text(owners, owner)
		       : "";
}

bool replay_has_layers(const struct replay *replay)
{
	return replay->labels.owners.layered.count > 0;
}

const char *replay_owner_layer(const struct replay *replay, uint32_t owner)
{
	return owners_layer(&replay->labels.owners, owner);
}

uint32_t replay_owner_plain(const struct replay *replay, uint32_t owner)
{
	return owners_plain(&replay->labels.owners, owner);
}

enum owner_class replay_owner_class(const struct replay *replay, uint32_t owner)
{
	return owners_class(&replay->labels.owners, owner);
}

const uint32_t *replay_wanted_steps(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->setup.step_count;
	return replay->setup.steps;
}

bool replay_is_decomposed(const struct replay *replay)
{
	return replay->labels.followed;
}
