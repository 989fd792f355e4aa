/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void strbuf_fini(struct strbuf *sb)
{
	free(sb->data);
	*sb = (struct strbuf){0};
}

char *strbuf_room(struct strbuf *sb, size_t more)
{
	size_t wanted = sb->length + more + 1;

	if (wanted <= more)
		sb->failed = true; /* longer than memory can be */
	if (sb->failed)
		return NULL;
	if (wanted > sb->room) {
		size_t room = sb->room < 256 ? 256 : sb->room * 2;
		char *grown;

		if (room < wanted)
			room = wanted;
		grown = realloc(sb->data, room);
		if (grown == NULL) {
			sb->failed = true;
			return NULL;
		}
		sb->data = grown;
		sb->room = room;
	}
	return sb->data + sb->length;
}

void strbuf_add_slow(struct strbuf *sb, const void *data, size_t length)
{
	char *to = strbuf_room(sb, length);

	if (to == NULL)
		return;
	memcpy(to, data, length);
	to[length] = '\0';
	sb->length += length;
}

/* How many decimal digits a number has. */
static size_t digits_of(uint64_t value)
{
	static const uint64_t powers[] = {
		0,
		10,
		100,
		1000,
		10000,
		100000,
		1000000,
		10000000,
		100000000,
		1000000000,
		UINT64_C(10000000000),
		UINT64_C(100000000000),
		UINT64_C(1000000000000),
		UINT64_C(10000000000000),
		UINT64_C(100000000000000),
		UINT64_C(1000000000000000),
		UINT64_C(10000000000000000),
		UINT64_C(100000000000000000),
		UINT64_C(1000000000000000000),
		UINT64_C(10000000000000000000),
	};
	/* log10 from log2: 1233 / 4096 is a little more than log10(2). */
	size_t guess = (size_t)(64 - __builtin_clzll(value | 1)) * 1233 >> 12;

	return guess + (value >= powers[guess]);
}

void strbuf_add_u64(struct strbuf *sb, uint64_t value)
{
	static const char pairs[] = "0001020304050607080910111213141516171819"
				    "2021222324252627282930313233343536373839"
				    "4041424344454647484950515253545556575859"
				    "6061626364656667686970717273747576777879"
				    "8081828384858687888990919293949596979899";
	size_t count = digits_of(value);
	char *to = strbuf_room(sb, count);

	if (to == NULL)
		return;
	sb->length += count;
	to += count;
	*to = '\0';
	while (value >= 10000) {
		uint32_t four = (uint32_t)(value % 10000);

		to -= 4;
		memcpy(to, pairs + four / 100 * 2, 2);
		memcpy(to + 2, pairs + four % 100 * 2, 2);
		value /= 10000;
	}
	if (value >= 100) {
		to -= 2;
		memcpy(to, pairs + value % 100 * 2, 2);
		value /= 100;
	}
	if (value >= 10)
		memcpy(to - 2, pairs + value * 2, 2);
	else
		to[-1] = (char)('0' + value);
}

void strbuf_add_i64(struct strbuf *sb, int64_t value)
{
	if (value < 0) {
		strbuf_add_char(sb, '-');
		strbuf_add_u64(sb, -(uint64_t)value);
	} else {
		strbuf_add_u64(sb, (uint64_t)value);
	}
}

/* Eight hexadecimal digits, the highest first in memory. */
static uint64_t hex_digits(uint32_t value)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t x = value;

	/* A byte for each four bits. */
	x = (x | x << 16) & UINT64_C(0x0000ffff0000ffff);
	x = (x | x << 8) & UINT64_C(0x00ff00ff00ff00ff);
	x = (x | x << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
	/* From 10 on, letters: six more carry into the upper half of the byte. */
	x += ones * '0' + ((x + ones * 6) >> 4 & ones) * ('a' - '0' - 10);
	return __builtin_bswap64(x);
}

void strbuf_add_hex(struct strbuf *sb, uint64_t value, unsigned int digits)
{
	size_t count = (size_t)(67 - __builtin_clzll(value | 1)) / 4;
	uint64_t all[2] = {hex_digits((uint32_t)(value >> 32)), hex_digits((uint32_t)value)};
	char *to;

	if (count < digits)
		count = digits < 16 ? digits : 16;
	to = strbuf_room(sb, 2 + count);
	if (to == NULL)
		return;
	to[0] = '0';
	to[1] = 'x';
	memcpy(to + 2, (const char *)all + 16 - count, count);
	to[2 + count] = '\0';
	sb->length += 2 + count;
}

void strbuf_addf(struct strbuf *sb, const char *format, ...)
{
	va_list args;
	int length;
	char *to;

	va_start(args, format);
	length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (length < 0)
		return;
	to = strbuf_room(sb, (size_t)length);
	if (to == NULL)
		return;
	va_start(args, format);
	(void)vsnprintf(to, (size_t)length + 1, format, args);
	va_end(args);
	sb->length += (size_t)length;
}

void strbuf_add_size(struct strbuf *sb, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		strbuf_addf(sb, "%u B", (unsigned int)bytes);
		return;
	}
	while (value >= 1024 && unit + 1 < MSCOPE_COUNT(units)) {
		value /= 1024;
		unit++;
	}
	strbuf_addf(sb, value >= 100 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}
