/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns the records of a chunk into columns and back, so that they compress to half: types, contexts and times each look alike
 * when they stand together, and a freed address repeats an allocated one. Exact in both directions, also between versions that
 * know other types or longer records: the shapes that were used travel along.
 *
 *     count, and the length of each column but the last: 7 words of 32 bits
 *     shapes     two bytes for each type that occurs: the type; its words, and 128 if more may follow (length in word 1)
 *     types      a byte per record
 *     contexts   a varint per record
 *     times      a varint per record: zigzag of the delta's difference to the record before
 *     word 1     8 bytes of each record with 2 or 3 words of fixed shape
 *     word 2     8 bytes of each record with 3 words of fixed shape
 *     the rest   all words but word 0 of every other record
 */
#ifndef MSCOPE_TRACE_COLUMNS_H
#define MSCOPE_TRACE_COLUMNS_H

#include <stdbool.h>

#include "base/compiler.h"

/* Bytes that columns_split() may need for `raw_bytes` of records. */
size_t columns_room(size_t raw_bytes);

/* Splits; returns the length of the result, or 0 when the records are malformed and are better stored as they are. */
size_t columns_split(const void *records, size_t raw_bytes, uint8_t *out);

/* Joins what columns_split() made. False when the result has not exactly `raw_bytes`; the input is not trusted. */
bool columns_join(const uint8_t *columns, size_t bytes, void *out, size_t raw_bytes);

#endif
