/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/codes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void codes_fini(struct codes *codes)
{
	free(codes->all);
	strbuf_fini(&codes->data);
	strbuf_fini(&codes->text);
	map_fini(&codes->by_print);
	map_fini(&codes->ids);
	map_fini(&codes->texts);
	*codes = (struct codes){0};
}

static struct map_key print_of(const struct event_code_def *def, const uint8_t *payload,
			       size_t bytes)
{
	struct map_key key = {UINT64_C(0xcbf29ce484222325), def->first_line};
	size_t i;

	for (i = 0; i < bytes; i++) {
		key.a = (key.a ^ payload[i]) * UINT64_C(0x100000001b3);
		key.b = key.b * 31 + payload[i];
	}
	key.a += def->minor << 32 | def->file_bytes << 16 | def->name_bytes;
	return key;
}

static int add(struct codes *codes, const struct event_code_def *def, const uint8_t *payload,
	       size_t bytes)
{
	int r = array_reserve(&codes->all, &codes->room, codes->count + 2, sizeof(*codes->all));

	if (r < 0)
		return r;
	if (codes->count == 0)
		codes->all[codes->count++] = (struct code){0};
	codes->all[codes->count] = (struct code){
		.at = codes->data.length,
		.first_line = (uint32_t)def->first_line,
		.table_bytes = (uint32_t)def->table_bytes,
		.file_bytes = (uint16_t)def->file_bytes,
		.name_bytes = (uint16_t)def->name_bytes,
		.minor = (uint16_t)def->minor,
	};
	strbuf_add(&codes->data, payload, bytes);
	if (strbuf_failed(&codes->data))
		return -ENOMEM;
	codes->count++;
	return 0;
}

int codes_define(struct codes *codes, uint32_t writer, const struct trace_event *event)
{
	struct event_code_def def;
	struct map_key key;
	uint64_t *known, index;
	size_t bytes;
	int r;

	event_code_def_decode(event->words, &def);
	bytes = def.file_bytes + def.name_bytes + def.table_bytes;
	if (bytes > event->payload_bytes)
		return -EINVAL;
	key = print_of(&def, event->payload, bytes);
	known = map_get(&codes->by_print, key);
	if (known != NULL) {
		index = *known;
	} else {
		r = add(codes, &def, event->payload, bytes);
		if (r < 0)
			return r;
		index = codes->count - 1;
		r = map_put(&codes->by_print, key, index);
		if (r < 0)
			return r;
	}
	return map_put(&codes->ids, (struct map_key){writer, def.id}, index);
}

uint32_t codes_find(const struct codes *codes, uint32_t writer, uint64_t id)
{
	uint64_t *known = map_get(&codes->ids, (struct map_key){writer, id});

	return known == NULL ? 0 : (uint32_t)*known;
}

/* ---- line tables ---- */

/* Until 3.9: pairs of steps in offset and line; a line holds from its offset on. */
static int64_t line_by_steps(const uint8_t *table, size_t bytes, int64_t line, uint32_t at)
{
	uint64_t offset = 0;
	size_t i;

	for (i = 0; i + 1 < bytes; i += 2) {
		offset += table[i];
		if (offset > at)
			break;
		line += (int8_t)table[i + 1];
	}
	return line;
}

/* 3.10: pairs of a span's length and its step in line; -128 for a span without a line. */
static int64_t line_by_spans(const uint8_t *table, size_t bytes, int64_t line, uint32_t at)
{
	uint64_t end = 0;
	int64_t here;
	size_t i;

	for (i = 0; i + 1 < bytes; i += 2) {
		int8_t step = (int8_t)table[i + 1];

		end += table[i];
		here = step == -128 ? -1 : (line += step);
		if (at < end)
			return here;
	}
	return -1;
}

struct varints {
	const uint8_t *at;
	const uint8_t *end;
};

/* Six bits at a time, the low ones first; 0x40: more follow. */
static uint64_t next_varint(struct varints *v)
{
	uint64_t value = 0;
	unsigned int shift;

	for (shift = 0; v->at < v->end && shift < 60; shift += 6) {
		uint8_t byte = *v->at++;

		value |= (uint64_t)(byte & 0x3f) << shift;
		if (!(byte & 0x40))
			break;
	}
	return value;
}

static int64_t next_signed(struct varints *v)
{
	uint64_t value = next_varint(v);

	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* Since 3.11: entries of a kind, a count of instructions of two bytes, and places; the first byte alone has the top bit. */
static int64_t line_by_entries(const uint8_t *table, size_t bytes, int64_t line, uint32_t at)
{
	struct varints v = {.at = table, .end = table + bytes};
	uint64_t end = 0;

	while (v.at < v.end) {
		uint8_t first = *v.at++, kind = first >> 3 & 15;

		if (kind == 13 || kind == 14)
			line += next_signed(&v);
		else if (kind >= 10 && kind <= 12)
			line += kind - 10;
		end += ((first & 7u) + 1) * 2;
		if (at < end)
			return kind == 15 ? -1 : line;
		while (v.at < v.end && !(*v.at & 0x80))
			v.at++;
	}
	return -1;
}

uint32_t codes_line(const struct codes *codes, uint32_t code, uint32_t at)
{
	const struct code *c = code < codes->count ? &codes->all[code] : NULL;
	const uint8_t *table;
	int64_t line;

	if (c == NULL)
		return 0;
	if (at == UINT32_MAX || c->table_bytes == 0)
		return c->first_line;
	table = (const uint8_t *)strbuf_str(&codes->data) + c->at + c->file_bytes + c->name_bytes;
	if (c->minor < 10)
		line = line_by_steps(table, c->table_bytes, c->first_line, at);
	else if (c->minor == 10)
		line = line_by_spans(table, c->table_bytes, c->first_line, at);
	else
		line = line_by_entries(table, c->table_bytes, c->first_line, at);
	return line > 0 && line <= INT32_MAX ? (uint32_t)line : c->first_line;
}

size_t codes_place(struct codes *codes, uint32_t code, uint32_t line)
{
	struct map_key key = {code, line};
	uint64_t *known = map_get(&codes->texts, key);
	const struct code *c;
	const char *names;
	size_t at = codes->text.length;

	if (known != NULL)
		return *known + 1;
	if (code == 0 || code >= codes->count) {
		strbuf_add_str(&codes->text, "unknown");
	} else {
		c = &codes->all[code];
		names = strbuf_str(&codes->data) + c->at;
		strbuf_add(&codes->text, names, c->file_bytes);
		strbuf_add_char(&codes->text, '(');
		strbuf_add_u64(&codes->text, line);
		strbuf_add_str(&codes->text, "): ");
		strbuf_add(&codes->text, names + c->file_bytes, c->name_bytes);
	}
	strbuf_add_char(&codes->text, '\0');
	if (strbuf_failed(&codes->text) || map_put(&codes->texts, key, at) < 0)
		return 0;
	return at + 1;
}
