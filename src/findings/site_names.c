/* SPDX-License-Identifier: Apache-2.0 */
#include "findings/site_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "findings/site.h"

/* Frames that a name gets beyond those that every name has. */
#define EXTRA_FRAMES 3u

struct named_frame {
	uint32_t text; /* number of its text, from 1 */
	uint32_t at;   /* position in the stack */
};

struct named_site {
	uint32_t site; /* the lowest stack of the call site */
	uint32_t count;
	size_t first;	/* its frames are frames[first] to frames[first + count - 1] */
	uint64_t shown; /* bits of positions in the stack */
	uint64_t key;	/* hash of what is shown; while names are settled */
	size_t name;	/* offset in `names` */
};

void site_names_fini(struct site_names *names)
{
	map_fini(&names->index);
	map_fini(&names->texts);
	strbuf_fini(&names->names);
	free(names->all);
	free(names->frames);
	*names = (struct site_names){0};
}

/* Number of a frame's text, from 1. */
static int frame_number(struct site_names *names, const struct strbuf *text, uint32_t *out)
{
	struct map_key key = {hash_text(strbuf_str(text)), text->length};
	const uint64_t *known = map_get(&names->texts, key);

	*out = known != NULL ? (uint32_t)*known : (uint32_t)names->texts.count + 1;
	return known != NULL ? 0 : map_put(&names->texts, key, *out);
}

int site_names_add(struct site_names *names, struct replay *replay, uint32_t stack)
{
	uint32_t site = site_of(replay, stack), count, i;
	const struct stack_line *lines;
	struct named_site *named;
	struct strbuf text = {0};
	int r = 0;

	if (site == 0 || map_get(&names->index, (struct map_key){site, 0}) != NULL)
		return 0;
	lines = replay_stack_lines(replay, site, &count);
	if (count == 0)
		return 0;
	if (ARRAY_RESERVE(names->all, names->room, names->count + 1) < 0 ||
	    ARRAY_RESERVE(names->frames, names->frame_room, names->frame_count + SITE_FRAMES) < 0 ||
	    map_put(&names->index, (struct map_key){site, 0}, names->count) < 0)
		return -ENOMEM;
	named = &names->all[names->count++];
	*named = (struct named_site){.site = site,
				     .first = names->frame_count,
				     .shown = site_frames_shown(lines, count)};
	for (i = 0; i < count && i < SITE_FRAMES && r == 0; i++) {
		struct named_frame *frame = &names->frames[names->frame_count];

		if (!(named->shown >> i & 1) && !site_frame_tells(lines, count, i))
			continue;
		strbuf_reset(&text);
		site_frame(&lines[i], &text);
		frame->at = i;
		r = strbuf_failed(&text) ? -ENOMEM : frame_number(names, &text, &frame->text);
		names->frame_count++;
		named->count++;
	}
	strbuf_fini(&text);
	return r;
}

/* ---- which frames are shown ---- */

static void make_keys(struct site_names *names)
{
	size_t i;

	for (i = 0; i < names->count; i++) {
		struct named_site *named = &names->all[i];
		const struct named_frame *frames = names->frames + named->first;
		uint32_t k;

		named->key = HASH_BEGIN;
		for (k = 0; k < named->count; k++) {
			if (named->shown >> frames[k].at & 1)
				named->key = hash_add(named->key, &frames[k].text,
						      sizeof(frames[k].text));
		}
	}
}

static int by_key(const void *a, const void *b)
{
	const struct named_site *x = *(const struct named_site *const *)a,
				*y = *(const struct named_site *const *)b;

	return ORDER_UP(x->key, y->key) ?: ORDER_UP(x->site, y->site);
}

/* The frame at a depth among those that tell something; NULL: there is none. */
static const struct named_frame *frame_at(const struct site_names *names,
					  const struct named_site *named, uint32_t depth)
{
	return depth < named->count ? &names->frames[named->first + depth] : NULL;
}

/* A name starts with a line of the user: what a framework called is shown with the frame of the user that called it. */
static uint64_t start_with_user(const struct named_site *named, const struct stack_line *lines,
				uint32_t count)
{
	uint32_t i, outer = 0;

	count = count < SITE_FRAMES ? count : SITE_FRAMES;
	for (i = 0; i < count; i++)
		outer = named->shown >> i & 1 ? i : outer;
	for (i = outer; i < count && lines[i].origin != ORIGIN_USER; i++)
		;
	return named->shown | (i < count ? UINT64_C(1) << i : 0);
}

/* Shows the innermost frame in which these call sites, whose names are the same, differ. False if no name changes. */
static bool tell_apart(const struct site_names *names, struct named_site **same, size_t count)
{
	uint32_t depth, text, other;
	bool differ = false, left = true, changed = false;
	size_t i;

	for (depth = 0; left && !differ; depth++) {
		const struct named_frame *frame = frame_at(names, same[0], depth);

		text = frame == NULL ? 0 : frame->text;
		left = text != 0;
		for (i = 1; i < count; i++) {
			frame = frame_at(names, same[i], depth);
			other = frame == NULL ? 0 : frame->text;
			left = left || other != 0;
			differ = differ || other != text;
		}
	}
	for (i = 0; i < count && differ; i++) {
		const struct named_frame *frame = frame_at(names, same[i], depth - 1);

		if (frame != NULL && same[i] >= names->all + names->settled) {
			same[i]->shown |= UINT64_C(1) << frame->at;
			changed = true;
		}
	}
	return changed;
}

static bool tell_all_apart(const struct site_names *names, struct named_site **sorted)
{
	size_t first, next;
	bool changed = false;

	for (first = 0; first < names->count; first = next) {
		for (next = first + 1;
		     next < names->count && sorted[next]->key == sorted[first]->key;)
			next++;
		if (next - first > 1)
			changed |= tell_apart(names, sorted + first, next - first);
	}
	return changed;
}

int site_names_settle(struct site_names *names, struct replay *replay)
{
	struct named_site **sorted = calloc(names->count + 1, sizeof(*sorted));
	bool changed = true;
	uint32_t round;
	size_t i;

	if (sorted == NULL)
		return -ENOMEM;
	for (i = 0; i < names->count; i++)
		sorted[i] = &names->all[i];
	for (round = 0; round < EXTRA_FRAMES && changed; round++) {
		make_keys(names);
		qsort(sorted, names->count, sizeof(*sorted), by_key);
		changed = tell_all_apart(names, sorted);
	}
	free(sorted);
	for (i = names->settled; i < names->count; i++) {
		struct named_site *named = &names->all[i];
		uint32_t count;
		const struct stack_line *lines = replay_stack_lines(replay, named->site, &count);

		named->name = names->names.length;
		site_add_name(replay, named->site, lines, count,
			      start_with_user(named, lines, count), &names->names);
		strbuf_add_char(&names->names, '\0');
	}
	names->settled = names->count;
	return strbuf_failed(&names->names) ? -ENOMEM : 0;
}

static const struct named_site *named_of(const struct site_names *names, struct replay *replay,
					 uint32_t stack)
{
	const uint64_t *known =
		stack == 0 ? NULL
			   : map_get(&names->index, (struct map_key){site_of(replay, stack), 0});

	return known == NULL ? NULL : &names->all[*known];
}

const char *site_name(const struct site_names *names, struct replay *replay, uint32_t stack)
{
	const struct named_site *named = named_of(names, replay, stack);

	return named == NULL ? NULL : names->names.data + named->name;
}

bool site_own_line(const struct site_names *names, struct replay *replay, uint32_t stack,
		   struct strbuf *out)
{
	const struct named_site *named = named_of(names, replay, stack);
	const struct stack_line *lines;
	uint32_t count, i;
	uint64_t shown;

	if (named == NULL)
		return false;
	lines = replay_stack_lines(replay, named->site, &count);
	shown = start_with_user(named, lines, count);
	for (i = 0; i < count && i < SITE_FRAMES; i++) {
		if ((shown >> i & 1) && lines[i].origin == ORIGIN_USER && lines[i].line != 0) {
			site_frame(&lines[i], out);
			return true;
		}
	}
	return false;
}
