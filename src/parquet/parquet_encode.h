/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How Parquet writes the values of a page:
 *
 *     hybrid   runs of small numbers of `width` bits. A run begins with a varint: count << 1 and the number in whole bytes for
 *              a number that repeats; groups << 1 | 1 and 8 * groups numbers bit by bit for others.
 *     levels   a hybrid of 1 bit with its length, 32 bits, before it
 *     delta    varints: 128 (numbers in a block), 4 (miniblocks in it), how many numbers, the first one in zigzag. Blocks follow: the
 *              least difference in zigzag, the width of each miniblock in a byte, then the miniblocks, 32 numbers each: difference less
 *              the least one. The last miniblock is filled up with zeros; those without numbers have width 0 and no bytes. Differences
 *              wrap around, so every sequence can be written.
 *
 * Bits are numbered from the lowest of the first byte. Pure functions; a failed buffer stays failed.
 */
#ifndef MSCOPE_PARQUET_PARQUET_ENCODE_H
#define MSCOPE_PARQUET_PARQUET_ENCODE_H

#include "base/strbuf.h"

/* Bits that a number takes; 0 for 0. */
static inline unsigned int encode_width(uint64_t value)
{
	return value == 0 ? 0 : 64 - (unsigned int)__builtin_clzll(value);
}

void encode_hybrid(struct strbuf *out, const uint32_t *values, size_t count, unsigned int width);
void encode_levels(struct strbuf *out, const uint8_t *present, size_t count);
void encode_delta(struct strbuf *out, const int64_t *values, size_t count);

#endif
