/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/operations.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "replay/state.h"

/* Deeper than any program nests: memory does not grow with begins whose ends are missing. */
#define DEPTH_MAX 4096u

void operations_fini(struct operations *operations)
{
	free(operations->open);
	*operations = (struct operations){0};
}

void operations_keep_texts(struct operations *operations, struct texts_sweep *sweep)
{
	size_t i;

	for (i = 0; i < operations->count; i++)
		operations->open[i].name = texts_keep(sweep, operations->open[i].name);
}

void operations_end_window(struct replay *replay)
{
	size_t i;

	for (i = 0; i < replay->writers.room; i++) {
		if (replay->writers.all[i] != NULL)
			replay->writers.all[i]->operations.count = 0;
	}
}

/* 0 or -ENOMEM. */
static int begin(struct operations *operations, const struct open_operation *operation)
{
	int r;

	if (operations->count == DEPTH_MAX)
		return 0;
	r = ARRAY_RESERVE(operations->open, operations->room, operations->count + 1);
	if (r == 0)
		operations->open[operations->count++] = *operation;
	return r;
}

/* How many open operations this ends; 0: it had no begin; more than one: ends of inner ones are missing. */
static size_t end(struct operations *operations, uint8_t layer, uint32_t name)
{
	size_t i, ended;

	for (i = operations->count; i > 0; i--) {
		if (operations->open[i - 1].layer != layer || operations->open[i - 1].name != name)
			continue;
		ended = operations->count - (i - 1);
		operations->count = i - 1;
		return ended;
	}
	return 0;
}

const struct open_operation *replay_operation(const struct replay *replay, uint32_t writer,
					      enum layer layer)
{
	const struct writer *found = writers_get(&replay->writers, writer);
	size_t i;

	for (i = found == NULL ? 0 : found->operations.count; i > 0; i--) {
		if (found->operations.open[i - 1].layer == layer)
			return &found->operations.open[i - 1];
	}
	return NULL;
}

bool replay_in_operation(const struct replay *replay, uint32_t writer, uint32_t layers)
{
	const struct writer *found = writers_get(&replay->writers, writer);
	size_t i;

	for (i = found == NULL ? 0 : found->operations.count; i > 0; i--) {
		if (layers >> found->operations.open[i - 1].layer & 1)
			return true;
	}
	return false;
}

int operations_take_operation(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[LAYER_END][2] = {
		[LAYER_ATEN] = {ROW_ATEN_START, ROW_ATEN_END},
		[LAYER_ATB] = {ROW_ATB_START, ROW_ATB_END},
		[LAYER_ATB_KERNEL] = {ROW_ATB_KERNEL_START, ROW_ATB_KERNEL_END},
	};
	struct writer *writer = writers_at(&replay->writers, event->writer);
	uint32_t context = definitions_context_of(replay, writer, event->context), name, stack;
	struct event_operation operation;
	enum row_kind kind;
	struct row row;
	size_t ended;

	event_operation_decode(event->words, &operation);
	if (writer == NULL || operation.kind < OPERATION_BEGINS ||
	    operation.kind > OPERATION_ENDED || operation.layer < LAYER_ATEN ||
	    operation.layer >= LAYER_END)
		return 0;
	name = texts_offset(replay, event, operation.name);
	if (operation.kind == OPERATION_BEGINS) {
		struct open_operation begun = {.layer = (uint8_t)operation.layer,
					       .number =
						       ++replay->totals.operations[operation.layer],
					       .name = name,
					       .time_ns = event->time_ns};

		if (begin(&writer->operations, &begun) < 0)
			return -ENOMEM;
	} else {
		ended = end(&writer->operations, (uint8_t)operation.layer, name);
		replay->totals.oddities.operations_unpaired += ended == 0 ? 1 : ended - 1;
	}
	/* An end whose begin was before recording is still something that happened. */
	kind = kinds[operation.layer][operation.kind - OPERATION_BEGINS];
	stack = definitions_stack(replay, writer, operation.stack);
	if (!replay_wants_row(replay, kind))
		return 0;
	row = (struct row){
		.kind = kind,
		.context = replay_context(replay, context),
		.name = texts_at(&replay->texts, name),
		.layer = (enum layer)operation.layer,
		.path = texts_find(replay, event, operation.path),
		.stack = stack,
		.workspace = operation.workspace,
		.size_bytes = operation.workspace_bytes,
	};
	return replay_publish(replay, event, &row);
}

int operations_take_access(struct replay *replay, const struct trace_event *event)
{
	static const enum row_kind kinds[] = {ROW_READ, ROW_WRITE, ROW_ACCESS};
	struct writer *writer = writers_get(&replay->writers, event->writer);
	uint32_t number = definitions_context_of(replay, writer, event->context), stack;
	const struct context *context;
	struct event_access access;
	struct row row;

	event_access_decode(event->words, &access);
	if (access.kind < ACCESS_READ || access.kind > ACCESS_UNKNOWN ||
	    access.layer < LAYER_ATEN || access.layer >= LAYER_END)
		return 0;
	stack = definitions_stack(replay, writer, access.stack);
	if (!replay_wants_row(replay, kinds[access.kind - ACCESS_READ]))
		return 0;
	context = replay_context(replay, number);
	row = (struct row){
		.kind = kinds[access.kind - ACCESS_READ],
		.context = context,
		.block = replay_block_at(replay, context->device, access.address),
		.address = access.address,
		.name = texts_find(replay, event, access.name),
		.stack = stack,
		.layer = (enum layer)access.layer,
		.size_bytes = access.size_bytes,
		.dtype = texts_find(replay, event, access.dtype),
		.shape = texts_find(replay, event, access.shape),
		.format = texts_find(replay, event, access.format),
	};
	/* Memory knows its device where the operator did not. */
	if (context->device == DEVICE_UNKNOWN && row.block != NULL)
		row.context = replay_context(replay, row.block->context);
	return replay_publish(replay, event, &row);
}

/* ---- in a checkpoint ---- */

int operations_keep(struct replay *replay, struct keeping *k, struct operations *operations)
{
	size_t i;

	if (words_array(&k->words, &operations->open, &operations->count, &operations->room,
			sizeof(*operations->open)) < 0)
		return -ENOMEM;
	for (i = 0; i < operations->count; i++) {
		struct open_operation *open = &operations->open[i];

		open->name = keeping_text(replay, k, open->name);
		KEEP(&k->words, open->layer);
		KEEP(&k->words, open->number);
		KEEP(&k->words, open->time_ns);
	}
	if (operations->count > DEPTH_MAX) {
		k->words.failed = true;
		operations->count = 0;
	}
	return 0;
}
