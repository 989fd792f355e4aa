/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/owners.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"

#define TEXT_ATEN "ops@aten"

/* Not a class: the graph has saved the block. Made in a forward pass it is an activation, made outside of it an input. */
#define TEXT_SAVED	"model@saved"
#define TEXT_ACTIVATION "model@activation"
#define TEXT_INPUT	"model@input"

static const struct class_row {
	const char *text;
	uint32_t rank;
} class_rows[OWNER_CLASSES] = {
#define CLASS(name, text, rank) [CLASS_##name] = {text, rank},
#include "replay/classes.def"
#undef CLASS
};

static const char *const modules[] = {
#define CANN_MODULE(number, text) [number] = text,
#include "trace/cann_modules.def"
#undef CANN_MODULE
};

const char *owners_class_text(enum owner_class kind)
{
	return class_rows[kind].text;
}

void owners_fini(struct owners *owners)
{
	size_t i;

	for (i = 0; i < owners->thread_count; i++) {
		free(owners->threads[i].labels);
		free(owners->threads[i].depths);
		free(owners->threads[i].classes.texts);
		free(owners->threads[i].layers.texts);
	}
	strbuf_fini(&owners->texts);
	strbuf_fini(&owners->scratch);
	map_fini(&owners->text_ids);
	map_fini(&owners->frameworks);
	map_fini(&owners->ids);
	map_fini(&owners->layered);
	map_fini(&owners->by_tid);
	free(owners->all);
	free(owners->threads);
	*owners = (struct owners){0};
}

const char *owners_part(const struct owners *owners, uint32_t text)
{
	return text == 0 ? "" : owners->texts.data + text - 1;
}

const char *owners_text(const struct owners *owners, uint32_t owner)
{
	return owner < owners->count ? owners_part(owners, owners->all[owner].text) : "";
}

const char *owners_layer(const struct owners *owners, uint32_t owner)
{
	return owner < owners->count ? owners_part(owners, owners->all[owner].layer) : "";
}

uint32_t owners_plain(const struct owners *owners, uint32_t owner)
{
	return owner < owners->count ? owners->all[owner].plain : owner;
}

enum owner_class owners_class(const struct owners *owners, uint32_t owner)
{
	return owner < owners->count ? owners->all[owner].kind : CLASS_none;
}

/* Number of a text, new or known; "" is 0. */
static int intern(struct owners *owners, const char *text, uint32_t *out)
{
	struct map_key key = {HASH_BEGIN, 0};
	const uint64_t *known;
	const char *c;
	uint32_t number;

	if (text[0] == '\0') {
		*out = 0;
		return 0;
	}
	for (c = text; *c != '\0'; c++) {
		key.a = hash_add_byte(key.a, (uint8_t)*c);
		key.b = key.b * 31 + (uint8_t)*c;
	}
	known = map_get(&owners->text_ids, key);
	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	number = (uint32_t)owners->texts.length + 1;
	strbuf_add(&owners->texts, text, (size_t)(c - text) + 1);
	if (strbuf_failed(&owners->texts))
		return -ENOMEM;
	*out = number;
	return map_put(&owners->text_ids, key, number);
}

/* A label as it is shown: control characters are spelled out, so that a label stays on its line. */
static int intern_label(struct owners *owners, const char *label, uint32_t *out)
{
	const char *c;

	strbuf_reset(&owners->scratch);
	for (c = label; *c != '\0'; c++) {
		if ((uint8_t)*c < 0x20 || *c == 0x7f)
			strbuf_addf(&owners->scratch, "\\x%02x", (unsigned int)(uint8_t)*c);
		else
			strbuf_add_char(&owners->scratch, *c);
	}
	return strbuf_failed(&owners->scratch) ? -ENOMEM
					       : intern(owners, strbuf_str(&owners->scratch), out);
}

static void join(struct owners *owners, uint32_t text)
{
	if (text == 0)
		return;
	if (owners->scratch.length > 0)
		strbuf_add_char(&owners->scratch, '@');
	strbuf_add_str(&owners->scratch, owners_part(owners, text));
}

static bool begins_with_class(const char *text, const char *class)
{
	size_t length = strlen(class);

	return strncmp(text, class, length) == 0 && (text[length] == '\0' || text[length] == '@');
}

static enum owner_class class_of(const char *text)
{
	int class;

	for (class = CLASS_none + 1; class < OWNER_CLASSES; class ++) {
		if (begins_with_class(text, class_rows[class].text))
			return (enum owner_class) class;
	}
	return CLASS_none;
}

static int plain_number_of(struct owners *owners, struct owner owner, uint32_t *out)
{
	struct map_key key = {(uint64_t)owner.framework << 32 | owner.class,
			      (uint64_t)owner.user << 32 | owner.rest};
	const uint64_t *known = map_get(&owners->ids, key);
	int r;

	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	r = ARRAY_RESERVE(owners->all, owners->room, owners->count + 2);
	if (r < 0)
		return r;
	if (owners->count == 0)
		owners->all[owners->count++] = (struct owner){0};
	strbuf_reset(&owners->scratch);
	join(owners, owner.framework);
	join(owners, owner.class);
	join(owners, owner.user);
	join(owners, owner.rest);
	if (strbuf_failed(&owners->scratch))
		return -ENOMEM;
	r = intern(owners, strbuf_str(&owners->scratch), &owner.text);
	if (r == 0)
		r = map_put(&owners->ids, key, owners->count);
	if (r < 0)
		return r;
	owner.kind = class_of(owners_part(owners, owner.class));
	owner.layer = 0;
	owner.plain = *out = (uint32_t)owners->count;
	owners->all[owners->count++] = owner;
	return 0;
}

static int number_of(struct owners *owners, struct owner owner, uint32_t *out)
{
	struct map_key key;
	const uint64_t *known;
	uint32_t plain;
	int r = plain_number_of(owners, owner, &plain);

	if (r < 0 || owner.layer == 0) {
		if (r == 0)
			*out = plain;
		return r;
	}
	key = (struct map_key){plain, owner.layer};
	known = map_get(&owners->layered, key);
	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	r = ARRAY_RESERVE(owners->all, owners->room, owners->count + 1);
	if (r == 0)
		r = map_put(&owners->layered, key, owners->count);
	if (r < 0)
		return r;
	*out = (uint32_t)owners->count;
	owners->all[owners->count] = owners->all[plain];
	owners->all[owners->count++].layer = owner.layer;
	return 0;
}

/* Host memory that a driver or runtime pinned has no owner with a name. */
static const char *framework_name(const struct context *context)
{
	switch (context->pool) {
	case POOL_hal:
		return vendor_row(context->vendor)->owner;
	case POOL_pta:
	case POOL_pta_workspace:
	case POOL_atb:
	case POOL_mindspore:
	case POOL_host: {
		static const char *const names[] = {
#define POOL(number, name, event_type, meaning) [number] = event_type,
#include "trace/pools.def"
#undef POOL
		};

		return names[context->pool];
	}
	default:
		return "";
	}
}

static int framework_of(struct owners *owners, const struct context *context, uint32_t *out)
{
	struct map_key key = {(uint64_t)context->vendor << 8 | context->pool, context->module};
	const uint64_t *known = map_get(&owners->frameworks, key);
	const char *name = framework_name(context);
	int r;

	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	strbuf_reset(&owners->scratch);
	strbuf_add_str(&owners->scratch, name);
	if (context->pool == POOL_hal && strchr(name, '@') != NULL)
		strbuf_add_str(&owners->scratch, context->module < MSCOPE_COUNT(modules)
							 ? modules[context->module]
							 : "UNKNOWN");
	if (strbuf_failed(&owners->scratch))
		return -ENOMEM;
	r = intern(owners, strbuf_str(&owners->scratch), out);
	return r < 0 ? r : map_put(&owners->frameworks, key, *out);
}

static struct owner_thread *find_thread(const struct owners *owners, uint32_t tid)
{
	const uint64_t *known = map_get(&owners->by_tid, (struct map_key){tid, 0});

	return known == NULL ? NULL : &owners->threads[*known];
}

static struct owner_thread *thread_at(struct owners *owners, uint32_t tid)
{
	struct owner_thread *thread = find_thread(owners, tid);

	if (thread != NULL)
		return thread;
	if (ARRAY_RESERVE(owners->threads, owners->thread_room, owners->thread_count + 1) < 0 ||
	    map_put(&owners->by_tid, (struct map_key){tid, 0}, owners->thread_count) < 0)
		return NULL;
	thread = &owners->threads[owners->thread_count++];
	*thread = (struct owner_thread){.tid = tid};
	return thread;
}

int owners_of(struct owners *owners, const struct context *context, uint32_t tid, bool aten,
	      uint32_t *out_owner)
{
	const struct owner_thread *thread;
	struct owner owner = {0};
	size_t i;
	int r = framework_of(owners, context, &owner.framework);

	if (r < 0)
		return r;
	if (owner.framework == 0) {
		*out_owner = 0;
		return 0;
	}
	thread = find_thread(owners, tid);
	if (context->pool == POOL_pta || context->pool == POOL_host) {
		if (thread != NULL && thread->layers.count > 0)
			owner.layer = thread->layers.texts[thread->layers.count - 1];
		if (thread != NULL && thread->classes.count > 0)
			owner.class = thread->classes.texts[thread->classes.count - 1];
		else if (aten)
			r = intern(owners, TEXT_ATEN, &owner.class);
	}
	if (r == 0 && thread != NULL && thread->label_count > 0) {
		owner.user = thread->labels[0];
		strbuf_reset(&owners->scratch);
		for (i = 1; i < thread->label_count; i++)
			join(owners, thread->labels[i]);
		r = strbuf_failed(&owners->scratch)
			    ? -ENOMEM
			    : intern(owners, strbuf_str(&owners->scratch), &owner.rest);
	}
	return r < 0 ? r : number_of(owners, owner, out_owner);
}

int owners_add(struct owners *owners, const char *framework, const char *class, const char *user,
	       const char *rest, const char *layer, uint32_t *out_owner)
{
	struct owner owner = {0};
	int r = intern(owners, framework, &owner.framework);

	if (r == 0)
		r = intern(owners, class, &owner.class);
	if (r == 0)
		r = intern(owners, user, &owner.user);
	if (r == 0)
		r = intern(owners, rest, &owner.rest);
	if (r == 0)
		r = intern(owners, layer, &owner.layer);
	return r < 0 ? r : number_of(owners, owner, out_owner);
}

/* The class that a block has after a label of class `next` came. */
static const char *class_after(const char *class, const char *next)
{
	enum owner_class before = class_of(class), after;

	if (strcmp(next, TEXT_SAVED) == 0)
		next = before == CLASS_temporary ? TEXT_ACTIVATION : TEXT_INPUT;
	after = class_of(next);
	if (before == CLASS_none || after == CLASS_none || before == after)
		return next;
	return class_rows[after].rank > class_rows[before].rank ? next : class;
}

int owners_label(struct owners *owners, uint32_t owner, enum label_kind kind, const char *label,
		 uint32_t *out_owner)
{
	struct owner changed = owner < owners->count ? owners->all[owner] : (struct owner){0};
	const char *class;
	int r;

	if (kind != LABEL_MODEL) {
		r = intern_label(owners, label,
				 kind == LABEL_LAYER ? &changed.layer : &changed.user);
		return r < 0 ? r : number_of(owners, changed, out_owner);
	}
	class = owners_part(owners, changed.class);
	label = class_after(class, label);
	r = label == class ? 0 : intern_label(owners, label, &changed.class);
	return r < 0 ? r : number_of(owners, changed, out_owner);
}

static struct owner_stack *stack_of(struct owner_thread *thread, enum label_kind kind)
{
	return kind == LABEL_LAYER_PUSH || kind == LABEL_LAYER_POP ? &thread->layers
								   : &thread->classes;
}

int owners_enter(struct owners *owners, uint32_t tid, enum label_kind kind, const char *text)
{
	struct owner_thread *thread = thread_at(owners, tid);
	struct owner_stack *stack;
	uint32_t number;
	int r;

	if (thread == NULL)
		return -ENOMEM;
	stack = stack_of(thread, kind);
	r = ARRAY_RESERVE(stack->texts, stack->room, stack->count + 1);
	if (r == 0)
		r = intern_label(owners, text, &number);
	if (r == 0 && number != 0)
		stack->texts[stack->count++] = number;
	return r;
}

void owners_leave(struct owners *owners, uint32_t tid, enum label_kind kind, const char *text)
{
	struct owner_thread *thread = find_thread(owners, tid);
	struct owner_stack *stack;
	uint32_t number;
	size_t i;

	if (thread == NULL || intern_label(owners, text, &number) < 0)
		return;
	stack = stack_of(thread, kind);
	for (i = stack->count; i > 0; i--) {
		if (stack->texts[i - 1] == number) {
			stack->count = i - 1;
			return;
		}
	}
}

bool owners_is_labelled(const struct owners *owners, uint32_t owner)
{
	return owner < owners->count && owners->all[owner].user != 0;
}

bool owners_has_labels(const struct owners *owners, uint32_t tid)
{
	const struct owner_thread *thread = find_thread(owners, tid);

	return thread != NULL && thread->label_count > 0;
}

int owners_push(struct owners *owners, uint32_t tid, const char *label)
{
	struct owner_thread *thread = thread_at(owners, tid);
	uint32_t text;
	size_t i;
	int r;

	if (thread == NULL)
		return -ENOMEM;
	r = intern_label(owners, label, &text);
	if (r < 0 || text == 0)
		return r;
	for (i = 0; i < thread->label_count; i++) {
		if (thread->labels[i] == text) {
			thread->depths[i]++;
			return 0;
		}
	}
	r = ARRAY_RESERVE(thread->labels, thread->label_room, i + 1);
	if (r == 0)
		r = ARRAY_RESERVE(thread->depths, thread->depth_room, i + 1);
	if (r < 0)
		return r;
	thread->labels[i] = text;
	thread->depths[i] = 1;
	thread->label_count++;
	return 0;
}

void owners_pop(struct owners *owners, uint32_t tid, const char *label)
{
	struct owner_thread *thread = find_thread(owners, tid);
	uint32_t text;
	size_t i, behind;

	if (thread == NULL || intern_label(owners, label, &text) < 0)
		return;
	for (i = 0; i < thread->label_count; i++) {
		if (thread->labels[i] != text)
			continue;
		if (--thread->depths[i] > 0)
			return;
		behind = thread->label_count - i - 1;
		memmove(thread->labels + i, thread->labels + i + 1, behind * sizeof(uint32_t));
		memmove(thread->depths + i, thread->depths + i + 1, behind * sizeof(uint32_t));
		thread->label_count--;
		return;
	}
}

void owners_forget(struct owners *owners, uint32_t tid)
{
	struct owner_thread *thread = find_thread(owners, tid);

	if (thread != NULL)
		thread->label_count = thread->classes.count = thread->layers.count = 0;
}
