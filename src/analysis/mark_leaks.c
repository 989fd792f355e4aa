/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which marks are A, B and C of a device is known only at the end: its own, if there are enough, else those of the process. So a
 * block is a candidate in two ways at most, by the marks of its device and by those of all, and its bits say in which. Memory grows
 * with the blocks that are allocated between A and B and live.
 */
#include "analysis/mark_leaks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "findings/site.h"
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
	if (i == DEVICES_MAX ||
	    array_reserve(&s->devices, &s->device_room, i + 1, sizeof(*s->devices)) < 0)
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
	if (array_reserve(&s->candidates, &s->candidate_room, s->candidate_count + 1,
			  sizeof(*s->candidates)) < 0 ||
	    array_reserve(&s->free_candidates, &s->free_room, s->candidate_count + 1,
			  sizeof(*s->free_candidates)) < 0)
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

/* ---- the answer ---- */

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

static bool is_leak(const struct replay *replay, const struct device_marks *device,
		    const struct candidate *candidate)
{
	return (candidate->ways & way_of(device)) != 0 && !candidate->has_pool &&
	       replay_context(replay, candidate->block.context)->device == device->device;
}

struct marks_counts marks_count(const struct analyses *analyses, const struct replay *replay)
{
	const struct marks_state *s = analyses->state[ANALYSIS_ID_marks];
	struct marks_counts counts = {0};
	size_t i, k;

	for (i = 0; s != NULL && i < s->device_count; i++) {
		const struct device_marks *device = &s->devices[i];

		if (device->allocations == 0 || phase_of(s, track_of(s, device)) != AFTER_C)
			continue;
		counts.judged++;
		for (k = 0; k < s->candidate_count; k++) {
			if (is_leak(replay, device, &s->candidates[k]))
				break;
		}
		counts.leaking += k < s->candidate_count;
	}
	return counts;
}

/* Why there is no answer; nothing if there is one. No newline. */
static void add_fault(const struct marks_state *s, const struct track *track, struct strbuf *out)
{
	uint64_t start = s->choice.start;
	size_t i;

	if (phase_of(s, track) == AFTER_C)
		return;
	strbuf_add_str(out, "the mark \"");
	strbuf_add_shown(out, s->choice.name, strlen(s->choice.name));
	if (track->count == 0) {
		strbuf_add_str(out, "\" never occurs");
		for (i = 0; i < s->other_count; i++) {
			strbuf_add_str(out, i == 0 ? "; marks that do: " : ", ");
			strbuf_add_shown(out, s->others[i], strlen(s->others[i]));
		}
		if (s->other_count == OTHER_NAMES)
			strbuf_add_str(out, ", ...");
		return;
	}
	strbuf_add_str(out, "\" occurs ");
	strbuf_add_count(out, track->count, "time", "times");
	strbuf_addf(out,
		    "; start index %" PRIu64 " needs the marks %" PRIu64 ", %" PRIu64
		    " and %" PRIu64 ", counted from 0",
		    start, start, start + 1, start + 2);
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

/* MiB with the fewest digits that say the same number, and at least one behind the point: as the documented line has it. */
static void add_mib(struct strbuf *out, uint64_t bytes)
{
	double mib = (double)bytes / (1024.0 * 1024.0);
	char text[40];
	int digits;

	for (digits = 1; digits < 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, mib);
		if (strtod(text, NULL) == mib)
			break;
	}
	if (digits == 17 || strstr(text, "e+") != NULL)
		(void)snprintf(text, sizeof(text), "%.17g", mib);
	strbuf_add_str(out, text);
	if (strpbrk(text, ".e") == NULL)
		strbuf_add_str(out, ".0");
}

static void text_leaks(const struct marks_state *s, const struct analysis_view *view,
		       const char *device, const struct leaked *leaked, struct strbuf *out)
{
	struct replay *replay = view->replay;
	struct strbuf place = {0};
	size_t i;

	strbuf_addf(out, "====== ERROR: Detected memory leaks on device %s ======\n", device);
	for (i = 0; i < leaked->count && i < view->lines; i++) {
		const struct block *block = &leaked->list[i]->block;

		strbuf_addf(out, "Direct %s leak of ",
			    pool_spoken(replay_context(replay, block->context)->pool));
		add_mib(out, block->size_bytes);
		strbuf_add_str(out, " Mb(s) at ");
		strbuf_add_hex(out, block->address, 16);
		strbuf_addf(out, " in Index %" PRIu64 ".\n", index_of(s, leaked->list[i]));
		strbuf_reset(&place);
		if (site_line(replay, block->stack, &place))
			strbuf_addf(out, "    %s\n", strbuf_str(&place));
	}
	if (i < leaked->count)
		strbuf_addf(out, "  and %zu more; --top=N or --all shows them\n",
			    leaked->count - i);
	strbuf_add_str(out, "====== SUMMARY: ");
	add_mib(out, leaked->bytes);
	strbuf_addf(out, " Mb(s) leaked in %zu allocation(s) ======\n", leaked->count);
	strbuf_fini(&place);
}

static int text_device(const struct marks_state *s, const struct analysis_view *view,
		       const struct device_marks *device, struct strbuf *out)
{
	struct leaked leaked;
	char name[16];

	device_text(device->device, name);
	if (phase_of(s, track_of(s, device)) != AFTER_C) {
		strbuf_addf(out, "Device %s was not judged: ", name);
		add_fault(s, track_of(s, device), out);
		strbuf_add_str(out, ".\n");
		return 0;
	}
	if (leaked_find(s, view->replay, device, &leaked) < 0)
		return -ENOMEM;
	if (leaked.count > 0)
		text_leaks(s, view, name, &leaked, out);
	else
		strbuf_addf(out,
			    "No memory leaks on device %s: all that was allocated between the "
			    "marks %u and %u was freed before mark %u.\n",
			    name, s->choice.start, s->choice.start + 1, s->choice.start + 2);
	if (leaked.kept_blocks > 0) {
		strbuf_add_size(out, leaked.kept_bytes);
		strbuf_addf(out,
			    " of the driver on device %s were taken by a framework's pool and are "
			    "kept by it: its cache, no leak.\n",
			    name);
	}
	free(leaked.list);
	return 0;
}

/* Sorts the devices and drops those that took no memory. Returns how many there are. */
static size_t devices_told(struct marks_state *s)
{
	size_t i, kept = 0;

	for (i = 0; i < s->device_count; i++) {
		if (s->devices[i].allocations > 0)
			s->devices[kept++] = s->devices[i];
	}
	s->device_count = kept;
	if (kept > 0)
		qsort(s->devices, kept, sizeof(*s->devices), by_number);
	return kept;
}

static int marks_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	struct marks_state *s = state;
	size_t i, count = devices_told(s);
	int r = 0;

	for (i = 0; i < count && r == 0; i++)
		r = text_device(s, view, &s->devices[i], out);
	if (count == 0)
		strbuf_add_str(out, "No memory was allocated on these devices.\n");
	return r;
}

static void json_leaks(const struct marks_state *s, const struct analysis_view *view,
		       const struct leaked *leaked, struct json *json)
{
	size_t i;

	json_u64(json, "leaked_blocks", leaked->count);
	json_u64(json, "leaked_bytes", leaked->bytes);
	json_u64(json, "kept_by_pools_blocks", leaked->kept_blocks);
	json_u64(json, "kept_by_pools_bytes", leaked->kept_bytes);
	json_array(json, "leaks");
	for (i = 0; i < leaked->count && i < view->lines; i++) {
		const struct block *block = &leaked->list[i]->block;
		uint8_t pool = replay_context(view->replay, block->context)->pool;

		json_object(json, NULL);
		json_u64(json, "index", index_of(s, leaked->list[i]));
		json_string(json, "memory", pool_spoken(pool));
		block_json(view->replay, block, json);
		json_end(json);
	}
	json_end(json);
}

static int json_device(const struct marks_state *s, const struct analysis_view *view,
		       const struct device_marks *device, struct json *json)
{
	static const char *const keys[] = {"a_ns", "b_ns", "c_ns"};
	const struct track *track = track_of(s, device);
	struct strbuf fault = {0};
	struct leaked leaked;
	char name[16];
	size_t i;
	int r = 0;

	device_text(device->device, name);
	json_object(json, NULL);
	json_string(json, "device", name);
	json_u64(json, "marks", track->count);
	json_bool(json, "own_marks", way_of(device) == BY_OWN);
	add_fault(s, track, &fault);
	json_bool(json, "judged", fault.length == 0);
	json_string(json, "reason", strbuf_str(&fault));
	if (fault.length == 0) {
		for (i = 0; i < MSCOPE_COUNT(keys); i++)
			json_u64(json, keys[i], track->time_ns[i]);
		r = leaked_find(s, view->replay, device, &leaked);
		if (r == 0)
			json_leaks(s, view, &leaked, json);
		free(leaked.list);
	}
	json_end(json);
	strbuf_fini(&fault);
	return r;
}

static int marks_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct marks_state *s = state;
	size_t i, count = devices_told(s);
	int r = 0;

	json_object(json, "marks");
	json_string(json, "mark", s->choice.name == NULL ? "" : s->choice.name);
	json_u64(json, "start_index", s->choice.start);
	json_array(json, "devices");
	for (i = 0; i < count && r == 0; i++)
		r = json_device(s, view, &s->devices[i], json);
	json_end(json);
	json_end(json);
	return r;
}

const struct analysis analysis_marks = {
	.name = "marks",
	.bits = SESSION_MARKS,
	.state_bytes = sizeof(struct marks_state),
	.rows = 1u << ROW_MALLOC | 1u << ROW_FREE | 1u << ROW_MARK,
	.row = marks_row,
	.text = marks_text,
	.long_json = true,
	.json = marks_json,
	.fini = marks_fini,
};
