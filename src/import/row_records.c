/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From rows, in the order of time, to the records of a trace. Each thread of the file becomes a writer, with a builder of its own
 * and its own numbers of contexts and texts. Which record a kind of row becomes stands in dump/rows.def; what takes more than
 * copying members is in the functions put_LIST() below.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "import/row.h"
#include "import/row_stacks.h"
#include "trace/builder.h"
#include "trace/session.h"

#define WRITERS_MAX    60000u	   /* replay knows a few more */
#define HELD_MAX       (64u << 20) /* bytes of records that are not in the file yet, ... */
#define ROWS_PER_CHECK 16384u	   /* ... counted every so many rows */

struct writer {
	struct builder builder;
	struct map contexts; /* index of the context -> its number here */
	struct map texts;    /* text -> its number here */
	struct row_stacks stacks;
};

struct output {
	struct importer *importer;
	struct pack_writer *pack;
	struct writer *writers; /* numbered from 1 in the trace */
	size_t writer_count, writer_room;
	struct map by_tid;
	struct context *contexts;
	size_t context_count, context_room;
	struct map context_known; /* pool, kind, page, device and module -> index */
	struct map live;	  /* pool, address -> context */
	struct map totals;	  /* pool, device -> the last total */
	struct map clocks;	  /* devices whose clock is defined */
	uint64_t *open_ranges;	  /* numbers of ranges that have begun, newest last */
	size_t open_count, open_room;
	uint64_t ranges;    /* begun so far */
	bool range_numbers; /* the file's numbers are those of our counting */
	uint64_t now_ns;
	uint32_t last_writer;
	int error;
};

static void fail(struct output *out, int error)
{
	if (out->error == 0)
		out->error = error;
}

/* ---- what records refer to ---- */

/* The writer of a thread. NULL: `error` says why. */
static struct writer *writer_at(struct output *out, uint32_t tid, uint8_t process)
{
	uint64_t *known = map_get(&out->by_tid, (struct map_key){tid, process});
	struct writer *w;

	if (known != NULL)
		return &out->writers[*known];
	if (out->writer_count == WRITERS_MAX) {
		fail(out, MSCOPE_E_LIMIT);
		return NULL;
	}
	if (ARRAY_RESERVE(out->writers, out->writer_room, out->writer_count + 1) < 0 ||
	    map_put(&out->by_tid, (struct map_key){tid, process}, out->writer_count) < 0) {
		fail(out, -ENOMEM);
		return NULL;
	}
	w = &out->writers[out->writer_count++];
	*w = (struct writer){.builder = {.writer = (uint32_t)out->writer_count,
					 .pack = out->pack,
					 .time_ns = out->now_ns}};
	BUILDER_PUT(&w->builder, thread, 0, .tid = tid);
	return w;
}

/* The number of a text among those of the writer, defined now if it is new. */
static uint32_t text_in(struct output *out, struct writer *w, uint32_t text)
{
	const char *start;
	uint64_t *known;
	uint32_t id = (uint32_t)w->texts.count + 1;

	if (text == 0)
		return 0;
	known = map_get(&w->texts, (struct map_key){text, 0});
	if (known != NULL)
		return (uint32_t)*known;
	if (map_put(&w->texts, (struct map_key){text, 0}, id) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	start = out->importer->texts.data + text - 1;
	builder_put_text(&w->builder, id, start, strlen(start));
	return id;
}

/* The same of a call stack. */
static uint32_t stack_in(struct output *out, struct writer *w, uint32_t stack)
{
	uint32_t id = 0;

	if (stack != 0 && row_stacks_put(&w->stacks, &w->builder, stack,
					 out->importer->texts.data + stack - 1, &id) < 0)
		fail(out, -ENOMEM);
	return id;
}

/* Index of a context, new or known. */
static uint32_t context_of(struct output *out, uint8_t pool, uint8_t block_kind, uint8_t page,
			   uint32_t device, uint32_t module)
{
	struct map_key key = {(uint64_t)pool << 16 | (uint64_t)block_kind << 8 | page,
			      (uint64_t)module << 32 | device};
	uint64_t *known = map_get(&out->context_known, key);

	if (known != NULL)
		return (uint32_t)*known;
	if (ARRAY_RESERVE(out->contexts, out->context_room, out->context_count + 1) < 0 ||
	    map_put(&out->context_known, key, out->context_count) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	out->contexts[out->context_count] = (struct context){.pool = pool,
							     .kind = block_kind,
							     .page = page,
							     .vendor = out->importer->vendor,
							     .device = device,
							     .module = module};
	return (uint32_t)out->context_count++;
}

/* Its number among the writer's contexts, defined now if it is new. */
static uint32_t context_in(struct output *out, struct writer *w, uint32_t context)
{
	uint64_t *known = map_get(&w->contexts, (struct map_key){context, 0});
	uint32_t id = (uint32_t)w->contexts.count + 1;

	if (known != NULL)
		return (uint32_t)*known;
	if (out->error != 0)
		return 0;
	if (id > CONTEXT_MAX || map_put(&w->contexts, (struct map_key){context, 0}, id) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	builder_put_context(&w->builder, id, &out->contexts[context]);
	return id;
}

static uint32_t context_of_block(struct output *out, const struct import_row *row)
{
	return context_of(out, row->pool, row->block_kind, row->page, row->device, row->module);
}

static uint32_t context_of_device(struct output *out, struct writer *w, uint32_t device)
{
	return context_in(
		out, w,
		context_of(out, POOL_UNKNOWN, BLOCK_ALLOC, PAGE_UNKNOWN, device, MODULE_UNKNOWN));
}

/* ---- records that take more than copying ---- */

/* The driver's pools are one space: a file does not always say which of them a free means. */
static struct map_key live_key(const struct import_row *row)
{
	uint8_t pool = row->pool == POOL_host_pinned ? POOL_hal : row->pool;

	return (struct map_key){pool, row->address};
}

/* The user's label of what the thread allocates from here on, or its end. */
static void put_label(struct output *out, struct writer *w, uint32_t text, uint32_t kind)
{
	if (text != 0)
		BUILDER_PUT(&w->builder, label, 0, .text = text_in(out, w, text), .kind = kind);
}

/* The class of the block that was allocated last: a model's classes are known when the block is there, and analyses rely on that. */
static void put_class(struct output *out, struct writer *w, uint32_t context,
		      const struct import_row *row)
{
	if (row->class != 0)
		BUILDER_PUT(&w->builder, label, context, .address = row->address,
			    .text = text_in(out, w, row->class), .kind = LABEL_MODEL);
}

static void put_alloc(struct output *out, struct writer *w, uint32_t context,
		      const struct import_row *row)
{
	uint32_t id = context_in(out, w, context), stack = stack_in(out, w, row->stack);

	put_label(out, w, row->label, LABEL_PUSH);
	if (row->size_bytes <= SIZE_NARROW_MAX && stack <= STACK_MAX)
		BUILDER_PUT(&w->builder, block_alloc, id, .address = row->address,
			    .size_bytes = row->size_bytes, .stack = stack);
	else
		BUILDER_PUT(&w->builder, block_alloc_wide, id, .address = row->address,
			    .size_bytes = row->size_bytes, .stack = stack);
	put_label(out, w, row->label, LABEL_POP);
	put_class(out, w, id, row);
	if (map_put(&out->live, live_key(row), context) < 0)
		fail(out, -ENOMEM);
	if (!out->importer->one_process)
		return;
	if (ARRAY_RESERVE(out->importer->row_ids, out->importer->row_id_room,
			  out->importer->row_id_count + 1) < 0)
		fail(out, -ENOMEM);
	else
		out->importer->row_ids[out->importer->row_id_count++] = row->id;
}

/* The total of the pool, whenever a row has a new one. */
static void put_total(struct output *out, struct writer *w, const struct import_row *row)
{
	struct map_key key = {row->pool, row->device};
	uint64_t *known;

	if (row->total_bytes == UINT64_MAX || row->pool == POOL_hal ||
	    row->pool == POOL_host_pinned)
		return;
	known = map_get(&out->totals, key);
	if (known != NULL && *known == row->total_bytes)
		return;
	if (map_put(&out->totals, key, row->total_bytes) < 0)
		fail(out, -ENOMEM);
	BUILDER_PUT(&w->builder, pool_total,
		    context_in(out, w,
			       context_of(out, row->pool, BLOCK_ALLOC, PAGE_UNKNOWN, row->device,
					  MODULE_UNKNOWN)),
		    .reserved_bytes = row->total_bytes);
}

static void put_quiet_state(struct writer *w, uint32_t state)
{
	BUILDER_PUT(&w->builder, state, 0, .state = state, .quiet = 1);
}

static void put_malloc(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of_block(out, row);

	put_total(out, w, row);
	/* Promoted by start(): it lived before, and only shows from here on. */
	if (row->shadow)
		put_quiet_state(w, RECORDING_SHADOW);
	put_alloc(out, w, context, row);
	if (row->shadow)
		put_quiet_state(w, RECORDING_ON);
}

static void put_free(struct output *out, struct writer *w, const struct import_row *row)
{
	uint64_t context;

	put_total(out, w, row);
	/* Blocks without a row of their allocation live since put_older(). */
	if (!map_remove(&out->live, live_key(row), &context))
		return;
	BUILDER_PUT(&w->builder, block_free, context_in(out, w, (uint32_t)context),
		    .address = row->address);
}

/* The clock of a device, which counts our nanoseconds, before the first record that needs it. */
static void put_execute(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of_device(out, w, row->device);
	struct map_key key = {row->device, 0};

	if (map_get(&out->clocks, key) == NULL) {
		if (map_put(&out->clocks, key, 1) < 0)
			fail(out, -ENOMEM);
		BUILDER_PUT(&w->builder, device_clock, context, .counter = out->now_ns,
			    .frequency_hz = 1000000000u);
	}
	BUILDER_PUT(&w->builder, kernel_execute, context, .stream = row->stream, .task = row->task,
		    .counter = row->time_ns, .kind = row->kind == ROW_KERNEL_BEGIN ? 1 : 2);
}

static void put_marked(struct output *out, struct writer *w, const struct import_row *row,
		       uint32_t kind, uint64_t range, uint32_t text)
{
	BUILDER_PUT(&w->builder, mark, context_of_device(out, w, row->device),
		    .text = text_in(out, w, text), .kind = kind, .range = range,
		    .stream = UINT32_MAX);
}

static void put_mark(struct output *out, struct writer *w, const struct import_row *row)
{
	put_marked(out, w, row, 1, 0, row->name);
}

static void put_range_start(struct output *out, struct writer *w, const struct import_row *row)
{
	uint64_t range = ++out->ranges;

	if (!out->range_numbers &&
	    ARRAY_RESERVE(out->open_ranges, out->open_room, out->open_count + 1) < 0)
		fail(out, -ENOMEM);
	else if (!out->range_numbers)
		out->open_ranges[out->open_count++] = range;
	put_marked(out, w, row, 2, range, row->name);
}

static void put_range_end(struct output *out, struct writer *w, const struct import_row *row)
{
	uint64_t range = row->number;

	if (!out->range_numbers && out->open_count > 0)
		range = out->open_ranges[--out->open_count];
	put_marked(out, w, row, 3, range, 0);
}

static void put_snapshot(struct output *out, struct writer *w, const struct import_row *row)
{
	const struct import_figures *figures = &out->importer->figures[row->number];

	BUILDER_PUT(&w->builder, snapshot, context_of_device(out, w, row->device),
		    .name = text_in(out, w, row->name), .reserved_bytes = figures->reserved,
		    .max_reserved_bytes = figures->max_reserved,
		    .allocated_bytes = figures->allocated,
		    .max_allocated_bytes = figures->max_allocated, .total_bytes = figures->total,
		    .free_bytes = figures->free);
}

/* Figures of a moment: there is no record for them. */
static void put_nothing(struct output *out, struct writer *w, const struct import_row *row)
{
	out->importer->unknown++;
	(void)w;
	(void)row;
}

static void put_row(struct output *out, struct writer *w, const struct import_row *row)
{
	switch ((enum row_kind)row->kind) {
#define TEXT(member) text_in(out, w, row->member)
#define RECORD(event, ...)                                                                         \
	BUILDER_PUT(&w->builder, event, context_of_device(out, w, row->device), __VA_ARGS__)
#define PUT(list) put_##list(out, w, row)
#define ROW(symbol, event, event_type, group, attrs, record)                                       \
	case ROW_##symbol:                                                                         \
		record;                                                                            \
		break;
#include "dump/rows.def"
#undef ROW
#undef PUT
#undef RECORD
#undef TEXT
	case ROW_NONE:
	case ROW_END:
		break;
	}
}

/* ---- the whole trace ---- */

/*
 * A block whose free comes without an allocation before it lived already: it is allocated first of all, in the state that shows no
 * rows, so that sums change at its free as they did.
 */
static void put_older(struct output *out)
{
	const struct importer *importer = out->importer;
	struct map known = {0};
	struct writer *w = NULL;
	size_t i;

	for (i = 0; i < importer->row_count && out->error == 0; i++) {
		const struct import_row *row = &importer->rows[i];

		if (row->kind != ROW_MALLOC && row->kind != ROW_FREE)
			continue;
		if (row->kind == ROW_FREE && map_get(&known, live_key(row)) == NULL) {
			if (w == NULL) {
				w = writer_at(out, importer->rows[0].tid,
					      importer->rows[0].process);
				if (w == NULL)
					break;
				put_quiet_state(w, RECORDING_SHADOW);
			}
			put_alloc(out, w, context_of_block(out, row), row);
		}
		if (map_put(&known, live_key(row), 1) < 0)
			fail(out, -ENOMEM);
	}
	if (w != NULL)
		put_quiet_state(w, RECORDING_ON);
	map_fini(&known);
}

static int by_time(const void *a, const void *b)
{
	const struct import_row *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->file != y->file ? (x->file < y->file ? -1 : 1) : 0;
}

static bool is_of_process(const struct import_row *row)
{
	return row->device == DEVICE_UNKNOWN || row->kind == ROW_MARK ||
	       row->kind == ROW_RANGE_START || row->kind == ROW_RANGE_END || row->kind == ROW_STEP;
}

/* A row of no device, a mark or a step stands in the file of each; it happened once. */
static bool is_repeated(const struct import_row *row, const struct import_row *before)
{
	return is_of_process(row) && row->device == before->device &&
	       row->time_ns == before->time_ns && row->id == before->id &&
	       row->kind == before->kind && row->file != before->file;
}

/* True for rows that a process has at its end, behind the last thing that it did. */
static bool is_of_the_end(const struct import_row *row)
{
	return row->kind == ROW_ACL_INIT || row->kind == ROW_ACL_FINI ||
	       row->kind == ROW_START_TRACE || row->kind == ROW_STOP_TRACE ||
	       (row->kind == ROW_FREE && row->shadow);
}

/* Sorts the rows by time and leaves out repeated ones, and the frees that were made up when the process ended. */
static void sort_rows(struct importer *importer)
{
	struct import_row *rows = importer->rows;
	size_t count = importer->row_count, last = 0, from, to = 0;

	for (from = 1; from < count && by_time(&rows[from - 1], &rows[from]) <= 0; from++)
		;
	if (from < count)
		qsort(rows, count, sizeof(*rows), by_time);
	for (from = 0; from < count; from++) {
		if (!is_of_the_end(&rows[from]))
			last = from;
	}
	for (from = 0; from < count; from++) {
		if (from > last && rows[from].kind == ROW_FREE && rows[from].shadow)
			continue;
		if (to > 0 && is_repeated(&rows[from], &rows[to - 1]))
			continue;
		rows[to++] = rows[from];
	}
	importer->row_count = to;
}

/*
 * Whether the ends of ranges name them by their place, from 1: as most runtimes count. Otherwise an end is taken for that of
 * the range that began last.
 */
static bool ranges_are_counted(const struct importer *importer)
{
	uint64_t begun = 0;
	size_t i;

	for (i = 0; i < importer->row_count; i++) {
		const struct import_row *row = &importer->rows[i];

		begun += row->kind == ROW_RANGE_START;
		if (row->kind == ROW_RANGE_END && (row->number == 0 || row->number > begun))
			return false;
	}
	return true;
}

/* The header of a trace whose clock is the wall clock. */
static int put_header(struct output *out)
{
	const struct importer *importer = out->importer;
	char identity[128];
	int bytes =
		importer->dry[0] == '\0'
			? snprintf(identity, sizeof(identity), "program=imported")
			: snprintf(identity, sizeof(identity),
				   "program=imported%c" SESSION_DRY_KEY "=%s", '\0', importer->dry);
	struct trace_header *h = preamble_new(identity, (size_t)bytes + 1);
	uint64_t first = importer->row_count > 0 ? importer->rows[0].time_ns : 0;
	time_t seconds = (time_t)(first / 1000000000u);
	struct tm local;
	int r;

	if (h == NULL)
		return -ENOMEM;
	h->pid = importer->one_process ? importer->only_pid : importer->pids[0];
	h->realtime_ns = h->monotonic_ns = first;
	if (localtime_r(&seconds, &local) != NULL)
		h->utc_offset_s = (int32_t)local.tm_gmtoff;
	atomic_store(&h->state, TRACE_CLOSED);
	r = preamble_put(out->pack, h);
	free(h);
	return r;
}

static void flush_all(struct output *out)
{
	size_t k;

	for (k = 0; k < out->writer_count; k++) {
		builder_flush(&out->writers[k].builder);
		fail(out, out->writers[k].builder.error);
	}
}

/* Many threads with little each: their chunks go out early. */
static void bound_memory(struct output *out)
{
	size_t k, bytes = 0;

	for (k = 0; k < out->writer_count; k++)
		bytes += out->writers[k].builder.records.length;
	if (bytes > HELD_MAX)
		flush_all(out);
}

static void put_all(struct output *out)
{
	struct importer *importer = out->importer;
	size_t i;

	put_older(out);
	for (i = 0; i < importer->row_count && out->error == 0; i++) {
		const struct import_row *row = &importer->rows[i];
		struct writer *w = writer_at(out, row->tid, row->process);

		if (w == NULL)
			return;
		/* Of two records of one time the reader takes that of the lower writer first; what came first must stay first. */
		if (row->time_ns > out->now_ns)
			out->now_ns = row->time_ns;
		else if (w->builder.writer < out->last_writer)
			out->now_ns++;
		out->last_writer = w->builder.writer;
		w->builder.time_ns = out->now_ns;
		put_row(out, w, row);
		fail(out, w->builder.error);
		if (i % ROWS_PER_CHECK == 0)
			bound_memory(out);
	}
	flush_all(out);
}

static void output_fini(struct output *out)
{
	size_t i;

	for (i = 0; i < out->writer_count; i++) {
		builder_fini(&out->writers[i].builder);
		map_fini(&out->writers[i].contexts);
		map_fini(&out->writers[i].texts);
		row_stacks_fini(&out->writers[i].stacks);
	}
	free(out->writers);
	free(out->contexts);
	free(out->open_ranges);
	map_fini(&out->by_tid);
	map_fini(&out->context_known);
	map_fini(&out->live);
	map_fini(&out->totals);
	map_fini(&out->clocks);
	pack_writer_close(out->pack);
}

int importer_write(struct importer *importer, const char *path, int *out_fd,
		   struct mscope_error *err)
{
	struct output out = {.importer = importer};
	struct pack_block end = {.kind = PACK_END};
	int fd, r = pack_writer_open(path, &out.pack, err);

	(void)unlink(path);
	if (r < 0)
		return r;
	sort_rows(importer);
	out.now_ns = importer->row_count > 0 ? importer->rows[0].time_ns : 0;
	out.range_numbers = ranges_are_counted(importer);
	fail(&out, put_header(&out));
	put_all(&out);
	if (out.error == 0)
		fail(&out, pack_writer_put(out.pack, &end, ""));
	fd = out.error == 0 ? fcntl(pack_writer_fd(out.pack), F_DUPFD_CLOEXEC, 0) : -1;
	if (out.error == 0 && fd < 0)
		out.error = -errno;
	output_fini(&out);
	if (out.error == MSCOPE_E_LIMIT)
		return error_set(err, out.error, "rows of more than %u threads", WRITERS_MAX);
	if (out.error != 0)
		return error_set(err, out.error, "cannot write the temporary trace %s: %s", path,
				 mscope_status_str(out.error));
	*out_fd = fd;
	return 0;
}
