/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/shown.h"
#include "symbols/elf_cache.h"
#include "symbols/lines.h"

void stacks_init(struct stacks *stacks, struct modules *modules, const char *root)
{
	*stacks = (struct stacks){.modules = modules, .root = root};
}

void stacks_fini(struct stacks *stacks)
{
	free(stacks->frames);
	free(stacks->places);
	free(stacks->all);
	index_fini(&stacks->by_frames);
	map_fini(&stacks->texts);
	strbuf_fini(&stacks->text);
	frame_lines_fini(&stacks->lines);
	strbuf_fini(&stacks->line_notes);
	*stacks = (struct stacks){0};
}

static uint64_t hash_frames(const struct frame *frames, size_t count)
{
	uint64_t hash = count;
	size_t i;

	for (i = 0; i < count; i++) {
		hash = (hash ^ frames[i].address) * UINT64_C(0x9e3779b97f4a7c15);
		hash = (hash ^ hash >> 29) + frames[i].module * UINT64_C(0xd6e8feb86659fd93);
	}
	return hash;
}

static uint64_t hash_places(uint64_t hash, const struct stack_places *places)
{
	size_t i;

	hash += places->cut;
	for (i = 0; i < places->count; i++) {
		const struct python_place *place = &places->all[i];

		hash ^= (uint64_t)place->offset << 32 | place->code;
		hash *= UINT64_C(0x9fb21c651e98df25);
		hash ^= hash >> 29;
	}
	return hash;
}

/* Whether a stack is that whose frames lie behind those that are in use. */
static bool is_same(const struct stacks *stacks, const struct stack *stack, size_t count,
		    const struct stack_places *places)
{
	return stack->count == count && stack->place_count == places->count &&
	       stack->cut == places->cut &&
	       (count == 0 ||
		memcmp(stacks->frames + stack->first, stacks->frames + stacks->frame_count,
		       count * sizeof(*stacks->frames)) == 0) &&
	       (places->count == 0 || memcmp(stacks->places + stack->first_place, places->all,
					     places->count * sizeof(*places->all)) == 0);
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
static int intern(struct stacks *stacks, size_t count, const struct stack_places *places,
		  uint32_t *out_stack)
{
	struct index_search search;
	uint64_t hash;
	uint32_t known;
	int r;

	if (stacks->count == 0) {
		r = array_reserve(&stacks->all, &stacks->room, 1, sizeof(*stacks->all));
		if (r < 0)
			return r;
		stacks->all[stacks->count++] = (struct stack){0};
	}
	if (count + places->count == 0) {
		*out_stack = 0;
		return 0;
	}
	hash = hash_places(hash_frames(stacks->frames + stacks->frame_count, count), places);
	search = index_search(hash);
	while (index_next(&stacks->by_frames, &search, &known)) {
		if (is_same(stacks, &stacks->all[known], count, places)) {
			*out_stack = known;
			return 0;
		}
	}
	if (stacks->place_count + places->count > UINT32_MAX)
		return -ENOMEM;
	r = array_reserve(&stacks->all, &stacks->room, stacks->count + 1, sizeof(*stacks->all));
	if (r == 0)
		r = array_reserve(&stacks->places, &stacks->place_room,
				  stacks->place_count + places->count, sizeof(*stacks->places));
	if (r == 0)
		r = index_add(&stacks->by_frames, hash, stacks->count);
	if (r < 0)
		return r;
	stacks->all[stacks->count] = (struct stack){.first = (uint32_t)stacks->frame_count,
						    .count = (uint32_t)count,
						    .first_place = (uint32_t)stacks->place_count,
						    .place_count = (uint32_t)places->count,
						    .cut = places->cut};
	stacks->frame_count += count;
	if (places->count > 0)
		memcpy(stacks->places + stacks->place_count, places->all,
		       places->count * sizeof(*places->all));
	stacks->place_count += places->count;
	*out_stack = (uint32_t)stacks->count++;
	return 0;
}

int stacks_intern(struct stacks *stacks, const uint8_t *addresses, size_t count,
		  struct stack_places places, uint32_t *out_stack)
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
	return intern(stacks, count, &places, out_stack);
}

int stacks_intern_frames(struct stacks *stacks, const uint8_t *frames, size_t count,
			 struct stack_places places, uint32_t *out_stack)
{
	int r = reserve_frames(stacks, count);

	if (r < 0)
		return r;
	if (count > 0)
		memcpy(stacks->frames + stacks->frame_count, frames, count * sizeof(struct frame));
	return intern(stacks, count, &places, out_stack);
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

bool stacks_is_cut(const struct stacks *stacks, uint32_t stack)
{
	return stack != 0 && stack < stacks->count && stacks->all[stack].cut;
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

/* ---- lines ---- */

static struct map_key key_of(const struct frame *frame)
{
	return (struct map_key){frame->address, frame->module};
}

/* "symbol" of "path(symbol+0x1f) [0x7f0012345678]"; false when there is none. */
static bool symbol_in(const char *text, struct strbuf *out)
{
	const char *end = strrchr(text, ')'), *plus = NULL, *at;

	for (at = text; end != NULL && at < end; at++) {
		if (*at == '+')
			plus = at;
	}
	for (at = plus; at != NULL && at > text && *at != '('; at--)
		;
	if (at == NULL || *at != '(' || at + 1 == plus)
		return false;
	strbuf_reset(out);
	strbuf_add(out, at + 1, (size_t)(plus - at - 1));
	return !strbuf_failed(out);
}

/* A return address may be the first byte behind its function; the call before it is meant. */
static void want(struct stacks *stacks, struct lines *reader, const struct frame *frame)
{
	struct module *module = modules_get(stacks->modules, frame->module);

	if (module != NULL && !frame_lines_has(&stacks->lines, key_of(frame)))
		(void)lines_want(reader, module, stacks->root, frame->address - 1);
}

static int take(struct stacks *stacks, struct lines *reader, const struct frame *frame,
		struct strbuf *scratch)
{
	const struct module *module = modules_get(stacks->modules, frame->module);
	struct lines_frame found[LINES_FRAMES_MAX];
	size_t count = 0;

	if (frame_lines_has(&stacks->lines, key_of(frame)))
		return 0;
	if (module != NULL && reader != NULL)
		count = lines_get(reader, module, frame->address - 1, found, MSCOPE_COUNT(found));
	/* A trace of an earlier version has the symbol, as it is. */
	if (count == 0 && symbol_in(stacks_frame_text(stacks, frame), scratch))
		found[count++] = (struct lines_frame){.function = scratch->data};
	return frame_lines_add(&stacks->lines, key_of(frame), found, count,
			       module != NULL && reader != NULL &&
				       lines_is_cut(reader, module, frame->address - 1));
}

/* Reads the lines of frames that the trace tells nothing of. */
static void read_lines(struct stacks *stacks)
{
	struct elf_cache *cache = stacks->modules->cache;
	struct lines *reader = stacks->root == NULL || cache == NULL ? NULL : lines_of(cache);
	struct strbuf scratch = {0};
	size_t i;

	if (reader != NULL) {
		for (i = stacks->lined; i < stacks->frame_count; i++)
			want(stacks, reader, &stacks->frames[i]);
		(void)lines_read(reader);
		strbuf_reset(&stacks->line_notes);
		lines_note(reader, &stacks->line_notes);
	}
	for (i = stacks->lined; i < stacks->frame_count; i++)
		(void)take(stacks, reader, &stacks->frames[i], &scratch);
	stacks->lined = stacks->frame_count;
	strbuf_fini(&scratch);
}

struct frame_line *stacks_lines(struct stacks *stacks, const struct frame *frame, size_t *out_count)
{
	if (stacks->lined < stacks->frame_count && !frame_lines_has(&stacks->lines, key_of(frame)))
		read_lines(stacks);
	return frame_lines_get(&stacks->lines, key_of(frame), out_count);
}

/* ---- in a packed trace ---- */

/*
 * One frame: module, address, length of what follows, its text; then, if its lines were looked for, a NUL and those. The texts of
 * lines come first, as a frame of a module and an address that do not exist.
 */
struct saved {
	uint64_t module;
	uint64_t address;
	uint64_t bytes;
};

static const struct map_key texts_key = {UINT64_MAX, UINT64_MAX};

static void save(struct strbuf *out, struct map_key key, const char *text, bool has_lines,
		 const char *rest, size_t rest_bytes)
{
	struct saved saved = {
		.module = key.b, .address = key.a, .bytes = strlen(text) + has_lines + rest_bytes};

	strbuf_add(out, &saved, sizeof(saved));
	strbuf_add(out, text, strlen(text) + has_lines);
	if (rest_bytes > 0)
		strbuf_add(out, rest, rest_bytes);
}

void stacks_save(struct stacks *stacks, struct strbuf *out)
{
	const struct map_slot *slot;
	struct strbuf lines = {0};
	size_t i, cursor = 0;

	for (i = 0; i < stacks->frame_count; i++)
		(void)stacks_frame_text(stacks, &stacks->frames[i]);
	read_lines(stacks);
	if (stacks->lines.texts.length > 0)
		save(out, texts_key, "", true, stacks->lines.texts.data,
		     stacks->lines.texts.length);
	while ((slot = map_next(&stacks->texts, &cursor)) != NULL) {
		bool whole = frame_lines_is_whole(&stacks->lines, slot->key);

		strbuf_reset(&lines);
		if (whole)
			frame_lines_save(&stacks->lines, slot->key, &lines);
		save(out, slot->key, stacks->text.data + slot->value, whole, strbuf_str(&lines),
		     lines.length);
	}
	strbuf_fini(&lines);
}

static void load(struct stacks *stacks, struct map_key key, const char *data, size_t bytes)
{
	size_t text = strnlen(data, bytes);

	if (key.a == texts_key.a && key.b == texts_key.b) {
		if (text < bytes)
			frame_lines_load_texts(&stacks->lines, data + text + 1, bytes - text - 1);
		return;
	}
	if (map_put(&stacks->texts, key, stacks->text.length) == 0) {
		strbuf_add_shown(&stacks->text, data, text);
		strbuf_add_char(&stacks->text, '\0');
	}
	if (text < bytes)
		frame_lines_load(&stacks->lines, key, data + text + 1, bytes - text - 1);
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
		load(stacks, (struct map_key){saved.address, saved.module}, at, saved.bytes);
		at += saved.bytes;
		bytes -= saved.bytes;
	}
}
