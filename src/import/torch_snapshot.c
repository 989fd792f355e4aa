/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One writer for what is older than the history and for annotations, and one for each device, in the order of its entries. Memory
 * that is mapped piece by piece (expandable segments) may be unmapped in other pieces, so it is cut wherever any of them ends: each
 * part is then a block that comes and goes as a whole.
 */
#include "import/torch_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/text.h"
#include "base/utf8.h"
#include "import/pickle.h"
#include "import/torch_history.h"
#include "import/snapshot_rounds.h"
#include "trace/builder.h"
#include "trace/run.h"
#include "trace/session.h"

#define DEVICES_MAX 256u
#define FRAMES_MAX  1000u /* of a stack; a record has room for so many */
#define TEXT_MAX    4000u /* bytes of a name or a file */
#define OPEN_MAX    4096u /* annotations that have begun and not ended */
#define PROGRESS    65536u

/* One writer of the trace. */
struct out {
	struct builder builder;
	struct map contexts; /* pool, kind and device, stream -> number */
	struct map codes;    /* two hashes of a frame -> number */
	struct map stacks;   /* value of a list of frames -> number + 1 */
	struct map texts;    /* hash of a text, length -> number */
};

/* One device while it is read. */
struct device {
	uint32_t number;
	struct out out;
	struct map live;     /* address -> size + 1 of a block of the pool */
	struct map segments; /* the same of a segment, or of a part of an expandable one */
	uint64_t *cuts;	     /* where parts of expandable segments begin or end, sorted */
	size_t cut_count, cut_room;
	uint64_t reserved_bytes;
	uint64_t now_ns;
	uint32_t rounds; /* that have ended */
};

struct snapshot {
	struct pickle pickle;
	const char *name; /* of the file */
	struct import *import;
	uint32_t segments, traces, annotations; /* values */
	uint8_t vendor;
	size_t visited,
		visits_max; /* a file that repeats parts of itself again and again is refused */
	struct snapshot_rounds rounds;
	struct out main;
	struct device *device; /* in progress */
	struct pack_writer *pack;
	uint64_t first_ns;
	int error;
};

static void fail(struct snapshot *s, int error)
{
	if (s->error == 0)
		s->error = error;
}

/* Counts a part of the file that is walked. False: it is too much. */
static bool visit(struct snapshot *s)
{
	if (++s->visited > s->visits_max)
		fail(s, MSCOPE_E_DAMAGED);
	return s->error == 0;
}

static uint64_t number_at(const struct snapshot *s, uint32_t value, const char *key,
			  uint64_t otherwise)
{
	return pickle_u64(&s->pickle, pickle_at(&s->pickle, value, key), otherwise);
}

static void remember(struct snapshot *s, struct map *map, uint64_t key, uint64_t value)
{
	if (map_put(map, (struct map_key){key, 0}, value) < 0)
		fail(s, -ENOMEM);
}

static bool knows(const struct map *map, uint64_t key)
{
	return map_get(map, (struct map_key){key, 0}) != NULL;
}

/* ---- definitions ---- */

/* Bytes of a text that a record has room for, without half a character at its end. */
static size_t cut_text(const char *text, size_t length)
{
	if (length <= TEXT_MAX)
		return length;
	for (length = TEXT_MAX; length > 0 && ((uint8_t)text[length] & 0xc0) == 0x80; length--)
		;
	return length;
}

static uint32_t context(struct snapshot *s, struct out *out, uint8_t pool, uint8_t kind,
			uint32_t device, uint64_t stream)
{
	struct map_key key = {(uint64_t)pool << 40 | (uint64_t)kind << 32 | device, stream};
	const uint64_t *known = map_get(&out->contexts, key);
	uint32_t id = (uint32_t)out->contexts.count + 1;

	if (known != NULL)
		return (uint32_t)*known;
	if (id > CONTEXT_MAX || map_put(&out->contexts, key, id) < 0) {
		fail(s, id > CONTEXT_MAX ? MSCOPE_E_LIMIT : -ENOMEM);
		return 0;
	}
	builder_put_context(&out->builder, id,
			    &(struct context){.pool = pool,
					      .kind = kind,
					      .vendor = s->vendor,
					      .device = device,
					      .module = MODULE_UNKNOWN,
					      .flags = stream});
	return id;
}

static uint32_t text_number(struct snapshot *s, struct out *out, uint32_t value)
{
	size_t length;
	const char *text = pickle_text(&s->pickle, value, &length);
	struct map_key key = {hash_add(HASH_BEGIN, text, length), length};
	const uint64_t *known = map_get(&out->texts, key);
	uint32_t id = (uint32_t)out->texts.count + 1;

	if (known != NULL)
		return (uint32_t)*known;
	if (map_put(&out->texts, key, id) < 0)
		fail(s, -ENOMEM);
	builder_put_text(&out->builder, id, text, cut_text(text, length));
	return id;
}

/* The number of a frame, as a function that has this line alone. */
static uint32_t frame_number(struct snapshot *s, struct out *out, uint32_t frame)
{
	size_t file_bytes, name_bytes;
	const char *file =
		pickle_text(&s->pickle, pickle_at(&s->pickle, frame, "filename"), &file_bytes);
	const char *name =
		pickle_text(&s->pickle, pickle_at(&s->pickle, frame, "name"), &name_bytes);
	uint64_t line = number_at(s, frame, "line", 0), numbers[] = {line, file_bytes};
	struct map_key key = {
		hash_add(hash_add(HASH_BEGIN, file, file_bytes), name, name_bytes),
		hash_add(hash_add(hash_add(HASH_BEGIN, numbers, sizeof(numbers)), name, name_bytes),
			 file, file_bytes)};
	const uint64_t *known = map_get(&out->codes, key);
	uint32_t id = (uint32_t)out->codes.count + 1;

	if (known != NULL)
		return (uint32_t)*known;
	if (map_put(&out->codes, key, id) < 0)
		fail(s, -ENOMEM);
	file_bytes = cut_text(file, file_bytes);
	name_bytes = cut_text(name, name_bytes);
	BUILDER_BEGIN(&out->builder, code_def, 0, .id = id,
		      .first_line = line > UINT32_MAX ? 0 : line, .minor = 11,
		      .file_bytes = file_bytes, .name_bytes = name_bytes);
	builder_payload(&out->builder, file, file_bytes);
	builder_payload(&out->builder, name, name_bytes);
	builder_end(&out->builder);
	return id;
}

/* The number of the stack of an entry, a segment or a block; 0 if it has none. Lists are shared in a file, and read once. */
static uint32_t stack_of(struct snapshot *s, struct out *out, uint32_t value)
{
	uint32_t list = pickle_at(&s->pickle, value, "frames"),
		 id = (uint32_t)out->stacks.count + 1;
	const uint64_t *known = map_get(&out->stacks, (struct map_key){list, 0});
	uint64_t words[FRAMES_MAX];
	const uint32_t *frames;
	size_t count, i;

	if (known != NULL)
		return (uint32_t)*known;
	frames = pickle_list(&s->pickle, list, &count);
	if (count == 0)
		return 0;
	if (count > FRAMES_MAX)
		count = FRAMES_MAX;
	for (i = 0; i < count && visit(s); i++)
		words[i] = frame_number(s, out, frames[i]);
	remember(s, &out->stacks, list, id);
	if (s->error != 0)
		return 0;
	BUILDER_BEGIN(&out->builder, stack_def, 0, .id = id, .python_frames = count);
	builder_payload(&out->builder, words, count * sizeof(*words));
	builder_end(&out->builder);
	return id;
}

/* ---- memory ---- */

static void put_alloc(struct snapshot *s, struct out *out, uint8_t pool, uint8_t kind,
		      uint64_t stream, uint64_t address, uint64_t size, uint32_t stack)
{
	uint32_t id = context(s, out, pool, kind, s->device->number, stream);

	BUILDER_PUT(&out->builder, block_alloc_wide, id, .address = address, .size_bytes = size,
		    .stack = stack);
}

static void put_free(struct snapshot *s, struct out *out, uint8_t pool, uint8_t kind,
		     uint64_t stream, uint64_t address, uint32_t stack)
{
	uint32_t id = context(s, out, pool, kind, s->device->number, stream);

	BUILDER_PUT(&out->builder, block_free_traced, id, .address = address, .stack = stack);
}

static void put_total(struct snapshot *s, struct out *out)
{
	uint32_t id = context(s, out, POOL_pta, BLOCK_ALLOC, s->device->number, 0);

	BUILDER_PUT(&out->builder, pool_total, id, .reserved_bytes = s->device->reserved_bytes);
}

static void add_segment(struct snapshot *s, struct out *out, uint8_t kind, uint64_t stream,
			uint64_t address, uint64_t size, uint32_t stack)
{
	struct device *d = s->device;

	if (size == 0 || knows(&d->segments, address))
		return;
	remember(s, &d->segments, address, size + 1);
	put_alloc(s, out, POOL_hal, kind, stream, address, size, stack);
	d->reserved_bytes += size;
	put_total(s, out);
}

static void remove_segment(struct snapshot *s, struct out *out, uint8_t kind, uint64_t stream,
			   uint64_t address, uint32_t stack)
{
	struct device *d = s->device;
	uint64_t size;

	if (!map_remove(&d->segments, (struct map_key){address, 0}, &size))
		return;
	put_free(s, out, POOL_hal, kind, stream, address, stack);
	d->reserved_bytes -= size - 1;
	put_total(s, out);
}

static void add_cuts(struct snapshot *s, uint64_t address, uint64_t size)
{
	struct device *d = s->device;

	if (ARRAY_RESERVE(d->cuts, d->cut_room, d->cut_count + 2) < 0) {
		fail(s, -ENOMEM);
		return;
	}
	d->cuts[d->cut_count++] = address;
	d->cuts[d->cut_count++] = address + size;
}

static void sort_cuts(struct device *d)
{
	size_t i, to = 0;

	if (d->cut_count == 0)
		return;
	qsort(d->cuts, d->cut_count, sizeof(*d->cuts), order_u64);
	for (i = 1; i < d->cut_count; i++) {
		if (d->cuts[i] != d->cuts[to])
			d->cuts[++to] = d->cuts[i];
	}
	d->cut_count = to + 1;
}

/* Index of the first cut that is not below an address. */
static size_t cut_at(const struct device *d, uint64_t address)
{
	return COUNT_FRONT(at, d->cut_count, d->cuts[at] < address);
}

static void map_parts(struct snapshot *s, struct out *out, uint64_t stream, uint64_t address,
		      uint64_t size, uint32_t stack)
{
	const struct device *d = s->device;
	size_t i = cut_at(d, address);

	for (; i + 1 < d->cut_count && d->cuts[i] < address + size && visit(s); i++)
		add_segment(s, out, BLOCK_CREATE, stream, d->cuts[i], d->cuts[i + 1] - d->cuts[i],
			    stack);
}

static void unmap_parts(struct snapshot *s, struct out *out, uint64_t stream, uint64_t address,
			uint64_t size, uint32_t stack)
{
	const struct device *d = s->device;
	size_t i = cut_at(d, address);

	for (; i < d->cut_count && d->cuts[i] < address + size && visit(s); i++)
		remove_segment(s, out, BLOCK_CREATE, stream, d->cuts[i], stack);
}

/* ---- entries ---- */

enum action {
	ACTION_UNKNOWN,
	ACTION_ALLOC,
	ACTION_FREE_REQUESTED,
	ACTION_FREE_COMPLETED,
	ACTION_SEGMENT_ALLOC,
	ACTION_SEGMENT_FREE,
	ACTION_SEGMENT_MAP,
	ACTION_SEGMENT_UNMAP,
	ACTION_SNAPSHOT,
	ACTION_OOM,
	ACTIONS
};

static const char *const actions[ACTIONS] = {
	[ACTION_ALLOC] = "alloc",
	[ACTION_FREE_REQUESTED] = "free_requested",
	[ACTION_FREE_COMPLETED] = "free_completed",
	[ACTION_SEGMENT_ALLOC] = "segment_alloc",
	[ACTION_SEGMENT_FREE] = "segment_free",
	[ACTION_SEGMENT_MAP] = "segment_map",
	[ACTION_SEGMENT_UNMAP] = "segment_unmap",
	[ACTION_SNAPSHOT] = "snapshot",
	[ACTION_OOM] = "oom",
};

struct entry {
	enum action action;
	uint64_t address, size, stream;
	uint64_t time_us; /* UINT64_MAX: unknown */
	uint64_t device_free;
};

/* No machine has larger addresses, and no device this much memory: such a number was not written by an allocator. */
#define ADDRESS_MAX    ((UINT64_C(1) << 57) - 1)
#define SIZE_BYTES_MAX (UINT64_C(1) << 50)
static const char bad_segment[] = "it has an impossible address, size or device";

/* False when it is malformed. Sizes and addresses are such that their sum is one, too. */
static bool read_entry(const struct snapshot *s, uint32_t value, struct entry *out)
{
	uint32_t action = pickle_at(&s->pickle, value, "action");
	size_t i;

	*out = (struct entry){.address = number_at(s, value, "addr", UINT64_MAX),
			      .size = number_at(s, value, "size", UINT64_MAX),
			      .stream = number_at(s, value, "stream", 0),
			      .time_us = number_at(s, value, "time_us", UINT64_MAX),
			      .device_free = number_at(s, value, "device_free", UINT64_MAX)};
	for (i = 1; i < ACTIONS; i++) {
		if (pickle_is(&s->pickle, action, actions[i]))
			out->action = (enum action)i;
	}
	/* memory_viz takes this word, too. */
	if (pickle_is(&s->pickle, action, "free"))
		out->action = ACTION_FREE_COMPLETED;
	if (out->time_us != UINT64_MAX && out->time_us > UINT64_MAX / 4000)
		return false;
	if (out->action == ACTION_SNAPSHOT || out->action == ACTION_UNKNOWN)
		return action != PICKLE_ABSENT;
	return out->size <= SIZE_BYTES_MAX &&
	       (out->action == ACTION_OOM || out->address <= ADDRESS_MAX);
}

static void put_oom(struct snapshot *s, const struct entry *entry, uint32_t stack)
{
	struct out *out = &s->device->out;

	BUILDER_PUT(&out->builder, oom,
		    context(s, out, POOL_pta, BLOCK_ALLOC, s->device->number, entry->stream),
		    .requested_bytes = entry->size, .allocated_bytes = UINT64_MAX,
		    .reserved_bytes = s->device->reserved_bytes, .free_bytes = entry->device_free,
		    .total_bytes = UINT64_MAX, .stack = stack, .call = OOM_TORCH_CUDA);
}

static void put_entry(struct snapshot *s, uint32_t value, const struct entry *entry)
{
	struct device *d = s->device;
	struct out *out = &d->out;
	uint32_t stack = stack_of(s, out, value);

	switch (entry->action) {
	case ACTION_ALLOC:
		remember(s, &d->live, entry->address, entry->size + 1);
		put_alloc(s, out, POOL_pta, BLOCK_ALLOC, entry->stream, entry->address, entry->size,
			  stack);
		break;
	case ACTION_FREE_REQUESTED:
	case ACTION_FREE_COMPLETED:
		/* Some files have only one of the two. */
		if (map_remove(&d->live, (struct map_key){entry->address, 0}, NULL))
			put_free(s, out, POOL_pta, BLOCK_ALLOC, entry->stream, entry->address,
				 stack);
		break;
	case ACTION_SEGMENT_ALLOC:
		add_segment(s, out, BLOCK_ALLOC, entry->stream, entry->address, entry->size, stack);
		break;
	case ACTION_SEGMENT_FREE:
		remove_segment(s, out, BLOCK_ALLOC, entry->stream, entry->address, stack);
		break;
	case ACTION_SEGMENT_MAP:
		map_parts(s, out, entry->stream, entry->address, entry->size, stack);
		break;
	case ACTION_SEGMENT_UNMAP:
		unmap_parts(s, out, entry->stream, entry->address, entry->size, stack);
		break;
	case ACTION_OOM:
		put_oom(s, entry, stack);
		break;
	case ACTION_SNAPSHOT: /* the moment that the file was asked for */
		break;
	default:
		s->import->unknown++;
		break;
	}
}

/* A step for each round that ends before an entry. Where annotations mark steps, those count. */
static void put_rounds(struct snapshot *s, size_t entry)
{
	struct device *d = s->device;

	if (d->number != s->rounds.device)
		return;
	while (d->rounds < s->rounds.end_count && s->rounds.ends[d->rounds] < entry)
		BUILDER_PUT(&d->out.builder, optimizer_step, 0, .number = ++d->rounds);
}

static void put_entries(struct snapshot *s, const uint32_t *entries, size_t count)
{
	struct dump_reading *reading = &s->import->reading;
	struct device *d = s->device;
	struct entry entry;
	size_t i;

	d->now_ns = s->first_ns;
	for (i = 0; i < count && visit(s); i++) {
		struct dump_place place = {.name = s->name, .unit = "entry", .number = i};
		uint64_t now;

		put_rounds(s, i);
		if (!read_entry(s, entries[i], &entry)) {
			dump_note_bad(reading, &place, "not an entry of a history");
			continue;
		}
		now = (entry.time_us != UINT64_MAX ? entry.time_us : SNAPSHOT_FIRST_US + i) * 1000;
		if (now > d->now_ns)
			d->now_ns = now;
		d->out.builder.time_ns = d->now_ns;
		put_entry(s, entries[i], &entry);
		fail(s, d->out.builder.error);
		if (++reading->rows % PROGRESS == 0 && reading->progress != NULL)
			reading->progress(reading->progress_arg, reading->rows);
	}
	put_rounds(s, count);
}

/* ---- what is older than the history ---- */

/* Takes the memory of a final segment and its blocks that no entry of the history tells of. */
static void put_final(struct snapshot *s, uint32_t segment, const struct map *told,
		      const struct map *told_segments)
{
	struct dump_place place = {.name = s->name, .unit = "value", .number = segment};
	uint64_t address = number_at(s, segment, "address", UINT64_MAX),
		 size = number_at(s, segment, "total_size", UINT64_MAX),
		 stream = number_at(s, segment, "stream", 0);
	const uint32_t *blocks;
	size_t count, i;

	if (pickle_is_beyond(&s->pickle, segment, "address", ADDRESS_MAX) ||
	    pickle_is_beyond(&s->pickle, segment, "total_size", SIZE_BYTES_MAX) ||
	    pickle_is_beyond(&s->pickle, segment, "device", DEVICES_MAX - 1)) {
		dump_note_bad(&s->import->reading, &place, bad_segment);
		return;
	}
	if (address <= ADDRESS_MAX && size <= SIZE_BYTES_MAX && size > 0 &&
	    !knows(told_segments, address))
		add_segment(s, &s->main, BLOCK_ALLOC, stream, address, size,
			    stack_of(s, &s->main, segment));
	blocks = pickle_list(&s->pickle, pickle_at(&s->pickle, segment, "blocks"), &count);
	for (i = 0; i < count && visit(s); i++) {
		uint64_t at = number_at(s, blocks[i], "address", address),
			 bytes = number_at(s, blocks[i], "requested_size",
					   number_at(s, blocks[i], "size", UINT64_MAX));
		uint32_t state = pickle_at(&s->pickle, blocks[i], "state");

		/* Older files have no addresses: blocks follow one another. */
		address = at + number_at(s, blocks[i], "size", 0);
		if (pickle_is_beyond(&s->pickle, blocks[i], "address", ADDRESS_MAX) ||
		    pickle_is_beyond(&s->pickle, blocks[i], "size", SIZE_BYTES_MAX) ||
		    pickle_is_beyond(&s->pickle, blocks[i], "requested_size", SIZE_BYTES_MAX)) {
			dump_note_bad(&s->import->reading, &place,
				      "a block of it has an impossible address or size");
			continue;
		}
		if (at > ADDRESS_MAX || bytes > SIZE_BYTES_MAX || address > ADDRESS_MAX ||
		    pickle_is(&s->pickle, state, "inactive") || state == PICKLE_ABSENT ||
		    knows(told, at) || knows(&s->device->live, at))
			continue;
		remember(s, &s->device->live, at, bytes + 1);
		put_alloc(s, &s->main, POOL_pta, BLOCK_ALLOC, stream, at, bytes,
			  stack_of(s, &s->main, blocks[i]));
	}
}

/* Frees of what the history never allocates. */
static void put_freed(struct snapshot *s, const struct entry *entry, struct map *told)
{
	bool is_free =
		entry->action == ACTION_FREE_REQUESTED || entry->action == ACTION_FREE_COMPLETED;

	if ((entry->action != ACTION_ALLOC && !is_free) || knows(told, entry->address))
		return;
	remember(s, told, entry->address, 1);
	if (!is_free)
		return;
	remember(s, &s->device->live, entry->address, entry->size + 1);
	put_alloc(s, &s->main, POOL_pta, BLOCK_ALLOC, entry->stream, entry->address, entry->size,
		  0);
}

static void put_freed_segment(struct snapshot *s, const struct entry *entry, struct map *told)
{
	if ((entry->action != ACTION_SEGMENT_ALLOC && entry->action != ACTION_SEGMENT_FREE) ||
	    knows(told, entry->address))
		return;
	remember(s, told, entry->address, 1);
	if (entry->action == ACTION_SEGMENT_FREE)
		add_segment(s, &s->main, BLOCK_ALLOC, entry->stream, entry->address, entry->size,
			    0);
}

static bool is_expandable(const struct snapshot *s, uint32_t segment)
{
	uint32_t value = pickle_at(&s->pickle, segment, "is_expandable");

	return value != PICKLE_ABSENT && s->pickle.values[value].type == PICKLE_BOOL &&
	       s->pickle.values[value].number != 0;
}

/* Parts of expandable segments that were mapped before the first entry: the first that is told of them is that they go, or nothing. */
static void put_older_parts(struct snapshot *s, const uint32_t *entries, size_t count,
			    const uint32_t *segments, size_t segment_count)
{
	struct device *d = s->device;
	struct map told = {0};
	struct entry entry;
	size_t i, k;

	for (i = 0; i < count && visit(s); i++) {
		if (!read_entry(s, entries[i], &entry) ||
		    (entry.action != ACTION_SEGMENT_MAP && entry.action != ACTION_SEGMENT_UNMAP))
			continue;
		for (k = cut_at(d, entry.address);
		     k + 1 < d->cut_count && d->cuts[k] < entry.address + entry.size && visit(s);
		     k++) {
			if (knows(&told, d->cuts[k]))
				continue;
			remember(s, &told, d->cuts[k], 1);
			if (entry.action == ACTION_SEGMENT_UNMAP)
				add_segment(s, &s->main, BLOCK_CREATE, entry.stream, d->cuts[k],
					    d->cuts[k + 1] - d->cuts[k], 0);
		}
	}
	for (i = 0; i < segment_count && visit(s); i++) {
		uint64_t address = number_at(s, segments[i], "address", UINT64_MAX),
			 size = number_at(s, segments[i], "total_size", UINT64_MAX);

		if (!is_expandable(s, segments[i]) || address > INT64_MAX || size > INT64_MAX ||
		    number_at(s, segments[i], "device", 0) != d->number)
			continue;
		for (k = cut_at(d, address);
		     k + 1 < d->cut_count && d->cuts[k] < address + size && visit(s); k++) {
			if (!knows(&told, d->cuts[k]))
				add_segment(s, &s->main, BLOCK_CREATE,
					    number_at(s, segments[i], "stream", 0), d->cuts[k],
					    d->cuts[k + 1] - d->cuts[k],
					    stack_of(s, &s->main, segments[i]));
		}
	}
	map_fini(&told);
}

static void find_cuts(struct snapshot *s, const uint32_t *entries, size_t count,
		      const uint32_t *segments, size_t segment_count)
{
	struct entry entry;
	size_t i;

	for (i = 0; i < count && visit(s); i++) {
		if (read_entry(s, entries[i], &entry) &&
		    (entry.action == ACTION_SEGMENT_MAP || entry.action == ACTION_SEGMENT_UNMAP))
			add_cuts(s, entry.address, entry.size);
	}
	for (i = 0; i < segment_count && visit(s); i++) {
		uint64_t address = number_at(s, segments[i], "address", UINT64_MAX),
			 size = number_at(s, segments[i], "total_size", UINT64_MAX);

		if (is_expandable(s, segments[i]) && address <= INT64_MAX && size <= INT64_MAX &&
		    number_at(s, segments[i], "device", 0) == s->device->number)
			add_cuts(s, address, size);
	}
	sort_cuts(s->device);
}

static void put_older(struct snapshot *s, const uint32_t *entries, size_t count)
{
	struct map told = {0}, told_segments = {0};
	struct device *d = s->device;
	size_t segment_count, i;
	const uint32_t *segments = pickle_list(&s->pickle, s->segments, &segment_count);
	struct entry entry;

	find_cuts(s, entries, count, segments, segment_count);
	put_older_parts(s, entries, count, segments, segment_count);
	for (i = 0; i < count && visit(s); i++) {
		if (read_entry(s, entries[i], &entry))
			put_freed_segment(s, &entry, &told_segments);
	}
	/* Parts of expandable segments are there already, also those that history will map. */
	for (i = 0; i < d->cut_count; i++)
		remember(s, &told_segments, d->cuts[i], 1);
	for (i = 0; i < count && visit(s); i++) {
		if (read_entry(s, entries[i], &entry))
			put_freed(s, &entry, &told);
	}
	for (i = 0; i < segment_count && visit(s); i++) {
		if (number_at(s, segments[i], "device", 0) == d->number)
			put_final(s, segments[i], &told, &told_segments);
	}
	map_fini(&told);
	map_fini(&told_segments);
}

/* ---- annotations ---- */

struct annotation {
	uint64_t time_us;
	uint64_t range; /* of one that begins */
	uint32_t name;	/* value */
	uint32_t device;
	size_t ordinal;
	bool begins;
};

static int by_time(const void *a, const void *b)
{
	const struct annotation *x = a, *y = b;

	return ORDER_UP(x->time_us, y->time_us) ?: ORDER_UP(x->ordinal, y->ordinal);
}

static bool same_text(const struct pickle *pickle, uint32_t a, uint32_t b)
{
	size_t x, y;
	const char *one = pickle_text(pickle, a, &x), *other = pickle_text(pickle, b, &y);

	return x == y && memcmp(one, other, x) == 0;
}

static void put_annotations(struct snapshot *s, struct annotation *all, size_t count)
{
	struct annotation *open = calloc(OPEN_MAX, sizeof(*open));
	size_t open_count = 0, i, k;
	uint64_t ranges = 0;

	if (open == NULL)
		fail(s, -ENOMEM);
	for (i = 0; i < count && s->error == 0; i++) {
		struct annotation *one = &all[i];
		uint32_t id = context(s, &s->main, POOL_UNKNOWN, BLOCK_ALLOC, one->device, 0);

		if (one->time_us * 1000 > s->main.builder.time_ns)
			s->main.builder.time_ns = one->time_us * 1000;
		if (one->begins && open_count < OPEN_MAX) {
			one->range = ++ranges;
			open[open_count++] = *one;
			BUILDER_PUT(&s->main.builder, mark, id,
				    .text = text_number(s, &s->main, one->name), .kind = 2,
				    .range = one->range, .stream = UINT32_MAX);
			continue;
		}
		for (k = open_count; k > 0 && (open[k - 1].device != one->device ||
					       !same_text(&s->pickle, open[k - 1].name, one->name));
		     k--)
			;
		if (k == 0)
			continue;
		BUILDER_PUT(&s->main.builder, mark, id, .kind = 3, .range = open[k - 1].range,
			    .stream = UINT32_MAX);
		memmove(open + k - 1, open + k, (open_count - k) * sizeof(*open));
		open_count--;
	}
	free(open);
}

static void read_annotations(struct snapshot *s)
{
	size_t count, i, to = 0;
	const uint32_t *list = pickle_list(&s->pickle, s->annotations, &count);
	struct annotation *all = count == 0 ? NULL : calloc(count, sizeof(*all));

	if (count > 0 && all == NULL)
		fail(s, -ENOMEM);
	for (i = 0; i < count && visit(s); i++) {
		uint32_t stage = pickle_at(&s->pickle, list[i], "stage");
		uint64_t time_us = number_at(s, list[i], "time_us", UINT64_MAX),
			 device = number_at(s, list[i], "device", 0);

		if (time_us > UINT64_MAX / 4000)
			continue;
		all[to] = (struct annotation){.time_us = time_us,
					      .name = pickle_at(&s->pickle, list[i], "name"),
					      .device = device < DEVICES_MAX ? (uint32_t)device
									     : DEVICE_UNKNOWN,
					      .ordinal = i,
					      .begins = pickle_is(&s->pickle, stage, "START")};
		to += all[to].begins || pickle_is(&s->pickle, stage, "END");
	}
	if (s->error == 0 && to > 0) {
		qsort(all, to, sizeof(*all), by_time);
		put_annotations(s, all, to);
	}
	free(all);
}

/* ---- the whole ---- */

/* The wall clock of the first entry that has one. */
static uint64_t first_time(struct snapshot *s)
{
	size_t devices, count, d, i;
	const uint32_t *traces = pickle_list(&s->pickle, s->traces, &devices);
	uint64_t first = UINT64_MAX, time_us;

	for (d = 0; d < devices && d < DEVICES_MAX; d++) {
		const uint32_t *entries = pickle_list(&s->pickle, traces[d], &count);

		for (i = 0; i < count && i < 64 && visit(s); i++) {
			time_us = number_at(s, entries[i], "time_us", UINT64_MAX);
			if (time_us < first)
				first = time_us;
		}
	}
	traces = pickle_list(&s->pickle, s->annotations, &count);
	for (i = 0; i < count && visit(s); i++) {
		time_us = number_at(s, traces[i], "time_us", UINT64_MAX);
		if (time_us < first)
			first = time_us;
	}
	return first > UINT64_MAX / 4000 ? SNAPSHOT_FIRST_US : first;
}

static void begin_out(struct snapshot *s, struct out *out, uint32_t writer)
{
	out->builder =
		(struct builder){.writer = writer, .pack = s->pack, .time_ns = s->first_ns - 1000};
	BUILDER_PUT(&out->builder, thread, 0, .tid = writer);
}

static void end_out(struct snapshot *s, struct out *out)
{
	builder_flush(&out->builder);
	fail(s, out->builder.error);
	builder_fini(&out->builder);
	map_fini(&out->contexts);
	map_fini(&out->codes);
	map_fini(&out->stacks);
	map_fini(&out->texts);
}

/* Whether the segments at the end have one of this device. */
static bool has_segments(struct snapshot *s, uint32_t number)
{
	size_t count, i;
	const uint32_t *list = pickle_list(&s->pickle, s->segments, &count);

	for (i = 0; i < count && visit(s); i++) {
		if (number_at(s, list[i], "device", 0) == number)
			return true;
	}
	return false;
}

static void put_device(struct snapshot *s, uint32_t number, bool has_trace)
{
	struct device device = {.number = number};
	size_t devices, count = 0;
	const uint32_t *traces = pickle_list(&s->pickle, s->traces, &devices), *entries = NULL;

	if (has_trace)
		entries = pickle_list(&s->pickle, traces[number], &count);
	if (count == 0 && !has_segments(s, number))
		return;
	s->device = &device;
	begin_out(s, &device.out, number + 2);
	put_older(s, entries, count);
	put_entries(s, entries, count);
	end_out(s, &device.out);
	map_fini(&device.live);
	map_fini(&device.segments);
	free(device.cuts);
	s->device = NULL;
}

static void put_devices(struct snapshot *s)
{
	size_t traces, segments, i;
	const uint32_t *list;
	uint32_t last = 0, d;

	(void)pickle_list(&s->pickle, s->traces, &traces);
	list = pickle_list(&s->pickle, s->segments, &segments);
	for (i = 0; i < segments && visit(s); i++) {
		struct dump_place place = {.name = s->name, .unit = "value", .number = list[i]};
		uint64_t device = number_at(s, list[i], "device", 0);

		if (device < DEVICES_MAX && device + 1 > last)
			last = (uint32_t)device + 1;
		else if (device >= DEVICES_MAX) /* no device that is looked at has it */
			dump_note_bad(&s->import->reading, &place, bad_segment);
	}
	if (traces > last)
		last = traces < DEVICES_MAX ? (uint32_t)traces : DEVICES_MAX;
	for (d = 0; d < last && s->error == 0; d++)
		put_device(s, d, d < traces);
	/* As after start(): rows show what is older from here on. */
	BUILDER_PUT(&s->main.builder, state, 0, .state = RECORDING_ON);
}

static int put_header(struct snapshot *s)
{
	int found = snapshot_rounds_find(&s->pickle, s->traces, s->visits_max, &s->rounds);
	char identity[128];
	int bytes = snprintf(identity, sizeof(identity),
			     "program=imported%c" RUN_SOURCE_KEY "=" RUN_SNAPSHOT
			     "%c" RUN_ROUNDS_KEY "=%lld",
			     0, 0, (long long)s->rounds.count);
	struct trace_header *h = preamble_new(identity, (size_t)bytes + 1);
	int r;

	if (h == NULL || found < 0) {
		free(h);
		return -ENOMEM;
	}
	h->realtime_ns = h->monotonic_ns = s->first_ns - 1000;
	h->first_state = RECORDING_SHADOW;
	atomic_store(&h->state, TRACE_CLOSED);
	r = preamble_put(s->pack, h);
	free(h);
	return r;
}

static int write_trace(struct snapshot *s, const char *trace, int *out_fd, struct mscope_error *err)
{
	struct pack_block end = {.kind = PACK_END};
	int r = pack_writer_open(trace, &s->pack, err);

	(void)unlink(trace);
	if (r < 0)
		return r;
	s->vendor = torch_history_of_npu(&s->pickle) ? VENDOR_ASCEND : VENDOR_CUDA;
	s->first_ns = first_time(s) * 1000;
	fail(s, put_header(s));
	begin_out(s, &s->main, 1);
	put_devices(s);
	read_annotations(s);
	end_out(s, &s->main);
	if (s->error == 0)
		fail(s, pack_writer_put(s->pack, &end, ""));
	if (s->error == 0) {
		*out_fd = fcntl(pack_writer_fd(s->pack), F_DUPFD_CLOEXEC, 0);
		fail(s, *out_fd < 0 ? -errno : 0);
	}
	pack_writer_close(s->pack);
	if (s->error == MSCOPE_E_DAMAGED)
		return error_set(
			err, s->error,
			"%s is not a valid snapshot: its parts repeat more often than it has bytes",
			s->name);
	return s->error == 0 ? 0
			     : error_set(err, s->error, "cannot write the temporary trace %s: %s",
					 trace, mscope_status_str(s->error));
}

static int read_snapshot(struct snapshot *s, const void *data, size_t bytes, const char *trace,
			 int *out_fd, struct mscope_error *err)
{
	int r = pickle_read(&s->pickle, data, bytes, s->name, err);
	const uint32_t *first;
	size_t count;

	if (r == 0) {
		uint32_t root = s->pickle.root;

		/* At first a snapshot was its segments alone. */
		first = pickle_list(&s->pickle, root, &count);
		s->segments =
			count > 0 && pickle_at(&s->pickle, first[0], "total_size") != PICKLE_ABSENT
				? root
				: pickle_at(&s->pickle, root, "segments");
		s->traces = pickle_at(&s->pickle, root, "device_traces");
		s->annotations = pickle_at(&s->pickle, root, "external_annotations");
		s->visits_max = 8 * bytes + 1024;
		if (s->segments == PICKLE_ABSENT && s->traces == PICKLE_ABSENT)
			r = error_set(err, MSCOPE_E_FOREIGN,
				      "%s is a pickle, but not a memory snapshot of PyTorch",
				      s->name);
		else
			r = write_trace(s, trace, out_fd, err);
	}
	snapshot_rounds_fini(&s->rounds);
	pickle_fini(&s->pickle);
	return r;
}

bool snapshot_probe(const char *path)
{
	uint8_t start[3];
	int fd = io_open_file(path, O_RDONLY, NULL);
	bool is_pickle;

	if (fd < 0)
		return false;
	is_pickle = read(fd, start, sizeof(start)) == (ssize_t)sizeof(start) &&
		    pickle_probe(start, sizeof(start));
	(void)close(fd);
	return is_pickle;
}

int snapshot_import(const char *path, const char *trace, struct import *import, int *out_fd,
		    struct mscope_error *err)
{
	struct snapshot s = {.import = import, .name = text_base_name(path)};
	int fd = io_open_file(path, O_RDONLY, err), r;
	uint8_t *data = NULL;
	size_t bytes = 0;

	if (fd < 0)
		return fd;
	r = pickle_load(fd, &data, &bytes);
	(void)close(fd);
	if (r < 0)
		(void)error_set(err, r, "cannot read %s: %s", path, mscope_status_str(r));
	else
		r = read_snapshot(&s, data, bytes, trace, out_fd, err);
	free(data);
	return r;
}
