/* SPDX-License-Identifier: Apache-2.0 */
#include "sink/attr.h"

#include "base/json.h"

struct attr {
	struct strbuf *out;
	enum attr_style style;
	bool some; /* a key stands already */
};

static void add_key(struct attr *attr, const char *key)
{
	strbuf_add_char(attr->out, attr->some ? ',' : '{');
	attr->some = true;
	if (attr->style == ATTR_JSON) {
		strbuf_add_char(attr->out, '"');
		strbuf_add_str(attr->out, key);
		strbuf_add(attr->out, "\":", 2);
	} else {
		strbuf_add_str(attr->out, key);
		strbuf_add_char(attr->out, ':');
	}
}

static void begin_value(struct attr *attr, const char *key)
{
	add_key(attr, key);
	if (attr->style == ATTR_JSON)
		strbuf_add_char(attr->out, '"');
}

static void end_value(struct attr *attr)
{
	if (attr->style == ATTR_JSON)
		strbuf_add_char(attr->out, '"');
}

static void add_number(struct attr *attr, const char *key, uint64_t value)
{
	begin_value(attr, key);
	strbuf_add_u64(attr->out, value);
	end_value(attr);
}

/* Left out when unknown. */
static void add_known(struct attr *attr, const char *key, uint64_t value)
{
	if (value != UINT64_MAX)
		add_number(attr, key, value);
}

/* A word of ours: needs no quoting in either style. */
static void add_word(struct attr *attr, const char *key, const char *word)
{
	begin_value(attr, key);
	strbuf_add_str(attr->out, word);
	end_value(attr);
}

/* A text of the program's own; left out when it is not told. */
static void add_text(struct attr *attr, const char *key, const char *text)
{
	if (text == NULL)
		return;
	add_key(attr, key);
	if (attr->style == ATTR_JSON) {
		json_quote(attr->out, text);
		return;
	}
	for (; *text != '\0'; text++) {
		strbuf_add_char(attr->out, *text);
		if (*text == '"')
			strbuf_add_char(attr->out, '"');
	}
}

static void add_address(struct attr *attr, const char *key, uint64_t address)
{
	begin_value(attr, key);
	strbuf_add_hex(attr->out, address, 16);
	end_value(attr);
}

static void add_block(struct attr *attr, const struct row *row)
{
	static const char *const pages[] = {[PAGE_UNKNOWN] = "unknown",
					    [PAGE_NORMAL] = "normal",
					    [PAGE_HUGE] = "huge",
					    [PAGE_GIANT] = "giant"};
	const struct context *context = row->context;

	add_number(attr, "allocation_id", row->block->allocation_id);
	add_address(attr, "addr", row->block->address);
	add_number(attr, "size", row->block->size_bytes);
	if (row->shadow) {
		add_word(attr, "shadow", "true");
	} else if (context->pool == POOL_host) {
		/* No pool and no driver behind CPU tensors: what lives of them is the total. */
		add_number(attr, "total", row->used_bytes);
	} else {
		if (context->pool == POOL_host_pinned)
			add_word(attr, "pinned", "true");
		add_number(attr, "used", row->used_bytes);
		add_known(attr, "total", row->reserved_bytes);
		add_known(attr, "process_used", row->process_bytes);
		add_known(attr, "device_used", row->device_bytes);
	}
	if (row->owner != NULL)
		add_text(attr, "owner", row->owner);
	if (row->inefficient != 0) {
		begin_value(attr, "inefficient_type");
		inefficiency_text(row->inefficient, attr->out);
		end_value(attr);
	}
	if (row->kind == ROW_MALLOC && context->pool == POOL_hal) {
		add_word(attr, "page_type",
			 pages[context->page < MSCOPE_COUNT(pages) ? context->page : PAGE_UNKNOWN]);
		add_word(attr, "alloc_type", context->kind == BLOCK_CREATE ? "create" : "alloc");
	}
}

static void add_access(struct attr *attr, const struct row *row)
{
	const char *type = row->layer == LAYER_ATEN ? "PTA" : "ATB";

	/*
	 * Memory that nobody recorded has no number. The key is left out then: a reader that groups by it, as the viewer
	 * does, would put all such accesses into one block that never was.
	 */
	if (row->block != NULL)
		add_number(attr, "allocation_id", row->block->allocation_id);
	add_address(attr, "addr", row->address);
	add_number(attr, "size", row->size_bytes);
	add_word(attr, "type", row->context->device == DEVICE_HOST ? "HOST" : type);
	add_text(attr, "dtype", row->dtype);
	add_text(attr, "format", row->format);
	add_text(attr, "shape", row->shape);
}

static void add_operation(struct attr *attr, const struct row *row)
{
	add_text(attr, "path", row->path);
	if (row->layer != LAYER_ATB)
		return;
	/* Not the address of a block of ours: spelled as the program prints a pointer, 0 for none. */
	begin_value(attr, "workspace_ptr");
	if (row->workspace == 0)
		strbuf_add_char(attr->out, '0');
	else
		strbuf_add_hex(attr->out, row->workspace, 1);
	end_value(attr);
	add_number(attr, "workspace_size", row->size_bytes);
}

void attr_add(struct strbuf *out, enum attr_style style, const struct row *row)
{
	struct attr attr = {.out = out, .style = style};

	switch (row->kind) {
	case ROW_MALLOC:
	case ROW_FREE:
		add_block(&attr, row);
		break;
	case ROW_START_TRACE:
		if (row->total_bytes != 0) {
			add_number(&attr, "free", row->total_bytes - row->device_bytes);
			add_number(&attr, "total", row->total_bytes);
		}
		break;
	case ROW_KERNEL_LAUNCH:
	case ROW_KERNEL_BEGIN:
	case ROW_KERNEL_END:
		add_number(&attr, "streamId", row->stream);
		add_number(&attr, "taskId", row->task);
		break;
	case ROW_ATB_START:
	case ROW_ATB_END:
	case ROW_ATB_KERNEL_START:
	case ROW_ATB_KERNEL_END:
		add_operation(&attr, row);
		break;
	case ROW_READ:
	case ROW_WRITE:
	case ROW_ACCESS:
		add_access(&attr, row);
		break;
	default:
		break;
	}
	if (attr.some)
		strbuf_add_char(out, '}');
}
