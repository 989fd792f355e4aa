/* SPDX-License-Identifier: Apache-2.0 */
#include "import/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/array.h"
#include "base/hash.h"
#include "trace/chunk.h"
#include "trace/context.h"
#include "trace/pack.h"
#include "trace/record.h"
#include "trace/session.h"
#include "trace/table.h"

const char *const import_columns[COLUMN_COUNT] = {
	[COLUMN_ID] = "ID",
	[COLUMN_EVENT] = "Event",
	[COLUMN_EVENT_TYPE] = "Event Type",
	[COLUMN_NAME] = "Name",
	[COLUMN_TIME] = "Timestamp(ns)",
	[COLUMN_PID] = "Process Id",
	[COLUMN_TID] = "Thread Id",
	[COLUMN_DEVICE] = "Device Id",
	[COLUMN_PTR] = "Ptr",
	[COLUMN_ATTR] = "Attr",
};

bool import_column_needed(enum import_column column)
{
	return column == COLUMN_EVENT || column == COLUMN_EVENT_TYPE || column == COLUMN_NAME ||
	       column == COLUMN_TIME || column == COLUMN_DEVICE || column == COLUMN_ATTR;
}

enum row_kind {
	KIND_NONE,
	KIND_MALLOC,
	KIND_FREE,
	KIND_ACCESS,	/* `detail`: enum access_kind */
	KIND_OPERATION, /* `detail`: enum operation_kind */
	KIND_LAUNCH,
	KIND_EXECUTE, /* `detail`: 1 began, 2 ended */
	KIND_MARK,    /* `detail`: as in the record */
	KIND_SYSTEM,  /* `detail`: as in the record */
	KIND_STATE,   /* `detail`: enum recording */
	KIND_STEP,
};

/* A row as it waits to be sorted. Texts are offsets + 1 into importer.texts, 0: none. */
struct import_row {
	uint64_t time_ns;
	uint64_t id;
	uint64_t address; /* or: range of an end, number of a step, workspace */
	uint64_t size_bytes;
	uint64_t total_bytes; /* UINT64_MAX: not told */
	uint32_t device;
	uint32_t tid;
	uint32_t name;
	uint32_t text[3]; /* path; or dtype, shape, format */
	uint32_t stream, task;
	uint32_t file;
	uint8_t kind; /* enum row_kind */
	uint8_t detail;
	uint8_t pool;	/* or enum layer */
	uint8_t page;	/* enum page_class */
	uint8_t handle; /* enum block_kind */
	bool shadow;
};

/* What the columns Event and Event Type say together; an empty type is any, decided by the pool. */
static const struct {
	const char *event, *type;
	uint8_t kind, detail, layer;
} kinds[] = {
	{"MALLOC", "", KIND_MALLOC, 0, 0},
	{"FREE", "", KIND_FREE, 0, 0},
	{"ACCESS", "READ", KIND_ACCESS, ACCESS_READ, 0},
	{"ACCESS", "WRITE", KIND_ACCESS, ACCESS_WRITE, 0},
	{"ACCESS", "UNKNOWN", KIND_ACCESS, ACCESS_UNKNOWN, 0},
	{"OP_LAUNCH", "ATEN_START", KIND_OPERATION, OPERATION_BEGINS, LAYER_ATEN},
	{"OP_LAUNCH", "ATEN_END", KIND_OPERATION, OPERATION_ENDED, LAYER_ATEN},
	{"OP_LAUNCH", "ATB_START", KIND_OPERATION, OPERATION_BEGINS, LAYER_ATB},
	{"OP_LAUNCH", "ATB_END", KIND_OPERATION, OPERATION_ENDED, LAYER_ATB},
	{"KERNEL_LAUNCH", "KERNEL_START", KIND_OPERATION, OPERATION_BEGINS, LAYER_ATB_KERNEL},
	{"KERNEL_LAUNCH", "KERNEL_END", KIND_OPERATION, OPERATION_ENDED, LAYER_ATB_KERNEL},
	{"KERNEL_LAUNCH", "KERNEL_LAUNCH", KIND_LAUNCH, 0, 0},
	{"KERNEL_LAUNCH", "KERNEL_EXECUTE_START", KIND_EXECUTE, 1, 0},
	{"KERNEL_LAUNCH", "KERNEL_EXECUTE_END", KIND_EXECUTE, 2, 0},
	{"MSTX", "MARK", KIND_MARK, 1, 0},
	{"MSTX", "RANGE_START", KIND_MARK, 2, 0},
	{"MSTX", "RANGE_END", KIND_MARK, 3, 0},
	{"SYSTEM", "ACL_INIT", KIND_SYSTEM, 1, 0},
	{"SYSTEM", "ACL_FINI", KIND_SYSTEM, 2, 0},
	{"SYSTEM", "START_TRACE", KIND_STATE, RECORDING_ON, 0},
	{"SYSTEM", "STOP_TRACE", KIND_STATE, RECORDING_SHADOW, 0},
	{"SYSTEM", "STEP", KIND_STEP, 0, 0},
};

static const struct {
	const char *type;
	uint8_t pool;
} pools[] = {
#define POOL(number, name, event_type, meaning) {event_type, number},
#include "trace/pools.def"
#undef POOL
};

void importer_init(struct importer *importer)
{
	*importer = (struct importer){0};
}

void importer_fini(struct importer *importer)
{
	free(importer->rows);
	strbuf_fini(&importer->texts);
	map_fini(&importer->text_known);
	attr_fini(&importer->attr);
	*importer = (struct importer){0};
}

/* ---- from text to a row ---- */

/* Words of old files have blanks and small letters ("acl init") where later ones have "ACL_INIT". */
static bool same_word(const char *text, const char *word)
{
	for (; *text != '\0' && *word != '\0'; text++, word++) {
		char c = *text == ' ' ? '_' : *text;

		if (c >= 'a' && c <= 'z')
			c = (char)(c - 'a' + 'A');
		if (c != *word)
			return false;
	}
	return *text == *word;
}

/* Decimal, or hexadecimal after 0x; a sign is passed over, since old files have sizes of frees below zero. */
static bool read_number(const char *text, uint64_t *out)
{
	char *end;

	if (*text == '-')
		text++;
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoull(text, &end, text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10);
	return *end == '\0' && errno == 0;
}

/* A column that may say N/A; false when it says something that is no number either. */
static bool read_optional(const struct import_field *field, uint64_t *out)
{
	if (field->text == NULL || field->length == 0 || strcmp(field->text, "N/A") == 0)
		return true;
	return read_number(field->text, out);
}

/* More than any machine has; the original writes numbers from 9999 on for none and for the host in places. */
#define DEVICE_MAX 4095

static bool read_device(const char *text, uint32_t *out)
{
	uint64_t number;

	if (strcmp(text, "cpu") == 0 || strcmp(text, "host") == 0) {
		*out = DEVICE_HOST;
	} else if (*text == '\0' || strcmp(text, "N/A") == 0) {
		*out = DEVICE_UNKNOWN;
	} else {
		if (!read_number(text, &number) || number > DEVICE_MAX)
			return false;
		*out = (uint32_t)number;
	}
	return true;
}

/* The number of a text, which is kept once. UINT32_MAX: no memory. */
static uint32_t intern(struct importer *importer, const char *text, size_t length)
{
	struct map_key key = {hash_add(HASH_BEGIN, text, length), length};
	uint64_t *known;
	size_t offset;

	/* Two texts of one sum stand one behind the other. */
	for (; (known = map_get(&importer->text_known, key)) != NULL; key.b += UINT64_C(1) << 32) {
		const char *other = importer->texts.data + *known - 1;

		if (strncmp(other, text, length) == 0 && other[length] == '\0')
			return (uint32_t)*known;
	}
	offset = importer->texts.length;
	if (offset > UINT32_MAX - length - 2)
		return UINT32_MAX;
	strbuf_add(&importer->texts, text, length);
	strbuf_add_char(&importer->texts, '\0');
	if (strbuf_failed(&importer->texts) || map_put(&importer->text_known, key, offset + 1) < 0)
		return UINT32_MAX;
	return (uint32_t)offset + 1;
}

/* As long as a text of a trace may be. */
#define TEXT_MAX 4096u

static uint32_t intern_cut(struct importer *importer, const char *text)
{
	size_t length = strnlen(text, TEXT_MAX);

	return *text == '\0' ? 0 : intern(importer, text, length);
}

static const char *take_name(struct importer *importer, const struct import_field *field,
			     struct import_row *row)
{
	const char *text = field->text;
	size_t length = field->length < TEXT_MAX ? field->length : TEXT_MAX;

	/* The original's databases keep the quotes that its csv files have around marks. */
	if (row->kind == KIND_MARK && length >= 2 && text[0] == '"' && text[length - 1] == '"') {
		text++;
		length -= 2;
	}
	/* An empty message of a mark is one; whatever else is empty or N/A has no name. */
	if ((length == 0 && row->kind != KIND_MARK) || (length == 3 && memcmp(text, "N/A", 3) == 0))
		return NULL;
	row->name = intern(importer, text, length);
	return NULL;
}

/* A value of Attr as a number; true when it is not there. */
static bool attr_number(const struct importer *importer, enum attr_key key, uint64_t *out)
{
	const char *value = importer->attr.value[key];

	return value == NULL || read_number(value, out);
}

static uint32_t attr_text(struct importer *importer, enum attr_key key)
{
	const char *value = importer->attr.value[key];

	return value == NULL ? 0 : intern_cut(importer, value);
}

static bool attr_is(const struct importer *importer, enum attr_key key, const char *text)
{
	const char *value = importer->attr.value[key];

	return value != NULL && strcmp(value, text) == 0;
}

static const char *take_block(struct importer *importer, const char *type,
			      const struct import_field *ptr, struct import_row *row)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(pools) && !same_word(type, pools[i].type); i++)
		;
	if (i == MSCOPE_COUNT(pools))
		return "its Event Type names no pool that is known";
	row->pool = pools[i].pool;
	/* The original calls both kinds of host memory HOST. */
	if (row->pool == POOL_host && attr_is(importer, ATTR_pinned, "true"))
		row->pool = POOL_host_pinned;
	if (!read_optional(ptr, &row->address) ||
	    (ptr->text == NULL && !attr_number(importer, ATTR_addr, &row->address)))
		return "its Ptr is no address";
	row->size_bytes = 0;
	row->total_bytes = UINT64_MAX;
	if (!attr_number(importer, ATTR_size, &row->size_bytes) || row->size_bytes > INT64_MAX)
		return "its size is no number";
	if (row->kind == KIND_MALLOC && importer->attr.value[ATTR_size] == NULL)
		return "it has no size";
	if (row->pool != POOL_host && !attr_number(importer, ATTR_total, &row->total_bytes))
		return "its total is no number";
	row->shadow = attr_is(importer, ATTR_shadow, "true");
	row->page = attr_is(importer, ATTR_page_type, "huge")	  ? PAGE_HUGE
		    : attr_is(importer, ATTR_page_type, "giant")  ? PAGE_GIANT
		    : attr_is(importer, ATTR_page_type, "normal") ? PAGE_NORMAL
								  : PAGE_UNKNOWN;
	row->handle = attr_is(importer, ATTR_alloc_type, "create") ? BLOCK_CREATE : BLOCK_ALLOC;
	return NULL;
}

static const char *take_access(struct importer *importer, const struct import_field *ptr,
			       struct import_row *row)
{
	if (!read_optional(ptr, &row->address))
		return "its Ptr is no address";
	if (!attr_number(importer, ATTR_size, &row->size_bytes))
		return "its size is no number";
	row->pool = attr_is(importer, ATTR_type, "ATB") ? LAYER_ATB : LAYER_ATEN;
	row->text[0] = attr_text(importer, ATTR_dtype);
	row->text[1] = attr_text(importer, ATTR_shape);
	row->text[2] = attr_text(importer, ATTR_format);
	return NULL;
}

static const char *take_kernel(struct importer *importer, struct import_row *row)
{
	uint64_t stream = UINT32_MAX, task = UINT32_MAX;

	if (!attr_number(importer, ATTR_streamId, &stream) ||
	    !attr_number(importer, ATTR_taskId, &task))
		return "its stream or task is no number";
	row->stream = (uint32_t)stream;
	row->task = (uint32_t)task;
	return NULL;
}

/* The end of a range names it by its number alone. */
static const char *take_range_end(struct import_row *row, const char *name)
{
	static const char before[] = "Range end from id ";
	char text[32];
	size_t length;

	name += *name == '"';
	if (strncmp(name, before, sizeof(before) - 1) != 0)
		return NULL;
	name += sizeof(before) - 1;
	length = strcspn(name, "\"");
	if (length == 0 || length >= sizeof(text))
		return NULL;
	memcpy(text, name, length);
	text[length] = '\0';
	row->name = 0;
	return read_number(text, &row->address) ? NULL : "the id of its range is no number";
}

static const char *take_kind(struct importer *importer, const struct import_field *fields,
			     struct import_row *row)
{
	const char *name = fields[COLUMN_NAME].text;

	switch (row->kind) {
	case KIND_MALLOC:
	case KIND_FREE:
		return take_block(importer, fields[COLUMN_EVENT_TYPE].text, &fields[COLUMN_PTR],
				  row);
	case KIND_ACCESS:
		return take_access(importer, &fields[COLUMN_PTR], row);
	case KIND_OPERATION:
		row->text[0] = attr_text(importer, ATTR_path);
		if (!attr_number(importer, ATTR_workspace_ptr, &row->address) ||
		    !attr_number(importer, ATTR_workspace_size, &row->size_bytes))
			return "its workspace is no number";
		return NULL;
	case KIND_LAUNCH:
	case KIND_EXECUTE:
		return take_kernel(importer, row);
	case KIND_MARK:
		return row->detail == 3 ? take_range_end(row, name) : NULL;
	case KIND_STEP:
		return read_number(name, &row->address) && row->address <= UINT32_MAX
			       ? NULL
			       : "the number of its step is none";
	default:
		return NULL;
	}
}

/* Finds the kind of a row; false when there is none like it. */
static bool find_kind(const struct import_field *fields, struct import_row *row)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(kinds); i++) {
		if (same_word(fields[COLUMN_EVENT].text, kinds[i].event) &&
		    (kinds[i].type[0] == '\0' ||
		     same_word(fields[COLUMN_EVENT_TYPE].text, kinds[i].type))) {
			row->kind = kinds[i].kind;
			row->detail = kinds[i].detail;
			row->pool = kinds[i].layer;
			return true;
		}
	}
	return false;
}

static const char *take_columns(struct importer *importer, const struct import_field *fields,
				struct import_row *row)
{
	uint64_t tid = 0;

	if (!read_number(fields[COLUMN_TIME].text, &row->time_ns) || row->time_ns > INT64_MAX)
		return "its Timestamp(ns) is no time";
	row->id = importer->row_count;
	if (!read_optional(&fields[COLUMN_ID], &row->id))
		return "its ID is no number";
	if (!read_optional(&fields[COLUMN_TID], &tid) || tid > UINT32_MAX)
		return "its Thread Id is no number";
	row->tid = (uint32_t)tid;
	if (!read_device(fields[COLUMN_DEVICE].text, &row->device))
		return "its Device Id is no device";
	if (!attr_parse(&importer->attr, fields[COLUMN_ATTR].text, fields[COLUMN_ATTR].length))
		return "its Attr does not hold";
	return NULL;
}

int importer_row(struct importer *importer, const struct import_field fields[COLUMN_COUNT],
		 const char **out_why)
{
	struct import_row row = {.file = importer->file, .total_bytes = UINT64_MAX};
	uint64_t pid = 0;
	const char *why;
	int r;

	if (!find_kind(fields, &row)) {
		importer->unknown++;
		return 0;
	}
	why = take_columns(importer, fields, &row);
	if (why == NULL)
		why = take_name(importer, &fields[COLUMN_NAME], &row);
	if (why == NULL)
		why = take_kind(importer, fields, &row);
	if (why == NULL && (!read_optional(&fields[COLUMN_PID], &pid) || pid > INT32_MAX))
		why = "its Process Id is no number";
	if (row.name == UINT32_MAX || row.text[0] == UINT32_MAX || row.text[1] == UINT32_MAX ||
	    row.text[2] == UINT32_MAX)
		return -ENOMEM;
	if (why != NULL) {
		*out_why = why;
		return MSCOPE_E_DAMAGED;
	}
	if (importer->pid == 0)
		importer->pid = (uint32_t)pid;
	else if (pid != 0 && pid != importer->pid && importer->other_pid == 0)
		importer->other_pid = (uint32_t)pid;
	r = array_reserve(&importer->rows, &importer->row_room, importer->row_count + 1,
			  sizeof(*importer->rows));
	if (r == 0)
		importer->rows[importer->row_count++] = row;
	return r;
}

/* ---- from rows to records ---- */

/* Chunks of an ordinary trace are as large. */
#define CHUNK_FILL  (TRACE_CHUNK_BYTES - CHUNK_HEADER_BYTES - 8192u)
#define WRITERS_MAX 60000u /* replay knows a few more */
#define HELD_MAX    (64u << 20)

/* Threads of the file become writers of the trace: numbers of contexts and texts are their own. */
struct writer {
	uint32_t tid;
	uint32_t sequence;
	struct strbuf records;
	uint64_t chunk_ns, base_ns;
	struct map contexts; /* index of the context -> its number here */
	struct map texts;    /* text -> its number here */
};

struct output {
	struct importer *importer;
	struct pack_writer *pack;
	struct writer *writers;
	size_t writer_count, writer_room;
	struct map by_tid;
	struct context *contexts;
	size_t context_count, context_room;
	struct map context_known; /* pool, kind, page and device -> index */
	struct map live;	  /* pool, address -> context */
	struct map totals;	  /* pool, device -> what was last said */
	struct map clocks;	  /* devices whose clock is told */
	uint64_t *open_ranges;	  /* numbers of ranges that have begun, newest last */
	size_t open_count, open_room;
	uint64_t ranges;    /* begun so far */
	bool range_numbers; /* the file's numbers are those of our counting */
	uint64_t now_ns;
	uint32_t last_writer;
	size_t held; /* bytes of records that are not in the file yet */
	int error;
};

static void fail(struct output *out, int error)
{
	if (out->error == 0)
		out->error = error;
}

static void send(struct output *out, struct writer *w)
{
	struct pack_block meta = {.kind = PACK_CHUNK,
				  .raw_bytes = (uint32_t)w->records.length,
				  .writer = (uint32_t)(w - out->writers) + 1,
				  .sequence = w->sequence,
				  .base_ns = w->chunk_ns};

	if (w->records.length == 0)
		return;
	if (strbuf_failed(&w->records))
		fail(out, -ENOMEM);
	if (out->error == 0)
		fail(out, pack_writer_put(out->pack, &meta, w->records.data));
	w->sequence++;
	out->held -= w->records.length;
	strbuf_reset(&w->records);
}

/* Makes room for a record of this length at the present time, and returns its word 0. */
static uint64_t begin_record(struct output *out, struct writer *w, uint32_t type, uint32_t context,
			     size_t bytes)
{
	if (w->records.length + bytes > CHUNK_FILL)
		send(out, w);
	if (w->records.length == 0)
		w->chunk_ns = w->base_ns = out->now_ns;
	if (out->now_ns - w->base_ns > UINT32_MAX) {
		uint64_t base[] = {record_word0(EVENT_time_base, 0, 0), out->now_ns};

		strbuf_add(&w->records, base, sizeof(base));
		out->held += sizeof(base);
		w->base_ns = out->now_ns;
	}
	out->held += bytes;
	return record_word0(type, context, (uint32_t)(out->now_ns - w->base_ns));
}

static void put(struct output *out, struct writer *w, uint32_t type, uint32_t context,
		uint64_t *words, size_t bytes)
{
	words[0] = begin_record(out, w, type, context, bytes);
	strbuf_add(&w->records, words, bytes);
}

/* PUT(out, w, event, context, .field = value, ...): a record of fixed length. */
#define PUT(out, w, event, context, ...)                                                           \
	do {                                                                                       \
		struct event_##event in_ = {__VA_ARGS__};                                          \
		uint64_t words_[EVENT_BYTES_##event / 8];                                          \
		event_##event##_encode(words_, &in_);                                              \
		put(out, w, EVENT_##event, context, words_, sizeof(words_));                       \
	} while (0)

static struct writer *writer_at(struct output *out, uint32_t tid)
{
	uint64_t *known = map_get(&out->by_tid, (struct map_key){tid, 0});
	struct writer *w;

	if (known != NULL)
		return &out->writers[*known];
	if (out->writer_count == WRITERS_MAX) {
		fail(out, MSCOPE_E_LIMIT);
		return NULL;
	}
	if (array_reserve(&out->writers, &out->writer_room, out->writer_count + 1,
			  sizeof(*out->writers)) < 0 ||
	    map_put(&out->by_tid, (struct map_key){tid, 0}, out->writer_count) < 0) {
		fail(out, -ENOMEM);
		return NULL;
	}
	w = &out->writers[out->writer_count++];
	*w = (struct writer){.tid = tid};
	PUT(out, w, thread, 0, .tid = tid);
	return w;
}

/* The number of a text among those of the writer, defined now if it is new. */
static uint32_t text_in(struct output *out, struct writer *w, uint32_t text)
{
	const char *start;
	uint64_t *known, words[EVENT_BYTES_text_def / 8];
	struct event_text_def def;
	size_t length, padded;

	if (text == 0)
		return 0;
	known = map_get(&w->texts, (struct map_key){text, 0});
	if (known != NULL)
		return (uint32_t)*known;
	start = out->importer->texts.data + text - 1;
	length = strlen(start);
	padded = (length + 7) & ~(size_t)7;
	def = (struct event_text_def){
		.bytes = sizeof(words) + padded, .id = w->texts.count + 1, .text_bytes = length};
	if (map_put(&w->texts, (struct map_key){text, 0}, def.id) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	event_text_def_encode(words, &def);
	words[0] = begin_record(out, w, EVENT_text_def, 0, sizeof(words) + padded);
	strbuf_add(&w->records, words, sizeof(words));
	strbuf_add(&w->records, start, length);
	strbuf_add(&w->records, "\0\0\0\0\0\0\0", padded - length);
	return (uint32_t)def.id;
}

/* Index of a context, new or known. */
static uint32_t context_of(struct output *out, uint8_t pool, uint8_t handle, uint8_t page,
			   uint32_t device)
{
	struct map_key key = {(uint64_t)pool << 16 | (uint64_t)handle << 8 | page, device};
	uint64_t *known = map_get(&out->context_known, key);

	if (known != NULL)
		return (uint32_t)*known;
	if (array_reserve(&out->contexts, &out->context_room, out->context_count + 1,
			  sizeof(*out->contexts)) < 0 ||
	    map_put(&out->context_known, key, out->context_count) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	out->contexts[out->context_count] = (struct context){.pool = pool,
							     .kind = handle,
							     .page = page,
							     .vendor = VENDOR_ASCEND,
							     .device = device,
							     .module = MODULE_UNKNOWN};
	return (uint32_t)out->context_count++;
}

/* Its number among the writer's contexts, defined now if it is new. */
static uint32_t context_in(struct output *out, struct writer *w, uint32_t context)
{
	uint64_t *known = map_get(&w->contexts, (struct map_key){context, 0});
	const struct context *c;
	uint32_t id = (uint32_t)w->contexts.count + 1;

	if (known != NULL)
		return (uint32_t)*known;
	if (out->error != 0)
		return 0;
	if (id > CONTEXT_MAX || map_put(&w->contexts, (struct map_key){context, 0}, id) < 0) {
		fail(out, -ENOMEM);
		return 0;
	}
	c = &out->contexts[context];
	PUT(out, w, context_def, 0, .id = id, .pool = c->pool, .kind = c->kind, .page = c->page,
	    .vendor = c->vendor, .device = c->device, .module = c->module);
	return id;
}

static uint32_t context_of_device(struct output *out, struct writer *w, uint32_t device)
{
	return context_in(out, w, context_of(out, POOL_UNKNOWN, BLOCK_ALLOC, PAGE_UNKNOWN, device));
}

/* The driver's pools are one space: a file does not always say which of them a free means. */
static struct map_key live_key(const struct import_row *row)
{
	uint8_t pool = row->pool == POOL_host_pinned ? POOL_hal : row->pool;

	return (struct map_key){pool, row->address};
}

static void put_alloc(struct output *out, struct writer *w, uint32_t context,
		      const struct import_row *row)
{
	uint32_t id = context_in(out, w, context);

	if (row->size_bytes <= SIZE_NARROW_MAX)
		PUT(out, w, block_alloc, id, .address = row->address,
		    .size_bytes = row->size_bytes);
	else
		PUT(out, w, block_alloc_wide, id, .address = row->address,
		    .size_bytes = row->size_bytes);
	if (map_put(&out->live, live_key(row), context) < 0)
		fail(out, -ENOMEM);
}

/* What the pool has reserved, whenever a row tells something new. */
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
	PUT(out, w, pool_total,
	    context_in(out, w, context_of(out, row->pool, BLOCK_ALLOC, PAGE_UNKNOWN, row->device)),
	    .reserved_bytes = row->total_bytes);
}

static void put_malloc(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of(out, row->pool, row->handle, row->page, row->device);

	put_total(out, w, row);
	/* Promoted by start(): it lived before, and only shows from here on. */
	if (row->shadow)
		PUT(out, w, state, 0, .state = RECORDING_SHADOW, .quiet = 1);
	put_alloc(out, w, context, row);
	if (row->shadow)
		PUT(out, w, state, 0, .state = RECORDING_ON, .quiet = 1);
}

static void put_free(struct output *out, struct writer *w, const struct import_row *row)
{
	uint64_t context;

	put_total(out, w, row);
	/* Blocks without a row of their allocation live since put_older(). */
	if (!map_remove(&out->live, live_key(row), &context))
		return;
	PUT(out, w, block_free, context_in(out, w, (uint32_t)context), .address = row->address);
}

/* A device whose counter counts our nanoseconds. */
static void put_clock(struct output *out, struct writer *w, uint32_t device)
{
	struct map_key key = {device, 0};

	if (map_get(&out->clocks, key) != NULL)
		return;
	if (map_put(&out->clocks, key, 1) < 0)
		fail(out, -ENOMEM);
	PUT(out, w, device_clock, context_of_device(out, w, device), .counter = out->now_ns,
	    .frequency_hz = 1000000000u);
}

static void put_mark(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of_device(out, w, row->device);
	uint64_t range = 0;
	uint32_t text = 0;

	if (row->detail == 2) {
		range = ++out->ranges;
		if (!out->range_numbers &&
		    array_reserve(&out->open_ranges, &out->open_room, out->open_count + 1,
				  sizeof(*out->open_ranges)) < 0)
			fail(out, -ENOMEM);
		else if (!out->range_numbers)
			out->open_ranges[out->open_count++] = range;
	} else if (row->detail == 3) {
		range = row->address;
		if (!out->range_numbers && out->open_count > 0)
			range = out->open_ranges[--out->open_count];
	}
	if (row->detail != 3)
		text = text_in(out, w, row->name);
	PUT(out, w, mark, context, .text = text, .kind = row->detail, .range = range,
	    .stream = UINT32_MAX);
}

static void put_operation(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of_device(out, w, row->device);
	uint32_t name = text_in(out, w, row->name), path = text_in(out, w, row->text[0]);

	PUT(out, w, operation, context, .name = name, .kind = row->detail, .layer = row->pool,
	    .path = path, .workspace = row->address, .workspace_bytes = row->size_bytes);
}

static void put_access(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context = context_of_device(out, w, row->device);
	uint32_t name = text_in(out, w, row->name), dtype = text_in(out, w, row->text[0]);
	uint32_t shape = text_in(out, w, row->text[1]), format = text_in(out, w, row->text[2]);

	PUT(out, w, access, context, .address = row->address, .size_bytes = row->size_bytes,
	    .name = name, .kind = row->detail, .layer = row->pool, .dtype = dtype, .shape = shape,
	    .format = format);
}

static void put_row(struct output *out, struct writer *w, const struct import_row *row)
{
	uint32_t context, name;

	switch (row->kind) {
	case KIND_MALLOC:
		put_malloc(out, w, row);
		break;
	case KIND_FREE:
		put_free(out, w, row);
		break;
	case KIND_ACCESS:
		put_access(out, w, row);
		break;
	case KIND_OPERATION:
		put_operation(out, w, row);
		break;
	case KIND_LAUNCH:
		context = context_of_device(out, w, row->device);
		name = text_in(out, w, row->name);
		PUT(out, w, kernel_launch, context, .name = name, .stream = row->stream,
		    .task = row->task);
		break;
	case KIND_EXECUTE:
		put_clock(out, w, row->device);
		PUT(out, w, kernel_execute, context_of_device(out, w, row->device),
		    .stream = row->stream, .task = row->task, .counter = row->time_ns,
		    .kind = row->detail);
		break;
	case KIND_MARK:
		put_mark(out, w, row);
		break;
	case KIND_SYSTEM:
		PUT(out, w, system, context_of_device(out, w, row->device), .kind = row->detail);
		break;
	case KIND_STATE:
		PUT(out, w, state, 0, .state = row->detail);
		break;
	case KIND_STEP:
		PUT(out, w, step, context_of_device(out, w, row->device), .number = row->address);
		break;
	default:
		break;
	}
}

/*
 * A block whose free comes without an allocation before it lived already: it is handed out first of all, in the state in which
 * nobody is shown it, so that sums change at its free as they did.
 */
static void put_older(struct output *out)
{
	const struct importer *importer = out->importer;
	struct map known = {0};
	struct writer *w = NULL;
	size_t i;

	for (i = 0; i < importer->row_count && out->error == 0; i++) {
		const struct import_row *row = &importer->rows[i];

		if (row->kind != KIND_MALLOC && row->kind != KIND_FREE)
			continue;
		if (row->kind == KIND_FREE && map_get(&known, live_key(row)) == NULL) {
			if (w == NULL) {
				w = writer_at(out, importer->rows[0].tid);
				if (w == NULL)
					break;
				PUT(out, w, state, 0, .state = RECORDING_SHADOW, .quiet = 1);
			}
			put_alloc(out, w,
				  context_of(out, row->pool, row->handle, row->page, row->device),
				  row);
		}
		if (map_put(&known, live_key(row), 1) < 0)
			fail(out, -ENOMEM);
	}
	if (w != NULL)
		PUT(out, w, state, 0, .state = RECORDING_ON, .quiet = 1);
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

/* A row of no device stands in the file of each; it happened once. */
static bool is_repeated(const struct import_row *row, const struct import_row *before)
{
	return row->device == DEVICE_UNKNOWN && before->device == DEVICE_UNKNOWN &&
	       row->time_ns == before->time_ns && row->id == before->id &&
	       row->kind == before->kind && row->file != before->file;
}

/* Rows in the order of time, each once, without the frees that were made up when the process ended. */
static void settle(struct importer *importer)
{
	struct import_row *rows = importer->rows;
	size_t count = importer->row_count, last = 0, from, to = 0;

	if (count > 1)
		qsort(rows, count, sizeof(*rows), by_time);
	for (from = 0; from < count; from++) {
		if (rows[from].kind != KIND_SYSTEM && rows[from].kind != KIND_STATE &&
		    !(rows[from].kind == KIND_FREE && rows[from].shadow))
			last = from;
	}
	for (from = 0; from < count; from++) {
		if (from > last && rows[from].kind == KIND_FREE && rows[from].shadow)
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

		if (row->kind != KIND_MARK)
			continue;
		begun += row->detail == 2;
		if (row->detail == 3 && (row->address == 0 || row->address > begun))
			return false;
	}
	return true;
}

/* The header of a trace whose clock is the wall clock. */
static int put_header(struct output *out)
{
	static const char identity[] = "program=imported";
	const struct importer *importer = out->importer;
	struct trace_header *h = aligned_alloc(_Alignof(struct trace_header), TRACE_HEADER_BYTES);
	struct pack_block meta = {.kind = PACK_HEADER, .raw_bytes = TRACE_HEADER_BYTES};
	uint64_t first = importer->row_count > 0 ? importer->rows[0].time_ns : 0;
	time_t seconds = (time_t)(first / 1000000000u);
	struct tm local;
	int r;

	if (h == NULL)
		return -ENOMEM;
	memset((void *)h, 0, TRACE_HEADER_BYTES);
	trace_header_init(h);
	h->pid = importer->pid;
	h->realtime_ns = h->monotonic_ns = first;
	if (localtime_r(&seconds, &local) != NULL)
		h->utc_offset_s = (int32_t)local.tm_gmtoff;
	h->table_bytes = (uint32_t)trace_table_bytes();
	memcpy((char *)h + TRACE_TABLE_AT, trace_table_text(), h->table_bytes);
	h->identity_bytes = sizeof(identity);
	memcpy((char *)h + TRACE_IDENTITY_AT, identity, sizeof(identity));
	atomic_store(&h->state, TRACE_CLOSED);
	r = pack_writer_put(out->pack, &meta, h);
	free(h);
	return r;
}

static void put_all(struct output *out)
{
	struct importer *importer = out->importer;
	size_t i, k;

	put_older(out);
	for (i = 0; i < importer->row_count && out->error == 0; i++) {
		const struct import_row *row = &importer->rows[i];
		struct writer *w = writer_at(out, row->tid);
		uint32_t number;

		if (w == NULL)
			return;
		number = (uint32_t)(w - out->writers);
		/* Of two records of one time the reader takes that of the lower writer first; what came first must stay first. */
		if (row->time_ns > out->now_ns)
			out->now_ns = row->time_ns;
		else if (number < out->last_writer)
			out->now_ns++;
		out->last_writer = number;
		put_row(out, w, row);
		/* Many threads with little each: their chunks go out early. */
		for (k = 0; out->held > HELD_MAX && k < out->writer_count; k++)
			send(out, &out->writers[k]);
	}
	for (k = 0; k < out->writer_count; k++)
		send(out, &out->writers[k]);
}

static void output_fini(struct output *out)
{
	size_t i;

	for (i = 0; i < out->writer_count; i++) {
		strbuf_fini(&out->writers[i].records);
		map_fini(&out->writers[i].contexts);
		map_fini(&out->writers[i].texts);
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
	settle(importer);
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
