/* SPDX-License-Identifier: Apache-2.0 */
#include "analysis/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/align.h"
#include "base/array.h"
#include "base/hash.h"
#include "trace/session.h"

/* Calls that began and never end would make every search longer; no thread nests deeper. */
#define OPEN_MAX 4096

/* No machine has as many; a forged file that says so is not worth the time. */
#define DEVICES_MAX 4096

/* What is in use on a device now, for each of enum compare_pools. */
struct in_use {
	int64_t bytes[3];
};

/* An operator that has begun. */
struct open_call {
	uint32_t tid;
	uint32_t name;
	uint32_t device;
	struct in_use before;
};

/* What was in use at the last call of a device: where the next kernel's change begins. */
struct last_call {
	uint32_t device;
	struct in_use after;
	struct in_use now; /* of blocks that count */
};

void compare_init(struct compare *compare, uint32_t level)
{
	*compare = (struct compare){.level = level, .exact = true};
}

void compare_fini(struct compare *compare)
{
	int side;

	for (side = 0; side < 2; side++) {
		free(compare->sides[side].calls);
		ledger_fini(&compare->sides[side].ledger);
	}
	free(compare->rows);
	strbuf_fini(&compare->names);
	map_fini(&compare->name_known);
	*compare = (struct compare){0};
}

/* ---- reading a run ---- */

/* The number of a name, the same in both runs. */
static int intern(struct compare *compare, const char *text, uint32_t *out)
{
	size_t length = strlen(text), offset = compare->names.length;
	struct map_key key = {hash_add(HASH_BEGIN, text, length), length};
	uint64_t *known;

	/* Names with the same hash have keys one behind the other. */
	for (; (known = map_get(&compare->name_known, key)) != NULL; key.b += UINT64_C(1) << 32) {
		if (strcmp(compare->names.data + *known, text) == 0) {
			*out = (uint32_t)*known;
			return 0;
		}
	}
	if (offset + length >= COMPARE_KERNEL - 1)
		return MSCOPE_E_LIMIT;
	strbuf_add(&compare->names, text, length + 1);
	if (strbuf_failed(&compare->names))
		return -ENOMEM;
	*out = (uint32_t)offset;
	return map_put(&compare->name_known, key, offset);
}

/* The number of what a record of this writer calls `id`; "N/A" when that has no text. */
static int name_of_event(struct compare_reader *reader, const struct trace_event *event,
			 uint64_t id, uint32_t *out)
{
	struct recent_name *recent =
		&reader->recent[(id + event->writer * 7) % MSCOPE_COUNT(reader->recent)];
	const char *text;
	int r;

	if (recent->id == id && recent->writer == event->writer && id != 0) {
		*out = recent->name;
		return 0;
	}
	text = replay_event_text(reader->replay, event, id);
	r = intern(reader->compare, text == NULL ? "N/A" : text, out);
	if (r == 0 && text != NULL && !(id & TEXT_ONCE))
		*recent = (struct recent_name){id, event->writer, *out};
	return r;
}

static uint32_t device_of(const struct replay *replay, const struct trace_event *event)
{
	return replay_event_context(replay, event)->device;
}

static struct last_call *last_of(struct compare_reader *reader, uint32_t device)
{
	size_t i;

	for (i = 0; i < reader->last_count; i++) {
		if (reader->last[i].device == device)
			return &reader->last[i];
	}
	if (i == DEVICES_MAX || ARRAY_RESERVE(reader->last, reader->last_room, i + 1) < 0)
		return NULL;
	reader->last[i] = (struct last_call){.device = device};
	reader->last_count++;
	return &reader->last[i];
}

/* Whose memory a pool is: one of enum compare_pools, or -1. */
static int pools_of(uint8_t pool)
{
	switch (pool) {
	case POOL_pta:
	case POOL_pta_workspace:
	case POOL_atb:
	case POOL_host:
		return COMPARE_PYTORCH;
	case POOL_mindspore:
		return COMPARE_MINDSPORE;
	case POOL_hal:
		return COMPARE_DRIVER;
	default:
		return -1;
	}
}

bool compare_counts_pool(const struct compare *compare, uint8_t pool)
{
	return pools_of(pool) == (int)compare->pools;
}

/* Adds bytes of a pool to those of its framework. */
static void add_use(struct in_use *use, uint8_t pool, int64_t bytes)
{
	int pools = pools_of(pool);

	if (pools >= 0)
		use->bytes[pools] += bytes;
}

static bool counts_rows(const struct compare_reader *reader)
{
	return reader->choice->row != NULL;
}

/* What is in use on a device now; of blocks that count. */
static struct in_use use_of(const struct compare_reader *reader, uint32_t device)
{
	size_t i;

	for (i = 0; i < reader->last_count; i++) {
		if (reader->last[i].device == device)
			return reader->last[i].now;
	}
	return (struct in_use){{0}};
}

static int add_call(struct compare_reader *reader, uint32_t name, uint32_t device,
		    struct in_use before, struct in_use after)
{
	struct compare_side *side = reader->side;
	struct compare_call call = {
		.name = name, .device = device, .at = (uint32_t)side->ledger.entry_count};
	int r = ARRAY_RESERVE(side->calls, side->room, side->count + 1);
	size_t i;

	if (r < 0)
		return r;
	for (i = 0; i < MSCOPE_COUNT(call.bytes); i++)
		call.bytes[i] = after.bytes[i] - before.bytes[i];
	side->calls[side->count++] = call;
	return 0;
}

static bool is_wanted(const struct compare_reader *reader, const struct trace_event *event)
{
	const struct compare_choice *choice = reader->choice;

	return (choice->step == 0 || reader->in_step) &&
	       (choice->wanted == NULL ||
		choice->wanted(choice->arg, reader->replay,
			       replay_event_context(reader->replay, event)));
}

/* Takes out the innermost operator of that name that is open on the thread, with those inside it that never ended. */
static bool close_open(struct compare_reader *reader, uint32_t tid, uint32_t name,
		       struct in_use *out)
{
	size_t i = reader->open_count, from, to;

	while (i > 0 && !(reader->open[i - 1].tid == tid && reader->open[i - 1].name == name))
		i--;
	if (i == 0)
		return false;
	*out = reader->open[--i].before;
	for (from = to = i; from < reader->open_count; from++) {
		if (reader->open[from].tid != tid)
			reader->open[to++] = reader->open[from];
	}
	reader->open_count = to;
	return true;
}

/* Operators are followed also where they are not wanted: blocks are known by them. */
static int take_operation(struct compare_reader *reader, const struct trace_event *event)
{
	bool wanted = is_wanted(reader, event);
	struct event_operation operation;
	struct in_use before, now;
	struct last_call *last;
	uint32_t name, device;
	int r;

	event_operation_decode(event->words, &operation);
	if (operation.layer != LAYER_ATEN && operation.layer != LAYER_ATB)
		return 0;
	device = device_of(reader->replay, event);
	if (operation.kind == OPERATION_ENDED && wanted)
		reader->side->ops += device != DEVICE_UNKNOWN;
	if (!(reader->compare->level & COMPARE_OPS) || device == DEVICE_UNKNOWN)
		return 0;
	r = name_of_event(reader, event, operation.name, &name);
	if (r < 0)
		return r;
	now = use_of(reader, device);
	if (operation.kind == OPERATION_BEGINS) {
		if (reader->open_count == OPEN_MAX)
			reader->open_count = 0;
		r = ARRAY_RESERVE(reader->open, reader->open_room, reader->open_count + 1);
		if (r == 0)
			reader->open[reader->open_count++] = (struct open_call){
				.tid = event->tid, .name = name, .device = device, .before = now};
		return r;
	}
	if (operation.kind != OPERATION_ENDED)
		return 0;
	last = last_of(reader, device);
	if (last == NULL)
		return -ENOMEM;
	/* Without its begin, everything since the call before counts. */
	if (!close_open(reader, event->tid, name, &before))
		before = last->after;
	r = wanted ? add_call(reader, name, device, before, now) : 0;
	last->after = now;
	return r;
}

static int take_launch(struct compare_reader *reader, const struct trace_event *event)
{
	uint32_t name, device = device_of(reader->replay, event);
	struct event_kernel_launch launch;
	struct last_call *last;
	struct in_use now;
	int r;

	event_kernel_launch_decode(event->words, &launch);
	if (device == DEVICE_UNKNOWN)
		return 0;
	if (launch.name == 0 && !reader->choice->nameless) {
		reader->side->nameless++;
		return 0;
	}
	reader->side->kernels++;
	if (!(reader->compare->level & COMPARE_KERNELS))
		return 0;
	r = name_of_event(reader, event, launch.name, &name);
	last = last_of(reader, device);
	if (r < 0 || last == NULL)
		return r < 0 ? r : -ENOMEM;
	now = use_of(reader, device);
	r = add_call(reader, name | COMPARE_KERNEL, device, last->after, now);
	last->after = now;
	return r;
}

/* Recording starts: no call allocated what was alive before. */
static void begin_window(struct compare_reader *reader)
{
	size_t i;

	for (i = 0; i < reader->last_count; i++)
		reader->last[i].after = reader->last[i].now;
}

static void look_at_pools(struct compare_reader *reader)
{
	size_t count, i;
	const struct usage *usages = replay_usages(reader->replay, &count);
	bool tensors = false;

	for (i = 0; i < count; i++) {
		uint8_t pool = usages[i].pool;

		if (usages[i].allocations == 0)
			continue;
		reader->side->pytorch = reader->side->pytorch || pool == POOL_pta ||
					pool == POOL_pta_workspace || pool == POOL_atb;
		reader->side->mindspore = reader->side->mindspore || pool == POOL_mindspore;
		tensors = tensors || pool == POOL_host;
	}
	/* Tensors of PyTorch on the CPU; a run of MindSpore may have some beside. */
	reader->side->pytorch = reader->side->pytorch || (tensors && !reader->side->mindspore);
}

void compare_begin(struct compare_reader *reader, struct compare *compare, int side,
		   const struct compare_choice *choice)
{
	*reader = (struct compare_reader){
		.compare = compare, .side = &compare->sides[side], .choice = choice};
}

/* ---- changes of memory ---- */

/* The operator in progress on a thread, as the ledger has it; 0: none. */
static uint32_t call_of_thread(const struct compare_reader *reader, uint32_t tid)
{
	size_t i;

	for (i = reader->open_count; i > 0; i--) {
		if (reader->open[i - 1].tid == tid)
			return reader->open[i - 1].name + 1;
	}
	return 0;
}

static void on_block(void *arg, struct replay *replay, enum block_change change,
		     const struct block *block, const struct usage *usage, uint32_t owner)
{
	struct compare_reader *reader = arg;
	const struct compare_choice *choice = reader->choice;
	const struct context *context = replay_context(replay, block->context);
	struct ledger *ledger = &reader->side->ledger;
	bool outside = reader->open_count == 0;
	struct last_call *last;
	int r;

	(void)usage;
	(void)owner;
	if (change == BLOCK_RELABELLED) {
		if (ledger_relabel(ledger, block) < 0)
			reader->error = -ENOMEM;
		return;
	}
	if (choice->wanted != NULL && !choice->wanted(choice->arg, replay, context))
		return;
	if (change == BLOCK_REMOVED)
		r = ledger_remove(ledger, block, outside);
	else
		r = ledger_add(ledger, block, context, call_of_thread(reader, block->tid), outside);
	last = last_of(reader, context->device);
	if (last != NULL)
		add_use(&last->now, context->pool,
			change == BLOCK_REMOVED ? -(int64_t)block->size_bytes
						: (int64_t)block->size_bytes);
	if (r < 0 || last == NULL)
		reader->error = -ENOMEM;
}

static void on_step(void *arg, struct replay *replay, uint32_t step, bool begins)
{
	struct compare_reader *reader = arg;
	struct compare_side *side = reader->side;

	reader->replay = replay;
	if (step != reader->choice->step || (begins && side->in_range))
		return;
	reader->in_step = begins;
	side->in_range = true;
	side->ledger.to = side->ledger.entry_count;
	if (!begins)
		return;
	side->ledger.from = side->ledger.entry_count;
	begin_window(reader);
}

static void on_restart(void *arg, struct replay *replay)
{
	struct compare_reader *reader = arg;

	(void)replay;
	reader->in_step = reader->side->in_range = false;
	reader->side->count = 0;
	reader->side->ops = reader->side->kernels = reader->side->nameless = 0;
}

void compare_observe(struct compare_reader *reader, struct replay *replay)
{
	reader->observer =
		(struct replay_observer){.block = on_block, .blocks = 1u << BLOCK_RELABELLED};
	if (!counts_rows(reader))
		reader->observer.blocks |=
			1u << BLOCK_ADDED | 1u << BLOCK_REMOVED | 1u << BLOCK_RESTORED;
	reader->error = replay_decompose(replay);
	if (reader->choice->step != 0) {
		reader->observer.step = on_step;
		reader->observer.restart = on_restart;
	}
	replay_observe(replay, &reader->observer, reader);
}

int compare_take_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct compare_reader *reader = arg;

	reader->replay = replay;
	if (MSCOPE_UNLIKELY(reader->error < 0))
		return reader->error;
	switch (event->type) {
	case EVENT_operation:
		return take_operation(reader, event);
	case EVENT_kernel_launch:
		return is_wanted(reader, event) ? take_launch(reader, event) : 0;
	case EVENT_state:
		if (replay_state(replay) == RECORDING_ON)
			begin_window(reader);
		return 0;
	case EVENT_ended:
		if (!reader->has_ended && replay_ended(replay) != END_NONE)
			reader->end_at = reader->side->ledger.entry_count;
		reader->has_ended = replay_ended(replay) != END_NONE;
		return 0;
	default:
		return 0;
	}
}

int compare_take_row(void *arg, struct replay *replay, const struct row *row)
{
	struct compare_reader *reader = arg;
	struct map_key key;
	struct last_call *last;
	uint64_t *size;
	int r = 0;

	if (!counts_rows(reader) || (row->kind != ROW_MALLOC && row->kind != ROW_FREE) ||
	    row->block == NULL || !reader->choice->row(reader->choice->arg, replay, row))
		return 0;
	last = last_of(reader, row->context->device);
	if (last == NULL)
		return -ENOMEM;
	key = (struct map_key){row->block->allocation_id, 0};
	size = map_get(&reader->written, key);
	if (row->kind == ROW_MALLOC && size == NULL) {
		add_use(&last->now, row->context->pool, (int64_t)row->block->size_bytes);
		r = map_put(&reader->written, key, row->block->size_bytes);
		if (r == 0)
			r = ledger_add(&reader->side->ledger, row->block, row->context,
				       call_of_thread(reader, row->tid), reader->open_count == 0);
	} else if (row->kind == ROW_FREE && size != NULL) {
		/* A free whose block was not written changes nothing that is known. */
		add_use(&last->now, row->context->pool, -(int64_t)*size);
		(void)map_remove(&reader->written, key, NULL);
		r = ledger_remove(&reader->side->ledger, row->block, reader->open_count == 0);
	}
	return r;
}

/* Blocks are weights, gradients and the like if the package labelled them; that an operator made them is known without. */
static void look_at_classes(struct compare_reader *reader)
{
	const struct ledger *ledger = &reader->side->ledger;
	size_t i;

	for (i = 0; i < ledger->place_count && !reader->side->classes; i++)
		reader->side->classes =
			replay_owner_class(reader->replay, ledger->places[i].owner) > CLASS_aten;
}

void compare_end(struct compare_reader *reader, struct replay *replay)
{
	struct ledger *ledger = &reader->side->ledger;

	reader->replay = reader->side->replay = replay;
	reader->side->steps = replay_steps(replay);
	look_at_pools(reader);
	look_at_classes(reader);
	/* A step that never ended ends with the run. */
	if (reader->choice->step == 0 || reader->in_step)
		ledger->to = reader->has_ended && reader->end_at >= ledger->from
				     ? reader->end_at
				     : ledger->entry_count;
	map_fini(&ledger->live);
	map_fini(&ledger->place_known);
}

void compare_reader_fini(struct compare_reader *reader)
{
	free(reader->open);
	free(reader->last);
	map_fini(&reader->written);
}

/* ---- side by side ---- */

/* Why neither run has calls of the kind that was asked for. */
static const char *why_no_calls(const struct compare *compare)
{
	const struct compare_side *a = &compare->sides[0], *b = &compare->sides[1];

	if (!(compare->level & COMPARE_KERNELS))
		return a->kernels + b->kernels > 0
			       ? "neither run has operators, but kernels: --level=kernel"
			       : "neither run has operators to compare";
	if (!(compare->level & COMPARE_OPS) && a->ops + b->ops > 0)
		return "neither run has kernels, but operators: --level=op";
	return a->nameless + b->nameless > 0
		       ? "neither run has names of kernels; they are recorded with --level=kernel"
		       : "neither run has calls to compare";
}

static int check(struct compare *compare, struct mscope_error *err)
{
	const struct compare_side *a = &compare->sides[0], *b = &compare->sides[1];
	bool pytorch = a->pytorch || b->pytorch, mindspore = a->mindspore || b->mindspore;

	if ((a->pytorch && a->mindspore) || (b->pytorch && b->mindspore))
		return error_set(err, MSCOPE_E_STATE,
				 "the %s run has memory of PyTorch and of MindSpore; a run of one "
				 "framework is needed",
				 a->pytorch && a->mindspore ? "first" : "second");
	if (pytorch && mindspore)
		return error_set(err, MSCOPE_E_STATE,
				 "one run is of PyTorch and the other of MindSpore; they cannot be "
				 "compared");
	if (mindspore && !(compare->level & COMPARE_KERNELS))
		return error_set(err, MSCOPE_E_STATE,
				 "runs of MindSpore are compared by kernels: --level=kernel");
	if (a->count == 0 && b->count == 0) {
		compare->no_calls = why_no_calls(compare);
		if (a->ledger.entry_count == 0 && b->ledger.entry_count == 0)
			return error_set(err, MSCOPE_E_ABSENT, "%s", compare->no_calls);
	}
	compare->pools = pytorch ? COMPARE_PYTORCH : mindspore ? COMPARE_MINDSPORE : COMPARE_DRIVER;
	return 0;
}

/* Calls of one device in each run, as sequences of names. */
struct device_calls {
	struct compare *compare;
	uint32_t device;
	uint32_t *names[2];
	size_t *calls[2]; /* their places among the calls of the side */
	size_t count[2], name_room[2], call_room[2];
};

static int collect(struct device_calls *calls, int side)
{
	const struct compare_side *all = &calls->compare->sides[side];
	size_t i, k = 0;
	int r;

	for (i = 0; i < all->count; i++) {
		if (all->calls[i].device != calls->device)
			continue;
		r = ARRAY_RESERVE(calls->names[side], calls->name_room[side], k + 1);
		if (r == 0)
			r = ARRAY_RESERVE(calls->calls[side], calls->call_room[side], k + 1);
		if (r < 0)
			return r;
		calls->names[side][k] = all->calls[i].name;
		calls->calls[side][k++] = i;
	}
	calls->count[side] = k;
	return 0;
}

static int on_align(void *arg, enum align_step step, size_t first, size_t second)
{
	struct device_calls *calls = arg;
	struct compare *compare = calls->compare;
	int r = ARRAY_RESERVE(compare->rows, compare->row_room, compare->row_count + 1);

	if (r == 0)
		compare->rows[compare->row_count++] = (struct compare_row){
			.device = calls->device,
			.call = {step == ALIGN_SECOND ? COMPARE_ABSENT : calls->calls[0][first],
				 step == ALIGN_FIRST ? COMPARE_ABSENT : calls->calls[1][second]},
		};
	return r;
}

static int align_device(struct compare *compare, uint32_t device)
{
	struct device_calls calls = {.compare = compare, .device = device};
	bool exact = true;
	int side, r = collect(&calls, 0);

	if (r == 0)
		r = collect(&calls, 1);
	if (r == 0)
		r = align(calls.names[0], calls.count[0], calls.names[1], calls.count[1], on_align,
			  &calls, &exact);
	compare->exact = compare->exact && exact;
	for (side = 0; side < 2; side++) {
		free(calls.names[side]);
		free(calls.calls[side]);
	}
	return r;
}

/* The next device after `device` that either run has a call on; UINT64_MAX when there is none. */
static uint64_t next_device(const struct compare *compare, uint64_t from)
{
	uint64_t next = UINT64_MAX;
	size_t side, i;

	for (side = 0; side < 2; side++) {
		for (i = 0; i < compare->sides[side].count; i++) {
			uint64_t device = compare->sides[side].calls[i].device;

			if (device >= from && device < next)
				next = device;
		}
	}
	return next;
}

/* ---- devices ---- */

/* The devices whose memory a run used, each once; the host is none. Returns how many. */
static size_t list_devices(const struct ledger *ledger, uint32_t *out)
{
	size_t i, count = 0, kept = 0;

	for (i = 0; i < ledger->pool_count; i++) {
		uint32_t device = ledger->pools[i].device;

		if (device != DEVICE_HOST && device != DEVICE_UNKNOWN)
			out[count++] = device;
	}
	if (count > 0)
		qsort(out, count, sizeof(*out), order_u32);
	for (i = 0; i < count; i++) {
		if (i == 0 || out[i] != out[kept - 1])
			out[kept++] = out[i];
	}
	return kept;
}

static uint32_t renamed(uint32_t device, const uint32_t *from, const uint32_t *to, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (from[i] == device)
			return to[i];
	}
	return device;
}

/* Runs that used as many devices, and none in common, used them alike: those of the second get the numbers of the first. */
static int match_devices(struct compare *compare)
{
	struct compare_side *other = &compare->sides[1];
	const struct ledger *base = &compare->sides[0].ledger;
	uint32_t *first = calloc(base->pool_count + 1, sizeof(*first)),
		 *second = calloc(other->ledger.pool_count + 1, sizeof(*second));
	size_t i, count;
	bool apart;

	if (first == NULL || second == NULL) {
		free(first);
		free(second);
		return -ENOMEM;
	}
	count = list_devices(base, first);
	apart = count > 0 && list_devices(&other->ledger, second) == count;
	for (i = 0; i < count && apart; i++)
		apart = bsearch(&first[i], second, count, sizeof(*second), order_u32) == NULL;
	for (i = 0; i < other->count && apart; i++)
		other->calls[i].device = renamed(other->calls[i].device, second, first, count);
	for (i = 0; i < other->ledger.pool_count && apart; i++)
		other->ledger.pools[i].device =
			renamed(other->ledger.pools[i].device, second, first, count);
	compare->other_devices = apart;
	free(first);
	free(second);
	return 0;
}

int compare_align(struct compare *compare, struct mscope_error *err)
{
	uint64_t device = 0;
	int r = check(compare, err);

	if (r < 0)
		return r;
	r = match_devices(compare);
	while (r == 0 && (device = next_device(compare, device)) != UINT64_MAX)
		r = align_device(compare, (uint32_t)device++);
	return r == 0 ? 0 : error_set(err, r, "no memory");
}

/* ---- parts of a row ---- */

static const struct compare_call *call_of(const struct compare *compare,
					  const struct compare_row *row, int side)
{
	return row->call[side] == COMPARE_ABSENT ? NULL
						 : &compare->sides[side].calls[row->call[side]];
}

static uint32_t name_of(const struct compare *compare, const struct compare_row *row)
{
	const struct compare_call *call = call_of(compare, row, 0);

	return (call != NULL ? call : call_of(compare, row, 1))->name;
}

const char *compare_name(const struct compare *compare, const struct compare_row *row)
{
	return compare->names.data + (name_of(compare, row) & ~COMPARE_KERNEL);
}

const char *compare_event(const struct compare *compare, const struct compare_row *row)
{
	return name_of(compare, row) & COMPARE_KERNEL ? "KERNEL_LAUNCH" : "OP_LAUNCH";
}

bool compare_bytes(const struct compare *compare, const struct compare_row *row, int side,
		   int64_t *out)
{
	const struct compare_call *call = call_of(compare, row, side);

	*out = call == NULL ? 0 : call->bytes[compare->pools];
	return call != NULL;
}

int64_t compare_difference(const struct compare *compare, const struct compare_row *row)
{
	int64_t first, second;

	(void)compare_bytes(compare, row, 0, &first);
	(void)compare_bytes(compare, row, 1, &second);
	return second - first;
}
