/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's operators, and which tensors they take and give. Our Python code sees them, since C code that does would have to be
 * compiled against the user's PyTorch (docs/decisions/0013-operators.md); here they are recorded.
 */
#include "collector/torch/torch.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "collector/api.h"

static uint32_t text_of(struct writer *w, struct text_span span)
{
	return span.bytes == 0 ? 0 : writer_text_part(w, span.text, span.bytes);
}

void torch_operation(uint32_t kind, uint64_t key, struct text_span name, const void *caller)
{
	struct event_operation event = {.kind = kind, .layer = LAYER_ATEN};
	struct writer *w = writer_enter_on();
	uint32_t context;

	if (w == NULL)
		return;
	context = writer_context(w, SOURCE_TORCH, key, torch_decode);
	event.name = text_of(w, name);
	event.stack = stack_of_event(w, caller);
	WRITER_PUT(w, operation, context, &event);
	writer_leave(w);
}

void torch_tensor_access(uint64_t key, const struct torch_access *access, const void *caller)
{
	struct event_access event = {.address = access->address,
				     .size_bytes = access->size_bytes,
				     .kind = access->kind,
				     .layer = LAYER_ATEN};
	struct writer *w = writer_enter_on();
	uint32_t context;

	if (w == NULL)
		return;
	context = writer_context(w, SOURCE_TORCH, key, torch_decode);
	event.name = text_of(w, access->name);
	event.dtype = text_of(w, access->dtype);
	event.shape = text_of(w, access->shape);
	event.stack = stack_of_event(w, caller);
	WRITER_PUT(w, access, context, &event);
	writer_leave(w);
}

/* ---- batches ---- */

#define DIMS_MAX  64u
#define SHAPE_MAX (16u + DIMS_MAX * 22u)
#define SHAPE_KEY (UINT64_C(1) << 63)

static char *put_number(char *out, uint64_t value)
{
	char digits[20];
	uint32_t count = 0;

	do {
		digits[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value != 0);
	while (count > 0)
		*out++ = digits[--count];
	return out;
}

/* "torch.Size([2, 3])" */
static MSCOPE_COLD uint32_t learn_shape(struct writer *w, uint64_t key, const int64_t *sizes,
					uint64_t dims)
{
	char text[SHAPE_MAX] = "torch.Size([", *end = text + 12;
	uint64_t i;

	for (i = 0; i < dims && i < DIMS_MAX; i++) {
		if (i > 0) {
			*end++ = ',';
			*end++ = ' ';
		}
		end = put_number(end, (uint64_t)sizes[i]);
	}
	memcpy(end, "])", 2);
	return writer_text_learn(w, key, text, (size_t)(end + 2 - text));
}

static uint32_t shape_of(struct writer *w, const int64_t *sizes, uint64_t dims)
{
	uint64_t hash = (dims + 1) * UINT64_C(0xd6e8feb86659fd93), i;
	uint32_t id;

	for (i = 0; i < dims && i < DIMS_MAX; i++) {
		hash = (hash ^ (uint64_t)sizes[i]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	id = writer_text_known(w, hash | SHAPE_KEY);
	return id != 0 ? id : learn_shape(w, hash | SHAPE_KEY, sizes, dims);
}

static uint32_t lasting_text(struct writer *w, const char *text, size_t bytes)
{
	uint64_t key = (uint64_t)(uintptr_t)text;
	uint32_t id = writer_text_known(w, key);

	return id != 0 ? id : writer_text_learn(w, key, text, bytes);
}

#define OPERATION_WORDS (EVENT_BYTES_operation / 8)
#define ACCESS_WORDS	(EVENT_BYTES_access / 8)
#define BATCH_RECORDS	(TORCH_BATCH_TENSORS + 2)

/* Records of one moment, before the moment is known. */
struct records {
	uint64_t words[2 * OPERATION_WORDS + TORCH_BATCH_TENSORS * ACCESS_WORDS];
	uint32_t starts[BATCH_RECORDS]; /* words */
	uint32_t count;
	uint32_t used; /* words */
};

static uint64_t *records_add(struct records *records, uint32_t type, uint32_t context,
			     uint32_t words)
{
	uint64_t *at = records->words + records->used;

	at[0] = record_word0(type, context, 0);
	records->starts[records->count++] = records->used;
	records->used += words;
	return at;
}

static void records_put(struct writer *w, const struct records *records)
{
	uint32_t bytes = records->used * 8, i;
	uint64_t *to, delta;

	if (!record_room(w, bytes + EVENT_BYTES_time_base))
		return;
	delta = record_begin(w);
	to = (uint64_t *)(void *)(w->chunk + w->used);
	memcpy(to, records->words, bytes);
	for (i = 0; i < records->count; i++)
		to[records->starts[i]] |= delta << 32;
	record_commit(w, bytes);
	w->records += records->count;
}

void torch_batch_put(struct torch_batch *batch, const void *caller)
{
	struct event_operation operation = {.layer = LAYER_ATEN};
	struct records records;
	struct writer *w = writer_enter_on();
	uint32_t context, i;

	if (w == NULL)
		goto out;
	records.count = records.used = 0;
	context = writer_context(w, SOURCE_TORCH, batch->key, torch_decode);
	operation.name = lasting_text(w, batch->name, batch->name_bytes);
	operation.stack = stack_of_event(w, caller);
	if (batch->begins) {
		operation.kind = OPERATION_BEGINS;
		event_operation_encode(
			records_add(&records, EVENT_operation, context, OPERATION_WORDS),
			&operation);
	}
	for (i = 0; i < batch->count; i++) {
		const struct torch_touch *touch = &batch->touches[i];
		struct event_access event = {.address = touch->address,
					     .size_bytes = touch->size_bytes,
					     .name = operation.name,
					     .kind = touch->kind,
					     .layer = LAYER_ATEN,
					     .stack = operation.stack};

		event.dtype = lasting_text(w, touch->dtype, WRITER_TEXT_MAX);
		event.shape = shape_of(w, touch->sizes, touch->dims);
		event_access_encode(records_add(&records, EVENT_access,
						touch->key == batch->key
							? context
							: writer_context(w, SOURCE_TORCH,
									 touch->key, torch_decode),
						ACCESS_WORDS),
				    &event);
	}
	if (batch->ended) {
		operation.kind = OPERATION_ENDED;
		event_operation_encode(
			records_add(&records, EVENT_operation, context, OPERATION_WORDS),
			&operation);
	}
	records_put(w, &records);
	writer_leave(w);
out:
	batch->count = 0;
	batch->begins = 0;
}

/* ---- marks of older tools ---- */

bool aten_mark_take(const char *message, enum vendor vendor, const void *caller)
{
	struct aten_mark mark;
	uint64_t key;

	/* Most marks are not of this kind. */
	if (message == NULL || message[0] != 'm')
		return false;
	aten_mark_parse(message, &mark);
	if (mark.kind == ATEN_MARK_NONE)
		return false;
	key = mark.device == ATEN_DEVICE_NONE
		      ? device_key(vendor, vendor_ops(vendor)->current_device())
		      : vendor_device(vendor, mark.device);
	if (mark.kind == ATEN_MARK_BEGIN || mark.kind == ATEN_MARK_END)
		torch_operation(mark.kind == ATEN_MARK_BEGIN ? OPERATION_BEGINS : OPERATION_ENDED,
				key, mark.access.name, caller);
	else if (mark.access.address != 0)
		torch_tensor_access(key, &mark.access, caller);
	return true;
}

/* ---- what Python calls ---- */

static struct text_span whole(const char *text)
{
	return (struct text_span){text, text == NULL ? 0 : WRITER_TEXT_MAX};
}

static void access_tensor(uint64_t key, uint32_t kind, uint64_t address, uint64_t size_bytes,
			  const char *name, const char *dtype, const void *caller)
{
	struct torch_access access = {.address = address,
				      .size_bytes = size_bytes,
				      .kind = kind,
				      .name = whole(name),
				      .dtype = whole(dtype)};

	if (dtype != NULL)
		access.shape = whole(dtype + strlen(dtype) + 1);
	torch_tensor_access(key, &access, caller);
}

MSCOPE_EXPORT int mscope_op(uint32_t kind, uint32_t device, const char *name, uint32_t tensors,
			    const char *ranges, ...)
{
	const void *caller = __builtin_return_address(0);
	uint32_t access = kind == OPERATION_BEGINS ? ACCESS_READ : ACCESS_WRITE, i;
	uint64_t key;
	va_list args;

	if (recording_is_off())
		return 0;
	key = vendor_torch_device(device);
	if (kind == OPERATION_BEGINS)
		torch_operation(kind, key, whole(name), caller);
	va_start(args, ranges);
	for (i = 0; i < tensors; i++) {
		uint64_t range[2]; /* address and size, unaligned */

		memcpy(range, ranges + i * sizeof(range), sizeof(range));
		access_tensor(key, access, range[0], range[1], name, va_arg(args, const char *),
			      caller);
	}
	va_end(args);
	if (kind == OPERATION_ENDED)
		torch_operation(kind, key, whole(name), caller);
	return 0;
}

MSCOPE_EXPORT int mscope_access(uint32_t kind, uint32_t device, uint64_t address,
				uint64_t size_bytes, const char *name, const char *dtype)
{
	if (!recording_is_off())
		access_tensor(vendor_torch_device(device), kind, address, size_bytes, name, dtype,
			      __builtin_return_address(0));
	return 0;
}

MSCOPE_EXPORT int mscope_label(uint32_t kind, uint32_t device, uint64_t address,
			       uint64_t size_bytes, const char *text)
{
	struct event_label event = {.address = address, .kind = kind, .size_bytes = size_bytes};
	struct writer *w;
	uint32_t context;

	if (recording_is_off())
		return 0;
	w = writer_enter();
	if (w == NULL)
		return 0;
	context = device == UINT32_MAX ? 0
				       : writer_context(w, SOURCE_TORCH,
							vendor_torch_device(device), torch_decode);
	event.text = writer_text(w, text);
	WRITER_PUT(w, label, context, &event);
	writer_leave(w);
	return 0;
}

MSCOPE_EXPORT int mscope_graph(uint32_t kind, uint32_t device, uint64_t address, uint64_t number)
{
	struct event_graph event = {.address = address, .number = number, .kind = kind};
	struct writer *w;
	uint32_t context;

	if (recording_is_off())
		return 0;
	w = writer_enter();
	if (w == NULL)
		return 0;
	context = address == 0 ? 0
			       : writer_context(w, SOURCE_TORCH, vendor_torch_device(device),
						torch_decode);
	WRITER_PUT(w, graph, context, &event);
	writer_leave(w);
	return 0;
}

/* Numbers of phases do not meet those of mstx ranges, which have 32 bits. */
#define PHASE_FIRST (UINT64_C(1) << 32)

MSCOPE_EXPORT uint64_t mscope_phase(const char *name, uint64_t phase)
{
	static _Atomic uint64_t next = PHASE_FIRST;
	struct event_mark event = {.stream = STREAM_NONE};
	struct writer *w;
	uint32_t context;
	uint64_t device;

	if (recording_is_off())
		return 0;
	device = vendor_current_device(); /* asks the runtime, so before the writer is entered */
	w = writer_enter_on();
	if (w == NULL)
		return 0;
	event.kind = phase == 0 ? MARK_RANGE_START : MARK_RANGE_END;
	event.range = phase == 0 ? atomic_fetch_add(&next, 1) : phase;
	event.text = phase == 0 ? writer_text(w, name) : 0;
	context = writer_device(w, device);
	WRITER_PUT(w, mark, context, &event);
	writer_leave(w);
	return event.range;
}
