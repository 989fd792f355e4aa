/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row is written in place, by a pointer that moves on: room for the longest row there can be was made before. Each style is a
 * copy of the same code with `json` known to the compiler, so that a key is a few stores and no branch. Every key is written
 * behind a comma; the first comma becomes the brace.
 */
#include "sink/attr_writer.h"

#include <stdio.h>

#include "base/digits.h"
#include "base/json.h"
#include "dump/csv_text.h"
#include "replay/figures.h"
#include "replay/ooms.h"

/* A number or a word, with all that stands between keys and values. */
#define VALUE_BYTES (DIGITS_ROOM + 16u)

/* The keys of a list below, in JSON, without texts of the program's own. */
#define LIST_BYTES 1024u

#define PUT_LITERAL(text) (memcpy(to, text, sizeof(text) - 1), to += sizeof(text) - 1)

/* A value that needs no quoting in either style; `put` writes it at `to` and returns its end. */
#define PUT_VALUE(key, put)                                                                        \
	do {                                                                                       \
		if (json)                                                                          \
			PUT_LITERAL(",\"" #key "\":\"");                                           \
		else                                                                               \
			PUT_LITERAL("," #key ":");                                                 \
		to = (put);                                                                        \
		if (json)                                                                          \
			*to++ = '"';                                                               \
	} while (0)

static inline char *put_word(char *to, const char *word)
{
	while (*word != '\0')
		*to++ = *word++;
	return to;
}

/* Column + 1 of a key; constant, so that the compiler knows it for each key. */
static const uint8_t column_of[ATTR_KEY_COUNT] = {
#define NUMBER(key, column) [ATTR_##key] = NUMBER_##column + 1,
	ATTR_NUMBERS(NUMBER)
#undef NUMBER
};

/* ---- the forms of values that rows.def names ---- */

#define WRITE_NUMBER(key, member)                                                                  \
	do {                                                                                       \
		if (columns != NULL && column_of[ATTR_##key] != 0) {                               \
			columns->numbers[column_of[ATTR_##key] - 1] = row->member;                 \
			columns->present |= 1u << (column_of[ATTR_##key] - 1);                     \
		} else {                                                                           \
			PUT_VALUE(key, digits_put_u64(to, row->member));                           \
		}                                                                                  \
	} while (0)

#define WRITE_ADDRESS(key, member)                                                                 \
	do {                                                                                       \
		if (columns == NULL || ATTR_##key != ATTR_addr)                                    \
			PUT_VALUE(key, digits_put_address(to, row->member));                       \
	} while (0)

/* Not the address of a block of ours: spelled as the program prints a pointer. */
#define WRITE_POINTER(key, member)                                                                 \
	PUT_VALUE(key, row->member == 0 ? put_word(to, "0") : digits_put_hex(to, row->member))

/*
 * Memory that was not recorded has no number. The key is left out then: a reader that groups by it, as the viewer does, would put
 * all such accesses into one block that never was.
 */
#define WRITE_BLOCK_ID(key, member)                                                                \
	do {                                                                                       \
		if (row->member != NULL)                                                           \
			WRITE_NUMBER(key, member->allocation_id);                                  \
	} while (0)

#define WRITE_LAYER(key, member)                                                                   \
	PUT_VALUE(key, put_word(to, row->context->device == DEVICE_HOST                            \
					    ? WORD_HOST                                            \
					    : layer_text((uint8_t)row->member)))

/* A text of the program's own. */
#define WRITE_TEXT(key, member)                                                                    \
	do {                                                                                       \
		if (row->member == NULL)                                                           \
			break;                                                                     \
		if (columns != NULL && ATTR_##key == ATTR_owner) {                                 \
			columns->owner = row->member;                                              \
			break;                                                                     \
		}                                                                                  \
		if (json)                                                                          \
			PUT_LITERAL(",\"" #key "\":");                                             \
		else                                                                               \
			PUT_LITERAL("," #key ":");                                                 \
		to = json ? json_put_quoted(to, row->member)                                       \
			  : csv_put_doubled(to, row->member, strlen(row->member));                 \
	} while (0)

/* Left out when unknown. */
#define WRITE_KNOWN(key, member)                                                                   \
	do {                                                                                       \
		if (row->member != UINT64_MAX)                                                     \
			WRITE_NUMBER(key, member);                                                 \
	} while (0)

/* ---- keys that take conditions ---- */

MSCOPE_INLINE char *write_block(char *to, const struct row *row, bool json,
				struct attr_columns *columns)
{
	WRITE_NUMBER(allocation_id, block->allocation_id);
	WRITE_ADDRESS(addr, block->address);
	WRITE_NUMBER(size, block->size_bytes);
	if (row->shadow) {
		PUT_VALUE(shadow, put_word(to, WORD_TRUE));
	} else if (row->context->pool == POOL_host) {
		/* No pool and no driver behind CPU tensors: what lives of them is the total. */
		WRITE_NUMBER(total, used_bytes);
	} else {
		if (row->context->pool == POOL_host_pinned)
			PUT_VALUE(pinned, put_word(to, WORD_TRUE));
		WRITE_NUMBER(used, used_bytes);
		if (row->context->pool != POOL_hal)
			WRITE_KNOWN(total, reserved_bytes);
		WRITE_KNOWN(process_used, process_bytes);
		WRITE_KNOWN(device_used, device_bytes);
		if (row->context->pool == POOL_hal)
			WRITE_KNOWN(reserved, reserved_bytes);
	}
	WRITE_TEXT(owner, owner);
	if (row->inefficient != 0)
		PUT_VALUE(inefficient_type, inefficiency_put(to, row->inefficient));
	return to;
}

MSCOPE_INLINE char *write_pages(char *to, const struct row *row, bool json,
				struct attr_columns *columns)
{
	(void)columns;
	if (row->context->pool == POOL_hal) {
		PUT_VALUE(page_type, put_word(to, page_text(row->context->page)));
		PUT_VALUE(alloc_type, put_word(to, block_kind_text(row->context->kind)));
	}
	return to;
}

/* The two halves of the number of a private pool. */
static char *put_private(char *to, const struct pool_place *place)
{
	to = digits_put_u64(to, place->private_first);
	*to++ = '-';
	return digits_put_u64(to, place->private_second);
}

/* What a framework's pool told of a block, where it does. */
MSCOPE_INLINE char *write_place(char *to, const struct row *row, bool json,
				struct attr_columns *columns)
{
	if (MSCOPE_LIKELY(row->place == NULL))
		return to;
	if (row->block->requested_bytes != 0)
		WRITE_NUMBER(requested, block->requested_bytes);
	WRITE_KNOWN(stream, place->stream);
	if (pool_place_is_private(row->place))
		PUT_VALUE(private_pool, put_private(to, row->place));
	return to;
}

/* What the device of a window has in all and has left. */
MSCOPE_INLINE char *write_device_memory(char *to, const struct row *row, bool json,
					struct attr_columns *columns)
{
	if (row->total_bytes != 0) {
		PUT_VALUE(free, digits_put_u64(to, row->total_bytes - row->device_bytes));
		WRITE_NUMBER(total, total_bytes);
	}
	return to;
}

/* A share in per cent, with six decimals; 0 of nothing is 0. */
static char *put_rate(char *to, uint64_t part, uint64_t whole)
{
	return to + snprintf(to, VALUE_BYTES, "%.6f",
			     whole == 0 ? 0.0 : 100.0 * (double)part / (double)whole);
}

MSCOPE_INLINE char *write_figures(char *to, const struct row *row, bool json,
				  struct attr_columns *columns)
{
	const struct figures *now = row->figures;

	WRITE_KNOWN(reserved, figures->reserved_bytes);
	WRITE_KNOWN(max_reserved, figures->max_reserved_bytes);
	WRITE_KNOWN(allocated, figures->allocated_bytes);
	WRITE_KNOWN(max_allocated, figures->max_allocated_bytes);
	WRITE_KNOWN(total, figures->total_bytes);
	WRITE_KNOWN(free, figures->free_bytes);
	if (now->total_bytes != UINT64_MAX && now->free_bytes <= now->total_bytes)
		PUT_VALUE(device_rate,
			  put_rate(to, now->total_bytes - now->free_bytes, now->total_bytes));
	if (now->allocated_bytes != UINT64_MAX && now->reserved_bytes != UINT64_MAX)
		PUT_VALUE(reserved_rate, put_rate(to, now->allocated_bytes, now->reserved_bytes));
	WRITE_KNOWN(requested, figures->requested_bytes);
	WRITE_KNOWN(waiting, figures->waiting_bytes);
	WRITE_KNOWN(private_reserved, figures->private_bytes);
	return to;
}

MSCOPE_INLINE char *write_oom(char *to, const struct row *row, bool json,
			      struct attr_columns *columns)
{
	PUT_VALUE(func, put_word(to, oom_call_text(row->oom->call)));
	WRITE_NUMBER(req_size, oom->requested_bytes);
	WRITE_NUMBER(flag, oom->flag);
	return to;
}

MSCOPE_INLINE char *write_oom_block(char *to, const struct row *row, bool json,
				    struct attr_columns *columns)
{
	PUT_VALUE(pool, put_word(to, row->block_pool));
	WRITE_ADDRESS(ptr, block->address);
	WRITE_NUMBER(size, block->size_bytes);
	WRITE_NUMBER(timestamp, block_ns);
	return to;
}

/* ---- rows ---- */

MSCOPE_INLINE char *put_attrs(char *to, const struct row *row, bool json,
			      struct attr_columns *columns)
{
	char *begin = to;

	switch (row->kind) {
#define ATTR(key, form, member) WRITE_##form(key, member);
#define WRITE(list)		to = write_##list(to, row, json, columns);
#define READ(list)
#define ROW(symbol, event, event_type, group, attrs, record)                                       \
	case ROW_##symbol:                                                                         \
		attrs break;
#include "dump/rows.def"
#undef ROW
#undef READ
#undef WRITE
#undef ATTR
	case ROW_NONE:
	case ROW_END:
		break;
	}
	if (MSCOPE_UNLIKELY(row->dry != NULL))
		WRITE_TEXT(dry, dry);
	if (to != begin) {
		*begin = '{';
		*to++ = '}';
	}
	return to;
}

char *attr_put_csv(char *to, const struct row *row)
{
	return put_attrs(to, row, false, NULL);
}

char *attr_put_json(char *to, const struct row *row)
{
	return put_attrs(to, row, true, NULL);
}

char *attr_split(char *to, const struct row *row, struct attr_columns *out)
{
	*out = (struct attr_columns){0};
	return put_attrs(to, row, true, out);
}

static size_t text_room(const char *text)
{
	return text == NULL ? 0 : JSON_ESCAPED_MAX * strlen(text);
}

/* What a key takes in JSON, without the text of the program's own behind it. */
#define ROOM_NUMBER(member)   0
#define ROOM_ADDRESS(member)  0
#define ROOM_POINTER(member)  0
#define ROOM_BLOCK_ID(member) 0
#define ROOM_LAYER(member)    0
#define ROOM_TEXT(member)     text_room(row->member)

size_t attr_room(const struct row *row)
{
	size_t room = 2; /* the braces */

	switch (row->kind) {
#define ATTR(key, form, member) room += sizeof(#key) + VALUE_BYTES + ROOM_##form(member);
#define WRITE(list)		room += LIST_BYTES + text_room(row->owner);
#define READ(list)
#define ROW(symbol, event, event_type, group, attrs, record)                                       \
	case ROW_##symbol:                                                                         \
		attrs break;
#include "dump/rows.def"
#undef ROW
#undef READ
#undef WRITE
#undef ATTR
	case ROW_NONE:
	case ROW_END:
		break;
	}
	if (row->dry != NULL)
		room += sizeof("dry") + VALUE_BYTES + text_room(row->dry);
	return room;
}

void attr_add(struct strbuf *out, enum attr_style style, const struct row *row)
{
	char *to = strbuf_room(out, attr_room(row));

	if (to != NULL)
		strbuf_end(out,
			   style == ATTR_JSON ? attr_put_json(to, row) : attr_put_csv(to, row));
}
