/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet/parquet_dictionary.h"

#include <stdlib.h>

#include <xxhash.h>

#include "base/array.h"
#include "base/shown.h"
#include "base/utf8.h"

void dictionary_fini(struct parquet_dictionary *dictionary)
{
	strbuf_fini(&dictionary->body);
	free(dictionary->entries);
	free(dictionary->slots);
	*dictionary = (struct parquet_dictionary){0};
}

void dictionary_reset(struct parquet_dictionary *dictionary)
{
	strbuf_reset(&dictionary->body);
	if (dictionary->slots != NULL)
		memset(dictionary->slots, 0, ((size_t)dictionary->mask + 1) * sizeof(uint32_t));
	dictionary->count = dictionary->last = 0;
}

const char *dictionary_get(const struct parquet_dictionary *dictionary, uint32_t entry,
			   size_t *out_bytes)
{
	const char *at = dictionary->body.data + dictionary->entries[entry].at;
	uint32_t bytes;

	memcpy(&bytes, at, sizeof(bytes));
	*out_bytes = bytes;
	return at + sizeof(bytes);
}

size_t dictionary_bytes(const struct parquet_dictionary *dictionary)
{
	return dictionary->body.length + dictionary->entry_room * sizeof(*dictionary->entries) +
	       (dictionary->mask == 0 ? 0 : ((size_t)dictionary->mask + 1) * sizeof(uint32_t));
}

static int64_t number_at(const struct parquet_dictionary *dictionary, uint32_t entry)
{
	int64_t value;

	memcpy(&value, dictionary->body.data + (size_t)entry * sizeof(value), sizeof(value));
	return value;
}

static uint64_t number_hash(int64_t value)
{
	uint64_t hash = (uint64_t)value * UINT64_C(0x9e3779b97f4a7c15);

	return hash ^ hash >> 32;
}

/* Room for one more: twice the slots when half of them are taken. */
static bool grow(struct parquet_dictionary *dictionary, bool texts)
{
	uint32_t slots = dictionary->mask == 0 ? 64 : (dictionary->mask + 1) * 2, *table, i, at;

	if (dictionary->mask != 0 && dictionary->count * 2 <= dictionary->mask)
		return true;
	table = calloc(slots, sizeof(*table));
	if (table == NULL)
		return false;
	for (i = 0; i < dictionary->count; i++) {
		at = (uint32_t)(texts ? dictionary->entries[i].hash
				      : number_hash(number_at(dictionary, i)));
		while (table[at & (slots - 1)] != 0)
			at++;
		table[at & (slots - 1)] = i + 1;
	}
	free(dictionary->slots);
	dictionary->slots = table;
	dictionary->mask = slots - 1;
	return true;
}

static bool is_text(const struct parquet_dictionary *dictionary, uint32_t entry, const char *text,
		    size_t bytes)
{
	size_t have;
	const char *known = dictionary_get(dictionary, entry, &have);

	return have == bytes && memcmp(known, text, bytes) == 0;
}

static uint32_t add_text(struct parquet_dictionary *dictionary, uint32_t slot, uint64_t hash,
			 const char *text, size_t bytes)
{
	uint32_t length = (uint32_t)bytes, entry = dictionary->count;
	size_t at = dictionary->body.length;

	if (at + bytes > UINT32_MAX - sizeof(length) ||
	    ARRAY_RESERVE(dictionary->entries, dictionary->entry_room, entry + 1u) < 0)
		return DICTIONARY_NONE;
	strbuf_add(&dictionary->body, &length, sizeof(length));
	strbuf_add(&dictionary->body, text, bytes);
	if (strbuf_failed(&dictionary->body))
		return DICTIONARY_NONE;
	dictionary->entries[entry] = (struct dictionary_entry){.hash = hash, .at = (uint32_t)at};
	dictionary->slots[slot] = entry + 1;
	dictionary->count++;
	return entry;
}

/* Texts of an earlier file may have any bytes. */
static uint32_t add_valid(struct parquet_dictionary *dictionary, const char *text, size_t bytes)
{
	struct strbuf valid = {0};
	uint32_t entry = DICTIONARY_NONE;

	strbuf_add_valid(&valid, text, bytes);
	if (!strbuf_failed(&valid))
		entry = dictionary_text(dictionary, strbuf_str(&valid), valid.length);
	strbuf_fini(&valid);
	return entry;
}

uint32_t dictionary_text(struct parquet_dictionary *dictionary, const char *text, size_t bytes)
{
	uint64_t hash;
	uint32_t slot, entry;

	if (dictionary->count > 0 && is_text(dictionary, dictionary->last, text, bytes))
		return dictionary->last;
	if (!grow(dictionary, true))
		return DICTIONARY_NONE;
	hash = XXH3_64bits(text, bytes);
	for (slot = (uint32_t)hash & dictionary->mask; (entry = dictionary->slots[slot]) != 0;
	     slot = (slot + 1) & dictionary->mask) {
		entry--;
		if (dictionary->entries[entry].hash == hash &&
		    is_text(dictionary, entry, text, bytes))
			return dictionary->last = entry;
	}
	if (!utf8_is_valid(text, bytes))
		return add_valid(dictionary, text, bytes);
	entry = add_text(dictionary, slot, hash, text, bytes);
	if (entry != DICTIONARY_NONE)
		dictionary->last = entry;
	return entry;
}

uint32_t dictionary_number(struct parquet_dictionary *dictionary, int64_t value)
{
	uint32_t slot, entry;

	if (dictionary->count > 0 && number_at(dictionary, dictionary->last) == value)
		return dictionary->last;
	if (!grow(dictionary, false))
		return DICTIONARY_NONE;
	for (slot = (uint32_t)number_hash(value) & dictionary->mask;
	     (entry = dictionary->slots[slot]) != 0; slot = (slot + 1) & dictionary->mask) {
		if (number_at(dictionary, entry - 1) == value)
			return dictionary->last = entry - 1;
	}
	strbuf_add(&dictionary->body, &value, sizeof(value));
	if (strbuf_failed(&dictionary->body))
		return DICTIONARY_NONE;
	dictionary->slots[slot] = dictionary->count + 1;
	dictionary->last = dictionary->count++;
	return dictionary->last;
}
