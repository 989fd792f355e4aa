/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/definitions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "replay/state.h"
#include "trace/run.h"

static const struct context unknown = {.device = DEVICE_UNKNOWN, .module = MODULE_UNKNOWN};

/* ---- contexts ---- */

static bool same_context(const struct context *a, const struct context *b)
{
	return a->pool == b->pool && a->kind == b->kind && a->page == b->page &&
	       a->vendor == b->vendor && a->device == b->device && a->module == b->module &&
	       a->flags == b->flags;
}

static int add_context(struct definitions *d, const struct context *context)
{
	size_t at = d->context_count;
	int r = ARRAY_RESERVE(d->contexts, d->context_room, at + 1);

	if (r == 0)
		r = ARRAY_RESERVE(d->uses, d->use_room, at + 1);
	if (r < 0)
		return r;
	d->contexts[at] = *context;
	d->uses[at] = (struct context_use){.space = context_space(context)};
	d->context_count++;
	return 0;
}

uint32_t definitions_add_context(struct replay *replay, const struct context *context)
{
	struct definitions *d = &replay->definitions;
	size_t i;

	for (i = 1; i < d->context_count && !same_context(&d->contexts[i], context); i++)
		;
	if (i < d->context_count)
		return (uint32_t)i;
	if (context->vendor == VENDOR_CUDA)
		usages_take_gpu(replay, context->device);
	return add_context(d, context) < 0 ? 0 : (uint32_t)i;
}

int definitions_take_context_def(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer =
		writers_at(&replay->writers, writers_definer(&replay->writers, event));
	struct event_context_def def;
	struct context context;
	uint32_t number;

	event_context_def_decode(event->words, &def);
	if (writer == NULL) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	context = (struct context){
		.pool = def.pool < POOL_END ? (uint8_t)def.pool : POOL_UNKNOWN,
		.kind = (uint8_t)def.kind,
		.page = (uint8_t)def.page,
		.vendor = (uint8_t)def.vendor,
		.device = (uint32_t)def.device,
		.module = (uint32_t)def.module,
		.flags = def.flags,
	};
	number = definitions_add_context(replay, &context);
	return number == 0 ? -ENOMEM : numbers_put(&writer->contexts, (uint32_t)def.id, number);
}

uint32_t definitions_context_of(struct replay *replay, struct writer *writer, uint32_t number)
{
	uint32_t known = writer == NULL ? 0 : numbers_get(&writer->contexts, number);

	if (MSCOPE_UNLIKELY(known == 0)) {
		replay->totals.oddities.contexts_unknown++;
		return 0;
	}
	known--;
	if (MSCOPE_UNLIKELY(writer->device == 0) &&
	    replay->definitions.contexts[known].device < DEVICE_HOST)
		writer->device = replay->definitions.contexts[known].device + 1;
	return known;
}

uint32_t definitions_context(struct replay *replay, const struct trace_event *event)
{
	return definitions_context_of(replay, writers_get(&replay->writers, event->writer),
				      event->context);
}

const struct context *replay_context(const struct replay *replay, uint32_t context)
{
	return context < replay->definitions.context_count ? &replay->definitions.contexts[context]
							   : &unknown;
}

const struct context *replay_contexts(const struct replay *replay, size_t *out_count)
{
	*out_count = replay->definitions.context_count;
	return replay->definitions.contexts;
}

const struct context *replay_event_context(const struct replay *replay,
					   const struct trace_event *event)
{
	const struct writer *writer = writers_get(&replay->writers, event->writer);
	uint32_t known = writer == NULL ? 0 : numbers_get(&writer->contexts, event->context);

	return replay_context(replay, known == 0 ? UINT32_MAX : known - 1);
}

/* A device, or memory of the host that its driver knows. */
static bool is_of_device(const struct context *context)
{
	return context->vendor != VENDOR_UNKNOWN && context->vendor != VENDOR_CPU &&
	       (context->device < DEVICE_HOST || context->pool == POOL_host_pinned);
}

/* Of the first context of a device; VENDOR_UNKNOWN: none was used. */
static uint8_t device_vendor(const struct definitions *definitions)
{
	size_t i;

	for (i = 1; i < definitions->context_count; i++) {
		if (is_of_device(&definitions->contexts[i]))
			return definitions->contexts[i].vendor;
	}
	return VENDOR_UNKNOWN;
}

uint8_t replay_vendor(const struct replay *replay)
{
	const struct definitions *definitions = &replay->definitions;
	const struct replay_choice *choice = &replay->setup.choice;
	uint8_t vendor = device_vendor(definitions);
	size_t i;

	if (vendor != VENDOR_UNKNOWN)
		return vendor;
	/* The first context may be of a thread without a device, and which thread came first is chance. */
	for (i = 1; i < definitions->context_count; i++) {
		if (definitions->contexts[i].device != DEVICE_UNKNOWN)
			return definitions->contexts[i].vendor;
	}
	if (choice->some && choice->host && choice->npus == 0 && choice->gpus == 0)
		return VENDOR_CPU;
	return definitions->context_count > 1 ? definitions->contexts[1].vendor : VENDOR_UNKNOWN;
}

uint8_t replay_likely_vendor(const struct replay *replay)
{
	const struct replay_choice *choice = &replay->setup.choice;
	uint8_t vendor = device_vendor(&replay->definitions);

	if (vendor != VENDOR_UNKNOWN)
		return vendor;
	if (choice->some && choice->npus != 0 && choice->gpus == 0)
		return VENDOR_ASCEND;
	if (choice->some && choice->gpus != 0 && choice->npus == 0)
		return VENDOR_CUDA;
	return replay_vendor(replay);
}

/* ---- stacks and Python functions ---- */

int definitions_take_code_def(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer =
		writers_at(&replay->writers, writers_definer(&replay->writers, event));
	struct event_code_def def;
	struct code code;
	uint32_t index;
	int r;

	event_code_def_decode(event->words, &def);
	if (writer == NULL ||
	    def.file_bytes + def.name_bytes + def.table_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	code = (struct code){.minor = (uint32_t)def.minor,
			     .first_line = (uint32_t)def.first_line,
			     .file = event->payload,
			     .name = event->payload + def.file_bytes,
			     .table = event->payload + def.file_bytes + def.name_bytes,
			     .file_bytes = (uint32_t)def.file_bytes,
			     .name_bytes = (uint32_t)def.name_bytes,
			     .table_bytes = (uint32_t)def.table_bytes};
	r = codes_intern(&replay->definitions.codes, &code, &index);
	return r < 0 ? r : numbers_put(&writer->codes, (uint32_t)def.id, index);
}

/* Decodes the Python frames of a stack into `places`; those of unknown functions are left out. 0 or -ENOMEM. */
static int read_places(struct replay *replay, const struct writer *writer, const uint8_t *words,
		       size_t count, struct stack_places *out)
{
	struct definitions *d = &replay->definitions;
	size_t i;

	out->count = 0;
	if (ARRAY_RESERVE(d->places, d->place_room, count) < 0)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		uint32_t code;
		uint64_t word;

		memcpy(&word, words + i * 8, 8);
		code = numbers_get(&writer->codes, word & UINT32_MAX);
		if (code == 0) {
			replay->totals.oddities.bad_definitions++;
			continue;
		}
		d->places[out->count++] =
			(struct python_place){.code = code - 1, .offset = (uint32_t)(word >> 32)};
	}
	out->all = d->places;
	return 0;
}

int definitions_take_stack_def(struct replay *replay, const struct trace_event *event)
{
	struct writer *writer =
		writers_at(&replay->writers, writers_definer(&replay->writers, event));
	/* Inside a checkpoint functions have numbers of the checkpoint's own, also in stacks of other writers. */
	const struct writer *coder = writers_get(&replay->writers, event->writer);
	struct definitions *d = &replay->definitions;
	struct stack_places places;
	struct event_stack_def def;
	uint32_t stack;
	int r;

	event_stack_def_decode(event->words, &def);
	if (writer == NULL || coder == NULL ||
	    (def.c_frames + def.python_frames) * 8 > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	places.cut = def.python_cut != 0;
	r = read_places(replay, coder, event->payload + def.c_frames * 8, def.python_frames,
			&places);
	if (r == 0)
		r = stacks_intern(&d->stacks, event->payload, def.c_frames, places, &stack);
	return r < 0 ? r : numbers_put(&writer->stacks, (uint32_t)def.id, stack);
}

uint32_t definitions_stack(struct replay *replay, const struct writer *writer, uint64_t id)
{
	uint32_t known;

	if (id == 0)
		return 0;
	known = writer == NULL ? 0 : numbers_get(&writer->stacks, id);
	if (known == 0) {
		replay->totals.oddities.stacks_unknown++;
		return 0;
	}
	return known - 1;
}

size_t replay_stack_count(const struct replay *replay)
{
	return replay->definitions.stacks.count > 0 ? replay->definitions.stacks.count : 1;
}

const uint32_t *replay_frames(const struct replay *replay, uint32_t stack, uint32_t *out_count)
{
	return stacks_frames(&replay->definitions.stacks, stack, out_count);
}

const struct frame *replay_frame(const struct replay *replay, uint32_t frame)
{
	return stacks_frame(&replay->definitions.stacks, frame);
}

const struct python_place *replay_places(const struct replay *replay, uint32_t stack,
					 uint32_t *out_count)
{
	return stacks_places(&replay->definitions.stacks, stack, out_count);
}

bool replay_stack_is_cut(const struct replay *replay, uint32_t stack)
{
	return stacks_is_cut(&replay->definitions.stacks, stack);
}

const char *replay_frame_text(struct replay *replay, uint32_t frame)
{
	return stacks_frame_text(&replay->definitions.stacks, frame);
}

const char *replay_place_text(struct replay *replay, const struct python_place *place)
{
	return codes_text(&replay->definitions.codes, place->code, place->offset);
}

int replay_save_frames(struct replay *replay, replay_put *put, void *arg)
{
	struct strbuf part = {0};
	int r = stacks_save(&replay->definitions.stacks, &part, put, arg);

	strbuf_fini(&part);
	return r;
}

/* ---- modules ---- */

int definitions_take_module_load(struct replay *replay, const struct trace_event *event)
{
	struct definitions *d = &replay->definitions;
	struct event_module_load def;
	struct module_info info = {0};
	struct module *module;
	char path[65536];
	int r;

	event_module_load_decode(event->words, &def);
	if (def.build_id_bytes + def.path_bytes > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	memcpy(path, event->payload + def.build_id_bytes, def.path_bytes);
	path[def.path_bytes] = '\0';
	info = (struct module_info){.id = def.id,
				    .base = def.start,
				    .end = def.end,
				    .bias = def.bias,
				    .path = path,
				    .build_id = event->payload,
				    .build_id_length = def.build_id_bytes};
	r = modules_load(&d->modules, &info, event->time_ns, &module);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		replay->totals.oddities.bad_definitions++;
	else if (d->stacks.root != NULL)
		(void)module_pin(module, d->stacks.root);
	return 0;
}

int definitions_take_module_unload(struct replay *replay, const struct trace_event *event)
{
	struct event_module_unload unload;

	event_module_unload_decode(event->words, &unload);
	if (modules_unload(&replay->definitions.modules, unload.id, event->time_ns) < 0)
		replay->totals.oddities.bad_definitions++;
	return 0;
}

const struct module *replay_next_module(const struct replay *replay, size_t *cursor)
{
	const struct map_slot *slot = map_next(&replay->definitions.modules.by_id, cursor);

	return slot == NULL ? NULL : modules_get(&replay->definitions.modules, slot->key.a);
}

const struct module *replay_module(const struct replay *replay, uint64_t id)
{
	return modules_get(&replay->definitions.modules, id);
}

/* ---- the part ---- */

int definitions_init(struct replay *replay)
{
	struct definitions *d = &replay->definitions;
	void *frames;
	size_t bytes;

	/* Files of modules stay open, so that lines can be read from them when they have vanished. */
	if (replay->setup.elves != NULL)
		(void)lines_of(replay->setup.elves);
	modules_init(&d->modules, replay->setup.elves);
	stacks_init(&d->stacks, &d->modules, replay->setup.root);
	frames = run_take_frames(replay->setup.run, &bytes);
	stacks_load(&d->stacks, frames, bytes);
	free(frames);
	return add_context(d, &unknown);
}

void definitions_fini(struct replay *replay)
{
	struct definitions *d = &replay->definitions;

	free(d->contexts);
	free(d->uses);
	free(d->places);
	codes_fini(&d->codes);
	sites_fini(&d->sites);
	stacks_fini(&d->stacks);
	modules_fini(&d->modules);
}

/* ---- in a checkpoint ---- */

static void save_module(struct builder *b, const struct module_info *info)
{
	BUILDER_BEGIN(b, module_load, 0, .id = info->id, .bias = info->bias, .start = info->base,
		      .end = info->end, .build_id_bytes = info->build_id_length,
		      .path_bytes = strlen(info->path));
	builder_payload(b, info->build_id, info->build_id_length);
	builder_payload(b, info->path, strlen(info->path));
	builder_end(b);
}

/* Modules that are gone come first: those that are loaded may lie where they were. */
static void save_modules(const struct replay *replay, struct builder *b)
{
	const struct module *module;
	size_t cursor = 0;

	while ((module = replay_next_module(replay, &cursor)) != NULL) {
		if (module->unloaded_ns == UINT64_MAX)
			continue;
		save_module(b, &module->info);
		BUILDER_PUT(b, module_unload, 0, .id = module->info.id);
	}
	cursor = 0;
	while ((module = replay_next_module(replay, &cursor)) != NULL) {
		if (module->unloaded_ns == UINT64_MAX)
			save_module(b, &module->info);
	}
}

static uint64_t code_number(uint32_t code)
{
	return (uint64_t)code + 1;
}

static void save_code(struct builder *b, const struct codes *codes, uint32_t index)
{
	struct code code = codes_get(codes, index);

	BUILDER_BEGIN(b, code_def, 0, .id = code_number(index), .first_line = code.first_line,
		      .minor = code.minor, .file_bytes = code.file_bytes,
		      .name_bytes = code.name_bytes, .table_bytes = code.table_bytes);
	builder_payload(b, code.file, code.file_bytes);
	builder_payload(b, code.name, code.name_bytes);
	builder_payload(b, code.table, code.table_bytes);
	builder_end(b);
}

static void save_stack(struct builder *b, const struct stacks *stacks, uint32_t index)
{
	uint32_t count, place_count, i;
	const uint32_t *frames = stacks_frames(stacks, index, &count);
	const struct python_place *places = stacks_places(stacks, index, &place_count);

	BUILDER_BEGIN(b, kept_stack, 0, .id = index, .c_frames = count,
		      .python_frames = place_count, .python_cut = stacks_is_cut(stacks, index));
	for (i = 0; i < count; i++)
		builder_payload(b, stacks_frame(stacks, frames[i]), sizeof(struct frame));
	for (i = 0; i < place_count; i++) {
		uint64_t word = code_number(places[i].code) | (uint64_t)places[i].offset << 32;

		builder_payload(b, &word, sizeof(word));
	}
	builder_end(b);
}

void definitions_save(const struct replay *replay, struct checkpoint *cp)
{
	const struct definitions *d = &replay->definitions;
	uint32_t i;

	save_modules(replay, &cp->builder);
	for (i = 1; i < d->context_count; i++)
		builder_put_context(&cp->builder, i, &d->contexts[i]);
	for (i = 0; i < d->codes.count; i++)
		save_code(&cp->builder, &d->codes, i);
	for (i = 1; i < d->stacks.count; i++)
		save_stack(&cp->builder, &d->stacks, i);
}

int definitions_load_kept_stack(struct replay *replay, const struct trace_event *event)
{
	struct definitions *d = &replay->definitions;
	struct writer *own = replay->writers.checkpoint;
	struct event_kept_stack kept;
	struct stack_places places;
	size_t bytes;
	uint32_t stack;
	int r;

	event_kept_stack_decode(event->words, &kept);
	bytes = kept.c_frames * sizeof(struct frame);
	if (bytes + kept.python_frames * 8 > event->payload_bytes) {
		replay->totals.oddities.bad_definitions++;
		return 0;
	}
	places.cut = kept.python_cut != 0;
	r = read_places(replay, own, event->payload + bytes, kept.python_frames, &places);
	if (r == 0)
		r = stacks_intern_frames(&d->stacks, event->payload, kept.c_frames, places, &stack);
	return r < 0 ? r : numbers_put(&own->stacks, (uint32_t)kept.id, stack);
}
