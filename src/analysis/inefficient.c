/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is allocated while it is not used. Time is counted in ticks: each operator is one, and so is each memory event
 * outside of operators. What happens inside an operator happens at its tick. Threads share the count; an event belongs to the
 * operator that its own thread is in. Operators of PyTorch and of ATB count alike: models of one run on memory of the other.
 *
 *     early_allocation     something was freed after the block was allocated and before it was first used: had it been
 *                          allocated when it was needed, that memory could have been used
 *     late_deallocation    something was allocated after the block was last used and before it was freed
 *     temporary_idleness   more than so many ticks between two uses, IDLE_TICKS unless --inefficient says otherwise
 *
 * "Something was freed" looks at whole operators: the latest one that has ended and freed anything. Only blocks whose
 * allocation was seen are judged. What is found goes to the block's MALLOC row (replay/facts.h) and into the report.
 */
#include <errno.h>
#include <stdlib.h>

#include "analysis/analyses.h"
#include "analysis/site.h"
#include "base/array.h"
#include "trace/session.h"

#define IDLE_TICKS  3000u
#define WRITERS_MAX 65536u
#define KINDS	    3u

/* What is known of a live block. */
struct trail {
	uint64_t allocated;
	uint64_t used; /* latest use, 0: none yet */
	bool begun;    /* used outside of the operator that allocated it */
	uint16_t found;
};

/* Where a thread is. */
struct place {
	bool inside; /* of an operator */
	bool allocates, frees;
	uint64_t tick; /* of the outermost operator, or of the latest event outside */
};

/* Blocks of one place in the program, with the same findings. */
struct finding {
	uint32_t context;
	uint32_t stack;
	uint16_t found;
	uint64_t blocks;
	uint64_t bytes;
	uint64_t first; /* lowest allocation_id */
};

struct inefficient {
	uint64_t tick;
	uint64_t last_alloc, last_free; /* ticks of the latest ended operators that did so */
	struct place *places;		/* by writer */
	size_t place_room;
	struct map live; /* allocation_id -> trail */
	struct trail *trails;
	size_t trail_count, trail_room;
	uint32_t *free_trails;
	size_t free_count, free_room;
	struct finding *findings;
	size_t finding_count, finding_room;
	struct map finding_ids; /* context and stack, found -> index */
	bool saw_access;
	/* What counts: --inefficient. */
	uint32_t kinds; /* bits of enum inefficiency */
	uint64_t least_bytes, idle_ticks;
};

static struct place *place_of(struct inefficient *s, uint32_t writer)
{
	size_t before = s->place_room, i;

	if (writer > WRITERS_MAX ||
	    array_reserve(&s->places, &s->place_room, (size_t)writer + 1, sizeof(*s->places)) < 0)
		return NULL;
	for (i = before; i < s->place_room; i++)
		s->places[i] = (struct place){0};
	return &s->places[writer];
}

/* ---- findings ---- */

static int record(struct inefficient *s, struct replay *replay, const struct block *block,
		  const struct trail *trail)
{
	struct map_key key = {(uint64_t)block->context << 32 | block->stack, trail->found};
	uint64_t *known = map_get(&s->finding_ids, key);
	struct finding *finding;

	replay_learn_inefficient(replay, block, trail->found);
	if (known == NULL) {
		if (array_reserve(&s->findings, &s->finding_room, s->finding_count + 1,
				  sizeof(*s->findings)) < 0 ||
		    map_put(&s->finding_ids, key, s->finding_count) < 0)
			return -ENOMEM;
		s->findings[s->finding_count++] = (struct finding){.context = block->context,
								   .stack = block->stack,
								   .found = trail->found,
								   .first = UINT64_MAX};
	}
	finding = &s->findings[known == NULL ? s->finding_count - 1 : *known];
	finding->blocks++;
	finding->bytes += block->size_bytes;
	if (block->allocation_id < finding->first)
		finding->first = block->allocation_id;
	return 0;
}

/* A block that had a finding gets another one: it moves from one group to the other. */
static int add_finding(struct inefficient *s, struct replay *replay, const struct block *block,
		       struct trail *trail, enum inefficiency found)
{
	uint64_t *known;

	if ((trail->found & found) || !(s->kinds & found) || block->size_bytes < s->least_bytes)
		return 0;
	known = map_get(
		&s->finding_ids,
		(struct map_key){(uint64_t)block->context << 32 | block->stack, trail->found});
	if (trail->found != 0 && known != NULL) {
		s->findings[*known].blocks--;
		s->findings[*known].bytes -= block->size_bytes;
	}
	trail->found = (uint16_t)(trail->found | found);
	return record(s, replay, block, trail);
}

/* ---- events ---- */

/* Room for a trail. 0 or -ENOMEM. */
static int trail_new(struct inefficient *s, size_t *out)
{
	if (s->free_count > 0) {
		*out = s->free_trails[--s->free_count];
		return 0;
	}
	/* Room for giving every trail back, so that a free cannot fail. */
	if (array_reserve(&s->trails, &s->trail_room, s->trail_count + 1, sizeof(*s->trails)) < 0 ||
	    array_reserve(&s->free_trails, &s->free_room, s->trail_count + 1,
			  sizeof(*s->free_trails)) < 0)
		return -ENOMEM;
	*out = s->trail_count++;
	return 0;
}

static int on_malloc(struct inefficient *s, const struct block *block, struct place *place)
{
	size_t at;

	if (place->inside)
		place->allocates = true;
	else
		s->last_alloc = s->tick;
	if (trail_new(s, &at) < 0)
		return -ENOMEM;
	s->trails[at] = (struct trail){.allocated = place->tick};
	return map_put(&s->live, (struct map_key){block->allocation_id, 0}, at);
}

static int on_access(struct inefficient *s, struct replay *replay, const struct block *block,
		     uint64_t tick)
{
	uint64_t *at = map_get(&s->live, (struct map_key){block->allocation_id, 0});
	struct trail *trail;
	int r = 0;

	s->saw_access = true;
	if (at == NULL)
		return 0;
	trail = &s->trails[*at];
	if (!trail->begun && tick != trail->allocated) {
		trail->begun = true;
		if (trail->allocated < s->last_free && s->last_free < tick)
			r = add_finding(s, replay, block, trail, INEFFICIENT_EARLY);
	}
	if (r == 0 && trail->used != 0 && tick - trail->used > s->idle_ticks)
		r = add_finding(s, replay, block, trail, INEFFICIENT_IDLE);
	trail->used = tick;
	return r;
}

static int on_free(struct inefficient *s, struct replay *replay, const struct block *block,
		   struct place *place)
{
	uint64_t at;
	int r = 0;

	if (map_remove(&s->live, (struct map_key){block->allocation_id, 0}, &at)) {
		struct trail *trail = &s->trails[at];

		if (trail->used != 0 && trail->used < s->last_alloc && s->last_alloc < place->tick)
			r = add_finding(s, replay, block, trail, INEFFICIENT_LATE);
		s->free_trails[s->free_count++] = (uint32_t)at;
	}
	if (place->inside)
		place->frees = true;
	else
		s->last_free = s->tick;
	return r;
}

/* Moves a thread to where the replay has it: windows and threads may end inside of operators. */
static void move(struct inefficient *s, const struct replay *replay, uint32_t writer,
		 struct place *place)
{
	bool inside = replay_operation(replay, writer, LAYER_ATEN) != NULL ||
		      replay_operation(replay, writer, LAYER_ATB) != NULL;

	if (inside && !place->inside) {
		place->tick = ++s->tick;
		place->allocates = place->frees = false;
	}
	if (!inside && place->inside) {
		/* Operators of other threads that began later may have ended before. */
		if (place->allocates && place->tick > s->last_alloc)
			s->last_alloc = place->tick;
		if (place->frees && place->tick > s->last_free)
			s->last_free = place->tick;
	}
	place->inside = inside;
}

/* Drops a block whose end says nothing about its use. */
static void forget(struct inefficient *s, const struct block *block)
{
	uint64_t at;

	if (map_remove(&s->live, (struct map_key){block->allocation_id, 0}, &at))
		s->free_trails[s->free_count++] = (uint32_t)at;
}

static bool is_framework(uint8_t pool)
{
	return pool == POOL_pta || pool == POOL_pta_workspace || pool == POOL_atb ||
	       pool == POOL_mindspore || pool == POOL_host;
}

static int inefficient_row(void *state, struct replay *replay, const struct row *row)
{
	struct inefficient *s = state;
	enum row_group group = row_group(row->kind);
	struct place *place;

	if (group != ROW_GROUP_OP &&
	    (row->block == NULL || row->block->hidden ||
	     !is_framework(replay_context(replay, row->block->context)->pool)))
		return 0;
	if (row->shadow) {
		if (row->kind == ROW_FREE)
			forget(s, row->block);
		return 0;
	}
	place = place_of(s, row->writer);
	if (place == NULL)
		return -ENOMEM;
	move(s, replay, row->writer, place);
	if (group == ROW_GROUP_OP)
		return 0;
	if (!place->inside)
		place->tick = ++s->tick;
	if (row->kind == ROW_MALLOC)
		return on_malloc(s, row->block, place);
	if (row->kind == ROW_FREE)
		return on_free(s, replay, row->block, place);
	return group == ROW_GROUP_ACCESS ? on_access(s, replay, row->block, place->tick) : 0;
}

static void inefficient_settings(void *state, const struct event_settings *settings)
{
	struct inefficient *s = state;

	s->kinds = (uint32_t)settings->waste_kinds;
	if (s->kinds == 0)
		s->kinds = SESSION_WASTE_ALL;
	s->least_bytes = settings->waste_bytes;
	s->idle_ticks = settings->waste_idle == 0 ? IDLE_TICKS : settings->waste_idle;
}

/* ---- in a checkpoint ---- */

static void inefficient_fini(void *state)
{
	struct inefficient *s = state;

	free(s->places);
	map_fini(&s->live);
	free(s->trails);
	free(s->free_trails);
	free(s->findings);
	map_fini(&s->finding_ids);
}

static void inefficient_save(void *state, struct strbuf *out)
{
	const struct inefficient *s = state;
	const struct map_slot *slot;
	size_t i, cursor = 0;

	words_add(out, s->tick);
	words_add(out, s->last_alloc);
	words_add(out, s->last_free);
	words_add(out, s->saw_access);
	words_add(out, s->place_room);
	for (i = 0; i < s->place_room; i++)
		words_add(out, s->places[i].tick << 3 | (uint64_t)s->places[i].inside << 2 |
				       (uint64_t)s->places[i].allocates << 1 | s->places[i].frees);
	words_add(out, s->live.count);
	while ((slot = map_next(&s->live, &cursor)) != NULL) {
		const struct trail *trail = &s->trails[slot->value];

		words_add(out, slot->key.a);
		words_add(out, trail->allocated);
		words_add(out, trail->used);
		words_add(out, (uint64_t)trail->begun << 16 | trail->found);
	}
	words_add(out, s->finding_count);
	for (i = 0; i < s->finding_count; i++) {
		const struct finding *finding = &s->findings[i];

		words_add(out, (uint64_t)finding->context << 32 | finding->stack);
		words_add(out, finding->found);
		words_add(out, finding->blocks);
		words_add(out, finding->bytes);
		words_add(out, finding->first);
	}
}

static int load_trails(struct inefficient *s, struct words *words)
{
	size_t count = words_count(words), i, at;

	for (i = 0; i < count; i++) {
		uint64_t allocation_id = words_next(words), word;
		struct trail *trail;

		if (trail_new(s, &at) < 0 ||
		    map_put(&s->live, (struct map_key){allocation_id, 0}, at) < 0)
			return -ENOMEM;
		trail = &s->trails[at];
		*trail = (struct trail){.allocated = words_next(words)};
		trail->used = words_next(words);
		word = words_next(words);
		trail->begun = word >> 16 != 0;
		trail->found = (uint16_t)word;
	}
	return 0;
}

static int inefficient_load(void *state, const struct replay *replay, struct words *words)
{
	struct inefficient *s = state;
	size_t count, i;

	(void)replay;
	inefficient_fini(s);
	*s = (struct inefficient){0};
	s->tick = words_next(words);
	s->last_alloc = words_next(words);
	s->last_free = words_next(words);
	s->saw_access = words_next(words) != 0;
	count = words_count(words);
	for (i = 0; i < count; i++) {
		struct place *place = place_of(s, (uint32_t)i);
		uint64_t word = words_next(words);

		if (place == NULL)
			return -ENOMEM;
		*place = (struct place){.tick = word >> 3,
					.inside = (word & 4) != 0,
					.allocates = (word & 2) != 0,
					.frees = (word & 1) != 0};
	}
	if (load_trails(s, words) < 0)
		return -ENOMEM;
	count = words_count(words);
	for (i = 0; i < count; i++) {
		struct finding finding = {0};
		uint64_t word = words_next(words);

		finding.context = (uint32_t)(word >> 32);
		finding.stack = (uint32_t)word;
		finding.found = (uint16_t)words_next(words);
		finding.blocks = words_next(words);
		finding.bytes = words_next(words);
		finding.first = words_next(words);
		if (array_reserve(&s->findings, &s->finding_room, i + 1, sizeof(finding)) < 0 ||
		    map_put(&s->finding_ids, (struct map_key){word, finding.found}, i) < 0)
			return -ENOMEM;
		s->findings[s->finding_count++] = finding;
	}
	return 0;
}

/* ---- reporting ---- */

static int by_bytes(const void *a, const void *b)
{
	const struct finding *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes > y->bytes ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Those that still have blocks, largest first. The caller frees them. */
static int sorted(const struct inefficient *s, struct finding **out, size_t *out_count)
{
	struct finding *list = calloc(s->finding_count + 1, sizeof(*list));
	size_t i, count = 0;

	if (list == NULL)
		return -ENOMEM;
	for (i = 0; i < s->finding_count; i++) {
		if (s->findings[i].blocks > 0)
			list[count++] = s->findings[i];
	}
	qsort(list, count, sizeof(*list), by_bytes);
	*out = list;
	*out_count = count;
	return 0;
}

static void total_text(const struct finding *list, size_t count, struct strbuf *out)
{
	static const struct {
		enum inefficiency kind;
		const char *text;
	} kinds[KINDS] = {
		{INEFFICIENT_EARLY, "allocated too early"},
		{INEFFICIENT_LATE, "freed too late"},
		{INEFFICIENT_IDLE, "idle for long between two uses"},
	};
	size_t i, k;

	for (k = 0; k < KINDS; k++) {
		uint64_t blocks = 0, bytes = 0;

		for (i = 0; i < count; i++) {
			if (list[i].found & kinds[k].kind) {
				blocks += list[i].blocks;
				bytes += list[i].bytes;
			}
		}
		if (blocks == 0)
			continue;
		strbuf_add_str(out, "Inefficient memory: ");
		strbuf_add_size(out, bytes);
		strbuf_addf(out, " in %llu %s %s\n", (unsigned long long)blocks,
			    blocks == 1 ? "block" : "blocks", kinds[k].text);
	}
}

static int inefficient_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	uint32_t lines = view->lines == UINT32_MAX ? view->lines : view->lines / 4;
	struct inefficient *s = state;
	struct finding *list;
	size_t count, i;
	char device[16];

	if (!s->saw_access) {
		strbuf_add_str(out, "Inefficient memory: cannot be judged, no operator told which "
				    "memory it uses.\n");
		return 0;
	}
	if (sorted(s, &list, &count) < 0)
		return -ENOMEM;
	if (count == 0)
		strbuf_add_str(out, "Inefficient memory: none found.\n");
	total_text(list, count, out);
	for (i = 0; i < count && i < lines; i++) {
		const struct context *context = replay_context(view->replay, list[i].context);

		device_text(context->device, device);
		strbuf_add_str(out, "  ");
		strbuf_add_size(out, list[i].bytes);
		strbuf_addf(out, " in %llu %s of %s on %s%s: ", (unsigned long long)list[i].blocks,
			    list[i].blocks == 1 ? "block" : "blocks",
			    pool_event_type(context->pool),
			    context->device == DEVICE_HOST ? "" : "device ", device);
		inefficiency_text(list[i].found, out);
		strbuf_addf(out, "; first is allocation_id %llu\n",
			    (unsigned long long)list[i].first);
		site_text(view->replay, list[i].stack, view->frames, out);
	}
	if (count > lines)
		strbuf_addf(out, "  ... %zu more %s; report.txt has all of them\n", count - lines,
			    count - lines == 1 ? "place" : "places");
	free(list);
	return 0;
}

static int inefficient_json(void *state, const struct analysis_view *view, struct json *json)
{
	struct strbuf types = {0};
	struct finding *list;
	size_t count, i;
	char device[16];

	if (sorted(state, &list, &count) < 0)
		return -ENOMEM;
	json_array(json, "inefficient");
	for (i = 0; i < count; i++) {
		const struct context *context = replay_context(view->replay, list[i].context);

		device_text(context->device, device);
		strbuf_reset(&types);
		inefficiency_text(list[i].found, &types);
		json_object(json, NULL);
		json_string(json, "device", device);
		json_string(json, "event_type", pool_event_type(context->pool));
		json_string(json, "inefficient_type", strbuf_str(&types));
		json_u64(json, "blocks", list[i].blocks);
		json_u64(json, "bytes", list[i].bytes);
		json_u64(json, "first_allocation_id", list[i].first);
		site_json(view->replay, list[i].stack, "site", json);
		json_end(json);
	}
	json_end(json);
	strbuf_fini(&types);
	free(list);
	return 0;
}

const struct analysis analysis_inefficient = {
	.name = "inefficient",
	.bits = SESSION_INEFFICIENT,
	.state_bytes = sizeof(struct inefficient),
	.rows = 1u << ROW_MALLOC | 1u << ROW_FREE | 1u << ROW_READ | 1u << ROW_WRITE |
		1u << ROW_ACCESS | 1u << ROW_ATEN_START | 1u << ROW_ATEN_END | 1u << ROW_ATB_START |
		1u << ROW_ATB_END,
	.settings = inefficient_settings,
	.row = inefficient_row,
	.version = 1,
	.save = inefficient_save,
	.load = inefficient_load,
	.text = inefficient_text,
	.json = inefficient_json,
	.fini = inefficient_fini,
};
