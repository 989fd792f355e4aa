/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thrift's compact protocol, as far as Parquet's metadata needs it:
 *
 *     field     one byte, (number - number of the field before) << 4 | type, then the value; numbers rise by at most 15
 *     integer   zigzag (0, -1, 1, -2, ... are 0, 1, 2, 3, ...), then 7 bits a byte, the lowest first, bit 7: more follow
 *     text      length as such bytes without zigzag, then the bytes
 *     list      count << 4 | type in one byte, from 15 on 0xf0 | type and the count after it; then the elements
 *     struct    its fields, then a zero byte
 *
 * A failed buffer stays failed (base/strbuf.h); the caller asks once.
 */
#ifndef MSCOPE_PARQUET_PARQUET_THRIFT_H
#define MSCOPE_PARQUET_PARQUET_THRIFT_H

#include "base/strbuf.h"

enum thrift_type {
	THRIFT_I32 = 5,
	THRIFT_I64 = 6,
	THRIFT_BINARY = 8,
	THRIFT_LIST = 9,
	THRIFT_STRUCT = 12,
};

/* A struct in progress. A nested one has its own. */
struct thrift {
	struct strbuf *out;
	unsigned int last; /* number of the field before */
};

static inline void thrift_varint(struct strbuf *out, uint64_t value)
{
	char bytes[10];
	size_t count = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[count++] = (char)(value | 0x80);
	bytes[count++] = (char)value;
	strbuf_add(out, bytes, count);
}

static inline uint64_t thrift_zigzag(int64_t value)
{
	return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

static inline void thrift_field(struct thrift *at, unsigned int number, enum thrift_type type)
{
	strbuf_add_char(at->out, (char)((number - at->last) << 4 | type));
	at->last = number;
}

static inline void thrift_i32(struct thrift *at, unsigned int number, int32_t value)
{
	thrift_field(at, number, THRIFT_I32);
	thrift_varint(at->out, thrift_zigzag(value));
}

static inline void thrift_i64(struct thrift *at, unsigned int number, uint64_t value)
{
	thrift_field(at, number, THRIFT_I64);
	thrift_varint(at->out, thrift_zigzag((int64_t)value));
}

static inline void thrift_bytes(struct strbuf *out, const void *data, size_t bytes)
{
	thrift_varint(out, bytes);
	strbuf_add(out, data, bytes);
}

static inline void thrift_binary(struct thrift *at, unsigned int number, const void *data,
				 size_t bytes)
{
	thrift_field(at, number, THRIFT_BINARY);
	thrift_bytes(at->out, data, bytes);
}

static inline void thrift_text(struct thrift *at, unsigned int number, const char *text)
{
	thrift_binary(at, number, text, strlen(text));
}

static inline void thrift_list(struct thrift *at, unsigned int number, enum thrift_type type,
			       size_t count)
{
	thrift_field(at, number, THRIFT_LIST);
	strbuf_add_char(at->out, (char)((count < 15 ? count << 4 : 0xf0u) | type));
	if (count >= 15)
		thrift_varint(at->out, count);
}

/* A struct in a field; elements of a list begin with {out}. Both end by thrift_end(). */
static inline struct thrift thrift_struct(struct thrift *at, unsigned int number)
{
	thrift_field(at, number, THRIFT_STRUCT);
	return (struct thrift){.out = at->out};
}

static inline void thrift_end(const struct thrift *at)
{
	strbuf_add_char(at->out, 0);
}

#endif
