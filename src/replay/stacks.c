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
	free(stacks->numbers);
	free(stacks->places);
	free(stacks->all);
	index_fini(&stacks->by_address);
	index_fini(&stacks->by_frames);
	strbuf_fini(&stacks->text);
	frame_lines_fini(&stacks->lines);
	strbuf_fini(&stacks->line_notes);
	*stacks = (struct stacks){0};
}

void stacks_end(struct stacks *stacks)
{
	index_fini(&stacks->by_address);
	index_fini(&stacks->by_frames);
}

/* ---- frames ---- */

int stacks_number(struct stacks *stacks, const struct frame *frame, uint32_t *out)
{
	uint64_t hash = frame->address * UINT64_C(0x9e3779b97f4a7c15) + frame->module;
	struct index_search search = index_search(hash);
	struct known_frame *known;
	int r;

	while (index_next(&stacks->by_address, &search, out)) {
		known = &stacks->frames[*out];
		if (known->frame.address == frame->address && known->frame.module == frame->module)
			return 0;
	}
	r = ARRAY_RESERVE(stacks->frames, stacks->frame_room, stacks->frame_count + 1);
	if (r == 0)
		r = index_add(&stacks->by_address, hash, stacks->frame_count);
	if (r < 0)
		return r;
	stacks->frames[stacks->frame_count] = (struct known_frame){.frame = *frame};
	*out = (uint32_t)stacks->frame_count++;
	return 0;
}

/* The same of the next frame of the stack that is being defined. */
static int add_frame(struct stacks *stacks, size_t at, const struct frame *frame)
{
	uint32_t *number = &stacks->numbers[stacks->number_count + at];
	int r = stacks_number(stacks, frame, number);

	if (r == 0)
		stacks->frames[*number].used = true;
	return r;
}

/* ---- stacks ---- */

static uint64_t hash_frames(const uint32_t *numbers, size_t count)
{
	uint64_t hash = count;
	size_t i;

	for (i = 0; i < count; i++) {
		hash = (hash ^ numbers[i]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 29;
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
	return stack[1].first - stack[0].first == count &&
	       (uint32_t)(stack[1].first_place - stack[0].first_place) == places->count &&
	       stack->cut == places->cut &&
	       (count == 0 ||
		memcmp(stacks->numbers + stack->first, stacks->numbers + stacks->number_count,
		       count * sizeof(*stacks->numbers)) == 0) &&
	       (places->count == 0 || memcmp(stacks->places + stack->first_place, places->all,
					     places->count * sizeof(*places->all)) == 0);
}

static int reserve_frames(struct stacks *stacks, size_t count)
{
	if (stacks->number_count + count >= UINT32_MAX)
		return -ENOMEM;
	/* One more, so that a stack without frames has an address, too. */
	return ARRAY_RESERVE(stacks->numbers, stacks->number_room,
			     stacks->number_count + count + 1);
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
		r = ARRAY_RESERVE(stacks->all, stacks->room, 2);
		if (r < 0)
			return r;
		stacks->all[0] = stacks->all[1] = (struct stack){0};
		stacks->count = 1;
	}
	if (count + places->count == 0) {
		*out_stack = 0;
		return 0;
	}
	hash = hash_places(hash_frames(stacks->numbers + stacks->number_count, count), places);
	search = index_search(hash);
	while (index_next(&stacks->by_frames, &search, &known)) {
		if (is_same(stacks, &stacks->all[known], count, places)) {
			*out_stack = known;
			return 0;
		}
	}
	if (stacks->place_count + places->count > INT32_MAX)
		return -ENOMEM;
	r = ARRAY_RESERVE(stacks->all, stacks->room, stacks->count + 2);
	if (r == 0)
		r = ARRAY_RESERVE(stacks->places, stacks->place_room,
				  stacks->place_count + places->count);
	if (r == 0)
		r = index_add(&stacks->by_frames, hash, stacks->count);
	if (r < 0)
		return r;
	stacks->all[stacks->count].cut = places->cut;
	stacks->number_count += count;
	if (places->count > 0)
		memcpy(stacks->places + stacks->place_count, places->all,
		       places->count * sizeof(*places->all));
	stacks->place_count += places->count;
	*out_stack = (uint32_t)stacks->count++;
	stacks->all[stacks->count] = (struct stack){.first = (uint32_t)stacks->number_count,
						    .first_place = stacks->place_count & INT32_MAX};
	return 0;
}

int stacks_intern(struct stacks *stacks, const uint8_t *addresses, size_t count,
		  struct stack_places places, uint32_t *out_stack)
{
	size_t i;
	int r = reserve_frames(stacks, count);

	for (i = 0; i < count && r == 0; i++) {
		const struct module *module;
		struct frame frame;

		memcpy(&frame.address, addresses + i * 8, 8);
		/* A return address may be the first byte behind its function; the call before it is meant. */
		module = modules_find(stacks->modules, frame.address - 1);
		frame.module = module == NULL ? 0 : module->info.id;
		r = add_frame(stacks, i, &frame);
	}
	return r < 0 ? r : intern(stacks, count, &places, out_stack);
}

int stacks_intern_frames(struct stacks *stacks, const uint8_t *frames, size_t count,
			 struct stack_places places, uint32_t *out_stack)
{
	size_t i;
	int r = reserve_frames(stacks, count);

	for (i = 0; i < count && r == 0; i++) {
		struct frame frame;

		memcpy(&frame, frames + i * sizeof(frame), sizeof(frame));
		r = add_frame(stacks, i, &frame);
	}
	return r < 0 ? r : intern(stacks, count, &places, out_stack);
}

const uint32_t *stacks_frames(const struct stacks *stacks, uint32_t stack, uint32_t *out_count)
{
	if (stack == 0 || stack >= stacks->count) {
		*out_count = 0;
		return NULL;
	}
	*out_count = stacks->all[stack + 1].first - stacks->all[stack].first;
	return *out_count == 0 ? NULL : stacks->numbers + stacks->all[stack].first;
}

const struct frame *stacks_frame(const struct stacks *stacks, uint32_t frame)
{
	return &stacks->frames[frame].frame;
}

const struct python_place *stacks_places(const struct stacks *stacks, uint32_t stack,
					 uint32_t *out_count)
{
	if (stack == 0 || stack >= stacks->count) {
		*out_count = 0;
		return NULL;
	}
	*out_count = stacks->all[stack + 1].first_place - stacks->all[stack].first_place;
	return *out_count == 0 ? NULL : stacks->places + stacks->all[stack].first_place;
}

bool stacks_is_cut(const struct stacks *stacks, uint32_t stack)
{
	return stack != 0 && stack < stacks->count && stacks->all[stack].cut;
}

/* Appends the text of a frame and a NUL. */
static void make_text(const struct stacks *stacks, const struct frame *frame, struct strbuf *out)
{
	struct strbuf text = {0};

	(void)module_symbolise(modules_get(stacks->modules, frame->module), stacks->root,
			       frame->address, &text);
	strbuf_add_shown(out, strbuf_str(&text), text.length);
	strbuf_add_char(out, '\0');
	strbuf_fini(&text);
}

const char *stacks_frame_text(struct stacks *stacks, uint32_t frame)
{
	struct known_frame *known = &stacks->frames[frame];
	size_t at = stacks->text.length;

	if (known->text != 0)
		return stacks->text.data + known->text - 1;
	make_text(stacks, &known->frame, &stacks->text);
	if (strbuf_failed(&stacks->text) || at >= UINT32_MAX)
		return "";
	known->text = (uint32_t)at + 1;
	return stacks->text.data + at;
}

/* ---- lines ---- */

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

/* Frames of which nothing is known yet. */
static bool is_unknown(const struct known_frame *known)
{
	return known->used && !known->lines.known;
}

/* A return address may be the first byte behind its function; the call before it is meant. */
static void want(struct stacks *stacks, struct lines *reader, const struct frame *frame)
{
	struct module *module = modules_get(stacks->modules, frame->module);

	if (module != NULL)
		(void)lines_want(reader, module, stacks->root, frame->address - 1);
}

static int take(struct stacks *stacks, struct lines *reader, uint32_t number,
		struct strbuf *scratch)
{
	struct known_frame *known = &stacks->frames[number];
	const struct module *module = modules_get(stacks->modules, known->frame.module);
	struct lines_frame found[LINES_FRAMES_MAX];
	size_t count = 0;

	if (module != NULL && reader != NULL)
		count = lines_get(reader, module, known->frame.address - 1, found,
				  MSCOPE_COUNT(found));
	/* A trace of an earlier version has the symbol, as it is. */
	if (count == 0 && symbol_in(stacks_frame_text(stacks, number), scratch))
		found[count++] = (struct lines_frame){.function = scratch->data};
	return frame_lines_add(&stacks->lines, &known->lines, found, count,
			       module != NULL && reader != NULL &&
				       lines_is_cut(reader, module, known->frame.address - 1));
}

/* Reads the lines of frames that the trace tells nothing of. */
static void read_lines(struct stacks *stacks)
{
	struct elf_cache *cache = stacks->modules->cache;
	struct lines *reader = stacks->root == NULL || cache == NULL ? NULL : lines_of(cache);
	struct strbuf scratch = {0};
	uint32_t i;

	if (reader != NULL) {
		for (i = 0; i < stacks->frame_count; i++) {
			if (is_unknown(&stacks->frames[i]))
				want(stacks, reader, &stacks->frames[i].frame);
		}
		(void)lines_read(reader);
		strbuf_reset(&stacks->line_notes);
		lines_note(reader, &stacks->line_notes);
	}
	for (i = 0; i < stacks->frame_count; i++) {
		if (is_unknown(&stacks->frames[i]))
			(void)take(stacks, reader, i, &scratch);
	}
	strbuf_fini(&scratch);
}

struct frame_line *stacks_lines(struct stacks *stacks, uint32_t frame, size_t *out_count)
{
	if (is_unknown(&stacks->frames[frame]))
		read_lines(stacks);
	return frame_lines_get(&stacks->lines, &stacks->frames[frame].lines, out_count);
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

/* What a block of a packed trace has of them: enough to be compressed well. */
#define PART_BYTES ((size_t)4 << 20)

/* Module and address of an entry that is not a frame. */
#define TEXTS UINT64_MAX

static void save(struct strbuf *out, const struct frame *frame, const char *text, bool has_lines,
		 const char *rest, size_t rest_bytes)
{
	struct saved saved = {.module = frame->module,
			      .address = frame->address,
			      .bytes = strlen(text) + has_lines + rest_bytes};

	strbuf_add(out, &saved, sizeof(saved));
	strbuf_add(out, text, strlen(text) + has_lines);
	if (rest_bytes > 0)
		strbuf_add(out, rest, rest_bytes);
}

/* Hands over the text that has piled up, once it has `least` bytes. */
static int give_part(struct strbuf *out, size_t least, replay_put *put, void *arg)
{
	int r = 0;

	if (put != NULL && out->length > 0 && out->length >= least) {
		r = strbuf_failed(out) ? -ENOMEM : put(arg, out);
		strbuf_reset(out);
	}
	return r;
}

int stacks_save(struct stacks *stacks, struct strbuf *out, replay_put *put, void *arg)
{
	struct strbuf lines = {0}, made = {0};
	uint32_t i;
	int r = 0;

	read_lines(stacks);
	if (stacks->lines.texts.length > 0)
		save(out, &(struct frame){TEXTS, TEXTS}, "", true, stacks->lines.texts.data,
		     stacks->lines.texts.length);
	for (i = 0; i < stacks->frame_count && r == 0; i++) {
		const struct known_frame *known = &stacks->frames[i];
		bool whole = known->lines.known && !known->lines.cut;

		if (known->text == 0 && !known->used)
			continue;
		/* Texts that no row has shown are not kept: there may be very many. */
		strbuf_reset(&made);
		if (known->text == 0)
			make_text(stacks, &known->frame, &made);
		if (strbuf_failed(&made))
			continue;
		strbuf_reset(&lines);
		if (whole)
			frame_lines_save(&stacks->lines, &known->lines, &lines);
		save(out, &known->frame,
		     known->text == 0 ? made.data : stacks->text.data + known->text - 1, whole,
		     strbuf_str(&lines), lines.length);
		r = give_part(out, PART_BYTES, put, arg);
	}
	strbuf_fini(&lines);
	strbuf_fini(&made);
	return r < 0 ? r : give_part(out, 1, put, arg);
}

static void load(struct stacks *stacks, const struct frame *frame, const char *data, size_t bytes)
{
	size_t text = strnlen(data, bytes), at = stacks->text.length;
	uint32_t number;

	if (frame->address == TEXTS && frame->module == TEXTS) {
		if (text < bytes)
			frame_lines_load_texts(&stacks->lines, data + text + 1, bytes - text - 1);
		return;
	}
	if (at >= UINT32_MAX || stacks_number(stacks, frame, &number) < 0)
		return;
	strbuf_add_shown(&stacks->text, data, text);
	strbuf_add_char(&stacks->text, '\0');
	if (strbuf_failed(&stacks->text))
		return;
	stacks->frames[number].text = (uint32_t)at + 1;
	if (text < bytes)
		frame_lines_load(&stacks->lines, &stacks->frames[number].lines, data + text + 1,
				 bytes - text - 1);
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
		load(stacks, &(struct frame){saved.address, saved.module}, at, saved.bytes);
		at += saved.bytes;
		bytes -= saved.bytes;
	}
}
