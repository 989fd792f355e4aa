/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/digits.h"

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

void strbuf_add_u64(struct strbuf *sb, uint64_t value)
{
	char *to = strbuf_room(sb, DIGITS_ROOM);

	if (to != NULL)
		strbuf_end(sb, digits_put_u64(to, value));
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

void strbuf_add_hex(struct strbuf *sb, uint64_t value, unsigned int digits)
{
	char text[18] = "0x";
	unsigned int count = 1, i;

	while (count < 16 && value >> (count * 4) != 0)
		count++;
	if (count < digits)
		count = digits < 16 ? digits : 16;
	for (i = 0; i < count; i++)
		text[2 + i] = "0123456789abcdef"[value >> ((count - 1 - i) * 4) & 15];
	strbuf_add(sb, text, 2 + count);
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

const char *const size_units[SIZE_UNITS] = {"B", "KiB", "MiB", "GiB", "TiB"};

unsigned size_unit(double bytes)
{
	unsigned unit = 0;

	while (bytes >= 1023.5 && unit + 1 < SIZE_UNITS) {
		bytes /= 1024;
		unit++;
	}
	return unit;
}

void strbuf_add_size(struct strbuf *sb, uint64_t bytes)
{
	unsigned unit = size_unit((double)bytes);
	double value = (double)bytes / (double)(UINT64_C(1) << 10 * unit);

	strbuf_addf(sb, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, size_units[unit]);
}

void strbuf_add_number(struct strbuf *sb, uint64_t number)
{
	if (number >= 1000) {
		strbuf_add_number(sb, number / 1000);
		strbuf_addf(sb, ",%03u", (unsigned int)(number % 1000));
	} else {
		strbuf_add_u64(sb, number);
	}
}

void strbuf_add_count(struct strbuf *sb, uint64_t count, const char *one, const char *many)
{
	strbuf_add_u64(sb, count);
	strbuf_add_char(sb, ' ');
	strbuf_add_str(sb, count == 1 ? one : many);
}
