/* SPDX-License-Identifier: Apache-2.0 */
#include "views/pickle_writer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/io.h"
#include "base/shown.h"

#define BATCH	    1000u	 /* items between two marks: readers put them on a stack */
#define SPOOL_BYTES (256u << 10) /* kept in memory before they go into the file */

static void put_byte(struct pickle_part *part, uint8_t byte)
{
	strbuf_add(&part->text, &byte, 1);
}

/* The lowest byte first. */
static void put_number(struct pickle_part *part, uint64_t value, size_t bytes)
{
	for (; bytes > 0; bytes--, value >>= 8)
		put_byte(part, (uint8_t)value);
}

static void fail(struct pickle_part *part, int error)
{
	if (part->error == 0)
		part->error = error;
}

void pickle_part_fini(struct pickle_part *part)
{
	strbuf_fini(&part->text);
	strbuf_fini(&part->scratch);
	interned_fini(&part->known);
	free(part->numbers);
	io_close(&part->spool);
}

void pickle_put_int(struct pickle_part *part, uint64_t value)
{
	size_t bytes = 1;

	if (value <= UINT8_MAX) {
		put_byte(part, 'K');
		put_number(part, value, 1);
	} else if (value <= UINT16_MAX) {
		put_byte(part, 'M');
		put_number(part, value, 2);
	} else if (value <= INT32_MAX) {
		put_byte(part, 'J');
		put_number(part, value, 4);
	} else {
		/* Two's complement: the highest bit must be clear. */
		while (bytes < 9 && value >> (8 * bytes - 1) != 0)
			bytes++;
		put_byte(part, 0x8a);
		put_byte(part, (uint8_t)bytes);
		put_number(part, value, bytes < 8 ? bytes : 8);
		if (bytes == 9)
			put_byte(part, 0);
	}
}

void pickle_put_bool(struct pickle_part *part, bool value)
{
	put_byte(part, value ? 0x88 : 0x89);
}

bool pickle_recall(struct pickle_part *part, const char *key, size_t bytes, uint32_t *out_key)
{
	bool new = false;
	int r = interned_number(&part->known, key, bytes, out_key, &new);

	if (r < 0) {
		fail(part, r);
		return false;
	}
	if (new || *out_key >= part->number_count || part->numbers[*out_key] == UINT32_MAX)
		return false;
	put_byte(part, 'j');
	put_number(part, part->numbers[*out_key], 4);
	return true;
}

void pickle_remember(struct pickle_part *part, uint32_t key)
{
	if (part->error != 0)
		return;
	if (ARRAY_RESERVE(part->numbers, part->number_room, (size_t)key + 1) < 0) {
		fail(part, -ENOMEM);
		return;
	}
	for (; part->number_count <= key; part->number_count++)
		part->numbers[part->number_count] = UINT32_MAX;
	part->numbers[key] = (*part->memo)++;
	put_byte(part, 'r');
	put_number(part, part->numbers[key], 4);
}

void pickle_put_text(struct pickle_part *part, const char *text)
{
	struct strbuf *key = &part->scratch;
	uint32_t number = 0;

	/* A letter keeps texts apart from the keys of callers. */
	strbuf_reset(key);
	strbuf_add_char(key, 's');
	strbuf_add_valid(key, text, strlen(text));
	if (strbuf_failed(key)) {
		fail(part, -ENOMEM);
	} else if (!pickle_recall(part, key->data, key->length, &number)) {
		size_t length = key->length - 1;

		put_byte(part, length < 256 ? 0x8c : 'X');
		put_number(part, length, length < 256 ? 1 : 4);
		strbuf_add(&part->text, key->data + 1, length);
		pickle_remember(part, number);
	}
}

void pickle_begin_dict(struct pickle_part *part)
{
	strbuf_add_str(&part->text, "}(");
}

void pickle_end_dict(struct pickle_part *part)
{
	put_byte(part, 'u');
}

void pickle_begin_list(struct pickle_part *part)
{
	strbuf_add_str(&part->text, "](");
}

void pickle_end_list(struct pickle_part *part)
{
	put_byte(part, 'e');
}

void pickle_begin_part(struct pickle_part *part)
{
	strbuf_add_str(&part->text, "](");
	part->batch = 0;
}

static void spool(struct pickle_part *part)
{
	size_t bytes = part->text.length;
	int r;

	if (part->spool < 0 || bytes < SPOOL_BYTES || part->error != 0)
		return;
	r = io_flush(part->spool, &part->text);
	if (r < 0)
		fail(part, r);
	part->spooled += bytes;
}

void pickle_next(struct pickle_part *part)
{
	if (part->batch == BATCH) {
		strbuf_add_str(&part->text, "e(");
		part->batch = 0;
	}
	part->batch++;
	if (strbuf_failed(&part->text))
		fail(part, -ENOMEM);
	spool(part);
}

void pickle_end_part(struct pickle_part *part)
{
	put_byte(part, 'e');
	if (strbuf_failed(&part->text))
		fail(part, -ENOMEM);
}
