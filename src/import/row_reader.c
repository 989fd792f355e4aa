/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the texts of a row to struct import_row. What each kind of row has in its Attr stands in dump/rows.def; what takes more
 * than reading a key is in the functions read_LIST() below. Texts are kept once each.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "import/row.h"
#include "import/row_owners.h"

/* As long as a text of a trace may be. */
#define TEXT_MAX 4096u

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
	free(importer->figures);
	free(importer->row_ids);
	*importer = (struct importer){0};
}

/* ---- texts and numbers ---- */

/* The number of a text. 0, and `no_memory` set, when it cannot be kept. */
static uint32_t intern(struct importer *importer, const char *text, size_t length)
{
	struct map_key key = {hash_add(HASH_BEGIN, text, length), length};
	uint64_t *known;
	size_t offset;

	/* Texts of one hash stand one behind the other. */
	for (; (known = map_get(&importer->text_known, key)) != NULL; key.b += UINT64_C(1) << 32) {
		const char *other = importer->texts.data + *known - 1;

		if (strncmp(other, text, length) == 0 && other[length] == '\0')
			return (uint32_t)*known;
	}
	offset = importer->texts.length;
	if (offset <= UINT32_MAX - length - 2) {
		strbuf_add(&importer->texts, text, length);
		strbuf_add_char(&importer->texts, '\0');
		if (!strbuf_failed(&importer->texts) &&
		    map_put(&importer->text_known, key, offset + 1) == 0)
			return (uint32_t)offset + 1;
	}
	importer->no_memory = true;
	return 0;
}

/* A column with a number, N/A or nothing; false when it is something else. */
static bool read_optional(const struct import_field *field, uint64_t *out)
{
	if (field->text == NULL || field->length == 0 || strcmp(field->text, WORD_NONE) == 0)
		return true;
	return number_parse(field->text, out);
}

/* A value of Attr as a number; true when it is not there. */
static bool attr_number(const struct importer *importer, enum attr_key key, uint64_t *out)
{
	const char *value = importer->attr.value[key];

	return value == NULL || number_parse(value, out);
}

static uint32_t attr_text(struct importer *importer, enum attr_key key)
{
	const char *value = importer->attr.value[key];

	return value == NULL || *value == '\0' ? 0
					       : intern(importer, value, strnlen(value, TEXT_MAX));
}

static bool attr_flag(const struct importer *importer, enum attr_key key)
{
	const char *value = importer->attr.value[key];

	return value != NULL && strcmp(value, WORD_TRUE) == 0;
}

/* The column Ptr; in files that have none, the key. */
static bool read_address(const struct importer *importer, const struct import_field *ptr,
			 enum attr_key key, uint64_t *out)
{
	return ptr->text == NULL ? attr_number(importer, key, out) : read_optional(ptr, out);
}

/* ---- what takes more than a key: 0, or what is wrong ---- */

static void read_owner(struct importer *importer, struct import_row *row)
{
	const char *text = importer->attr.value[ATTR_owner];
	struct row_owner owner;

	if (text == NULL || *text == '\0')
		return;
	owner = row_owner_of(text, row->pool == POOL_hal);
	row->module = owner.module;
	if (owner.class_length > 0)
		row->class = intern(importer, owner.class,
				    owner.class_length < TEXT_MAX ? owner.class_length : TEXT_MAX);
	if (owner.label_length > 0)
		row->label = intern(importer, owner.label,
				    owner.label_length < TEXT_MAX ? owner.label_length : TEXT_MAX);
}

static const char *read_block(struct importer *importer, const struct import_field *fields,
			      struct import_row *row)
{
	if (row->pool == POOL_UNKNOWN)
		return "Event Type is not a known pool";
	/* The original calls both kinds of host memory HOST. */
	if (row->pool == POOL_host && attr_flag(importer, ATTR_pinned))
		row->pool = POOL_host_pinned;
	if (!read_address(importer, &fields[COLUMN_PTR], ATTR_addr, &row->address))
		return "Ptr is not an address";
	if (!attr_number(importer, ATTR_size, &row->size_bytes) || row->size_bytes > INT64_MAX)
		return "size is not a number";
	if (row->kind == ROW_MALLOC && importer->attr.value[ATTR_size] == NULL)
		return "size is missing";
	if (row->pool != POOL_host && !attr_number(importer, ATTR_total, &row->total_bytes))
		return "total is not a number";
	row->shadow = attr_flag(importer, ATTR_shadow);
	row->page = page_parse(importer->attr.value[ATTR_page_type]);
	row->block_kind = block_kind_parse(importer->attr.value[ATTR_alloc_type]);
	read_owner(importer, row);
	return NULL;
}

/* The end of a range names it by its number alone. */
static const char *read_range_end(struct importer *importer, const struct import_field *fields,
				  struct import_row *row)
{
	const char *name = fields[COLUMN_NAME].text;
	char text[32];
	size_t length;

	(void)importer;
	name += *name == '"';
	if (strncmp(name, RANGE_ENDS, strlen(RANGE_ENDS)) != 0)
		return NULL;
	name += strlen(RANGE_ENDS);
	length = strcspn(name, "\"");
	if (length == 0 || length >= sizeof(text))
		return NULL;
	memcpy(text, name, length);
	text[length] = '\0';
	row->name = 0;
	return number_parse(text, &row->number) ? NULL : "the id of the range is not a number";
}

static const char *read_step(struct importer *importer, const struct import_field *fields,
			     struct import_row *row)
{
	(void)importer;
	return number_parse(fields[COLUMN_NAME].text, &row->number) && row->number <= UINT32_MAX
		       ? NULL
		       : "Name is not the number of a step";
}

static const char *read_figures(struct importer *importer, const struct import_field *fields,
				struct import_row *row)
{
	struct import_figures figures = {UINT64_MAX, UINT64_MAX, UINT64_MAX,
					 UINT64_MAX, UINT64_MAX, UINT64_MAX};

	(void)fields;
	if (!attr_number(importer, ATTR_reserved, &figures.reserved) ||
	    !attr_number(importer, ATTR_max_reserved, &figures.max_reserved) ||
	    !attr_number(importer, ATTR_allocated, &figures.allocated) ||
	    !attr_number(importer, ATTR_max_allocated, &figures.max_allocated) ||
	    !attr_number(importer, ATTR_total, &figures.total) ||
	    !attr_number(importer, ATTR_free, &figures.free))
		return "a figure of the snapshot is not a number";
	if (ARRAY_RESERVE(importer->figures, importer->figure_room, importer->figure_count + 1) <
	    0) {
		importer->no_memory = true;
		return NULL;
	}
	row->number = importer->figure_count;
	importer->figures[importer->figure_count++] = figures;
	return NULL;
}

/* ---- the forms of values that rows.def names ---- */

#define READ_NUMBER(key, member)                                                                   \
	if (why == NULL && importer->attr.value[ATTR_##key] != NULL) {                             \
		if (number_parse(importer->attr.value[ATTR_##key], &number))                       \
			row->member = (__typeof__(row->member))number;                             \
		else                                                                               \
			why = #key " is not a number";                                             \
	}
#define READ_POINTER(key, member) READ_NUMBER(key, member)
#define READ_ADDRESS(key, member)                                                                  \
	if (why == NULL && !read_address(importer, &fields[COLUMN_PTR], ATTR_##key, &row->member)) \
		why = "Ptr is not an address";
#define READ_TEXT(key, member)	   row->member = attr_text(importer, ATTR_##key);
#define READ_LAYER(key, member)	   row->member = layer_parse(importer->attr.value[ATTR_##key]);
#define READ_BLOCK_ID(key, member) /* replay counts them anew */

/* What its kind of row has in Attr and elsewhere. NULL, or what is wrong. */
static const char *read_attrs(struct importer *importer, const struct import_field *fields,
			      struct import_row *row)
{
	const char *why = NULL;
	uint64_t number;

	switch ((enum row_kind)row->kind) {
#define ATTR(key, form, member) READ_##form(key, member)
#define READ(list)                                                                                 \
	if (why == NULL)                                                                           \
		why = read_##list(importer, fields, row);
#define WRITE(list)
#define ROW(symbol, event, event_type, group, attrs, record)                                       \
	case ROW_##symbol:                                                                         \
		attrs break;
#include "dump/rows.def"
#undef ROW
#undef WRITE
#undef READ
#undef ATTR
	case ROW_NONE:
	case ROW_END:
		break;
	}
	return why;
}

static void read_name(struct importer *importer, const struct import_field *field,
		      struct import_row *row)
{
	bool mark = row_is_mark((enum row_kind)row->kind);
	const char *text = field->text;
	size_t length = field->length < TEXT_MAX ? field->length : TEXT_MAX;

	/* The original's databases keep the quotes that its csv files have around marks. */
	if (mark && length >= 2 && text[0] == '"' && text[length - 1] == '"') {
		text++;
		length -= 2;
	}
	/* An empty message of a mark is one; whatever else is empty or N/A has no name. */
	if ((length == 0 && !mark) ||
	    (length == strlen(WORD_NONE) && memcmp(text, WORD_NONE, length) == 0))
		return;
	row->name = intern(importer, text, length);
}

/* The stack of an allocation decides which call site the block counts for. A text without a line has none, as "NA" has. */
static void read_stack(struct importer *importer, const struct import_field *field,
		       struct import_row *row)
{
	if (row->kind == ROW_MALLOC && field->text != NULL &&
	    memchr(field->text, '\n', field->length) != NULL)
		row->stack = intern(importer, field->text, field->length);
}

/* The columns that every row has. NULL, or what is wrong. */
static const char *read_columns(struct importer *importer, const struct import_field *fields,
				struct import_row *row, uint64_t *out_pid)
{
	uint64_t tid = 0;

	if (!number_parse(fields[COLUMN_TIME].text, &row->time_ns) || row->time_ns > INT64_MAX)
		return "Timestamp(ns) is not a time";
	row->id = importer->row_count;
	if (!read_optional(&fields[COLUMN_ID], &row->id))
		return "ID is not a number";
	if (!read_optional(&fields[COLUMN_TID], &tid) || tid > UINT32_MAX)
		return "Thread Id is not a number";
	row->tid = (uint32_t)tid;
	if (!read_optional(&fields[COLUMN_PID], out_pid) || *out_pid > INT32_MAX)
		return "Process Id is not a number";
	if (!device_parse(fields[COLUMN_DEVICE].text, &row->device))
		return "Device Id is not a device";
	if (!attr_parse(&importer->attr, fields[COLUMN_ATTR].text, fields[COLUMN_ATTR].length))
		return "Attr is malformed";
	if (importer->attr.value[ATTR_dry] != NULL && importer->dry[0] == '\0')
		(void)snprintf(importer->dry, sizeof(importer->dry), "%s",
			       importer->attr.value[ATTR_dry]);
	return NULL;
}

/* Numbers the process of a row. Several have the same addresses: those of the later ones are made different. */
static bool take_process(struct importer *importer, uint32_t pid, struct import_row *row)
{
	size_t i = 0;

	if (pid == 0)
		return true;
	while (i < importer->pid_count && importer->pids[i] != pid)
		i++;
	if (i == IMPORT_PROCESSES_MAX)
		return false;
	if (i == importer->pid_count)
		importer->pids[importer->pid_count++] = pid;
	row->process = (uint8_t)i;
	if (!importer->one_process && row_has_address((enum row_kind)row->kind))
		row->address ^= (uint64_t)i << 56;
	return true;
}

int importer_row(struct importer *importer, const struct import_field fields[COLUMN_COUNT],
		 const char **out_why)
{
	struct import_row row = {.file = importer->file,
				 .module = MODULE_UNKNOWN,
				 .total_bytes = UINT64_MAX,
				 .stream = UINT32_MAX,
				 .task = UINT32_MAX};
	uint64_t pid = 0;
	const char *why;
	int r;

	row.kind = (uint8_t)row_parse(fields[COLUMN_EVENT].text, fields[COLUMN_EVENT_TYPE].text,
				      &row.pool);
	if (row.kind == ROW_NONE) {
		importer->unknown++;
		return 0;
	}
	why = read_columns(importer, fields, &row, &pid);
	if (why == NULL) {
		read_name(importer, &fields[COLUMN_NAME], &row);
		read_stack(importer, &fields[COLUMN_PYTHON_STACK], &row);
		why = read_attrs(importer, fields, &row);
	}
	if (importer->no_memory)
		return -ENOMEM;
	if (why != NULL) {
		*out_why = why;
		return MSCOPE_E_DAMAGED;
	}
	if (!take_process(importer, (uint32_t)pid, &row)) {
		*out_why = "it is of another process";
		importer->too_many = true;
		return MSCOPE_E_DAMAGED;
	}
	if (importer->one_process && pid != 0) {
		if (importer->only_pid == 0)
			importer->only_pid = (uint32_t)pid;
		if (pid != importer->only_pid)
			return 0;
	}
	r = ARRAY_RESERVE(importer->rows, importer->row_room, importer->row_count + 1);
	if (r == 0)
		importer->rows[importer->row_count++] = row;
	return r;
}
