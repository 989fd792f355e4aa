/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool at one moment, by address: the driver's blocks that it has (segments), its own blocks in them, and the holes between. A block
 * of the driver is a segment of the pool if a block of the pool lay in it at any time of its life. Of the driver's own pool each block
 * is a segment, filled by blocks of any framework; one that no framework ever used is filled by itself. Blocks of the pool that lie in
 * no known segment stand together in spans of addresses, without holes: what is between them is not the pool's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "viewer/groups.h"

#define SEGMENTS_SHOWN 2000u
#define LOOSE_GAP      (UINT64_C(2) << 20) /* loose blocks closer than this stand together */

struct segment {
	uint64_t id; /* of the driver's block; UINT64_MAX: loose blocks */
	uint64_t address, size;
	bool of_pool; /* a block of the pool lay in it */
	bool of_any;  /* a block of any framework's pool did */
	uint64_t used, largest_hole, holes, blocks;
	size_t first, last; /* in pool_state.inside */
};

struct inner {
	uint64_t id, address, size;
};

struct hole_class {
	uint64_t count, bytes;
};

struct pool_state {
	struct segment *segments;
	size_t count, room;
	struct inner *inside; /* by address */
	size_t inside_count, inside_room;
	struct hole_class holes[64]; /* by power of two: of at least 1 << index bytes */
};

static int by_segment_address(const void *a, const void *b)
{
	const struct segment *x = a, *y = b;

	return ORDER_UP(x->address, y->address);
}

static int by_inner_address(const void *a, const void *b)
{
	const struct inner *x = a, *y = b;

	return ORDER_UP(x->address, y->address) ?: ORDER_DOWN(x->size, y->size);
}

static bool is_driver(const struct model *model, const struct model_block *block)
{
	return pool_is_driver(model->pools[block->pool - 1].pool);
}

/* The segment that a byte lies in; NULL: none. */
static struct segment *segment_at(const struct pool_state *state, uint64_t address)
{
	size_t low = COUNT_FRONT(at, state->count, state->segments[at].address <= address);

	return low > 0 && address - state->segments[low - 1].address < state->segments[low - 1].size
		       ? &state->segments[low - 1]
		       : NULL;
}

static int add_segment(struct pool_state *state, struct segment segment)
{
	if (ARRAY_RESERVE(state->segments, state->room, state->count + 1) < 0)
		return -ENOMEM;
	state->segments[state->count++] = segment;
	return 0;
}

/* What the driver has given on this device and not taken back. 0 or -ENOMEM. */
static int find_segments(const struct model *model, uint32_t device, uint64_t time_ns,
			 struct pool_state *state)
{
	uint64_t i;
	int r = 0;

	for (i = 0; i < model->block_count && r == 0; i++) {
		const struct model_block *block = model_block(model, i);

		if (block != NULL && is_driver(model, block) && model_lives(block, time_ns) &&
		    model->pools[block->pool - 1].device == device && block->size_bytes > 0)
			r = add_segment(state, (struct segment){.id = i,
								.address = block->address,
								.size = block->size_bytes});
	}
	if (state->count > 0)
		qsort(state->segments, state->count, sizeof(*state->segments), by_segment_address);
	return r;
}

/* Blocks of frameworks in them: whose the segments are, and what lives now. 0 or -ENOMEM. */
static int fill_segments(const struct model *model, const struct question *question, bool all,
			 struct pool_state *state)
{
	const uint32_t device = model->pools[question->pool].device;
	uint64_t i;

	for (i = 0; i < model->block_count; i++) {
		const struct model_block *block = model_block(model, i);
		struct segment *segment;
		bool own;

		if (block == NULL || is_driver(model, block) || block->size_bytes == 0 ||
		    model->pools[block->pool - 1].device != device)
			continue;
		own = all || block->pool == question->pool + 1;
		segment = segment_at(state, block->address);
		/* Another block of the driver may have been here before, or comes later. */
		if (segment != NULL && model_block(model, segment->id)->start_ns < block->end_ns &&
		    block->start_ns < model_block(model, segment->id)->end_ns) {
			segment->of_any = true;
			segment->of_pool |= own;
		}
		if (!own || !model_lives(block, question->at_ns))
			continue;
		if (ARRAY_RESERVE(state->inside, state->inside_room, state->inside_count + 1) < 0)
			return -ENOMEM;
		state->inside[state->inside_count++] =
			(struct inner){i, block->address, block->size_bytes};
	}
	if (state->inside_count > 0)
		qsort(state->inside, state->inside_count, sizeof(*state->inside), by_inner_address);
	return 0;
}

/* Keeps the pool's own segments, and makes some of what lies in none. 0 or -ENOMEM. */
static int keep_segments(struct pool_state *state, bool all)
{
	size_t i, kept = 0, before;
	int r = 0;

	for (i = 0; i < state->count; i++) {
		if (all || state->segments[i].of_pool)
			state->segments[kept++] = state->segments[i];
	}
	before = state->count = kept;
	for (i = 0; i < state->inside_count && r == 0; i++) {
		const struct inner *inner = &state->inside[i];
		struct segment *last =
			state->count > before ? &state->segments[state->count - 1] : NULL;
		struct pool_state known = {.segments = state->segments, .count = before};

		if (segment_at(&known, inner->address) != NULL)
			continue;
		if (last != NULL && inner->address - last->address <= last->size + LOOSE_GAP) {
			if (inner->address + inner->size > last->address + last->size)
				last->size = inner->address + inner->size - last->address;
			continue;
		}
		r = add_segment(state, (struct segment){.id = UINT64_MAX,
							.address = inner->address,
							.size = inner->size});
	}
	if (state->count > 0)
		qsort(state->segments, state->count, sizeof(*state->segments), by_segment_address);
	return r;
}

static void take_hole(struct pool_state *state, struct segment *segment, uint64_t bytes)
{
	struct hole_class *of;

	if (bytes == 0 || segment->id == UINT64_MAX)
		return;
	of = &state->holes[63 - __builtin_clzll(bytes)];
	of->count++;
	of->bytes += bytes;
	segment->holes++;
	if (bytes > segment->largest_hole)
		segment->largest_hole = bytes;
}

static void measure(struct pool_state *state, bool all)
{
	size_t i, at = 0;

	for (i = 0; i < state->count; i++) {
		struct segment *segment = &state->segments[i];
		uint64_t end = segment->address + segment->size, free_from = segment->address;

		while (at < state->inside_count && state->inside[at].address < segment->address)
			at++;
		for (segment->first = at;
		     at < state->inside_count && state->inside[at].address < end; at++) {
			const struct inner *inner = &state->inside[at];
			uint64_t stop = inner->address + inner->size;

			segment->blocks++;
			if (inner->address > free_from)
				take_hole(state, segment, inner->address - free_from);
			if (stop <= free_from)
				continue; /* a block of a pool inside one of another */
			segment->used +=
				stop - (inner->address > free_from ? inner->address : free_from);
			free_from = stop;
		}
		segment->last = at;
		if (all && !segment->of_any && segment->id != UINT64_MAX)
			segment->used = segment->size; /* nobody divides it */
		else if (free_from < end)
			take_hole(state, segment, end - free_from);
	}
}

static void say_segment(struct model *model, const struct pool_state *state,
			const struct segment *segment, const struct question *question,
			const struct groups *groups, uint32_t *room, struct json *json)
{
	char address[24];
	size_t i;

	json_object(json, NULL);
	(void)snprintf(address, sizeof(address), "0x%llx", (unsigned long long)segment->address);
	json_string(json, "address", address);
	json_u64(json, "bytes", segment->size);
	json_u64(json, "used", segment->used);
	json_u64(json, "holes", segment->holes);
	json_u64(json, "largest_hole", segment->largest_hole);
	json_u64(json, "count", segment->blocks);
	json_bool(json, "loose", segment->id == UINT64_MAX);
	if (segment->id != UINT64_MAX)
		json_u64(json, "id", segment->id);
	/* Nobody divides it: it is a block of its own. */
	if (segment->id != UINT64_MAX && segment->blocks == 0 && segment->used > 0)
		json_u64(json, "group",
			 groups_number(groups, group_key(model, model_block(model, segment->id),
							 question->by)));
	/* id, offset, size, group */
	json_array(json, "blocks");
	for (i = segment->first; i<segment->last && * room> 0; i++, (*room)--) {
		const struct inner *inner = &state->inside[i];
		const struct model_block *block = model_block(model, inner->id);

		json_u64(json, NULL, inner->id);
		json_u64(json, NULL, inner->address - segment->address);
		json_u64(json, NULL, inner->size);
		json_u64(json, NULL, groups_number(groups, group_key(model, block, question->by)));
	}
	json_end(json);
	json_end(json);
}

static void say_state(struct model *model, const struct pool_state *state,
		      const struct question *question, struct json *json)
{
	struct question whole = *question;
	uint64_t bytes = 0, used = 0, largest = 0, holes = 0, loose = 0;
	uint32_t room = ANSWER_RECTANGLES;
	struct groups groups;
	size_t i;

	whole.from_ns = question->at_ns;
	whole.to_ns = question->at_ns + 1;
	if (groups_find(model, &whole, &groups) < 0) {
		json_string(json, "error", "no memory");
		return;
	}
	groups_json(model, &groups, question->by, json);
	json_array(json, "segments");
	for (i = 0; i < state->count; i++) {
		const struct segment *segment = &state->segments[i];

		if (segment->id == UINT64_MAX) {
			loose += segment->used;
		} else {
			bytes += segment->size;
			used += segment->used;
			holes += segment->holes;
			largest = segment->largest_hole > largest ? segment->largest_hole : largest;
		}
		if (i < SEGMENTS_SHOWN)
			say_segment(model, state, segment, question, &groups, &room, json);
	}
	json_end(json);
	json_u64(json, "count", state->count);
	json_u64(json, "bytes", bytes);
	json_u64(json, "used", used);
	json_u64(json, "holes", holes);
	json_u64(json, "largest_hole", largest);
	json_u64(json, "loose_bytes", loose);
	/* at least so many bytes, and less than twice that; how many holes; their bytes */
	json_array(json, "hole_sizes");
	for (i = MSCOPE_COUNT(state->holes); i > 0; i--) {
		const struct hole_class *of = &state->holes[i - 1];

		if (of->count == 0)
			continue;
		json_array(json, NULL);
		json_u64(json, NULL, UINT64_C(1) << (i - 1));
		json_u64(json, NULL, of->count);
		json_u64(json, NULL, of->bytes);
		json_end(json);
	}
	json_end(json);
}

/* The pool of a question at its moment. 0 or -ENOMEM; the caller ends `out` in either case. */
static int state_at(struct model *model, const struct question *question, struct pool_state *out)
{
	bool all = pool_is_driver(model->pools[question->pool].pool);
	int r = find_segments(model, model->pools[question->pool].device, question->at_ns, out);

	if (r == 0)
		r = fill_segments(model, question, all, out);
	if (r == 0)
		r = keep_segments(out, all);
	if (r == 0)
		measure(out, all);
	return r;
}

/* What lies beside a block: another one, or a hole up to the next block or the segment's end. */
static void say_beside(struct model *model, const char *key, const struct inner *inner,
		       uint64_t hole, struct json *json)
{
	struct strbuf name = {0};

	if (inner == NULL && hole == 0)
		return;
	json_object(json, key);
	if (hole > 0)
		json_u64(json, "hole", hole);
	if (inner != NULL) {
		const struct model_block *block = model_block(model, inner->id);

		json_u64(json, "id", inner->id);
		json_u64(json, "bytes", inner->size);
		group_name(model, group_key(model, block, BY_STACK), BY_STACK, &name);
		json_string(json, "place", strbuf_str(&name));
	}
	json_end(json);
	strbuf_fini(&name);
}

void answer_neighbours(struct model *model, uint64_t id, struct json *json)
{
	const struct model_block *block = model_block(model, id);
	struct question question = {.pool = block->pool - 1, .at_ns = block->start_ns};
	struct pool_state state = {0};
	struct segment *segment = NULL;
	char address[24];
	size_t at;

	if (!pool_is_driver(model->pools[question.pool].pool) &&
	    state_at(model, &question, &state) == 0)
		segment = segment_at(&state, block->address);
	if (segment != NULL && segment->id != UINT64_MAX) {
		const struct inner *before, *after;

		for (at = segment->first; at < segment->last && state.inside[at].id != id; at++)
			;
		before = at > segment->first && at < segment->last ? &state.inside[at - 1] : NULL;
		after = at + 1 < segment->last ? &state.inside[at + 1] : NULL;
		json_object(json, "segment");
		(void)snprintf(address, sizeof(address), "0x%llx",
			       (unsigned long long)segment->address);
		json_string(json, "address", address);
		json_u64(json, "bytes", segment->size);
		json_u64(json, "offset", block->address - segment->address);
		say_beside(model, "before", before,
			   block->address - (before == NULL ? segment->address
							    : before->address + before->size),
			   json);
		say_beside(model, "after", after,
			   (after == NULL ? segment->address + segment->size : after->address) -
				   (block->address + block->size_bytes),
			   json);
		json_end(json);
	}
	free(state.segments);
	free(state.inside);
}

void answer_segments(struct model *model, const struct question *question, struct json *json)
{
	const struct model_pool *pool = question_pool(model, question);
	struct pool_state state = {0};

	json_u64(json, "at_ns", model_since(model, question->at_ns));
	if (pool == NULL) {
		json_string(json, "error", "no such pool");
		return;
	}
	if (question->what == OF_PEAK && pool->dropped_peak) {
		json_string(json, "error",
			    "the peak was before the part of the trace that --max-disk left");
		return;
	}
	if (state_at(model, question, &state) < 0)
		json_string(json, "error", "no memory");
	else
		say_state(model, &state, question, json);
	free(state.segments);
	free(state.inside);
}
