/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which marks are A, B and C of a device is known only at the end: its own, if there are enough, else those of the process. So a
 * block is a candidate in two ways at most, by the marks of its device and by those of all, and its bits say in which. Memory grows
 * with the blocks that are allocated between A and B and live.
 */
#include "analysis/mark_leaks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "findings/say.h"
#include "base/array.h"
#include "base/shown.h"
#include "trace/session.h"

#define ENOUGH	    3u /* marks of its own that a device needs to be judged by them */
#define OTHER_NAMES 5u
#define DEVICES_MAX 4096u

enum way { BY_OWN = 1, BY_ALL = 2 };

/* Marks of the name so far. */
struct track {
	uint64_t count;
	uint64_t time_ns[3]; /* of A, B and C */
};

enum phase { BEFORE_A, BEFORE_B, BEFORE_C, AFTER_C };

struct device_marks {
	uint32_t device;
	struct track own;
	uint64_t allocations;
};

struct candidate {
	struct block block; /* as it was allocated */
	uint64_t row_id;
	uint8_t ways;	/* bits of enum way; 0: it was freed in time */
	bool has_pool;	/* a framework's pool hands it out */
	bool is_driver; /* it may have */
};

struct marks_state {
	struct marks_choice choice;
	struct track all;
	struct device_marks *devices;
	size_t device_count, device_room;
	struct candidate *candidates;
	size_t candidate_count, candidate_room;
	uint32_t *free_candidates;
	size_t free_count, free_room;
	struct map live;   /* allocation_id -> candidate */
	struct map driver; /* address, device -> candidate */
	char *others[OTHER_NAMES];
	size_t other_count;
};

void marks_choose(struct analyses *analyses, const struct marks_choice *choice)
{
	struct marks_state *s = analyses->state[ANALYSIS_ID_marks];

	if (s != NULL)
		s->choice = *choice;
}

/* ---- rows ---- */

static enum phase phase_of(const struct marks_state *s, const struct track *track)
{
	uint64_t past = track->count > s->choice.start ? track->count - s->choice.start : 0;

	return past >= AFTER_C ? AFTER_C : (enum phase)past;
}

static void count_mark(const struct marks_state *s, struct track *track, uint64_t time_ns)
{
	uint64_t number = track->count++;

	if (number >= s->choice.start && number - s->choice.start < MSCOPE_COUNT(track->time_ns))
		track->time_ns[number - s->choice.start] = time_ns;
}

/* NULL: no memory, or more devices than there are. */
static struct device_marks *device_of(struct marks_state *s, uint32_t device)
{
	size_t i;

	for (i = 0; i < s->device_count; i++) {
		if (s->devices[i].device == device)
			return &s->devices[i];
	}
	if (i == DEVICES_MAX || ARRAY_RESERVE(s->devices, s->device_room, i + 1) < 0)
		return NULL;
	s->devices[i] = (struct device_marks){.device = device};
	s->device_count++;
	return &s->devices[i];
}

static int on_mark(struct marks_state *s, const struct row *row)
{
	const char *name = row->name == NULL ? "" : row->name;
	uint32_t device = row->context->device;
	struct device_marks *own;
	size_t i;

	if (strcmp(name, s->choice.name) != 0) {
		for (i = 0; i < s->other_count && strcmp(s->others[i], name) != 0; i++)
			;
		if (i == s->other_count && i < OTHER_NAMES && (s->others[i] = strdup(name)) != NULL)
			s->other_count++;
		return 0;
	}
	count_mark(s, &s->all, row->time_ns);
	if (device == DEVICE_UNKNOWN)
		return 0;
	own = device_of(s, device);
	if (own == NULL)
		return -ENOMEM;
	count_mark(s, &own->own, row->time_ns);
	return 0;
}

static int candidate_new(struct marks_state *s, size_t *out)
{
	if (s->free_count > 0) {
		*out = s->free_candidates[--s->free_count];
		return 0;
	}
	if (ARRAY_RESERVE(s->candidates, s->candidate_room, s->candidate_count + 1) < 0 ||
	    ARRAY_RESERVE(s->free_candidates, s->free_room, s->candidate_count + 1) < 0)
		return -ENOMEM;
	*out = s->candidate_count++;
	return 0;
}

/* The pool of a framework begins to use memory that it took from the driver. */
static void note_pool(struct marks_state *s, const struct context *context, uint64_t address)
{
	const uint64_t *known;

	if (pool_is_driver(context->pool) || context->pool == POOL_host)
		return;
	known = map_get(&s->driver, (struct map_key){address, context->device});
	if (known != NULL)
		s->candidates[*known].has_pool = true;
}

static int on_malloc(struct marks_state *s, const struct replay *replay, const struct row *row)
{
	const struct context *context = replay_context(replay, row->block->context);
	struct device_marks *device = device_of(s, context->device);
	struct candidate *candidate;
	uint8_t ways = 0;
	size_t at;

	if (device == NULL)
		return -ENOMEM;
	device->allocations++;
	note_pool(s, context, row->block->address);
	if (phase_of(s, &device->own) == BEFORE_B)
		ways |= BY_OWN;
	if (phase_of(s, &s->all) == BEFORE_B)
		ways |= BY_ALL;
	if (ways == 0)
		return 0;
	if (candidate_new(s, &at) < 0)
		return -ENOMEM;
	candidate = &s->candidates[at];
	*candidate = (struct candidate){.block = *row->block,
					.row_id = row->id,
					.ways = ways,
					.is_driver = context->pool == POOL_hal};
	if (candidate->is_driver &&
	    map_put(&s->driver, (struct map_key){row->block->address, context->device}, at) < 0)
		return -ENOMEM;
	return map_put(&s->live, (struct map_key){row->block->allocation_id, 0}, at);
}

static int on_free(struct marks_state *s, const struct replay *replay, const struct row *row)
{
	const struct context *context = replay_context(replay, row->block->context);
	struct map_key key = {row->block->allocation_id, 0};
	struct device_marks *device;
	struct candidate *candidate;
	const uint64_t *at = map_get(&s->live, key);

	if (at == NULL)
		return 0;
	device = device_of(s, context->device);
	if (device == NULL)
		return -ENOMEM;
	candidate = &s->candidates[*at];
	if (phase_of(s, &device->own) < AFTER_C)
		candidate->ways &= (uint8_t)~BY_OWN;
	if (phase_of(s, &s->all) < AFTER_C)
		candidate->ways &= (uint8_t)~BY_ALL;
	if (candidate->is_driver)
		(void)map_remove(&s->driver, (struct map_key){row->block->address, context->device},
				 NULL);
	if (candidate->ways == 0)
		s->free_candidates[s->free_count++] = (uint32_t)*at;
	(void)map_remove(&s->live, key, NULL);
	return 0;
}

static int marks_row(void *state, struct replay *replay, const struct row *row)
{
	struct marks_state *s = state;

	if (s->choice.name == NULL)
		return 0;
	if (row->kind == ROW_MARK)
		return on_mark(s, row);
	if (row->block == NULL)
		return 0;
	if (row->kind == ROW_FREE)
		return on_free(s, replay, row);
	/* What a window shows at its beginning was allocated before. */
	return row->shadow ? 0 : on_malloc(s, replay, row);
}

static void marks_fini(void *state)
{
	struct marks_state *s = state;

	free(s->devices);
	free(s->candidates);
	free(s->free_candidates);
	map_fini(&s->live);
	map_fini(&s->driver);
	while (s->other_count > 0)
		free(s->others[--s->other_count]);
}

/* ---- findings ---- */

/* The marks that a device is judged by. */
static const struct track *track_of(const struct marks_state *s, const struct device_marks *device)
{
	return device->own.count >= ENOUGH ? &device->own : &s->all;
}

static enum way way_of(const struct device_marks *device)
{
	return device->own.count >= ENOUGH ? BY_OWN : BY_ALL;
}

/* Devices that took memory, by number; the host last. */
static int by_number(const void *a, const void *b)
{
	const struct device_marks *x = a, *y = b;

	return x->device == y->device ? 0 : x->device < y->device ? -1 : 1;
}

static int by_row(const void *a, const void *b)
{
	const struct candidate *const *x = a, *const *y = b;

	return (*x)->block.allocation_id < (*y)->block.allocation_id ? -1 : 1;
}

struct leaked {
	const struct candidate **list; /* by allocation */
	size_t count;
	uint64_t bytes;
	uint64_t kept_blocks, kept_bytes; /* driver memory that pools keep */
};

static int leaked_find(const struct marks_state *s, const struct replay *replay,
		       const struct device_marks *device, struct leaked *out)
{
	enum way way = way_of(device);
	size_t i;

	*out = (struct leaked){.list = calloc(s->candidate_count + 1, sizeof(*out->list))};
	if (out->list == NULL)
		return -ENOMEM;
	for (i = 0; i < s->candidate_count; i++) {
		const struct candidate *candidate = &s->candidates[i];

		if (!(candidate->ways & way) ||
		    replay_context(replay, candidate->block.context)->device != device->device)
			continue;
		if (candidate->has_pool) {
			out->kept_blocks++;
			out->kept_bytes += candidate->block.size_bytes;
		} else {
			out->bytes += candidate->block.size_bytes;
			out->list[out->count++] = candidate;
		}
	}
	if (out->count > 0)
		qsort(out->list, out->count, sizeof(*out->list), by_row);
	return 0;
}

static const char *pool_spoken(uint8_t pool)
{
	const char *name = pool_long_name(pool);

	if (name != NULL)
		return name;
	return pool == POOL_hal		    ? "Hal memory"
	       : pool == POOL_host_pinned   ? "Pinned host memory"
	       : pool == POOL_pta_workspace ? "Pytorch workspace memory pool"
					    : pool_event_type(pool);
}

static uint64_t index_of(const struct marks_state *s, const struct candidate *candidate)
{
	uint64_t number = candidate->block.allocation_id - 1;

	return s->choice.row_ids != NULL && number < s->choice.row_id_count
		       ? s->choice.row_ids[number]
		       : candidate->row_id;
}

static void add_leaks(const struct marks_state *s, const struct replay *replay,
		      const struct leaked *leaked, struct findings *out,
		      struct finding_range *leaks)
{
	size_t i;

	for (i = 0; i < leaked->count; i++) {
		const struct block *block = &leaked->list[i]->block;
		const struct context *context = replay_context(replay, block->context);
		struct finding_mark_leak *leak = FINDINGS_ADD_TO(out, mark_leak, leaks);

		if (leak == NULL)
			return;
		*leak = (struct finding_mark_leak){.index = index_of(s, leaked->list[i]),
						   .memory = pool_spoken(context->pool),
						   .device = context->device,
						   .event_type = context->pool,
						   .address = block->address,
						   .size = block->size_bytes,
						   .step = block->latest_step,
						   .kernel = block->launches,
						   .allocation_id = block->allocation_id,
						   .stack = block->stack};
	}
}

static int add_device(const struct marks_state *s, const struct replay *replay,
		      const struct device_marks *device, struct findings *out)
{
	const struct track *track = track_of(s, device);
	struct finding_marked_device to = {.device = device->device,
					   .marks = track->count,
					   .own_marks = way_of(device) == BY_OWN,
					   .judged = phase_of(s, track) == AFTER_C,
					   .a_ns = UINT64_MAX,
					   .b_ns = UINT64_MAX,
					   .c_ns = UINT64_MAX,
					   .leaked_blocks = UINT64_MAX,
					   .leaked_bytes = UINT64_MAX,
					   .kept_by_pools_blocks = UINT64_MAX,
					   .kept_by_pools_bytes = UINT64_MAX,
					   .leaks = RANGE_NONE},
				     *added;
	struct leaked leaked;

	if (to.judged) {
		if (leaked_find(s, replay, device, &leaked) < 0)
			return -ENOMEM;
		to.a_ns = track->time_ns[0];
		to.b_ns = track->time_ns[1];
		to.c_ns = track->time_ns[2];
		to.leaked_blocks = leaked.count;
		to.leaked_bytes = leaked.bytes;
		to.kept_by_pools_blocks = leaked.kept_blocks;
		to.kept_by_pools_bytes = leaked.kept_bytes;
		to.leaks = (struct finding_range){0};
		add_leaks(s, replay, &leaked, out, &to.leaks);
		free(leaked.list);
	}
	added = FINDINGS_ADD(out, marked_device);
	if (added == NULL)
		return -ENOMEM;
	*added = to;
	return 0;
}

/* Names of marks that were not asked for. */
static const char *other_marks(const struct marks_state *s, struct findings *out)
{
	struct strbuf text = {0};
	const char *own;
	size_t i;

	for (i = 0; i < s->other_count; i++) {
		strbuf_add_str(&text, i == 0 ? "" : ", ");
		strbuf_add_shown(&text, s->others[i], strlen(s->others[i]));
	}
	if (s->other_count == OTHER_NAMES)
		strbuf_add_str(&text, ", ...");
	own = findings_text(out, strbuf_str(&text));
	strbuf_fini(&text);
	return own;
}

static int marks_judge(const void *state, struct replay *replay, struct findings *out)
{
	const struct marks_state *s = state;
	struct device_marks *devices = calloc(s->device_count + 1, sizeof(*devices));
	struct finding_marks *marks = FINDINGS_ADD(out, marks);
	size_t i, count = 0;
	int r = devices == NULL || marks == NULL ? -ENOMEM : 0;

	for (i = 0; r == 0 && i < s->device_count; i++) {
		if (s->devices[i].allocations > 0)
			devices[count++] = s->devices[i];
	}
	if (count > 1)
		qsort(devices, count, sizeof(*devices), by_number);
	if (r == 0)
		*marks = (struct finding_marks){
			.mark = findings_text(out, s->choice.name == NULL ? "" : s->choice.name),
			.start_index = s->choice.start,
			.devices = {FINDINGS_COUNT(out, marked_device), count},
			.others = other_marks(s, out)};
	for (i = 0; i < count && r == 0; i++)
		r = add_device(s, replay, &devices[i], out);
	free(devices);
	return r;
}

static int show_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	marks_text(view->found, view->replay, view->lines, out);
	return 0;
}

static int show_json(void *state, const struct analysis_view *view, struct json *json)
{
	(void)state;
	marks_json(view->found, view->lines, json);
	return 0;
}

const struct analysis analysis_marks = {
	.name = "marks",
	.bits = SESSION_MARKS,
	.state_bytes = sizeof(struct marks_state),
	.rows = 1u << ROW_MALLOC | 1u << ROW_FREE | 1u << ROW_MARK,
	.row = marks_row,
	.judge = marks_judge,
	.text = show_text,
	.long_json = true,
	.json = show_json,
	.fini = marks_fini,
};
