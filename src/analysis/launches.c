/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each thread has a stack of open operators. Each device has two launches: the latest one, whose blocks are watched until the next
 * launch shows what it left, and the coming one, which collects what is allocated for it. An event costs a few lookups by number;
 * memory grows with names, live blocks and, by 4 bytes each, launches.
 *
 * What names hold at the end of steps is kept lazily: an entry is brought up to date before it changes, since nothing of it has
 * changed between the end of a step and then.
 */
#include "analysis/launches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/leaks.h"
#include "base/array.h"
#include "base/hash.h"
#include "trace/session.h"

enum launches_level { LAUNCHES_OPERATOR, LAUNCHES_KERNEL, LAUNCHES_LEVELS };

#define NONE	    UINT32_MAX
#define WRITERS_MAX 65536u
#define DEPTH_MAX   256u /* operators that are nested deeper belong to the one that holds them */

/* Calls of one name. */
struct call {
	size_t name; /* offset in launches_state.names */
	uint32_t device;
	uint8_t level;
	bool outside; /* memory of no call */
	uint64_t calls;
};

/* Memory of a call's name in one pool of one device. */
struct entry {
	uint32_t call;
	uint32_t device;
	uint8_t pool;
	uint64_t left, largest, freed;
	uint64_t held, held_blocks;
	uint32_t seen; /* steps that had ended when these were valid: */
	uint64_t first, last;
};

/* Memory of one call in one pool of one device. */
struct part {
	uint32_t device;
	uint8_t pool;
	uint64_t alive, blocks; /* its own that live */
	uint64_t freed;		/* older ones */
};

/* A call in progress. */
struct open_call {
	uint64_t serial; /* unique, from 1 */
	uint32_t call;	 /* NONE: a launch that has not come yet */
	bool counted;
	struct part *parts;
	size_t count, room;
};

struct thread {
	struct open_call *open_calls; /* outermost first; those behind `depth` keep their memory */
	size_t depth, count, room;
};

/* A device's launches. */
struct queue {
	uint32_t device;
	struct open_call latest, coming;
};

/* A live block. */
struct owned {
	uint64_t size;
	uint64_t op_serial; /* of the operator that allocated it */
	uint64_t kernel_serial;
	uint32_t writer, depth; /* where that operator is, while it is open */
	uint32_t op_entry;
};

struct launches_state {
	struct launches_choice choice;
	struct strbuf names;
	struct call *calls;
	size_t call_count, call_room;
	struct map call_known; /* hash of the name, level and device -> index */
	struct entry *entries;
	size_t entry_count, entry_room;
	struct map entry_known; /* call, device and pool -> index */
	struct thread *threads; /* by writer */
	size_t thread_room;
	struct queue *queues;
	size_t queue_count, queue_room;
	uint32_t *kernel_calls; /* by serial of the launch */
	size_t kernel_room;
	uint64_t kernel_serial, op_serial;
	struct owned *blocks;
	size_t block_count, block_room;
	uint32_t *free_blocks;
	size_t free_count, free_room;
	struct map live; /* allocation_id -> index in blocks */
	uint32_t outside[LAUNCHES_LEVELS];
	uint32_t ended, first_ended; /* steps */
	bool begun, automatic;
	bool known[LAUNCHES_LEVELS];
};

/* ---- names and entries ---- */

/* The number of a call's name; NONE: no memory. */
static uint32_t call_of(struct launches_state *s, const char *name, uint8_t level, uint32_t device,
			bool outside)
{
	size_t length = strlen(name);
	struct map_key key = {hash_add(HASH_BEGIN, name, length),
			      (uint64_t)device << 8 | (uint64_t)outside << 7 | level};
	uint64_t *known;

	/* Names of one hash stand one behind the other. */
	for (; (known = map_get(&s->call_known, key)) != NULL; key.b += UINT64_C(1) << 48) {
		if (strcmp(s->names.data + s->calls[*known].name, name) == 0)
			return (uint32_t)*known;
	}
	if (s->call_count >= NONE - 1 ||
	    ARRAY_RESERVE(s->calls, s->call_room, s->call_count + 1) < 0)
		return NONE;
	s->calls[s->call_count] = (struct call){
		.name = s->names.length, .device = device, .level = level, .outside = outside};
	strbuf_add(&s->names, name, length + 1);
	if (strbuf_failed(&s->names) || map_put(&s->call_known, key, s->call_count) < 0)
		return NONE;
	return (uint32_t)s->call_count++;
}

/* An entry before it changes: steps that have ended since its last change are noted. */
static void settle(const struct launches_state *s, struct entry *entry)
{
	if (entry->seen == s->ended)
		return;
	if (entry->seen == 0)
		entry->first = entry->held;
	entry->last = entry->held;
	entry->seen = s->ended;
}

/* NONE: no memory. */
static uint32_t entry_of(struct launches_state *s, uint32_t call, uint32_t device, uint8_t pool)
{
	struct map_key key = {call, (uint64_t)device << 8 | pool};
	uint64_t *known = map_get(&s->entry_known, key);

	if (known != NULL)
		return (uint32_t)*known;
	if (s->entry_count >= NONE - 1 ||
	    ARRAY_RESERVE(s->entries, s->entry_room, s->entry_count + 1) < 0 ||
	    map_put(&s->entry_known, key, s->entry_count) < 0)
		return NONE;
	s->entries[s->entry_count] =
		(struct entry){.call = call, .device = device, .pool = pool, .seen = s->ended};
	return (uint32_t)s->entry_count++;
}

static int hold(struct launches_state *s, uint32_t entry, uint64_t bytes, uint64_t blocks)
{
	if (entry == NONE)
		return -ENOMEM;
	settle(s, &s->entries[entry]);
	s->entries[entry].held += bytes;
	s->entries[entry].held_blocks += blocks;
	return 0;
}

static void let_go(struct launches_state *s, uint32_t at, uint64_t bytes)
{
	struct entry *entry = &s->entries[at];

	settle(s, entry);
	entry->held -= bytes < entry->held ? bytes : entry->held;
	entry->held_blocks -= entry->held_blocks > 0;
}

/* ---- calls in progress ---- */

/* NULL: no memory. */
static struct part *part_of(struct open_call *open, uint32_t device, uint8_t pool)
{
	size_t i;

	for (i = 0; i < open->count; i++) {
		if (open->parts[i].device == device && open->parts[i].pool == pool)
			return &open->parts[i];
	}
	if (ARRAY_RESERVE(open->parts, open->room, open->count + 1) < 0)
		return NULL;
	open->parts[open->count] = (struct part){.device = device, .pool = pool};
	return &open->parts[open->count++];
}

static int add_alive(struct open_call *open, const struct context *context, uint64_t bytes)
{
	struct part *part = part_of(open, context->device, context->pool);

	if (part == NULL)
		return -ENOMEM;
	part->alive += bytes;
	part->blocks++;
	return 0;
}

static void take_alive(struct open_call *open, const struct context *context, uint64_t bytes)
{
	struct part *part = part_of(open, context->device, context->pool);

	if (part == NULL)
		return;
	part->alive -= bytes < part->alive ? bytes : part->alive;
	part->blocks -= part->blocks > 0;
}

static int add_freed(struct open_call *open, const struct context *context, uint64_t bytes)
{
	struct part *part = part_of(open, context->device, context->pool);

	if (part == NULL)
		return -ENOMEM;
	part->freed += bytes;
	return 0;
}

/* A call is over: what it left and freed goes to its name. */
static int close_call(struct launches_state *s, struct open_call *open)
{
	size_t i;

	if (open->counted)
		s->calls[open->call].calls++;
	for (i = 0; i < open->count; i++) {
		const struct part *part = &open->parts[i];
		uint32_t at = entry_of(s, open->call, part->device, part->pool);

		if (at == NONE)
			return -ENOMEM;
		settle(s, &s->entries[at]);
		s->entries[at].left += part->alive;
		s->entries[at].freed += part->freed;
		if (part->alive > s->entries[at].largest)
			s->entries[at].largest = part->alive;
	}
	open->count = 0;
	open->serial = 0;
	return 0;
}

static struct thread *thread_of(struct launches_state *s, uint32_t writer)
{
	size_t before = s->thread_room;

	if (writer > WRITERS_MAX ||
	    ARRAY_RESERVE(s->threads, s->thread_room, (size_t)writer + 1) < 0)
		return NULL;
	if (s->thread_room > before)
		memset(s->threads + before, 0, (s->thread_room - before) * sizeof(*s->threads));
	return &s->threads[writer];
}

/* NULL: no memory. Valid until the next call. */
static struct queue *queue_of(struct launches_state *s, uint32_t device)
{
	size_t i;

	for (i = 0; i < s->queue_count; i++) {
		if (s->queues[i].device == device)
			return &s->queues[i];
	}
	if (ARRAY_RESERVE(s->queues, s->queue_room, i + 1) < 0)
		return NULL;
	s->queues[i] = (struct queue){.device = device,
				      .latest = {.call = NONE},
				      .coming = {.call = NONE, .serial = ++s->kernel_serial}};
	s->queue_count++;
	return &s->queues[i];
}

/* The call that memory of a launch belongs to; the launch that never came is nobody's. NONE: no memory. */
static uint32_t kernel_entry(struct launches_state *s, uint64_t serial,
			     const struct context *context)
{
	uint32_t call = serial < s->kernel_room ? s->kernel_calls[serial] : NONE;

	return call == NONE ? NONE : entry_of(s, call, context->device, context->pool);
}

static int remember_launch(struct launches_state *s, uint64_t serial, uint32_t call)
{
	size_t before = s->kernel_room, i;

	if (ARRAY_RESERVE(s->kernel_calls, s->kernel_room, serial + 1) < 0)
		return -ENOMEM;
	for (i = before; i < s->kernel_room; i++)
		s->kernel_calls[i] = NONE;
	s->kernel_calls[serial] = call;
	return 0;
}

/* ---- rows ---- */

static bool is_named(const struct launches_state *s, uint32_t step)
{
	uint32_t i;

	for (i = 0; step != 0 && i < s->choice.step_count; i++) {
		if (s->choice.steps[i] == step)
			return true;
	}
	return false;
}

/* A row knows its step where the program marks steps; automatic ones are those in progress. */
static bool is_chosen_step(const struct launches_state *s, const struct replay *replay,
			   const struct row *row)
{
	uint32_t step;
	size_t at;

	if (s->choice.step_count == 0 || is_named(s, row->step))
		return true;
	for (at = 0; (step = replay_open_step(replay, at)) != 0; at++) {
		if (is_named(s, step))
			return true;
	}
	return false;
}

static bool is_chosen_device(const struct launches_state *s, const struct context *context)
{
	return replay_choice_takes(&s->choice.devices, context->vendor, context->device,
				   POOL_UNKNOWN);
}

static const char *name_of(const struct row *row)
{
	return row->name == NULL || row->name[0] == '\0' ? "N/A" : row->name;
}

static int on_begin(struct launches_state *s, const struct replay *replay, const struct row *row)
{
	struct thread *thread = thread_of(s, row->writer);
	struct open_call *open;
	size_t before;

	s->known[LAUNCHES_OPERATOR] = true;
	if (thread == NULL)
		return -ENOMEM;
	if (thread->depth == DEPTH_MAX)
		return 0;
	before = thread->room;
	if (ARRAY_RESERVE(thread->open_calls, thread->room, thread->depth + 1) < 0)
		return -ENOMEM;
	if (thread->room > before)
		memset(thread->open_calls + before, 0,
		       (thread->room - before) * sizeof(*thread->open_calls));
	open = &thread->open_calls[thread->depth++];
	open->count = 0;
	open->serial = ++s->op_serial;
	open->call = call_of(s, name_of(row), LAUNCHES_OPERATOR, row->context->device, false);
	open->counted = is_chosen_step(s, replay, row) && is_chosen_device(s, row->context);
	return open->call == NONE ? -ENOMEM : 0;
}

static int on_end(struct launches_state *s, const struct replay *replay, const struct row *row)
{
	struct thread *thread = thread_of(s, row->writer);
	size_t at, call;
	int r = 0;

	if (thread == NULL)
		return -ENOMEM;
	for (at = thread->depth; at > 0; at--) {
		const struct call *begun = &s->calls[thread->open_calls[at - 1].call];

		if (strcmp(s->names.data + begun->name, name_of(row)) == 0)
			break;
	}
	if (at == 0) {
		/* Its beginning was not recorded: it is a call whose memory is unknown. */
		call = call_of(s, name_of(row), LAUNCHES_OPERATOR, row->context->device, false);
		if (call == NONE)
			return -ENOMEM;
		s->known[LAUNCHES_OPERATOR] = true;
		s->calls[call].calls +=
			is_chosen_step(s, replay, row) && is_chosen_device(s, row->context);
		return 0;
	}
	/* Inner ones whose ends are missing end with it. */
	while (r == 0 && thread->depth >= at)
		r = close_call(s, &thread->open_calls[--thread->depth]);
	return r;
}

static int on_launch(struct launches_state *s, const struct replay *replay, const struct row *row)
{
	struct queue *queue = queue_of(s, row->context->device);
	struct part *parts;
	uint32_t call;
	size_t i, room;
	int r;

	s->known[LAUNCHES_KERNEL] = true;
	call = call_of(s, name_of(row), LAUNCHES_KERNEL, row->context->device, false);
	if (queue == NULL || call == NONE)
		return -ENOMEM;
	r = queue->latest.serial == 0 ? 0 : close_call(s, &queue->latest);
	if (r == 0)
		r = remember_launch(s, queue->coming.serial, call);
	for (i = 0; i < queue->coming.count && r == 0; i++) {
		const struct part *part = &queue->coming.parts[i];

		r = hold(s, entry_of(s, call, part->device, part->pool), part->alive, part->blocks);
	}
	/* The coming one is the latest now; their arrays change places. */
	parts = queue->latest.parts;
	room = queue->latest.room;
	queue->latest = queue->coming;
	queue->latest.call = call;
	queue->latest.counted = is_chosen_step(s, replay, row) && is_chosen_device(s, row->context);
	queue->coming = (struct open_call){
		.call = NONE, .serial = ++s->kernel_serial, .parts = parts, .room = room};
	return r;
}

static int own_new(struct launches_state *s, size_t *out)
{
	if (s->free_count > 0) {
		*out = s->free_blocks[--s->free_count];
		return 0;
	}
	if (ARRAY_RESERVE(s->blocks, s->block_room, s->block_count + 1) < 0 ||
	    ARRAY_RESERVE(s->free_blocks, s->free_room, s->block_count + 1) < 0)
		return -ENOMEM;
	*out = s->block_count++;
	return 0;
}

static int on_malloc(struct launches_state *s, const struct replay *replay, const struct row *row)
{
	const struct context *context = replay_context(replay, row->block->context);
	struct thread *thread = thread_of(s, row->writer);
	struct queue *queue = queue_of(s, context->device);
	struct owned owned = {.size = row->block->size_bytes, .writer = row->writer};
	uint32_t call = s->outside[LAUNCHES_OPERATOR];
	size_t at;
	int r = 0;

	if (thread == NULL || queue == NULL)
		return -ENOMEM;
	if (!is_chosen_step(s, replay, row))
		return 0;
	if (thread->depth > 0) {
		struct open_call *open = &thread->open_calls[thread->depth - 1];

		owned.depth = (uint32_t)thread->depth - 1;
		owned.op_serial = open->serial;
		call = open->call;
		r = add_alive(open, context, owned.size);
	}
	owned.kernel_serial = queue->coming.serial;
	if (r == 0)
		r = add_alive(&queue->coming, context, owned.size);
	owned.op_entry = entry_of(s, call, context->device, context->pool);
	if (r == 0)
		r = hold(s, owned.op_entry, owned.size, 1);
	if (r < 0 || own_new(s, &at) < 0)
		return -ENOMEM;
	s->blocks[at] = owned;
	return map_put(&s->live, (struct map_key){row->block->allocation_id, 0}, at);
}

/* A free by an operator, or by none, of a block that is older than it. */
static int freed_by_operator(struct launches_state *s, uint32_t writer,
			     const struct context *context, uint64_t bytes)
{
	struct thread *thread = thread_of(s, writer);
	uint32_t at;

	if (thread == NULL)
		return -ENOMEM;
	if (thread->depth > 0)
		return add_freed(&thread->open_calls[thread->depth - 1], context, bytes);
	at = entry_of(s, s->outside[LAUNCHES_OPERATOR], context->device, context->pool);
	if (at == NONE)
		return -ENOMEM;
	s->entries[at].freed += bytes;
	return 0;
}

static int free_owned(struct launches_state *s, const struct row *row,
		      const struct context *context, const struct owned *owned)
{
	struct thread *thread = thread_of(s, owned->writer);
	struct queue *queue = queue_of(s, context->device);
	struct open_call *open = NULL;
	uint32_t entry;
	int r = 0;

	if (thread == NULL || queue == NULL)
		return -ENOMEM;
	let_go(s, owned->op_entry, owned->size);
	if (owned->op_serial != 0 && owned->depth < thread->depth &&
	    thread->open_calls[owned->depth].serial == owned->op_serial)
		open = &thread->open_calls[owned->depth];
	if (open != NULL)
		take_alive(open, context, owned->size);
	else
		r = freed_by_operator(s, row->writer, context, owned->size);
	if (owned->kernel_serial == queue->coming.serial) {
		take_alive(&queue->coming, context, owned->size);
		return r;
	}
	entry = kernel_entry(s, owned->kernel_serial, context);
	if (entry != NONE)
		let_go(s, entry, owned->size);
	if (owned->kernel_serial == queue->latest.serial)
		take_alive(&queue->latest, context, owned->size);
	else if (r == 0)
		r = add_freed(&queue->coming, context, owned->size);
	return r;
}

static int on_free(struct launches_state *s, const struct replay *replay, const struct row *row)
{
	const struct context *context = replay_context(replay, row->block->context);
	struct queue *queue;
	uint64_t at;
	int r;

	/* It was alive when the program's own code ended. */
	if (row->block->after_end)
		return 0;
	if (map_remove(&s->live, (struct map_key){row->block->allocation_id, 0}, &at)) {
		s->free_blocks[s->free_count++] = (uint32_t)at;
		return free_owned(s, row, context, &s->blocks[at]);
	}
	if (row->shadow || !is_chosen_step(s, replay, row))
		return 0;
	queue = queue_of(s, context->device);
	r = queue == NULL ? -ENOMEM
			  : freed_by_operator(s, row->writer, context, row->block->size_bytes);
	return r == 0 ? add_freed(&queue->coming, context, row->block->size_bytes) : r;
}

/* Steps that have ended since the row before. Automatic steps count no more once the program marks one. */
static void look_at_steps(struct launches_state *s, const struct replay *replay)
{
	bool automatic = replay_steps_are_automatic(replay);
	size_t i;

	if (s->automatic && !automatic) {
		for (i = 0; i < s->entry_count; i++)
			s->entries[i].seen = 0;
		s->ended = s->first_ended = 0;
	}
	s->automatic = automatic;
	s->ended = last_ended_step(replay);
	if (s->first_ended == 0)
		s->first_ended = s->ended;
}

static int begin_state(struct launches_state *s)
{
	static const char *const names[] = {[LAUNCHES_OPERATOR] = "outside of operators",
					    [LAUNCHES_KERNEL] = "after the last launch"};
	int level;

	s->begun = true;
	for (level = 0; level < LAUNCHES_LEVELS; level++) {
		s->outside[level] = call_of(s, names[level], (uint8_t)level, DEVICE_UNKNOWN, true);
		if (s->outside[level] == NONE)
			return -ENOMEM;
	}
	return 0;
}

static int launches_row(void *state, struct replay *replay, const struct row *row)
{
	struct launches_state *s = state;

	if (!s->begun && begin_state(s) < 0)
		return -ENOMEM;
	look_at_steps(s, replay);
	switch (row->kind) {
	case ROW_ATEN_START:
	case ROW_ATB_START:
		return on_begin(s, replay, row);
	case ROW_ATEN_END:
	case ROW_ATB_END:
		return on_end(s, replay, row);
	case ROW_KERNEL_LAUNCH:
	case ROW_ATB_KERNEL_START:
		return on_launch(s, replay, row);
	case ROW_MALLOC:
		/* Blocks from outside of windows are no call's doing. */
		return row->block == NULL || row->shadow ? 0 : on_malloc(s, replay, row);
	case ROW_FREE:
		return row->block == NULL ? 0 : on_free(s, replay, row);
	default:
		return 0;
	}
}

static void launches_end(void *state)
{
	struct launches_state *s = state;
	size_t i, k;

	strbuf_fini(&s->names);
	free(s->calls);
	map_fini(&s->call_known);
	free(s->entries);
	map_fini(&s->entry_known);
	for (i = 0; i < s->thread_room; i++) {
		for (k = 0; k < s->threads[i].room; k++)
			free(s->threads[i].open_calls[k].parts);
		free(s->threads[i].open_calls);
	}
	free(s->threads);
	for (i = 0; i < s->queue_count; i++) {
		free(s->queues[i].latest.parts);
		free(s->queues[i].coming.parts);
	}
	free(s->queues);
	free(s->kernel_calls);
	free(s->blocks);
	free(s->free_blocks);
	map_fini(&s->live);
}

/* ---- the answer ---- */

void launches_choose(struct analyses *analyses, const struct launches_choice *choice)
{
	struct launches_state *s = analyses->state[ANALYSIS_ID_launches];

	if (s != NULL)
		s->choice = *choice;
}

/* A copy whose calls and entries may change; all else is borrowed. The caller gives it to end_fini(). */
static int end_init(const struct launches_state *s, struct launches_state *out)
{
	size_t i;
	int r = 0;

	*out = *s;
	out->entry_known = (struct map){0};
	out->call_room = s->call_count + 1;
	out->entry_room = s->entry_count + 1;
	out->calls = calloc(out->call_room, sizeof(*out->calls));
	out->entries = calloc(out->entry_room, sizeof(*out->entries));
	if (out->calls == NULL || out->entries == NULL)
		return -ENOMEM;
	if (s->call_count > 0)
		memcpy(out->calls, s->calls, s->call_count * sizeof(*out->calls));
	if (s->entry_count > 0)
		memcpy(out->entries, s->entries, s->entry_count * sizeof(*out->entries));
	for (i = 0; i < s->entry_count && r == 0; i++) {
		const struct entry *entry = &s->entries[i];

		r = map_put(
			&out->entry_known,
			(struct map_key){entry->call, (uint64_t)entry->device << 8 | entry->pool},
			i);
	}
	return r;
}

static void end_fini(struct launches_state *end)
{
	free(end->calls);
	free(end->entries);
	map_fini(&end->entry_known);
}

/* What is open ends here, in a copy. */
static int finish(struct launches_state *end, const struct replay *replay)
{
	size_t i, k;
	int r = 0;

	if (!end->begun)
		return 0;
	look_at_steps(end, replay);
	for (i = 0; i < end->thread_room; i++) {
		for (k = end->threads[i].depth; k > 0 && r == 0; k--) {
			struct open_call open = end->threads[i].open_calls[k - 1];

			r = close_call(end, &open);
		}
	}
	for (i = 0; i < end->queue_count && r == 0; i++) {
		struct open_call latest = end->queues[i].latest, coming = end->queues[i].coming;

		if (latest.serial != 0)
			r = close_call(end, &latest);
		coming.call = end->outside[LAUNCHES_KERNEL];
		for (k = 0; k < coming.count && r == 0; k++)
			r = hold(end,
				 entry_of(end, coming.call, coming.parts[k].device,
					  coming.parts[k].pool),
				 coming.parts[k].alive, coming.parts[k].blocks);
		if (r == 0)
			r = close_call(end, &coming);
	}
	for (i = 0; i < end->entry_count; i++)
		settle(end, &end->entries[i]);
	return r;
}

static int by_growth(const void *a, const void *b)
{
	const struct finding_call *x = a, *y = b;
	double growth = (y->bytes_per_step > 0 ? y->bytes_per_step : 0) -
			(x->bytes_per_step > 0 ? x->bytes_per_step : 0);
	bool x_driver = pool_is_driver(x->event_type), y_driver = pool_is_driver(y->event_type);

	if (x->kernel != y->kernel)
		return x->kernel ? 1 : -1;
	/* A pool takes its memory from the driver: blocks of pools say more. */
	if (x_driver != y_driver)
		return x_driver ? 1 : -1;
	if (growth != 0)
		return growth < 0 ? -1 : 1;
	if (x->left_bytes != y->left_bytes)
		return x->left_bytes > y->left_bytes ? -1 : 1;
	if (x->calls != y->calls)
		return x->calls > y->calls ? -1 : 1;
	if (strcmp(x->name, y->name) != 0)
		return strcmp(x->name, y->name);
	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->event_type - y->event_type;
}

static void fill(const struct launches_state *s, const struct replay *replay,
		 const struct entry *entry, struct findings *found, struct finding_call *out)
{
	const struct call *call = &s->calls[entry->call];
	uint32_t base = replay_totals(replay)->dropped_events > 0 ? s->first_ended : 1;

	*out = (struct finding_call){
		.kind = call->level == LAUNCHES_KERNEL ? "kernel" : "operator",
		.name = findings_text(found, s->names.data + call->name),
		.kernel = call->level == LAUNCHES_KERNEL,
		.outside = call->outside,
		.device = entry->device,
		.event_type = entry->pool,
		.calls = call->calls,
		.left_bytes = call->outside ? entry->held : entry->left,
		.largest_bytes = call->outside ? 0 : entry->largest,
		.freed_bytes = entry->freed,
		.end_bytes = entry->held,
		.end_blocks = entry->held_blocks,
		.first_step_bytes = entry->first,
		.last_step_bytes = entry->last,
	};
	if (s->ended > base && base > 0)
		out->bytes_per_step =
			((double)entry->last - (double)entry->first) / (double)(s->ended - base);
}

/* Outside of what was not recorded says nothing, and a name whose calls were not chosen neither. */
static bool is_told(const struct launches_state *s, const struct entry *entry)
{
	const struct call *call = &s->calls[entry->call];

	return s->known[call->level] &&
	       (call->calls > 0 || entry->held + entry->left + entry->freed > 0);
}

/* 0 or -ENOMEM. */
static int add_entries(const struct launches_state *end, const struct replay *replay,
		       struct finding_range *range, struct findings *out)
{
	bool *has_memory = calloc(end->call_count + 1, sizeof(*has_memory));
	struct finding_call *call = NULL;
	size_t i, count = end->entry_count + end->call_count;

	for (i = 0; i < count && has_memory != NULL; i++) {
		size_t number = i - end->entry_count;
		struct entry none = {0};
		const struct entry *entry = &none;

		if (i < end->entry_count) {
			entry = &end->entries[i];
			if (!is_told(end, entry))
				continue;
			has_memory[entry->call] = true;
		} else {
			none = (struct entry){.call = (uint32_t)number,
					      .device = end->calls[number].device,
					      .pool = POOL_UNKNOWN};
			if (has_memory[number] || end->calls[number].calls == 0)
				continue;
		}
		call = FINDINGS_ADD_TO(out, call, range);
		if (call == NULL)
			break;
		fill(end, replay, entry, out, call);
	}
	free(has_memory);
	if (has_memory == NULL || out->failed)
		return -ENOMEM;
	if (range->count > 1)
		qsort(FINDINGS(out, call) + range->first, range->count, sizeof(*call), by_growth);
	return 0;
}

static int launches_judge(const void *state, struct replay *replay, struct findings *out)
{
	struct finding_range range = {0};
	struct finding_calls *calls;
	struct launches_state end;
	int r = end_init(state, &end);

	if (r == 0)
		r = finish(&end, replay);
	if (r == 0)
		r = add_entries(&end, replay, &range, out);
	calls = r == 0 ? FINDINGS_ADD(out, calls) : NULL;
	if (calls != NULL)
		*calls = (struct finding_calls){.steps = end.ended,
						.operators = end.known[LAUNCHES_OPERATOR],
						.kernels = end.known[LAUNCHES_KERNEL],
						.entries = range};
	end_fini(&end);
	return calls == NULL ? -ENOMEM : 0;
}

static int launches_text(void *state, const struct analysis_view *view, struct strbuf *out)
{
	(void)state;
	calls_text(view->found, view->lines, out);
	return 0;
}

static int launches_json(void *state, const struct analysis_view *view, struct json *json)
{
	(void)state;
	calls_json(view->found, view->lines, json);
	return 0;
}

const struct analysis analysis_launches = {
	.name = "launches",
	.word = "launches",
	.nothing = "",
	.by_steps = true,
	.bits = SESSION_LAUNCHES,
	.state_bytes = sizeof(struct launches_state),
	.rows = 1u << ROW_MALLOC | 1u << ROW_FREE | 1u << ROW_ATEN_START | 1u << ROW_ATEN_END |
		1u << ROW_ATB_START | 1u << ROW_ATB_END | 1u << ROW_KERNEL_LAUNCH |
		1u << ROW_ATB_KERNEL_START,
	.row = launches_row,
	.judge = launches_judge,
	.text = launches_text,
	.long_json = true,
	.json = launches_json,
	.fini = launches_end,
};
