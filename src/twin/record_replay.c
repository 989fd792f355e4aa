/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record played against itself: each request must get the address that it had, and the driver must be asked for the segments
 * that came. Where that fails, the twin does not know something about the program, and no what-if is worth anything.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "twin/block_sizes.h"
#include "twin/older_arenas.h"
#include "twin/program.h"

struct replaying {
	const struct program *program;
	size_t next;  /* event of the history from which segments are looked for */
	size_t limit; /* the request in progress: its segments came before it */
	const struct twin_conditions *conditions;
	struct map exact; /* sizes of blocks that were split off */
};

static bool grows(const struct history_event *e)
{
	return e->kind == HISTORY_SEGMENT || e->kind == HISTORY_MAP;
}

/* Segments that the record has before the request in progress, in order. */
static uint64_t place(void *context, uint32_t lane, uint64_t bytes, bool arena)
{
	struct replaying *r = context;
	const struct pool_history *h = r->program->history;

	(void)lane;
	for (; r->next < r->limit; r->next++) {
		const struct history_event *e = &h->events[r->next];

		if (!grows(e))
			continue;
		if ((e->kind == HISTORY_MAP) != arena || (!arena && e->bytes != bytes))
			return 0;
		r->next++;
		return e->address;
	}
	return 0;
}

/* After a request: segments of the record that the twin did not want. Parts of arenas it maps without asking where. */
static bool segment_left(struct replaying *r)
{
	const struct pool_history *h = r->program->history;

	for (; r->next < r->limit; r->next++)
		if (h->events[r->next].kind == HISTORY_SEGMENT)
			return true;
	return false;
}

/* What the record holds from the driver after each event. */
static uint64_t follow_reserved(const struct pool_history *h, size_t from, size_t to,
				uint64_t bytes)
{
	for (; from < to; from++) {
		const struct history_event *e = &h->events[from];

		if (grows(e))
			bytes += e->bytes;
		else if (e->kind == HISTORY_SEGMENT_GONE || e->kind == HISTORY_UNMAP)
			bytes = less_u64(bytes, e->bytes);
	}
	return bytes;
}

/* The segment that has an address; NULL: none. */
static const struct history_segment *segment_of(const struct pool_history *h, uint64_t address)
{
	for (size_t i = 0; i < h->segment_count; i++)
		if (address >= h->segments[i].address &&
		    address - h->segments[i].address < h->segments[i].bytes)
			return &h->segments[i];
	return NULL;
}

/* A block that is older than the record, while its state is rebuilt. */
struct older {
	const struct history_block *block;
	uint64_t size;
	bool known; /* the size is certain */
	bool freed; /* by an event that was passed */
};

static int by_address(const void *a, const void *b)
{
	const struct older *x = a, *y = b;

	return ORDER_UP(x->block->address, y->block->address);
}

/* The last one at or below an address; NULL: none. */
static struct older *older_at(struct older *all, size_t count, uint64_t address)
{
	size_t low = COUNT_FRONT(at, count, all[at].block->address <= address);

	return low == 0 ? NULL : &all[low - 1];
}

/*
 * The record has only the request of a block that it frees, not its size. In the large pool what is left of a block is not split off
 * unless it is more than 1 MiB, so a smaller gap before the next block belongs to this one. The next block is one that is in use, or
 * one that is handed out before this one goes.
 */
static void close_gap(struct older *o, uint64_t next)
{
	uint64_t end = o->block->address + o->size;

	if (!o->known && next >= end && next - end <= TWIN_SMALL_MOST) {
		o->size = next - o->block->address;
		o->known = true;
	}
}

static void find_sizes(const struct pool_history *h, const struct twin_settings *settings,
		       struct older *all, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct history_segment *segment = segment_of(h, all[i].block->address);

		if (segment == NULL || segment->small || segment->expandable) {
			all[i].known = true;
			continue;
		}
		/* Such a block is never split, so it is a whole segment. */
		if (!all[i].known && !settings->expandable &&
		    all[i].size >= settings->max_split_bytes) {
			all[i].size = segment->bytes;
			all[i].known = true;
		}
		if (i + 1 < count && all[i + 1].block->address < segment->address + segment->bytes)
			close_gap(&all[i], all[i + 1].block->address);
		else
			close_gap(&all[i], segment->address + segment->bytes);
	}
	for (size_t i = 0; i < h->event_count; i++) {
		const struct history_event *e = &h->events[i];
		struct older *o = older_at(all, count, e->address);

		if (o == NULL)
			continue;
		if (e->kind == HISTORY_ALLOC && !o->freed)
			close_gap(o, e->address);
		else if (e->kind == HISTORY_FREE_DONE && e->address == o->block->address)
			o->freed = true;
	}
}

/* Blocks that are older than the record. */
static int add_older_blocks(const struct program *p, const struct twin_conditions *c,
			    struct twin *twin, uint32_t *blocks)
{
	const struct pool_history *h = p->history;
	struct older *sorted = calloc(h->block_count + 1, sizeof(*sorted));
	int status = sorted == NULL ? -ENOMEM : 0;

	for (size_t i = 0; i < h->block_count && status == 0; i++) {
		const struct history_block *b = &h->blocks[i];

		sorted[i] = (struct older){
			.block = b,
			.size = b->bytes != 0
					? b->bytes
					: block_size_of(&c->settings, &c->release, b->requested),
			.known = b->bytes != 0};
	}
	if (status == 0) {
		qsort(sorted, h->block_count, sizeof(*sorted), by_address);
		find_sizes(h, &c->settings, sorted, h->block_count);
	}
	for (size_t i = 0; i < h->block_count && status == 0; i++) {
		const struct history_block *b = sorted[i].block;

		status = twin_add_block(twin, b->address, sorted[i].size, b->requested,
					&blocks[b - h->blocks]);
	}
	free(sorted);
	return status;
}

int program_add_older(const struct program *p, const struct twin_conditions *c, struct twin *twin,
		      uint32_t *blocks)
{
	const struct pool_history *h = p->history;
	int status = 0;

	for (size_t i = 0; i < h->segment_count && status == 0; i++) {
		const struct history_segment *s = &h->segments[i];

		if (!s->expandable)
			status = twin_add_segment(twin,
						  program_lane_of(p, s->stream, s->private_pool),
						  s->address, s->bytes, s->small);
	}
	if (status == 0)
		status = older_arenas_add(p, c, twin);
	return status != 0 ? status : add_older_blocks(p, c, twin, blocks);
}

static int leave(struct program_agreement *out, size_t source, const char *why)
{
	out->left_at = source;
	out->why = why;
	return 0;
}

/*
 * Of a block that was split off, the size is what was asked for, rounded; whoever else gets one of that size asked for the same. Others
 * may have a rest at their end that was not worth a block.
 */
static int note_slack(struct replaying *r, const struct twin *twin, const struct program_event *e,
		      uint64_t size)
{
	const struct twin_settings *s = &r->conditions->settings;
	uint64_t least = TWIN_SMALL_MOST, most = TWIN_SMALL_MOST;

	if (r->program->slack == NULL)
		return 0;
	if (twin_was_split(twin))
		return map_put(&r->exact, (struct map_key){size, 0}, 1);
	if (size <= TWIN_SMALL_MOST || s->expandable)
		return 0;
	if (size >= s->max_split_bytes) {
		least = s->max_split_bytes;
		most = s->non_split_rounding_bytes;
	}
	r->program->slack[e->id] = (uint32_t)min_u64(most, less_u64(size, least + 512));
	return 0;
}

static void mark_known(const struct replaying *r)
{
	const struct program *p = r->program;

	for (size_t i = 0; i < p->event_count && p->slack != NULL; i++) {
		const struct program_event *e = &p->events[i];

		if (e->kind == PROGRAM_REQUEST &&
		    map_get(&r->exact,
			    (struct map_key){block_size_of(&r->conditions->settings,
							   &r->conditions->release, e->bytes),
					     0}) != NULL)
			p->slack[e->id] |= PROGRAM_SLACK_UNLIKELY;
	}
}

static int replay_request(struct replaying *r, struct twin *twin, size_t i, uint32_t *blocks,
			  struct program_agreement *out)
{
	const struct program_event *e = &r->program->events[i];
	const struct history_event *recorded =
		&r->program->history->events[r->program->sources[i] - 1];
	uint32_t block = TWIN_NONE;
	int status;

	r->limit = r->program->sources[i] - 1;
	twin_expect(twin, recorded->address);
	status = twin_request(twin, e->lane, e->bytes, &block);
	if (status != 0)
		return status;
	out->recorded = recorded->address;
	out->replayed = block == TWIN_NONE ? 0 : twin_address(twin, block);
	if (twin_left_record(twin))
		return leave(out, r->limit,
			     "the replay wants a segment that the record does not have");
	if (block == TWIN_NONE)
		return leave(out, r->limit, "the replay refuses this request");
	if (segment_left(r))
		return leave(out, r->limit,
			     "the record has a segment that the replay does not want");
	if (out->recorded != out->replayed)
		return leave(out, r->limit, "the replay hands out another address");
	blocks[e->id] = block;
	out->addresses++;
	return note_slack(r, twin, e, twin_size(twin, block));
}

static int replay_gone(struct replaying *r, struct twin *twin, size_t i,
		       struct program_agreement *out)
{
	size_t source = r->program->sources[i] - 1;
	bool done = false;
	int status;

	/* Which part went is unknown where parts have no addresses; all that is free goes at the same time. */
	if (r->program->history->blocks_only && r->program->history->events[source].address == 0)
		return twin_empty_cache(twin);
	status = twin_give_back(twin, r->program->history->events[source].address, &done);

	if (status != 0 || done)
		return status;
	return leave(out, source,
		     "the record gives memory back that the replay does not have free");
}

static int replay_mapped(struct replaying *r, struct twin *twin, size_t i,
			 struct program_agreement *out)
{
	const struct program_event *e = &r->program->events[i];
	size_t source = r->program->sources[i] - 1;
	const struct history_event *recorded = &r->program->history->events[source];
	bool done = false;
	int status =
		twin_map_part(twin, e->lane, e->bytes, recorded->address, recorded->bytes, &done);

	if (r->next <= source)
		r->next = source + 1;
	if (status != 0 || done)
		return status;
	return leave(out, source, "the record maps memory where the replay does not");
}

static int replay_event(struct replaying *r, struct twin *twin, size_t i, uint32_t *blocks,
			struct program_agreement *out)
{
	const struct program_event *e = &r->program->events[i];

	switch ((enum program_kind)e->kind) {
	case PROGRAM_REQUEST:
		return replay_request(r, twin, i, blocks, out);
	case PROGRAM_ASK_FREE:
		if (blocks[e->id] != TWIN_NONE)
			twin_ask_free(twin, blocks[e->id]);
		return 0;
	case PROGRAM_FREE:
		return blocks[e->id] == TWIN_NONE ? 0 : twin_release(twin, blocks[e->id]);
	case PROGRAM_GONE:
		return replay_gone(r, twin, i, out);
	case PROGRAM_MAPPED:
		return replay_mapped(r, twin, i, out);
	case PROGRAM_EMPTY_CACHE:
	case PROGRAM_POOL_UNUSED:
		return 0; /* what went back is in the record, segment by segment */
	case PROGRAM_TRY:
		break; /* what the driver had left is not in the record */
	}
	return 0;
}

static int replay_all(struct replaying *r, struct twin *twin, uint32_t *blocks,
		      struct program_agreement *out)
{
	const struct program *p = r->program;
	const struct pool_history *h = p->history;
	uint64_t reserved = 0;
	size_t followed = 0;
	int status = 0;

	for (size_t i = 0; i < h->segment_count; i++)
		reserved += h->segments[i].bytes;
	for (size_t i = p->older_count; i < p->event_count; i++) {
		status = replay_event(r, twin, i, blocks, out);
		if (status != 0 || out->left_at != SIZE_MAX)
			return status;
		if (p->events[i].kind != PROGRAM_REQUEST)
			continue;
		reserved = follow_reserved(h, followed, p->sources[i], reserved);
		followed = p->sources[i];
		if (reserved != twin_figures(twin)->reserved)
			return leave(out, p->sources[i] - 1,
				     "the replay holds another amount of memory than the record");
	}
	out->agrees = true;
	return 0;
}

int program_replay(const struct program *program, const struct twin_conditions *conditions,
		   struct program_agreement *out)
{
	struct replaying r = {.program = program, .conditions = conditions};
	struct twin_places places = {place, &r};
	struct twin_conditions own = *conditions;
	uint32_t *blocks = malloc(((size_t)program->request_count + 1) * sizeof(*blocks));
	struct twin *twin = NULL;
	int status;

	*out = (struct program_agreement){.left_at = SIZE_MAX};
	own.places = &places;
	status = blocks == NULL ? -ENOMEM : twin_new(&own, &twin);
	for (uint32_t i = 0; status == 0 && i < program->request_count; i++)
		blocks[i] = TWIN_NONE;
	for (uint32_t i = 0; i < program->lane_count && status == 0; i++)
		status = twin_lane(twin, i, program->lanes[i].private_pool != 0);
	if (status == 0)
		status = program_add_older(program, conditions, twin, blocks);
	if (status == 0)
		twin_older_done(twin);
	if (status == 0)
		status = replay_all(&r, twin, blocks, out);
	if (status == 0) {
		out->figures = *twin_figures(twin);
		mark_known(&r);
	}
	map_fini(&r.exact);
	twin_free(twin);
	free(blocks);
	return status;
}
