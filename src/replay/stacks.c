/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/shown.h"
#include "base/array.h"

void stacks_init(struct stacks *stacks, struct modules *modules, const char *root)
{
	*stacks = (struct stacks){.modules = modules, .root = root};
}

void stacks_fini(struct stacks *stacks)
{
	free(stacks->frames);
	free(stacks->places);
	free(stacks->all);
	map_fini(&stacks->by_frames);
	map_fini(&stacks->texts);
	strbuf_fini(&stacks->text);
	*stacks = (struct stacks){0};
}

static struct map_key hash_frames(const struct frame *frames, size_t count)
{
	struct map_key key = {count, ~(uint64_t)count};
	size_t i;

	for (i = 0; i < count; i++) {
		key.a = (key.a ^ frames[i].address) * UINT64_C(0x9e3779b97f4a7c15);
		key.a ^= key.a >> 29;
		key.b = (key.b + frames[i].address) * UINT64_C(0xd6e8feb86659fd93) ^
			frames[i].module;
		key.b ^= key.b >> 32;
	}
	return key;
}

static struct map_key hash_places(struct map_key key, const struct python_place *places,
				  size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		uint64_t word = (uint64_t)places[i].offset << 32 | places[i].code;

		key.a = (key.a ^ word) * UINT64_C(0x9fb21c651e98df25);
		key.a ^= key.a >> 29;
		key.b = (key.b + word) * UINT64_C(0xc2b2ae3d27d4eb4f) ^ i;
		key.b ^= key.b >> 32;
	}
	return key;
}

static int reserve_frames(struct stacks *stacks, size_t count)
{
	if (stacks->frame_count + count >= UINT32_MAX)
		return -ENOMEM;
	/* One more, so that a stack without frames has an address, too. */
	return array_reserve(&stacks->frames, &stacks->frame_room, stacks->frame_count + count + 1,
			     sizeof(*stacks->frames));
}

/* Interns the stack whose frames lie behind those that are in use. */
static int intern(struct stacks *stacks, size_t count, const struct python_place *places,
		  size_t place_count, uint32_t *out_stack)
{
	struct map_key key;
	uint64_t *known;
	int r;

	if (stacks->count == 0) {
		r = array_reserve(&stacks->all, &stacks->room, 1, sizeof(*stacks->all));
		if (r < 0)
			return r;
		stacks->all[stacks->count++] = (struct stack){0};
	}
	if (count + place_count == 0) {
		*out_stack = 0;
		return 0;
	}
	/* 128 bits of hash: two stacks that share them do not exist. */
	key = hash_places(hash_frames(stacks->frames + stacks->frame_count, count), places,
			  place_count);
	known = map_get(&stacks->by_frames, key);
	if (known != NULL) {
		*out_stack = (uint32_t)*known;
		return 0;
	}
	if (stacks->place_count + place_count > UINT32_MAX)
		return -ENOMEM;
	r = array_reserve(&stacks->all, &stacks->room, stacks->count + 1, sizeof(*stacks->all));
	if (r == 0)
		r = array_reserve(&stacks->places, &stacks->place_room,
				  stacks->place_count + place_count, sizeof(*places));
	if (r == 0)
		r = map_put(&stacks->by_frames, key, stacks->count);
	if (r < 0)
		return r;
	stacks->all[stacks->count] = (struct stack){.first = (uint32_t)stacks->frame_count,
						    .count = (uint32_t)count,
						    .first_place = (uint32_t)stacks->place_count,
						    .place_count = (uint32_t)place_count};
	stacks->frame_count += count;
	if (place_count > 0)
		memcpy(stacks->places + stacks->place_count, places, place_count * sizeof(*places));
	stacks->place_count += place_count;
	*out_stack = (uint32_t)stacks->count++;
	return 0;
}

int stacks_intern(struct stacks *stacks, const uint8_t *addresses, size_t count,
		  const struct python_place *places, size_t place_count, uint32_t *out_stack)
{
	struct frame *frames;
	size_t i;
	int r = reserve_frames(stacks, count);

	if (r < 0)
		return r;
	frames = stacks->frames + stacks->frame_count;
	for (i = 0; i < count; i++) {
		const struct module *module;

		memcpy(&frames[i].address, addresses + i * 8, 8);
		/* A return address may be the first byte behind its function; the call before it is meant. */
		module = modules_find(stacks->modules, frames[i].address - 1);
		frames[i].module = module == NULL ? 0 : module->info.id;
	}
	return intern(stacks, count, places, place_count, out_stack);
}

int stacks_intern_frames(struct stacks *stacks, const uint8_t *frames, size_t count,
			 const struct python_place *places, size_t place_count, uint32_t *out_stack)
{
	int r = reserve_frames(stacks, count);

	if (r < 0)
		return r;
	if (count > 0)
		memcpy(stacks->frames + stacks->frame_count, frames, count * sizeof(struct frame));
	return intern(stacks, count, places, place_count, out_stack);
}

const struct frame *stacks_frames(const struct stacks *stacks, uint32_t stack, uint32_t *out_count)
{
	if (stack == 0 || stack >= stacks->count) {
		*out_count = 0;
		return NULL;
	}
	*out_count = stacks->all[stack].count;
	return *out_count == 0 ? NULL : stacks->frames + stacks->all[stack].first;
}

const struct python_place *stacks_places(const struct stacks *stacks, uint32_t stack,
					 uint32_t *out_count)
{
	if (stack == 0 || stack >= stacks->count) {
		*out_count = 0;
		return NULL;
	}
	*out_count = stacks->all[stack].place_count;
	return *out_count == 0 ? NULL : stacks->places + stacks->all[stack].first_place;
}

const char *stacks_frame_text(struct stacks *stacks, const struct frame *frame)
{
	struct map_key key = {frame->address, frame->module};
	uint64_t *known = map_get(&stacks->texts, key);
	size_t at = stacks->text.length;
	struct strbuf text = {0};

	if (known != NULL)
		return stacks->text.data + *known;
	(void)module_symbolise(modules_get(stacks->modules, frame->module), stacks->root,
			       frame->address, &text);
	strbuf_add_shown(&stacks->text, strbuf_str(&text), text.length);
	strbuf_add_char(&stacks->text, '\0');
	strbuf_fini(&text);
	if (strbuf_failed(&stacks->text) || map_put(&stacks->texts, key, at) < 0)
		return "";
	return stacks->text.data + at;
}

/* One frame in a packed trace: module, address, length of the text, text; numbers of 64 bits. */
struct saved {
	uint64_t module;
	uint64_t address;
	uint64_t bytes;
};

void stacks_save(struct stacks *stacks, struct strbuf *out)
{
	const struct map_slot *slot;
	size_t i, cursor = 0;

	for (i = 0; i < stacks->frame_count; i++)
		(void)stacks_frame_text(stacks, &stacks->frames[i]);
	while ((slot = map_next(&stacks->texts, &cursor)) != NULL) {
		const char *text = stacks->text.data + slot->value;
		struct saved saved = {
			.module = slot->key.b, .address = slot->key.a, .bytes = strlen(text)};

		strbuf_add(out, &saved, sizeof(saved));
		strbuf_add(out, text, saved.bytes);
	}
}

void stacks_load(struct stacks *stacks, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes >= sizeof(struct saved)) {
		struct saved saved;

		memcpy(&saved, at, sizeof(saved));
		at += sizeof(saved);
		bytes -= sizeof(saved);
		if (saved.bytes > bytes)
			return;
		if (map_put(&stacks->texts, (struct map_key){saved.address, saved.module},
			    stacks->text.length) == 0) {
			strbuf_add_shown(&stacks->text, at, saved.bytes);
			strbuf_add_char(&stacks->text, '\0');
		}
		at += saved.bytes;
		bytes -= saved.bytes;
	}
}
