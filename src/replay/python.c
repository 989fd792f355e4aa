/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/python.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/hash.h"
#include "base/shown.h"

void codes_fini(struct codes *codes)
{
	free(codes->all);
	strbuf_fini(&codes->bytes);
	map_fini(&codes->by_content);
	map_fini(&codes->texts);
	strbuf_fini(&codes->text);
	*codes = (struct codes){0};
}

/* ---- line tables ---- */

/*
 * What reading a table has come to: a line for the instructions that begin before `end`. 64 bits, so that no sum of deltas of a
 * damaged table can overflow: a table has at most 2^32 of them, each within 32 bits.
 */
struct reading {
	const uint8_t *at;
	const uint8_t *limit;
	int64_t line;
	uint64_t end;
};

/* 3.9: pairs of a step in bytes and a step in lines, which holds from there on. */
static int64_t line_steps(struct reading *r, uint32_t offset)
{
	for (; r->limit - r->at >= 2; r->at += 2) {
		r->end += r->at[0];
		if (r->end > offset)
			break;
		r->line += (int8_t)r->at[1];
	}
	return r->line;
}

/* 3.10: ranges of bytes with the step to their own line, -128 for a range that has none. */
static int64_t line_ranges(struct reading *r, uint32_t offset)
{
	for (; r->limit - r->at >= 2 && r->end <= offset; r->at += 2) {
		r->end += r->at[0];
		if (r->at[1] != 0x80)
			r->line += (int8_t)r->at[1];
	}
	return r->line;
}

/* Six bits a byte, lowest first, bit 6 says that more come. The lowest bit of the number is its sign. */
static int64_t signed_varint(const uint8_t *at, const uint8_t *limit)
{
	uint64_t value = 0;
	unsigned int shift = 0;

	for (; at < limit && shift < 36; at++, shift += 6) {
		value |= (uint64_t)(*at & 63) << shift;
		if (!(*at & 64))
			break;
	}
	value &= UINT32_MAX;
	return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/*
 * From 3.11: entries that begin with a byte whose top bit is set: 1, kind (4 bits), length - 1 in instructions of two bytes (3
 * bits). What follows up to the next such byte are columns, which we do not read, and for some kinds a step in lines.
 */
static int64_t line_entries(struct reading *r, uint32_t offset)
{
	while (r->at < r->limit && r->end <= offset) {
		unsigned int kind = *r->at >> 3 & 15;

		r->end += ((*r->at & 7) + 1) * 2u;
		r->at++;
		if (kind == 13 || kind == 14)
			r->line += signed_varint(r->at, r->limit);
		else if (kind >= 10 && kind <= 12)
			r->line += kind - 10;
		while (r->at < r->limit && !(*r->at & 0x80))
			r->at++;
	}
	return r->line;
}

uint32_t code_line(const struct code *code, uint32_t offset)
{
	struct reading r = {.at = code->table, .line = code->first_line};
	int64_t line;

	if (offset == CODE_NOT_BEGUN || code->table_bytes == 0)
		return code->first_line;
	r.limit = code->table + code->table_bytes;
	if (code->minor < 10)
		line = line_steps(&r, offset);
	else if (code->minor == 10)
		line = line_ranges(&r, offset);
	else
		line = line_entries(&r, offset);
	return line >= 0 && line <= UINT32_MAX ? (uint32_t)line : code->first_line;
}

/* ---- functions ---- */

static struct map_key hash_bytes(struct map_key key, const uint8_t *at, size_t bytes)
{
	size_t i;

	key.a += bytes;
	for (i = 0; i < bytes; i++) {
		key.a = hash_add_byte(key.a, at[i]);
		key.b = (key.b + at[i]) * UINT64_C(0xd6e8feb86659fd93);
		key.b ^= key.b >> 32;
	}
	return key;
}

/* What has no bytes may have no address either. */
static void add_bytes(struct strbuf *sb, const uint8_t *at, size_t bytes)
{
	if (bytes > 0)
		strbuf_add(sb, at, bytes);
}

int codes_intern(struct codes *codes, const struct code *code, uint32_t *out_index)
{
	struct map_key key = {HASH_BEGIN ^ code->first_line, code->minor};
	uint64_t *known;
	int r;

	key = hash_bytes(key, code->file, code->file_bytes);
	key = hash_bytes(key, code->name, code->name_bytes);
	key = hash_bytes(key, code->table, code->table_bytes);
	known = map_get(&codes->by_content, key);
	if (known != NULL) {
		*out_index = (uint32_t)*known;
		return 0;
	}
	if (codes->count >= UINT32_MAX)
		return -ENOMEM;
	r = ARRAY_RESERVE(codes->all, codes->room, codes->count + 1);
	if (r < 0)
		return r;
	codes->all[codes->count] = (struct code_entry){.at = codes->bytes.length,
						       .minor = code->minor,
						       .first_line = code->first_line,
						       .file_bytes = code->file_bytes,
						       .name_bytes = code->name_bytes,
						       .table_bytes = code->table_bytes};
	add_bytes(&codes->bytes, code->file, code->file_bytes);
	add_bytes(&codes->bytes, code->name, code->name_bytes);
	add_bytes(&codes->bytes, code->table, code->table_bytes);
	if (strbuf_failed(&codes->bytes))
		return -ENOMEM;
	r = map_put(&codes->by_content, key, codes->count);
	if (r < 0)
		return r;
	*out_index = (uint32_t)codes->count++;
	return 0;
}

struct code codes_get(const struct codes *codes, uint32_t index)
{
	const struct code_entry *entry = &codes->all[index];
	/* A function may have neither file nor name nor table, and then there may be no bytes at all. */
	const uint8_t *bytes = (const uint8_t *)strbuf_str(&codes->bytes) + entry->at;

	return (struct code){.minor = entry->minor,
			     .first_line = entry->first_line,
			     .file = bytes,
			     .name = bytes + entry->file_bytes,
			     .table = bytes + entry->file_bytes + entry->name_bytes,
			     .file_bytes = entry->file_bytes,
			     .name_bytes = entry->name_bytes,
			     .table_bytes = entry->table_bytes};
}

const char *codes_text(struct codes *codes, uint32_t index, uint32_t offset)
{
	struct map_key key = {index, offset};
	uint64_t *known = map_get(&codes->texts, key);
	size_t at = codes->text.length;
	struct code code;

	if (known != NULL)
		return codes->text.data + *known;
	if (index >= codes->count)
		return "";
	code = codes_get(codes, index);
	strbuf_add_valid(&codes->text, (const char *)code.file, code.file_bytes);
	strbuf_add_char(&codes->text, '(');
	strbuf_add_u64(&codes->text, code_line(&code, offset));
	strbuf_add_str(&codes->text, "): ");
	strbuf_add_valid(&codes->text, (const char *)code.name, code.name_bytes);
	strbuf_add_char(&codes->text, '\0');
	if (strbuf_failed(&codes->text) || map_put(&codes->texts, key, at) < 0)
		return "";
	return codes->text.data + at;
}
