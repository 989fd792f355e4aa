/* SPDX-License-Identifier: Apache-2.0 */
#include "advise/advise_record.h"

#include <stdio.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "trace/run.h"

#define ROOM(record, what)                                                                         \
	array_reserve(&(record)->what##s, &(record)->what##_room, (record)->what##_count + 1,      \
		      sizeof(*(record)->what##s))

void advise_record_fini(struct advise_record *record)
{
	for (size_t i = 0; i < record->module_count; i++)
		free(record->modules[i].layer);
	free(record->pools);
	free(record->blocks);
	free(record->saves);
	free(record->touches);
	free(record->modules);
	free(record->calls);
	free(record->nodes);
	free(record->runs);
	free(record->moments);
	free(record->open);
	free(record->zeroed);
	free(record->zeroed_line);
	free(record->adds);
	free(record->sums);
	free(record->steps);
	free(record->threads_open);
	free(record->uses);
	map_fini(&record->by_id);
	map_fini(&record->by_layer);
	map_fini(&record->by_number);
	*record = (struct advise_record){0};
}

/* The next moment; `block` ADVISE_NONE: none comes or goes. 0 or -ENOMEM. */
static int add_moment(struct advise_record *record, uint32_t block, bool comes)
{
	int status = ROOM(record, moment);

	if (status == 0)
		record->moments[record->moment_count++] = (struct advise_moment){
			.time_ns = record->now_ns, .block = block, .comes = comes};
	return status;
}

/* ---- blocks ---- */

static uint32_t pool_of(struct advise_record *record, const struct context *context)
{
	for (size_t i = 0; i < record->pool_count; i++)
		if (record->pools[i].device == context->device &&
		    record->pools[i].pool == context->pool)
			return (uint32_t)i;
	if (ROOM(record, pool) != 0)
		return ADVISE_NONE;
	record->pools[record->pool_count] = (struct advise_pool){
		.vendor = context->vendor, .pool = context->pool, .device = context->device};
	return (uint32_t)record->pool_count++;
}

/*
 * A block comes while a sum is made: the result of it, if it is as large as what is summed up. What the node that runs made itself may be
 * used by it again.
 */
static int take_result(struct advise_record *record, const struct block *block, uint32_t result)
{
	const struct advise_block *of;
	size_t runs = record->running == 0 ? 0 : record->nodes[record->running - 1].runs;
	int status;

	if (!record->summing || block->tid != record->sum_tid)
		return 0;
	record->summing = false;
	of = &record->blocks[record->sum_of];
	if (of->pool != record->blocks[result].pool || of->bytes != record->blocks[result].bytes ||
	    of->died != ADVISE_NEVER || (!record->sum_own && of->born >= runs))
		return 0;
	status = ROOM(record, sum);
	if (status == 0) {
		record->sums[record->sum_count].sum = result;
		record->sums[record->sum_count++].of = record->sum_of;
	}
	return status;
}

static int block_comes(struct advise_record *record, const struct row *row)
{
	const struct block *block = row->block;
	struct advise_block *one;
	struct advise_pool *pool;
	uint32_t number = pool_of(record, row->context);
	int status = number == ADVISE_NONE ? -ENOMEM : ROOM(record, block);

	if (status == 0)
		status = map_put(&record->by_id, (struct map_key){block->allocation_id, 0},
				 record->block_count);
	if (status != 0)
		return status;
	one = &record->blocks[record->block_count];
	*one = (struct advise_block){.bytes = block->requested_bytes != 0 ? block->requested_bytes
									  : block->size_bytes,
				     .born = record->moment_count,
				     .complete = record->moment_count,
				     .died = ADVISE_NEVER,
				     .used = ADVISE_NEVER,
				     .dropped = ADVISE_NEVER,
				     .pool = number,
				     .call = record->open_count > 0 && record->tid == block->tid
						     ? record->open[record->open_count - 1]
						     : ADVISE_NONE,
				     .tid = block->tid,
				     .stack = block->stack,
				     .save = ADVISE_NONE,
				     .touch = ADVISE_NONE};
	pool = &record->pools[number];
	pool->live += one->bytes;
	if (pool->live > pool->peak) {
		pool->peak = pool->live;
		pool->peak_at = record->moment_count;
	}
	status = take_result(record, block, (uint32_t)record->block_count);
	return status != 0 ? status : add_moment(record, (uint32_t)record->block_count++, true);
}

static int block_goes(struct advise_record *record, struct replay *replay,
		      const struct block *block)
{
	uint64_t number;
	struct advise_block *one;

	if (!map_remove(&record->by_id, (struct map_key){block->allocation_id, 0}, &number))
		return 0;
	one = &record->blocks[number];
	one->died = record->moment_count;
	one->gone_in = record->running == 0 ? 0 : record->nodes[record->running - 1].number + 1;
	one->kind = (uint8_t)replay_owner_class(replay, block->owner);
	record->pools[one->pool].live -= one->bytes;
	return add_moment(record, (uint32_t)number, false);
}

/* ---- what operators use ---- */

/* How many operators of a thread are in progress; NULL: no memory. */
static uint32_t *depth_of(struct advise_record *record, uint32_t tid)
{
	size_t i;

	for (i = 0; i < record->thread_count; i++)
		if (record->threads_open[i].tid == tid)
			return &record->threads_open[i].depth;
	if (ARRAY_RESERVE(record->threads_open, record->thread_room, i + 1) != 0)
		return NULL;
	record->threads_open[i].tid = tid;
	record->threads_open[i].depth = 0;
	record->thread_count = i + 1;
	return &record->threads_open[i].depth;
}

/* The outermost operator of a thread has ended: what it used may go from now on. */
static int operator_ends(struct advise_record *record, uint32_t tid)
{
	uint32_t *depth = depth_of(record, tid);
	size_t kept = 0, used = 0;

	if (depth == NULL)
		return -ENOMEM;
	*depth -= *depth > 0;
	if (*depth > 0)
		return 0;
	for (size_t i = 0; i < record->use_count; i++) {
		if (record->uses[i].tid != tid) {
			record->uses[kept++] = record->uses[i];
			continue;
		}
		record->blocks[record->uses[i].block].used = record->moment_count;
		used++;
	}
	record->use_count = kept;
	return used == 0 ? 0 : add_moment(record, ADVISE_NONE, false);
}

static int operator_starts(struct advise_record *record, uint32_t tid)
{
	uint32_t *depth = depth_of(record, tid);

	if (depth == NULL)
		return -ENOMEM;
	++*depth;
	return 0;
}

static int block_used(struct advise_record *record, const struct row *row)
{
	const uint64_t *number =
		row->block == NULL
			? NULL
			: map_get(&record->by_id, (struct map_key){row->block->allocation_id, 0});

	record->accesses = true;
	if (number == NULL)
		return 0;
	/* Until its operator has ended. */
	record->blocks[*number].used = record->moment_count;
	if (ARRAY_RESERVE(record->uses, record->use_room, record->use_count + 1) != 0)
		return -ENOMEM;
	record->uses[record->use_count].tid = row->tid;
	record->uses[record->use_count++].block = (uint32_t)*number;
	return 0;
}

int advise_record_row(void *arg, struct replay *replay, const struct row *row)
{
	struct advise_record *record = arg;

	record->now_ns = run_wall_ns(replay_run(replay), replay_totals(replay)->last_ns);
	switch (row->kind) {
	case ROW_ATEN_START:
		return operator_starts(record, row->tid);
	case ROW_ATEN_END:
		return operator_ends(record, row->tid);
	case ROW_READ:
	case ROW_WRITE:
	case ROW_ACCESS:
		return block_used(record, row);
	default:
		break;
	}
	if (row->block == NULL || row->shadow ||
	    (row->context->pool != POOL_pta && row->context->pool != POOL_host))
		return 0;
	if (row->kind == ROW_MALLOC)
		return block_comes(record, row);
	if (row->kind == ROW_FREE)
		return block_goes(record, replay, row->block);
	return 0;
}

/* The block that a record of the graph is about; ADVISE_NONE: it is not of a pool. */
static uint32_t block_at(const struct advise_record *record, struct replay *replay,
			 const struct trace_event *event, uint64_t address)
{
	const struct context *context = replay_event_context(replay, event);
	const struct block *block = replay_block_at(
		replay, event->context == 0 || context == NULL ? DEVICE_UNKNOWN : context->device,
		address);
	const uint64_t *number =
		block == NULL ? NULL
			      : map_get(&record->by_id, (struct map_key){block->allocation_id, 0});

	return number == NULL ? ADVISE_NONE : (uint32_t)*number;
}

/* ---- modules ---- */

static uint32_t module_of(struct advise_record *record, const char *layer)
{
	struct map_key key = {hash_text(layer), 0};
	const uint64_t *known = map_get(&record->by_layer, key);

	if (known != NULL)
		return (uint32_t)*known;
	if (ROOM(record, module) != 0 || map_put(&record->by_layer, key, record->module_count) != 0)
		return ADVISE_NONE;
	record->modules[record->module_count] = (struct advise_module){.layer = strdup(layer)};
	if (record->modules[record->module_count].layer == NULL)
		return ADVISE_NONE;
	return (uint32_t)record->module_count++;
}

/* "Model@path@class@file:line": the first two name the module. */
static int name_module(struct advise_record *record, const char *text)
{
	struct advise_module *module;
	const char *path = strchr(text, '@'), *kind = path == NULL ? NULL : strchr(path + 1, '@');
	const char *line = kind == NULL ? NULL : strchr(kind + 1, '@');
	char *copy;
	uint32_t number;

	if (line == NULL)
		return 0;
	copy = strdup(text);
	if (copy == NULL)
		return -ENOMEM;
	copy[kind - text] = '\0';
	copy[line - text] = '\0';
	number = module_of(record, copy);
	if (number == ADVISE_NONE) {
		free(copy);
		return -ENOMEM;
	}
	module = &record->modules[number];
	free(module->layer);
	module->layer = copy;
	module->kind = copy + (kind - text) + 1;
	module->line = copy + (line - text) + 1;
	module->compiled |= strcmp(module->kind, "OptimizedModule") == 0;
	return 0;
}

static int module_starts(struct advise_record *record, const struct trace_event *event,
			 const char *layer)
{
	uint32_t module = module_of(record, layer);
	int status = module == ADVISE_NONE ? -ENOMEM : ROOM(record, call);

	if (status == 0)
		status = ARRAY_RESERVE(record->open, record->open_room, record->open_count + 1);
	if (status != 0)
		return status;
	record->calls[record->call_count] = (struct advise_call){
		.module = module,
		.parent =
			record->open_count > 0 ? record->open[record->open_count - 1] : ADVISE_NONE,
		.tid = event->tid,
		.start = record->moment_count,
		.end = ADVISE_NEVER,
		.start_ns = event->time_ns};
	record->open[record->open_count++] = (uint32_t)record->call_count++;
	return add_moment(record, ADVISE_NONE, false);
}

/* Ends what was started inside it as well, as the owners do. */
static int module_ends(struct advise_record *record, const struct trace_event *event,
		       const char *layer)
{
	size_t at = record->open_count;

	while (at > 0 && strcmp(record->modules[record->calls[record->open[at - 1]].module].layer,
				layer) != 0)
		at--;
	if (at == 0)
		return 0;
	for (size_t i = at - 1; i < record->open_count; i++) {
		struct advise_call *call = &record->calls[record->open[i]];

		call->end = record->moment_count;
		call->end_ns = event->time_ns;
	}
	record->open_count = at - 1;
	return add_moment(record, ADVISE_NONE, false);
}

static int take_label(struct advise_record *record, struct replay *replay,
		      const struct trace_event *event)
{
	struct event_label said;
	const char *text;

	event_label_decode(event->words, &said);
	if (said.kind != LABEL_LAYER_PUSH && said.kind != LABEL_LAYER_POP &&
	    said.kind != LABEL_MODULE && said.kind != LABEL_ZEROED)
		return 0;
	text = replay_event_text(replay, event, said.text);
	if (text == NULL)
		return 0;
	if (said.kind == LABEL_MODULE)
		return name_module(record, text);
	if (said.kind == LABEL_ZEROED) {
		if (record->zeroed_line == NULL)
			record->zeroed_line = strdup(text);
		return record->zeroed_line == NULL ? -ENOMEM : 0;
	}
	if (record->tid == 0)
		record->tid = event->tid;
	if (record->tid != event->tid) {
		record->threads = true;
		return 0;
	}
	return said.kind == LABEL_LAYER_PUSH ? module_starts(record, event, text)
					     : module_ends(record, event, text);
}

/* ---- the graph ---- */

/* Index of a node; ADVISE_NONE: no memory. */
static uint32_t node_of(struct advise_record *record, uint64_t number)
{
	const uint64_t *known = map_get(&record->by_number, (struct map_key){number, 0});

	if (known != NULL)
		return (uint32_t)*known;
	if (ROOM(record, node) != 0 ||
	    map_put(&record->by_number, (struct map_key){number, 0}, record->node_count) != 0)
		return ADVISE_NONE;
	record->nodes[record->node_count] = (struct advise_node){.number = number,
								 .started = ADVISE_NEVER,
								 .saved = ADVISE_NEVER,
								 .runs = ADVISE_NEVER,
								 .run = ADVISE_NONE,
								 .released = ADVISE_NEVER};
	return (uint32_t)record->node_count++;
}

static int take_saved(struct advise_record *record, uint32_t block, const struct event_graph *said)
{
	uint64_t number = said->number;
	bool result = said->kind == GRAPH_SAVED_RESULT;
	uint32_t node = node_of(record, number);

	if (node == ADVISE_NONE)
		return -ENOMEM;
	/* A node that is read again when the backward pass starts says nothing new. */
	if (record->nodes[node].runs != ADVISE_NEVER)
		return 0;
	if (record->nodes[node].saved == ADVISE_NEVER)
		record->nodes[node].saved = record->moment_count;
	record->nodes[node].result |= result;
	if (block == ADVISE_NONE)
		return 0;
	for (uint32_t i = record->blocks[block].save; i != ADVISE_NONE; i = record->saves[i].next)
		if (record->saves[i].node == number && record->saves[i].address == said->address)
			return 0;
	if (ROOM(record, save) != 0)
		return -ENOMEM;
	record->saves[record->save_count] =
		(struct advise_save){.node = number,
				     .address = said->address,
				     .bytes = record->blocks[block].bytes,
				     .block = block,
				     .next = record->blocks[block].save,
				     .result = result,
				     .at = record->moment_count};
	record->blocks[block].save = (uint32_t)record->save_count++;
	return 0;
}

static void take_saved_bytes(struct advise_record *record, const struct event_graph *said)
{
	struct advise_save *save =
		record->save_count == 0 ? NULL : &record->saves[record->save_count - 1];

	if (save != NULL && save->address == said->address)
		save->bytes = said->number;
}

static int take_touch(struct advise_record *record, uint32_t block, const struct event_graph *said)
{
	if (block == ADVISE_NONE || record->open_count == 0)
		return 0;
	if (ARRAY_RESERVE(record->touches, record->touch_room, record->touch_count + 1) != 0)
		return -ENOMEM;
	record->touches[record->touch_count] =
		(struct advise_touch){.call = record->open[record->open_count - 1],
				      .block = block,
				      .next = record->blocks[block].touch,
				      .gives = said->kind == GRAPH_GIVES,
				      .first = (uint32_t)said->number};
	record->blocks[block].touch = (uint32_t)record->touch_count++;
	return 0;
}

static int add_run(struct advise_record *record, struct advise_node *node)
{
	uint32_t *end;
	int status = ROOM(record, run);

	if (status != 0)
		return status;
	record->runs[record->run_count] = (struct advise_node_run){.pass = record->pass,
								   .next = ADVISE_NONE,
								   .from = record->moment_count,
								   .computed = ADVISE_NEVER,
								   .to = ADVISE_NEVER};
	for (end = &node->run; *end != ADVISE_NONE; end = &record->runs[*end].next)
		;
	*end = (uint32_t)record->run_count++;
	return 0;
}

/* `number` is that of the node and 1; 0: the pass ended. */
static int take_backward(struct advise_record *record, uint64_t number)
{
	if (record->running != 0) {
		record->nodes[record->running - 1].released = record->moment_count;
		record->runs[record->run_count - 1].to = record->moment_count;
	}
	record->running = 0;
	if (number == 0) {
		record->pass++;
		return 0;
	}
	uint32_t node = node_of(record, number - 1);

	if (node == ADVISE_NONE)
		return -ENOMEM;
	if (record->nodes[node].runs == ADVISE_NEVER)
		record->nodes[node].runs = record->moment_count;
	record->running = node + 1;
	return add_run(record, &record->nodes[node]);
}

static int take_adds(struct advise_record *record, uint32_t block)
{
	int status = block == ADVISE_NONE ? 0
					  : ARRAY_RESERVE(record->adds, record->adds_room,
							  record->adds_count + 1);

	if (status == 0 && block != ADVISE_NONE) {
		record->adds[record->adds_count].at = record->moment_count;
		record->adds[record->adds_count++].block = block;
	}
	return status;
}

static int take_zeroed(struct advise_record *record)
{
	int status = ARRAY_RESERVE(record->zeroed, record->zeroed_room, record->zeroed_count + 1);

	if (status == 0)
		record->zeroed[record->zeroed_count++] = record->moment_count;
	return status;
}

/* What concerns the module that was entered last. */
static int take_of_module(struct advise_record *record, const struct event_graph *said,
			  uint32_t block)
{
	struct advise_call *call = record->open_count == 0
					   ? NULL
					   : &record->calls[record->open[record->open_count - 1]];

	if (call == NULL)
		return 0;
	switch (said->kind) {
	case GRAPH_OPERATOR: {
		uint32_t node = said->number == 0 ? ADVISE_NONE : node_of(record, said->number - 1);

		if (node != ADVISE_NONE && record->nodes[node].started == ADVISE_NEVER)
			record->nodes[node].started = record->moment_count;
		return said->number == 0 || node != ADVISE_NONE ? 0 : -ENOMEM;
	}
	case GRAPH_ENTER:
		call->first_node = said->number;
		return 0;
	case GRAPH_LEAVE:
		call->end_node = said->number;
		call->has_nodes = true;
		return 0;
	case GRAPH_AGAIN:
		record->modules[call->module].again = true;
		return 0;
	default:
		return take_touch(record, block, said);
	}
}

static int take_graph(struct advise_record *record, struct replay *replay,
		      const struct trace_event *event)
{
	struct event_graph said;
	uint32_t block;
	int status = 0;

	event_graph_decode(event->words, &said);
	block = said.address == 0 ? ADVISE_NONE : block_at(record, replay, event, said.address);
	switch (said.kind) {
	case GRAPH_SAVED:
	case GRAPH_SAVED_RESULT:
		status = take_saved(record, block, &said);
		break;
	case GRAPH_SAVED_BYTES:
		take_saved_bytes(record, &said);
		break;
	case GRAPH_BACKWARD:
		status = take_backward(record, said.number);
		break;
	case GRAPH_STATE:
		if (block != ADVISE_NONE)
			record->blocks[block].element_bytes = (uint8_t)said.number;
		break;
	case GRAPH_ADDS:
		status = take_adds(record, block);
		break;
	case GRAPH_ZEROED:
		status = take_zeroed(record);
		break;
	case GRAPH_SHRINKS:
		if (record->running != 0)
			record->runs[record->run_count - 1].computed =
				said.number != 0 ? record->moment_count : ADVISE_NEVER;
		break;
	case GRAPH_DROPPED:
		if (block != ADVISE_NONE && record->blocks[block].save != ADVISE_NONE)
			record->blocks[block].dropped = record->moment_count;
		break;
	case GRAPH_CASTS:
		if (block != ADVISE_NONE)
			record->blocks[block].cast = true;
		break;
	case GRAPH_SUMS:
		record->summing = block != ADVISE_NONE;
		record->sum_of = block;
		record->sum_own = said.number != 0;
		record->sum_tid = event->tid;
		break;
	default:
		if (record->tid == event->tid)
			status = take_of_module(record, &said, block);
		break;
	}
	return status != 0 ? status : add_moment(record, ADVISE_NONE, false);
}

int advise_record_event(void *arg, struct replay *replay, const struct trace_event *event)
{
	struct advise_record *record = arg;
	uint32_t step = replay_steps(replay);

	record->now_ns = run_wall_ns(replay_run(replay), event->time_ns);
	if (record->step_count == 0 || record->steps[record->step_count - 1].step != step) {
		if (ROOM(record, step) != 0)
			return -ENOMEM;
		record->steps[record->step_count].at = record->moment_count;
		record->steps[record->step_count].ns = event->time_ns;
		record->steps[record->step_count].open = replay_open_step(replay, 0);
		record->steps[record->step_count++].step = step;
	}
	if (event->type == EVENT_label)
		return take_label(record, replay, event);
	if (event->type == EVENT_graph)
		return take_graph(record, replay, event);
	return 0;
}

/* ---- the end ---- */

static int by_number(const void *a, const void *b)
{
	const struct advise_node *x = a, *y = b;

	return ORDER_UP(x->number, y->number);
}

/* Whether a block went right after another one had come, before anything else of its pool did. */
static bool goes_next(const struct advise_record *record, uint32_t block, uint32_t come)
{
	const struct advise_block *one = &record->blocks[block];

	if (one->died == ADVISE_NEVER)
		return false;
	for (size_t i = record->blocks[come].born + 1; i < one->died; i++) {
		uint32_t other = record->moments[i].block;

		if (other != ADVISE_NONE && record->blocks[other].pool == one->pool)
			return false;
	}
	return one->died > record->blocks[come].born;
}

/* The sum is done in place: what is summed up lives as long as the result, which is not there. */
static void sum_in_place(struct advise_record *record, uint32_t of, uint32_t sum)
{
	struct advise_block *kept = &record->blocks[of], *result = &record->blocks[sum];
	uint32_t *end;

	record->moments[result->born].block = ADVISE_NONE;
	record->moments[kept->died].block = ADVISE_NONE;
	if (result->died != ADVISE_NEVER)
		record->moments[result->died].block = of;
	kept->died = result->died;
	kept->used = result->used;
	kept->complete = result->born;
	kept->gone_in = result->gone_in;
	kept->kind = result->kind;
	for (end = &kept->save; *end != ADVISE_NONE; end = &record->saves[*end].next)
		;
	*end = result->save;
	for (; *end != ADVISE_NONE; end = &record->saves[*end].next)
		record->saves[*end].block = of;
	for (end = &kept->touch; *end != ADVISE_NONE; end = &record->touches[*end].next)
		;
	*end = result->touch;
	for (; *end != ADVISE_NONE; end = &record->touches[*end].next)
		record->touches[*end].block = of;
	for (size_t i = 0; i < record->adds_count; i++)
		if (record->adds[i].block == sum)
			record->adds[i].block = of;
	result->pool = ADVISE_NONE;
	result->save = result->touch = ADVISE_NONE;
	result->died = result->born;
}

static void find_peaks(struct advise_record *record)
{
	for (size_t i = 0; i < record->pool_count; i++)
		record->pools[i].live = record->pools[i].peak = 0;
	for (size_t i = 0; i < record->moment_count; i++) {
		const struct advise_moment *moment = &record->moments[i];
		const struct advise_block *block;
		struct advise_pool *pool;

		if (moment->block == ADVISE_NONE)
			continue;
		block = &record->blocks[moment->block];
		pool = &record->pools[block->pool];
		pool->live += moment->comes ? block->bytes : 0 - block->bytes;
		if (pool->live > pool->peak) {
			pool->peak = pool->live;
			pool->peak_at = i;
		}
	}
}

/* Sums that were not done in place because they were recorded. */
static int take_sums(struct advise_record *record)
{
	uint32_t *is; /* by block: which one it is */

	if (record->sum_count == 0)
		return 0;
	is = malloc(record->block_count * sizeof(*is));
	if (is == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < record->block_count; i++)
		is[i] = (uint32_t)i;
	for (size_t i = 0; i < record->sum_count; i++) {
		uint32_t of = is[record->sums[i].of], sum = record->sums[i].sum;

		if (!goes_next(record, of, sum))
			continue;
		sum_in_place(record, of, sum);
		is[sum] = of;
	}
	free(is);
	find_peaks(record);
	return 0;
}

/* ---- what nodes have saved unseen ---- */

/* The node in which a block went, if nothing that is known kept it until then; NULL: there is none. */
static struct advise_node *unseen(const struct advise_record *record,
				  const struct advise_block *block)
{
	const struct advise_node *node;
	uint32_t call = block->call;

	if (call == ADVISE_NONE || block->gone_in == 0)
		return NULL;
	for (uint32_t i = block->save; i != ADVISE_NONE; i = record->saves[i].next) {
		size_t released = advise_record_release(record, record->saves[i].node);

		if (released == ADVISE_NEVER || released >= block->died)
			return NULL;
	}
	while (record->calls[call].parent != ADVISE_NONE)
		call = record->calls[call].parent;
	node = advise_record_node(record, block->gone_in - 1);
	if (node == NULL || node->number != block->gone_in - 1 || !record->calls[call].has_nodes ||
	    node->number < record->calls[call].first_node ||
	    node->number >= record->calls[call].end_node || block->died <= record->calls[call].end)
		return NULL;
	return &record->nodes[node - record->nodes];
}

/*
 * What a module made and the graph held, though no node shows it: an operator that works in place on a view has its node inside another one.
 * It goes when that one has run.
 */
static int take_unseen(struct advise_record *record)
{
	for (size_t i = 0; i < record->block_count; i++) {
		struct advise_block *block = &record->blocks[i];
		struct advise_node *node = unseen(record, block);

		if (node == NULL)
			continue;
		if (ROOM(record, save) != 0)
			return -ENOMEM;
		if (node->saved == ADVISE_NEVER) {
			node->saved = node->started != ADVISE_NEVER && node->started > block->born
					      ? node->started
					      : block->born + 1;
			node->result = true;
		}
		record->saves[record->save_count] = (struct advise_save){.node = node->number,
									 .bytes = block->bytes,
									 .block = (uint32_t)i,
									 .next = block->save,
									 .result = true,
									 .at = node->saved};
		block->save = (uint32_t)record->save_count++;
	}
	return 0;
}

int advise_record_end(struct advise_record *record, struct replay *replay)
{
	size_t cursor = 0;
	const struct block *block;

	while ((block = replay_next_block(replay, &cursor)) != NULL) {
		const uint64_t *number =
			map_get(&record->by_id, (struct map_key){block->allocation_id, 0});

		if (number != NULL)
			record->blocks[*number].kind =
				(uint8_t)replay_owner_class(replay, block->owner);
	}
	if (record->node_count > 0)
		qsort(record->nodes, record->node_count, sizeof(*record->nodes), by_number);
	map_fini(&record->by_number);
	/* What never ended: to the end of the record. */
	for (size_t i = 0; i < record->call_count; i++)
		if (record->calls[i].end == ADVISE_NEVER)
			record->calls[i].has_nodes = false;
	int status = take_sums(record);

	if (status == 0)
		status = take_unseen(record);
	return status != 0 ? status : add_moment(record, ADVISE_NONE, false);
}

const struct advise_node *advise_record_node(const struct advise_record *record, uint64_t number)
{
	size_t low = COUNT_FRONT(at, record->node_count, record->nodes[at].number <= number);

	return low == 0 ? NULL : &record->nodes[low - 1];
}

size_t advise_record_release(const struct advise_record *record, uint64_t number)
{
	const struct advise_node *node = advise_record_node(record, number);

	if (node == NULL)
		return ADVISE_NEVER;
	if (node->number == number && node->runs != ADVISE_NEVER)
		return node->released;
	/* One that no operator showed: before the next lower one that ran. */
	for (; node >= record->nodes; node--)
		if (node->number < number && node->runs != ADVISE_NEVER)
			return node->runs;
	return ADVISE_NEVER;
}

const struct advise_node_run *advise_record_run(const struct advise_record *record,
						const struct advise_node *node, uint32_t pass)
{
	for (uint32_t i = node->run; i != ADVISE_NONE; i = record->runs[i].next)
		if (record->runs[i].pass == pass)
			return &record->runs[i];
	return NULL;
}

uint32_t advise_record_pass(const struct advise_record *record, const struct advise_node *node,
			    uint32_t from)
{
	for (uint32_t i = node->run; i != ADVISE_NONE; i = record->runs[i].next)
		if (record->runs[i].pass >= from)
			return record->runs[i].pass;
	return ADVISE_NONE;
}

size_t advise_record_unpacked(const struct advise_record *record, uint64_t number, uint32_t pass)
{
	const struct advise_node *node = advise_record_node(record, number);
	const struct advise_node_run *run;

	/* Of one that no operator showed: before the next lower one that ran. */
	for (; node != NULL && node >= record->nodes; node--) {
		run = advise_record_run(record, node, pass);
		if (run != NULL && node->number != number)
			return run->from;
		if (run != NULL)
			return run->computed != ADVISE_NEVER ? run->computed : run->to;
	}
	return ADVISE_NEVER;
}

size_t advise_moment_after(const size_t *moments, size_t count, size_t after)
{
	size_t low = COUNT_FRONT(at, count, moments[at] <= after);

	return low < count ? moments[low] : ADVISE_NEVER;
}
