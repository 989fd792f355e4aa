/* SPDX-License-Identifier: Apache-2.0 */
#include "twin/program.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/map.h"
#include "twin/block_sizes.h"

void program_fini(struct program *program)
{
	free(program->events);
	free(program->sources);
	free(program->lanes);
	free(program->slack);
	*program = (struct program){0};
}

uint32_t program_lane_of(const struct program *program, uint64_t stream, uint64_t private_pool)
{
	for (uint32_t i = 0; i < program->lane_count; i++)
		if (program->lanes[i].stream == stream &&
		    program->lanes[i].private_pool == private_pool)
			return i;
	return TWIN_NONE;
}

/* ---- making one ---- */

struct maker {
	struct program *program;
	struct map lanes; /* stream, private pool -> lane */
	struct map live;  /* address -> request << 1 | free asked for */
	struct map bytes; /* request -> requested bytes */
	uint64_t alive, waiting, waiting_segments, reserved;
	bool gone;    /* segments went in the event before */
	bool emptied; /* by a call of empty_cache() that the record has */
	/* empty_cache() waits for other streams: it is played after the frees that it completes. 0: none is put off; else its source */
	size_t emptying;
	bool refusals; /* the record has requests that were refused */
};

static int lane_of(struct maker *m, uint64_t stream, uint64_t private_pool, uint32_t *out)
{
	struct program *p = m->program;
	struct map_key key = {stream, private_pool};
	const uint64_t *known = map_get(&m->lanes, key);

	if (known != NULL) {
		*out = (uint32_t)*known;
		return 0;
	}
	if (p->lane_count >= (1u << 24) - 1 ||
	    ARRAY_RESERVE(p->lanes, p->lane_room, p->lane_count + 1) != 0 ||
	    map_put(&m->lanes, key, p->lane_count) != 0)
		return -ENOMEM;
	p->lanes[p->lane_count] = (struct program_lane){stream, private_pool};
	*out = (uint32_t)p->lane_count++;
	return 0;
}

static int put(struct maker *m, const struct program_event *event, size_t source)
{
	struct program *p = m->program;

	if (ARRAY_RESERVE(p->events, p->event_room, p->event_count + 1) != 0 ||
	    ARRAY_RESERVE(p->sources, p->source_room, p->event_count + 1) != 0)
		return -ENOMEM;
	p->sources[p->event_count] = (uint32_t)source;
	p->events[p->event_count++] = *event;
	return 0;
}

static int put_request(struct maker *m, uint64_t address, uint64_t bytes, uint64_t stream,
		       uint64_t private_pool, size_t source)
{
	struct program *p = m->program;
	struct program_event event = {
		.bytes = bytes, .id = p->request_count, .kind = PROGRAM_REQUEST};
	uint32_t lane = 0;
	int status = lane_of(m, stream, private_pool, &lane);

	event.lane = lane & 0xffffff;
	if (status == 0)
		status = map_put(&m->live, (struct map_key){address, 0},
				 (uint64_t)p->request_count << 1);
	if (status == 0)
		status = map_put(&m->bytes, (struct map_key){p->request_count, 0}, bytes);
	p->request_count++;
	m->alive += bytes;
	if (m->alive > p->alive_peak)
		p->alive_peak = m->alive;
	/* Most frees are complete before the next request: only what a request finds waiting matters. */
	if (m->waiting > p->waiting_peak)
		p->waiting_peak = m->waiting;
	if (m->waiting_segments > p->waiting_segments)
		p->waiting_segments = m->waiting_segments;
	return status != 0 ? status : put(m, &event, source);
}

/* Size of the segment that a request takes when no free block is large enough. */
static uint64_t own_segment(uint64_t bytes)
{
	struct twin_settings settings;

	twin_settings_default(&settings);
	return segment_size_of(&settings, bytes);
}

static int put_free(struct maker *m, uint64_t address, bool done, size_t source)
{
	uint64_t *found = map_get(&m->live, (struct map_key){address, 0}), bytes;
	struct program_event event = {.kind = done ? PROGRAM_FREE : PROGRAM_ASK_FREE};

	if (found == NULL || (!done && (*found & 1) != 0))
		return 0; /* of a block that the record does not know, or for the second time */
	event.id = (uint32_t)(*found >> 1);
	bytes = *map_get(&m->bytes, (struct map_key){event.id, 0});
	if (!done) {
		*found |= 1;
		m->waiting += bytes;
		m->waiting_segments += own_segment(bytes);
	} else {
		m->alive -= bytes;
		if ((*found & 1) != 0) {
			m->waiting -= bytes;
			m->waiting_segments -= own_segment(bytes);
		}
		map_remove(&m->live, (struct map_key){address, 0}, NULL);
		map_remove(&m->bytes, (struct map_key){event.id, 0}, NULL);
	}
	return put(m, &event, source);
}

static int put_empty_cache(struct maker *m, size_t source)
{
	return put(m, &(struct program_event){.kind = PROGRAM_EMPTY_CACHE}, source);
}

/*
 * Segments of private pools that go in the events from `next` on: no graph uses these pools any more. That comes before what gives
 * them back.
 */
static int put_unused(struct maker *m, size_t next)
{
	const struct pool_history *h = m->program->history;
	uint64_t stream = 0, pool = 0;
	int status = 0;

	for (; next < h->event_count && status == 0; next++) {
		const struct history_event *e = &h->events[next];
		struct program_event unused = {.kind = PROGRAM_POOL_UNUSED};
		uint32_t lane = 0;

		if (e->kind == HISTORY_FREE_DONE)
			continue;
		if (e->kind != HISTORY_SEGMENT_GONE && e->kind != HISTORY_UNMAP)
			break;
		if (e->private_pool == 0 || (e->private_pool == pool && e->stream == stream))
			continue;
		pool = e->private_pool;
		stream = e->stream;
		status = lane_of(m, stream, pool, &lane);
		unused.lane = lane & 0xffffff;
		if (status == 0)
			status = put(m, &unused, next + 1);
	}
	return status;
}

static void grow(struct maker *m, const struct history_event *e)
{
	m->reserved += e->bytes;
	if (m->reserved > m->program->reserved_peak)
		m->program->reserved_peak = m->reserved;
}

/*
 * Segments go when empty_cache() is called, and before a retry. The record does not say which; a retry begins and ends inside one
 * request, and leads to a new segment or to a refusal. Other settings call empty_cache() too, and have retries of their own.
 */
static bool is_retry(const struct maker *m, size_t next)
{
	const struct pool_history *h = m->program->history;

	while (next < h->event_count && (h->events[next].kind == HISTORY_SEGMENT_GONE ||
					 h->events[next].kind == HISTORY_UNMAP))
		next++;
	if (next == h->event_count)
		return false;
	return h->events[next].kind == HISTORY_REFUSED ||
	       ((m->refusals || h->empty_cache_known) &&
		(h->events[next].kind == HISTORY_SEGMENT || h->events[next].kind == HISTORY_MAP));
}

static int take_gone(struct maker *m, const struct history_event *e, size_t source)
{
	int status = 0;

	m->reserved = less_u64(m->reserved, e->bytes);
	if (!m->gone) {
		m->gone = true;
		if (!m->emptied)
			status = put_unused(m, source - 1);
		if (status == 0 && !m->emptied && !is_retry(m, source))
			status = put_empty_cache(m, source);
	}
	return status != 0 ? status : put(m, &(struct program_event){.kind = PROGRAM_GONE}, source);
}

/*
 * What was mapped for a request stays mapped when the driver has no more for the rest of it. Then comes no block, but memory goes
 * back for a retry, or the request is refused.
 */
static int take_map(struct maker *m, const struct history_event *e, size_t source)
{
	const struct pool_history *h = m->program->history;
	struct program_event mapped = {.kind = PROGRAM_MAPPED};
	uint32_t lane = 0;
	size_t next = source;
	int status;

	grow(m, e);
	while (next < h->event_count && h->events[next].kind == HISTORY_MAP)
		next++;
	if (next == h->event_count || (h->events[next].kind != HISTORY_UNMAP &&
				       h->events[next].kind != HISTORY_SEGMENT_GONE &&
				       h->events[next].kind != HISTORY_REFUSED))
		return 0;
	while (next < h->event_count && h->events[next].kind != HISTORY_REFUSED &&
	       h->events[next].kind != HISTORY_ALLOC)
		next++;
	mapped.bytes = next < h->event_count ? h->events[next].bytes : 0;
	status = lane_of(m, e->stream, e->private_pool, &lane);
	mapped.lane = lane & 0xffffff;
	return status != 0 ? status : put(m, &mapped, source);
}

static int put_emptying(struct maker *m)
{
	size_t source = m->emptying;

	m->emptying = 0;
	if (source == 0)
		return 0;
	return put_unused(m, source) != 0 ? -ENOMEM : put_empty_cache(m, source);
}

static int take(struct maker *m, const struct history_event *e, size_t source)
{
	bool gone = e->kind == HISTORY_SEGMENT_GONE || e->kind == HISTORY_UNMAP;
	int status = 0;

	if (!gone)
		m->gone = false;
	if (e->kind != HISTORY_FREE_DONE)
		status = put_emptying(m);
	if (!gone && e->kind != HISTORY_FREE_DONE)
		m->emptied = false;
	if (status != 0)
		return status;
	switch ((enum history_kind)e->kind) {
	case HISTORY_ALLOC:
		return put_request(m, e->address, e->bytes, e->stream, e->private_pool, source);
	case HISTORY_FREE_ASKED:
		return put_free(m, e->address, false, source);
	case HISTORY_FREE_DONE:
		return put_free(m, e->address, true, source);
	case HISTORY_SEGMENT:
		grow(m, e);
		return 0;
	case HISTORY_MAP:
		return take_map(m, e, source);
	case HISTORY_SEGMENT_GONE:
	case HISTORY_UNMAP:
		return take_gone(m, e, source);
	case HISTORY_EMPTY_CACHE:
		m->emptied = true;
		m->emptying = source;
		break;
	case HISTORY_REFUSED:
		break;
	}
	return 0;
}

/* The refusal that ended the program: no request came after it. */
static int put_last_refusal(struct maker *m)
{
	const struct pool_history *h = m->program->history;
	uint32_t lane = 0;
	int status;

	for (size_t i = h->event_count; i > 0 && h->events[i - 1].kind != HISTORY_ALLOC; i--) {
		const struct history_event *e = &h->events[i - 1];

		if (e->kind != HISTORY_REFUSED)
			continue;
		m->program->ends_refused = true;
		status = lane_of(m, e->stream, e->private_pool, &lane);
		return status != 0 ? status
				   : put(m,
					 &(struct program_event){.kind = PROGRAM_TRY,
								 .bytes = e->bytes,
								 .lane = lane & 0xffffff},
					 i);
	}
	return 0;
}

int program_make(struct program *program, const struct pool_history *history)
{
	struct maker m = {.program = program};
	uint32_t lane;
	int status = 0;

	*program = (struct program){.history = history};
	for (size_t i = 0; i < history->segment_count && status == 0; i++) {
		const struct history_segment *s = &history->segments[i];

		m.reserved += s->bytes;
		/* Of all: what nothing is requested from can be given back. */
		status = lane_of(&m, s->stream, s->private_pool, &lane);
	}
	program->reserved_peak = m.reserved;
	for (size_t i = 0; i < history->block_count && status == 0; i++) {
		const struct history_block *b = &history->blocks[i];
		uint64_t bytes = b->requested != 0 ? b->requested : b->bytes;

		status = put_request(&m, b->address, bytes, b->stream, b->private_pool, 0);
		program->older_count++;
		program->older_bytes += bytes;
	}
	for (size_t i = 0; i < history->event_count; i++)
		if (history->events[i].kind == HISTORY_REFUSED)
			m.refusals = true;
	for (size_t i = 0; i < history->event_count && status == 0; i++)
		status = take(&m, &history->events[i], i + 1);
	if (status == 0)
		status = put_emptying(&m);
	if (status == 0)
		status = put_last_refusal(&m);
	map_fini(&m.lanes);
	map_fini(&m.live);
	map_fini(&m.bytes);
	if (status != 0 || !history->blocks_only)
		return status;
	program->slack = calloc((size_t)program->request_count + 1, sizeof(*program->slack));
	return program->slack == NULL ? -ENOMEM : 0;
}

int program_vary(const struct program *program, uint64_t seed, struct program *out)
{
	*out = *program;
	out->events = malloc((program->event_count + 1) * sizeof(*out->events));
	if (out->events == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < program->event_count; i++) {
		struct program_event *e = &out->events[i];
		uint64_t slack, key;

		*e = program->events[i];
		if (e->kind != PROGRAM_REQUEST)
			continue;
		key = e->bytes ^ seed << 40;
		slack = program->slack[e->id];
		if ((slack & PROGRAM_SLACK_UNLIKELY) != 0)
			slack = seed % 2 != 0 ? 0 : slack - PROGRAM_SLACK_UNLIKELY;
		/* The same size has the same slack each time: it is mostly the same tensor. */
		e->bytes -= seed < 2
				    ? slack
				    : slack * (hash_add(HASH_BEGIN, &key, sizeof(key)) % 257) / 256;
	}
	return 0;
}

/* ---- playing ---- */

static int open_lanes(const struct program *p, struct twin *twin)
{
	int status = 0;

	for (uint32_t i = 0; i < p->lane_count && status == 0; i++)
		status = twin_lane(twin, i, p->lanes[i].private_pool != 0);
	return status;
}

/* One play. */
struct player {
	const struct program *program;
	struct twin *twin;
	enum program_waits waits;
	uint32_t *blocks; /* of each request; TWIN_NONE: refused, or free */
	/* Only with PROGRAM_LATER: requests so far, when each free was asked for, and frees that are put off, in order. */
	uint32_t requests;
	uint32_t *asked;
	struct late {
		uint32_t block;
		uint32_t due;
	} * late;
	size_t late_first, late_count;
	struct program_result *out;
	uint64_t *reserved; /* after each event of the history; NULL: not wanted */
};

static int play_late(struct player *player, bool all)
{
	int status = 0;

	while (status == 0 && player->late_first < player->late_count &&
	       (all || player->late[player->late_first].due <= player->requests))
		status = twin_release(player->twin, player->late[player->late_first++].block);
	return status;
}

static int play_request(struct player *player, size_t i)
{
	const struct program *p = player->program;
	const struct program_event *e = &p->events[i];
	struct program_result *out = player->out;
	uint32_t block = TWIN_NONE;
	int status = twin_request(player->twin, e->lane, e->bytes, &block);

	if (block == TWIN_NONE && status == 0 && player->late_first < player->late_count) {
		/* The allocator waits for streams before it gives up. */
		status = play_late(player, true);
		if (status == 0)
			status = twin_request(player->twin, e->lane, e->bytes, &block);
	}
	if (block == TWIN_NONE && status == 0 && out->refused_at == SIZE_MAX) {
		out->refused_at = p->sources[i];
		out->refused_step =
			p->sources[i] == 0 ? 0 : p->history->events[p->sources[i] - 1].step;
	}
	if (e->kind == PROGRAM_REQUEST)
		player->blocks[e->id] = block;
	player->requests++;
	return status;
}

static int play_ask_free(struct player *player, uint32_t id)
{
	uint32_t block = player->blocks[id];

	if (block == TWIN_NONE)
		return 0;
	if (player->asked != NULL)
		player->asked[id] = player->requests + 1;
	if (player->waits != PROGRAM_AT_ONCE) {
		twin_ask_free(player->twin, block);
		return 0;
	}
	player->blocks[id] = TWIN_NONE;
	return twin_release(player->twin, block);
}

static int play_free(struct player *player, uint32_t id)
{
	uint32_t block = player->blocks[id], waited;

	player->blocks[id] = TWIN_NONE;
	if (block == TWIN_NONE)
		return 0;
	/* asked[] counts from 1; 0: nobody asked before. */
	waited = player->asked == NULL || player->asked[id] == 0
			 ? 0
			 : player->requests + 1 - player->asked[id];
	if (waited == 0)
		return twin_release(player->twin, block);
	player->late[player->late_count++] = (struct late){block, player->requests + 2 * waited};
	return 0;
}

static int play_event(struct player *player, size_t i)
{
	const struct program_event *e = &player->program->events[i];
	int status;

	switch ((enum program_kind)e->kind) {
	case PROGRAM_REQUEST:
	case PROGRAM_TRY:
		status = play_late(player, false);
		return status != 0 ? status : play_request(player, i);
	case PROGRAM_ASK_FREE:
		return play_ask_free(player, e->id);
	case PROGRAM_FREE:
		return play_free(player, e->id);
	case PROGRAM_EMPTY_CACHE:
		status = play_late(player, true);
		return status != 0 ? status : twin_empty_cache(player->twin);
	case PROGRAM_POOL_UNUSED:
		twin_pool_unused(player->twin, e->lane);
		break;
	case PROGRAM_GONE:
	case PROGRAM_MAPPED:
		break;
	}
	return 0;
}

static int play(const struct program *program, const struct twin_conditions *conditions,
		enum program_waits waits, bool stop, struct program_result *out, uint64_t *reserved)
{
	size_t ids = (size_t)program->request_count + 1;
	struct player player = {
		.program = program, .waits = waits, .out = out, .reserved = reserved};
	size_t first = 0;
	int status = twin_new(conditions, &player.twin);

	*out = (struct program_result){.refused_at = SIZE_MAX};
	player.blocks = malloc(ids * sizeof(*player.blocks));
	if (waits == PROGRAM_LATER) {
		player.asked = calloc(ids, sizeof(*player.asked));
		player.late = calloc(ids, sizeof(*player.late));
	}
	if (player.blocks == NULL ||
	    (waits == PROGRAM_LATER && (player.asked == NULL || player.late == NULL)))
		status = -ENOMEM;
	if (status == 0)
		status = open_lanes(program, player.twin);
	for (size_t i = 0; i < ids && status == 0; i++)
		player.blocks[i] = TWIN_NONE;
	if (status == 0 && program->older_as != NULL) {
		first = program->older_count;
		status = program_add_older(program, program->older_as, player.twin, player.blocks);
	}
	for (size_t i = first; i < program->event_count && status == 0; i++) {
		status = play_event(&player, i);
		if (reserved != NULL && program->sources[i] != 0)
			reserved[program->sources[i] - 1] = twin_figures(player.twin)->reserved;
		if (stop && out->refused_at != SIZE_MAX)
			break;
	}
	if (status == 0) {
		out->figures = *twin_figures(player.twin);
		out->ties = twin_had_ties(player.twin);
	}
	twin_free(player.twin);
	free(player.blocks);
	free(player.asked);
	free(player.late);
	return status;
}

int program_play(const struct program *program, const struct twin_conditions *conditions,
		 enum program_waits waits, bool stop, struct program_result *out)
{
	return play(program, conditions, waits, stop, out, NULL);
}

int program_reserved(const struct program *program, const struct twin_conditions *conditions,
		     uint64_t *out)
{
	size_t count = program->history->event_count, i;
	struct program_result result;
	int status;

	for (i = 0; i < count; i++)
		out[i] = UINT64_MAX;
	status = play(program, conditions, PROGRAM_AS_RECORDED, false, &result, out);
	/* Events that only the record has, of its segments, change nothing in a play. */
	for (i = 0; i < count; i++) {
		if (out[i] == UINT64_MAX)
			out[i] = i == 0 ? 0 : out[i - 1];
	}
	return status;
}
