/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/parquet_encode.h"

#include "parquet/parquet_thrift.h"

#define BLOCK	  128u
#define MINIBLOCK 32u
#define GROUP	  8u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "numbers are written as they are in memory");

/* Numbers bit by bit; `to` has room for 8 bytes more than they take. Returns the end. */
struct bits {
	char *to;
	uint64_t word;
	unsigned int fill; /* bits of `word` that are taken, below 64 */
};

MSCOPE_INLINE void bits_put(struct bits *bits, uint64_t value, unsigned int width)
{
	bits->word |= value << bits->fill;
	bits->fill += width;
	if (bits->fill >= 64) {
		memcpy(bits->to, &bits->word, sizeof(bits->word));
		bits->to += sizeof(bits->word);
		bits->fill -= 64;
		bits->word = bits->fill == 0 ? 0 : value >> (width - bits->fill);
	}
}

static char *bits_end(const struct bits *bits)
{
	memcpy(bits->to, &bits->word, sizeof(bits->word));
	return bits->to + (bits->fill + 7) / 8;
}

/* ---- hybrid ---- */

/* Values are bytes or words; `bytes` is constant, so each has its own copy of the code. */
MSCOPE_INLINE uint32_t value_at(const void *values, size_t i, bool bytes)
{
	return bytes ? ((const uint8_t *)values)[i] : ((const uint32_t *)values)[i];
}

MSCOPE_INLINE size_t run_at(const void *values, size_t i, size_t count, bool bytes)
{
	uint32_t value = value_at(values, i, bytes);
	size_t end = i + 1;

	while (end < count && value_at(values, end, bytes) == value)
		end++;
	return end - i;
}

/* Whether the next GROUP values are one. */
MSCOPE_INLINE bool is_run(const void *values, size_t i, size_t count, bool bytes)
{
	size_t k;

	if (count - i < GROUP)
		return false;
	for (k = 1; k < GROUP; k++) {
		if (value_at(values, i + k, bytes) != value_at(values, i, bytes))
			return false;
	}
	return true;
}

MSCOPE_INLINE void add_packed(struct strbuf *out, const void *values, size_t from, size_t end,
			      unsigned int width, bool bytes)
{
	size_t groups = (end - from + GROUP - 1) / GROUP, i;
	struct bits bits = {0};

	thrift_varint(out, groups << 1 | 1);
	bits.to = strbuf_room(out, groups * width + sizeof(bits.word));
	if (bits.to == NULL)
		return;
	for (i = from; i < end; i++)
		bits_put(&bits, value_at(values, i, bytes), width);
	for (; i < from + groups * GROUP; i++)
		bits_put(&bits, 0, width);
	strbuf_end(out, bits_end(&bits));
}

MSCOPE_INLINE void add_hybrid(struct strbuf *out, const void *values, size_t count,
			      unsigned int width, bool bytes)
{
	size_t i = 0, from, run;
	uint32_t value;

	while (i < count) {
		if (is_run(values, i, count, bytes)) {
			run = run_at(values, i, count, bytes);
			value = value_at(values, i, bytes);
			thrift_varint(out, run << 1);
			strbuf_add(out, &value, (width + 7) / 8);
			i += run;
			continue;
		}
		from = i;
		do
			i += GROUP;
		while (i < count && !is_run(values, i, count, bytes));
		if (i > count)
			i = count;
		add_packed(out, values, from, i, width, bytes);
	}
}

void encode_hybrid(struct strbuf *out, const uint32_t *values, size_t count, unsigned int width)
{
	add_hybrid(out, values, count, width, false);
}

void encode_levels(struct strbuf *out, const uint8_t *present, size_t count)
{
	uint32_t bytes = 0;
	size_t at = out->length;

	strbuf_add(out, &bytes, sizeof(bytes));
	add_hybrid(out, present, count, 1, true);
	if (strbuf_failed(out))
		return;
	bytes = (uint32_t)(out->length - at - sizeof(bytes));
	memcpy(out->data + at, &bytes, sizeof(bytes));
}

/* ---- delta ---- */

static void add_miniblock(struct strbuf *out, const uint64_t *deltas, size_t count,
			  unsigned int width)
{
	struct bits bits = {.to = strbuf_room(out, MINIBLOCK * 8 + sizeof(bits.word))};
	size_t i;

	if (bits.to == NULL)
		return;
	for (i = 0; i < count; i++)
		bits_put(&bits, deltas[i], width);
	for (; i < MINIBLOCK; i++)
		bits_put(&bits, 0, width);
	strbuf_end(out, bits_end(&bits));
}

/* A block of the differences of values[1..count] from the one before each. */
static void add_block(struct strbuf *out, const int64_t *values, size_t count)
{
	uint64_t deltas[BLOCK], all;
	uint8_t widths[BLOCK / MINIBLOCK] = {0};
	int64_t least = INT64_MAX;
	size_t i, k;

	for (i = 0; i < count; i++) {
		deltas[i] = (uint64_t)values[i + 1] - (uint64_t)values[i];
		least = (int64_t)deltas[i] < least ? (int64_t)deltas[i] : least;
	}
	for (k = 0; k * MINIBLOCK < count; k++) {
		all = 0;
		for (i = k * MINIBLOCK; i < count && i < (k + 1) * MINIBLOCK; i++) {
			deltas[i] -= (uint64_t)least;
			all |= deltas[i];
		}
		widths[k] = (uint8_t)encode_width(all);
	}
	thrift_varint(out, thrift_zigzag(least));
	strbuf_add(out, widths, sizeof(widths));
	for (k = 0; k * MINIBLOCK < count; k++) {
		size_t left = count - k * MINIBLOCK;

		if (widths[k] > 0)
			add_miniblock(out, deltas + k * MINIBLOCK,
				      left < MINIBLOCK ? left : MINIBLOCK, widths[k]);
	}
}

void encode_delta(struct strbuf *out, const int64_t *values, size_t count)
{
	size_t i;

	thrift_varint(out, BLOCK);
	thrift_varint(out, BLOCK / MINIBLOCK);
	thrift_varint(out, count);
	thrift_varint(out, thrift_zigzag(count == 0 ? 0 : values[0]));
	for (i = 0; i + 1 < count; i += BLOCK)
		add_block(out, values + i, count - 1 - i < BLOCK ? count - 1 - i : BLOCK);
}
