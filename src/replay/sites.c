/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/sites.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "replay/state.h"
#include "symbols/demangle.h"

static void forget_keys(struct sites *sites)
{
	free(sites->keys);
	free(sites->lowest);
	index_fini(&sites->by_key);
	sites->keys = NULL;
	sites->lowest = NULL;
	sites->key_count = sites->key_room = sites->lowest_room = 0;
}

void sites_fini(struct sites *sites)
{
	free(sites->ids);
	free(sites->lines);
	forget_keys(sites);
	strbuf_fini(&sites->python);
	*sites = (struct sites){0};
}

/* ---- lines of C frames ---- */

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
	return hash_add(hash, &number, sizeof(number));
}

static enum origin find_origin(const char *module, const char *function, const char *file)
{
	struct strbuf name = {0};
	enum origin origin;

	if (function != NULL)
		demangle_shorten(function, &name);
	origin = origin_of_function(module, function == NULL ? NULL : strbuf_str(&name), file);
	strbuf_fini(&name);
	return origin;
}

/* Finds whose code a line is and which place, once. */
static void complete(const struct frame_lines *lines, struct frame_line *line, const char *module,
		     uint64_t offset)
{
	const char *function = frame_lines_text(lines, line->function);
	const char *file = frame_lines_text(lines, line->file);
	uint64_t key = HASH_BEGIN;

	if (line->origin != ORIGIN_UNKNOWN)
		return;
	line->origin = (uint8_t)find_origin(module, function, file);
	if (function != NULL)
		key = hash_add(key, function, strlen(function) + 1);
	if (file != NULL && line->line != 0) {
		key = hash_number(hash_add(key, file, strlen(file)), line->line);
	} else {
		if (module != NULL)
			key = hash_add(key, module, strlen(module));
		if (function == NULL || line->origin == ORIGIN_USER)
			key = hash_number(key, offset);
	}
	line->key = key;
}

/* The lines of a frame; `*unknown` is filled and returned for one of which nothing is known. */
static struct frame_line *lines_at(struct replay *replay, uint32_t number,
				   struct frame_line *unknown, size_t *out_count,
				   const char **out_module, uint64_t *out_offset)
{
	struct stacks *stacks = &replay->definitions.stacks;
	const struct frame *frame = stacks_frame(stacks, number);
	const struct module *module = replay_module(replay, frame->module);
	struct frame_line *lines = stacks_lines(stacks, number, out_count);
	size_t i;

	*out_module = module == NULL ? NULL : module->info.path;
	*out_offset = frame->address - 1 - (module == NULL ? 0 : module->info.bias);
	if (lines == NULL) {
		*unknown = (struct frame_line){0};
		lines = unknown;
		*out_count = 1;
	}
	for (i = 0; i < *out_count; i++)
		complete(&stacks->lines, &lines[i], *out_module, *out_offset);
	return lines;
}

/* ---- stacks as people read them ---- */

static struct stack_line *add_line(struct sites *sites)
{
	if (ARRAY_RESERVE(sites->lines, sites->line_room, sites->line_count + 1) < 0)
		return NULL;
	return &sites->lines[sites->line_count++];
}

static int add_frame(struct replay *replay, uint32_t frame)
{
	struct sites *sites = &replay->definitions.sites;
	struct frame_line unknown;
	const char *module;
	uint64_t offset;
	size_t count, i;
	const struct frame_line *lines =
		lines_at(replay, frame, &unknown, &count, &module, &offset);

	for (i = 0; i < count; i++) {
		const struct frame_lines *texts = &replay->definitions.stacks.lines;
		struct stack_line *line = add_line(sites);

		if (line == NULL)
			return -ENOMEM;
		*line = (struct stack_line){
			.function = frame_lines_text(texts, lines[i].function),
			.file = frame_lines_text(texts, lines[i].file),
			.module = module,
			.offset = offset,
			.line = lines[i].line,
			.origin = (enum origin)lines[i].origin,
		};
	}
	return 0;
}

/* Appends a text to sites->python. Its place is kept as an offset + 1 until all are there. */
static const char *add_text(struct sites *sites, const uint8_t *text, size_t bytes)
{
	size_t at = sites->python.length;

	if (bytes > 0)
		strbuf_add(&sites->python, text, bytes);
	strbuf_add_char(&sites->python, '\0');
	return (const char *)(uintptr_t)(at + 1);
}

static int add_place(struct replay *replay, const struct python_place *place)
{
	const struct codes *codes = &replay->definitions.codes;
	struct sites *sites = &replay->definitions.sites;
	struct stack_line *line;
	struct code code;

	if (place->code >= codes->count)
		return 0;
	line = add_line(sites);
	if (line == NULL)
		return -ENOMEM;
	code = codes_get(codes, place->code);
	*line = (struct stack_line){.function = add_text(sites, code.name, code.name_bytes),
				    .file = add_text(sites, code.file, code.file_bytes),
				    .line = code_line(&code, place->offset)};
	return strbuf_failed(&sites->python) ? -ENOMEM : 0;
}

/*
 * Frames of C in a snapshot have a name and rarely more. One that no rule names is the user's where it has a source file, unless a
 * script of the user is in the same stack: people look for that.
 */
static void find_native_origins(struct sites *sites, size_t first, size_t end)
{
	bool has_user = false;
	size_t i;

	for (i = first; i < end; i++)
		has_user |= sites->lines[i].script && sites->lines[i].origin == ORIGIN_USER;
	for (i = first; i < end; i++) {
		struct stack_line *line = &sites->lines[i];

		if (line->script)
			continue;
		line->origin = find_origin(strstr(line->file, ".so") != NULL ? line->file : NULL,
					   line->function, line->file);
		if (line->origin == ORIGIN_USER && (has_user || line->file[0] != '/'))
			line->origin = ORIGIN_STANDARD;
	}
}

/* The code of `python -c` that only calls the standard library: how multiprocessing starts a process. */
static bool is_bootstrap(const struct stack_line *lines, size_t first, size_t at)
{
	return at > first && strcmp(lines[at].file, "<string>") == 0 &&
	       strcmp(lines[at].function, "<module>") == 0 && lines[at - 1].script &&
	       lines[at - 1].origin == ORIGIN_STANDARD;
}

/* Those of Python, once their texts stay where they are. */
static void settle_texts(struct sites *sites, size_t first, size_t end)
{
	bool natives = false;
	size_t i;

	for (i = first; i < end; i++) {
		struct stack_line *line = &sites->lines[i];

		line->function = sites->python.data + (uintptr_t)line->function - 1;
		line->file = sites->python.data + (uintptr_t)line->file - 1;
		line->script = !origin_is_native(line->function, line->file);
		line->origin = line->script ? origin_of_script(line->file) : ORIGIN_UNKNOWN;
		natives |= !line->script;
		if (is_bootstrap(sites->lines, first, i))
			line->origin = ORIGIN_STANDARD;
	}
	if (natives)
		find_native_origins(sites, first, end);
}

const struct stack_line *replay_stack_lines(struct replay *replay, uint32_t stack,
					    uint32_t *out_count)
{
	struct sites *sites = &replay->definitions.sites;
	uint32_t frame_count, place_count, i, k;
	const uint32_t *frames = replay_frames(replay, stack, &frame_count);
	const struct python_place *places = replay_places(replay, stack, &place_count);
	size_t first;
	int r = 0;

	sites->line_count = *out_count = 0;
	strbuf_reset(&sites->python);
	/* A script runs inside its interpreter: its frames come before the interpreter's first one. */
	for (i = 0; i < frame_count && r == 0; i++) {
		size_t before = sites->line_count;

		r = add_frame(replay, frames[i]);
		if (r == 0 && place_count > 0 &&
		    sites->lines[sites->line_count - 1].origin == ORIGIN_INTERPRETER) {
			sites->line_count = before;
			break;
		}
	}
	first = sites->line_count;
	for (k = 0; k < place_count && r == 0; k++)
		r = add_place(replay, &places[k]);
	if (r == 0)
		settle_texts(sites, first, sites->line_count);
	for (; i < frame_count && r == 0; i++)
		r = add_frame(replay, frames[i]);
	if (r < 0)
		return NULL;
	*out_count = (uint32_t)sites->line_count;
	return *out_count == 0 ? NULL : sites->lines;
}

/* ---- places ---- */

static void mix(struct map_key *key, uint64_t word)
{
	key->a = (key->a ^ word) * UINT64_C(0x9fb21c651e98df25);
	key->a ^= key->a >> 29;
	key->b = (key->b + word) * UINT64_C(0xc2b2ae3d27d4eb4f);
	key->b ^= key->b >> 32;
}

static struct map_key key_of(struct replay *replay, uint32_t stack)
{
	uint32_t frame_count, place_count, i;
	const uint32_t *frames = replay_frames(replay, stack, &frame_count);
	const struct python_place *places = replay_places(replay, stack, &place_count);
	struct map_key key = {HASH_BEGIN, ~HASH_BEGIN};

	for (i = 0; i < frame_count; i++) {
		struct frame_line unknown;
		const char *module;
		uint64_t offset;
		size_t count, k;
		const struct frame_line *lines =
			lines_at(replay, frames[i], &unknown, &count, &module, &offset);

		for (k = 0; k < count; k++)
			mix(&key, lines[k].key);
	}
	mix(&key, place_count);
	for (i = 0; i < place_count; i++)
		mix(&key, hash_text(replay_place_text(replay, &places[i])));
	return key;
}

/* The place of a key, whose first stack this is if it is new. -ENOMEM, or 0. */
static int place_at(struct sites *sites, struct map_key key, uint32_t stack, uint32_t *out)
{
	struct index_search search = index_search(key.a);
	uint32_t at;

	while (index_next(&sites->by_key, &search, &at)) {
		if (sites->keys[at].a == key.a && sites->keys[at].b == key.b) {
			*out = sites->lowest[at];
			return 0;
		}
	}
	if (ARRAY_RESERVE(sites->keys, sites->key_room, sites->key_count + 1) < 0 ||
	    ARRAY_RESERVE(sites->lowest, sites->lowest_room, sites->key_count + 1) < 0 ||
	    index_add(&sites->by_key, key.a, sites->key_count) < 0)
		return -ENOMEM;
	sites->keys[sites->key_count] = key;
	sites->lowest[sites->key_count++] = stack;
	*out = stack;
	return 0;
}

/* Keys of more places are made again when there are new stacks: most are asked for once, at the end. */
#define KEYS_KEPT (1u << 16)

/* Those of the stacks below `sites->count`. */
static int know_keys(struct replay *replay, struct sites *sites)
{
	uint32_t stack, lowest;
	int r = 0;

	if (sites->key_count != 0)
		return 0;
	for (stack = 1; stack < sites->count && r == 0; stack++) {
		if (sites->ids[stack] == stack)
			r = place_at(sites, key_of(replay, stack), stack, &lowest);
	}
	return r;
}

/* The stacks from `sites->count` on. */
static int number_stacks(struct replay *replay, struct sites *sites)
{
	size_t count = replay_stack_count(replay);

	if (ARRAY_RESERVE(sites->ids, sites->room, count) < 0)
		return -ENOMEM;
	if (know_keys(replay, sites) < 0)
		return -ENOMEM;
	while (sites->count < count) {
		uint32_t stack = (uint32_t)sites->count;
		uint32_t lowest = 0;

		if (stack != 0 && place_at(sites, key_of(replay, stack), stack, &lowest) < 0)
			return -ENOMEM;
		sites->ids[sites->count++] = lowest;
	}
	if (sites->key_count > KEYS_KEPT)
		forget_keys(sites);
	return 0;
}

uint32_t replay_site(struct replay *replay, uint32_t stack)
{
	struct sites *sites = &replay->definitions.sites;

	if (stack >= replay_stack_count(replay))
		return 0;
	if (stack >= sites->count && number_stacks(replay, sites) < 0)
		return stack;
	return sites->ids[stack];
}

/* ---- what is missing ---- */

/* Modules that one sentence each is worth. */
#define MISSING_SHOWN 3

/* Whether a frame is the user's own, and has a line: what `found` of its module becomes. */
static int note_frame(struct replay *replay, struct map *found, const struct known_frame *frame)
{
	const struct stacks *stacks = &replay->definitions.stacks;
	struct map_key key = {frame->frame.module, 0};
	const uint64_t *known = map_get(found, key);
	size_t count, i;
	const struct frame_line *lines = frame_lines_get(&stacks->lines, &frame->lines, &count);
	const struct module *module = replay_module(replay, frame->frame.module);
	bool line = false, user = false;

	if (module == NULL || (known != NULL && (*known == 1 || count == 0)))
		return 0;
	for (i = 0; i < count; i++) {
		line |= lines[i].line != 0;
		user |= lines[i].origin == ORIGIN_USER;
	}
	if (count == 0)
		user = origin_of_module(module->info.path) == ORIGIN_USER;
	/* The user's frames are those that a report has looked at. */
	if (!line && !user)
		return 0;
	return map_put(found, key, line);
}

void replay_line_notes(struct replay *replay, struct strbuf *out)
{
	const struct stacks *stacks = &replay->definitions.stacks;
	struct map found = {0};
	const struct module *module;
	size_t i, cursor = 0, shown = 0;

	strbuf_add(out, strbuf_str(&stacks->line_notes), stacks->line_notes.length);
	for (i = 0; i < stacks->frame_count; i++) {
		if (stacks->frames[i].used)
			(void)note_frame(replay, &found, &stacks->frames[i]);
	}
	while ((module = replay_next_module(replay, &cursor)) != NULL && shown < MISSING_SHOWN) {
		const uint64_t *known = map_get(&found, (struct map_key){module->info.id, 0});

		if (known == NULL || *known != 0)
			continue;
		strbuf_addf(out, "no debug information for %s; build it with -g to see lines.\n",
			    module->info.path);
		shown++;
	}
	map_fini(&found);
}
