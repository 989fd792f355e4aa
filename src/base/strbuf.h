/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing text buffer with fast, locale-free number output: what the sinks write their rows with.
 *
 * Out of memory is remembered instead of returned: later calls do nothing and strbuf_failed() tells, so that a row is
 * written without a check per field. A zeroed struct is an empty buffer. Not thread-safe.
 */
#ifndef MSCOPE_BASE_STRBUF_H
#define MSCOPE_BASE_STRBUF_H

#include <stdbool.h>
#include <string.h>

#include "base/compiler.h"

struct strbuf {
	char *data; /* always NUL-terminated once something was added */
	size_t length;
	size_t room;
	bool failed;
};

void strbuf_fini(struct strbuf *sb);

/* Makes room for `more` bytes and a NUL, and returns where they go; NULL when out of memory. */
char *strbuf_room(struct strbuf *sb, size_t more);

/* Makes what was written into that room, up to `end`, part of the text. */
static inline void strbuf_end(struct strbuf *sb, char *end)
{
	*end = '\0';
	sb->length = (size_t)(end - sb->data);
}

static inline void strbuf_reset(struct strbuf *sb)
{
	sb->length = 0;
	sb->failed = false;
	if (sb->data != NULL)
		sb->data[0] = '\0';
}

static inline bool strbuf_failed(const struct strbuf *sb)
{
	return sb->failed;
}

/* The text so far; "" for an empty buffer. Borrowed. */
static inline const char *strbuf_str(const struct strbuf *sb)
{
	return sb->data == NULL ? "" : sb->data;
}

/* The way of strbuf_add() when the buffer has to grow or has failed. */
void strbuf_add_slow(struct strbuf *sb, const void *data, size_t length);

/* Inline, so that the literals of a row become plain stores. */
static inline void strbuf_add(struct strbuf *sb, const void *data, size_t length)
{
	/* `room` counts the NUL, so it is larger than `length` once there is any. */
	if (MSCOPE_UNLIKELY(sb->failed || length >= sb->room - sb->length)) {
		strbuf_add_slow(sb, data, length);
		return;
	}
	memcpy(sb->data + sb->length, data, length);
	sb->length += length;
	sb->data[sb->length] = '\0';
}

void strbuf_add_u64(struct strbuf *sb, uint64_t value);
void strbuf_add_i64(struct strbuf *sb, int64_t value);

/* "0x" and at least `digits` lower-case hexadecimal digits. */
void strbuf_add_hex(struct strbuf *sb, uint64_t value, unsigned int digits);
void strbuf_addf(struct strbuf *sb, const char *format, ...) MSCOPE_PRINTF(2, 3);

/* The unit that a size is shown in: the largest in which it is 1 at least, once it is rounded. */
#define SIZE_UNITS 5u
extern const char *const size_units[SIZE_UNITS]; /* "B", "KiB", ... */
unsigned size_unit(double bytes);

/* "512 B", "1.5 MiB" and the like, for people. */
void strbuf_add_size(struct strbuf *sb, uint64_t bytes);

/* "12", "40,600": for people. */
void strbuf_add_number(struct strbuf *sb, uint64_t number);

/* "1 block", "12 blocks". */
void strbuf_add_count(struct strbuf *sb, uint64_t count, const char *one, const char *many);

static inline void strbuf_add_str(struct strbuf *sb, const char *text)
{
	strbuf_add(sb, text, strlen(text));
}

static inline void strbuf_add_char(struct strbuf *sb, char c)
{
	strbuf_add(sb, &c, 1);
}

#endif
