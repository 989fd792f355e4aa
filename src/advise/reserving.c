/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/reserving.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "twin/block_sizes.h"

#define EVENTS_MOST   200000u	/* of the pool */
#define EVENTS_ALL    30000000u /* of all plays of a run, about */
#define PLAYS	      24u	/* of a change, about */
#define EVENTS_PLAYS  600000u	/* of all plays of a change, where that leaves enough orders */
#define ORDERS_LEAST  3u
#define ORDERS_MOST   12u
#define SEGMENT_LEAST ((uint64_t)2 << 20) /* of the small pool */
#define MARGIN_PART   50u		  /* of what is reserved, on each side */
#define WIDEST_PART   10u		  /* a range that is wider says nothing */
/* Blocks of an edited history have addresses of their own: nothing is at the same one as something older. */
#define ADDRESS_FIRST ((uint64_t)1 << 62)

/* ---- which event is of which block ---- */

static int link_events(struct reserving *r, uint32_t pool)
{
	const struct advise_record *record = r->record;
	const struct pool_history *history = r->of.history;
	struct map live = {0};
	int status = 0;

	for (size_t i = 0; i < history->event_count && status == 0; i++) {
		const struct history_event *event = &history->events[i];
		size_t moment = r->of.moments[i];
		const struct advise_moment *at = moment == 0 ? NULL : &record->moments[moment - 1];
		const uint64_t *known;

		r->blocks[i] = ADVISE_NONE;
		if (event->kind == HISTORY_ALLOC && at != NULL && at->comes &&
		    at->block != ADVISE_NONE && record->blocks[at->block].pool == pool &&
		    r->requests[at->block] == 0) {
			r->blocks[i] = at->block;
			r->requests[at->block] = (uint32_t)i + 1;
		}
		if (event->kind == HISTORY_ALLOC)
			status = map_put(&live, (struct map_key){event->address, 0}, r->blocks[i]);
		if (event->kind != HISTORY_FREE_ASKED && event->kind != HISTORY_FREE_DONE)
			continue;
		known = map_get(&live, (struct map_key){event->address, 0});
		if (known != NULL)
			r->blocks[i] = (uint32_t)*known;
	}
	map_fini(&live);
	return status;
}

int reserving_init(struct reserving *r, const struct advise_record *record, uint32_t pool,
		   const struct advise_history *of)
{
	const char *const own[] = {of->history->settings};
	const struct what_if_choice choice = {.settings = own, .setting_count = 1};
	struct mscope_error err = {0};
	int status;

	*r = (struct reserving){.record = record, .of = *of};
	if (of->history->event_count > EVENTS_MOST) {
		snprintf(r->refusal, sizeof(r->refusal), "the run is too long to be played.");
		return 0;
	}
	status = what_if_answer(&r->recorded, of->history, &choice, &err);
	if (status == MSCOPE_E_USAGE) {
		snprintf(r->refusal, sizeof(r->refusal), "%.300s.", err.message);
		return 0;
	}
	if (status != 0)
		return status;
	if (r->recorded.refusal[0] != '\0')
		snprintf(r->refusal, sizeof(r->refusal), "%s", r->recorded.refusal);
	else if (r->recorded.waits)
		snprintf(r->refusal, sizeof(r->refusal),
			 "frees waited for other streams, and timing decides how long.");
	if (r->refusal[0] != '\0')
		return 0;
	r->orders = EVENTS_PLAYS / ((uint32_t)of->history->event_count + 1);
	r->orders = r->orders < ORDERS_LEAST ? ORDERS_LEAST : r->orders;
	r->orders = r->orders > ORDERS_MOST ? ORDERS_MOST : r->orders;
	r->blocks = malloc((of->history->event_count + 1) * sizeof(*r->blocks));
	r->requests = calloc(record->block_count + 1, sizeof(*r->requests));
	return r->blocks == NULL || r->requests == NULL ? -ENOMEM : link_events(r, pool);
}

void reserving_fini(struct reserving *r)
{
	what_if_fini(&r->recorded);
	free(r->blocks);
	free(r->requests);
	*r = (struct reserving){0};
}

/* ---- the edited history ---- */

struct making {
	const struct reserving *reserving;
	const struct editor *editor;
	struct edit *edits; /* in their order */
	size_t next;
	uint64_t *sizes;    /* of each block, where it has another one; else 0 */
	bool *moved;	    /* of each block: the record's own end does not count */
	uint64_t addresses; /* that were given */
	struct map live;    /* block and number of its copy -> address */
	struct pool_history *out;
	uint32_t *like;
	size_t like_room;
};

static int put(struct making *m, struct history_event event, uint32_t like)
{
	if (ARRAY_RESERVE(m->like, m->like_room, m->out->event_count + 1) != 0)
		return -ENOMEM;
	m->like[m->out->event_count] = like;
	return pool_history_add(m->out, &event);
}

static struct map_key key_of(uint32_t block, uint64_t copy)
{
	return (struct map_key){block, copy};
}

static int put_free(struct making *m, uint64_t address, const struct history_event *at)
{
	struct history_event event = {.address = address,
				      .kind = HISTORY_FREE_ASKED,
				      .time_ns = at->time_ns,
				      .step = at->step};
	int status = put(m, event, 0);

	event.kind = HISTORY_FREE_DONE;
	return status != 0 ? status : put(m, event, 0);
}

/* A block goes if it is there. */
static int block_goes(struct making *m, uint32_t block, uint64_t copy,
		      const struct history_event *at)
{
	uint64_t address;

	return map_remove(&m->live, key_of(block, copy), &address) ? put_free(m, address, at) : 0;
}

/* The size of a request. Where the record has sizes of blocks, what the pool adds to a request is in them. */
static uint64_t request_bytes(const struct making *m, uint32_t block, uint64_t bytes)
{
	const struct reserving *r = m->reserving;
	const struct history_event *of = &r->of.history->events[r->requests[block] - 1];

	if (bytes == r->record->blocks[block].bytes)
		return of->bytes;
	return r->of.history->npu && m->sizes[block] == bytes ? less_u64(bytes, TWIN_PADDING_BYTES)
							      : bytes;
}

static int block_comes(struct making *m, uint32_t block, uint64_t copy, uint64_t bytes,
		       const struct history_event *at)
{
	const struct reserving *r = m->reserving;
	uint32_t like = r->requests[block];
	struct history_event event;
	int status;

	if (like == 0 || map_get(&m->live, key_of(block, copy)) != NULL)
		return 0;
	event = r->of.history->events[like - 1];
	event.address = ADDRESS_FIRST + m->addresses++;
	event.bytes = request_bytes(m, block, bytes);
	event.time_ns = at->time_ns;
	event.step = at->step;
	status = map_put(&m->live, key_of(block, copy), event.address);
	return status != 0 ? status
			   : put(m, event, bytes == r->record->blocks[block].bytes ? like : 0);
}

/* Edits before a moment has taken place, or before what comes right after it. */
static int put_edits(struct making *m, size_t before, const struct history_event *at)
{
	int status = 0;

	for (; m->next < m->editor->edit_count && status == 0; m->next++) {
		const struct edit *edit = &m->edits[m->next];

		if (edit->at + edit->after >= before)
			break;
		if (edit->kind == EDIT_COMES)
			status = block_comes(m, edit->block, edit->copy, edit->bytes, at);
		else if (edit->kind != EDIT_RESIZED)
			status = block_goes(m, edit->block, edit->copy, at);
	}
	return status;
}

static int put_recorded(struct making *m, size_t i)
{
	const struct reserving *r = m->reserving;
	const struct history_event *recorded = &r->of.history->events[i];
	uint32_t block = r->blocks[i];
	struct history_event event = *recorded;
	uint64_t bytes;

	if (block == ADVISE_NONE ||
	    (recorded->kind != HISTORY_ALLOC && recorded->kind != HISTORY_FREE_ASKED &&
	     recorded->kind != HISTORY_FREE_DONE))
		return put(m, event, (uint32_t)i + 1);
	if (recorded->kind == HISTORY_ALLOC) {
		bytes = m->sizes[block] != 0 ? m->sizes[block] : r->record->blocks[block].bytes;
		return block_comes(m, block, 0, bytes, recorded);
	}
	if (m->moved[block])
		return 0;
	if (recorded->kind == HISTORY_FREE_ASKED)
		return block_goes(m, block, 0, recorded);
	return 0;
}

/* When an edit counts if what goes does so `shift` moments later: after the block came, and no later than in the record for that. */
static size_t shifted(const struct advise_record *record, const struct edit *edit, int shift)
{
	const struct advise_block *block = &record->blocks[edit->block];
	size_t first = block->born + 1, by = (size_t)abs(shift);

	if (edit->kind != EDIT_MOVED || edit->at >= block->died || edit->at <= first)
		return edit->at;
	if (shift < 0)
		return edit->at - first > by ? edit->at - by : first;
	return block->died - edit->at > by ? edit->at + by : block->died;
}

/* In the order of moments; what goes at one goes before something comes there, as the sum of both says. */
static int by_moment(const void *a, const void *b)
{
	const struct edit *x = *(const struct edit *const *)a, *y = *(const struct edit *const *)b;
	size_t at_x = x->at + x->after, at_y = y->at + y->after;
	bool goes_x = x->kind != EDIT_COMES, goes_y = y->kind != EDIT_COMES;

	if (at_x != at_y)
		return at_x < at_y ? -1 : 1;
	if (x->after != y->after)
		return x->after ? -1 : 1;
	if (!x->after && goes_x != goes_y)
		return goes_x ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int sort_edits(struct making *m, int shift)
{
	size_t count = m->editor->edit_count;
	struct edit *all = malloc((count + 1) * sizeof(*all));
	const struct edit **order = malloc((count + 1) * sizeof(*order));

	m->edits = malloc((count + 1) * sizeof(*m->edits));
	if (all == NULL || order == NULL || m->edits == NULL) {
		free(all);
		free(order);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++) {
		all[i] = m->editor->edits[i];
		all[i].at = shifted(m->reserving->record, &all[i], shift);
		order[i] = &all[i];
	}
	qsort(order, count, sizeof(*order), by_moment);
	for (size_t i = 0; i < count; i++)
		m->edits[i] = *order[i];
	free(all);
	free(order);
	return 0;
}

static int prepare(struct making *m, const struct pool_history *history, int shift)
{
	size_t blocks = m->reserving->record->block_count + 1;
	int status = sort_edits(m, shift);

	m->sizes = calloc(blocks, sizeof(*m->sizes));
	m->moved = calloc(blocks, sizeof(*m->moved));
	if (status != 0 || m->sizes == NULL || m->moved == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < m->editor->edit_count; i++) {
		const struct edit *edit = &m->edits[i];

		if (edit->kind == EDIT_RESIZED)
			m->sizes[edit->block] = edit->bytes;
		m->moved[edit->block] |= edit->kind == EDIT_MOVED;
	}
	*m->out = *history;
	m->out->events = NULL;
	m->out->event_count = m->out->event_room = 0;
	m->out->segments = NULL;
	m->out->segment_count = m->out->segment_room = 0;
	m->out->blocks = NULL;
	m->out->block_count = m->out->block_room = 0;
	m->out->sites = NULL;
	m->out->site_count = m->out->site_room = 0;
	for (size_t i = 0; i < history->segment_count && status == 0; i++)
		status = pool_history_add_segment(m->out, &history->segments[i]);
	for (size_t i = 0; i < history->block_count && status == 0; i++)
		status = pool_history_add_block(m->out, &history->blocks[i]);
	return status;
}

/* The edited history, and of each of its events the number of the one that it is like, from 1; 0: none. */
static int make(const struct reserving *r, const struct editor *editor, int shift,
		struct pool_history *out, uint32_t **out_like)
{
	const struct pool_history *history = r->of.history;
	struct making m = {.reserving = r, .editor = editor, .out = out};
	int status = prepare(&m, history, shift);

	/* An event that is of a moment comes after the edits of that moment. */
	for (size_t i = 0; i < history->event_count && status == 0; i++) {
		status = put_edits(&m, r->of.moments[i], &history->events[i]);
		if (status == 0)
			status = put_recorded(&m, i);
	}
	free(m.edits);
	free(m.sizes);
	free(m.moved);
	map_fini(&m.live);
	*out_like = m.like;
	return status;
}

/* What was not played may be outside of what was. */
static void add_margin(struct what_if_range *range)
{
	uint64_t margin = range->high / MARGIN_PART;

	if (margin < SEGMENT_LEAST)
		margin = SEGMENT_LEAST;
	range->low = less_u64(range->low, margin);
	range->high += margin;
}

int reserving_play(struct reserving *r, const struct editor *editor, struct what_if_range *out)
{
	static const int shifts[] = {0, 2, 8, -2, -8};
	struct what_if_range range = {UINT64_MAX, 0};
	int status = editor->unlisted ? -ENOMEM : 0;

	if (r->played > EVENTS_ALL)
		return status;
	r->played += (uint64_t)PLAYS * r->of.history->event_count;
	for (size_t i = 0; i < MSCOPE_COUNT(shifts) && status == 0; i++) {
		struct pool_history changed = {0};
		uint32_t *like = NULL;

		status = make(r, editor, shifts[i], &changed, &like);
		if (status == 0)
			status = what_if_play_changed(&r->recorded, &changed, i == 0 ? like : NULL,
						      i == 0 ? r->orders : 1, &range);
		free(like);
		pool_history_fini(&changed);
	}
	add_margin(&range);
	if (status == 0 && range.high - range.low <= range.low / WIDEST_PART)
		*out = range;
	return status;
}
