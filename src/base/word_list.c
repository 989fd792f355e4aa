/* SPDX-License-Identifier: Apache-2.0 */
#include "base/word_list.h"

#include <errno.h>

#include "base/array.h"

uint64_t words_next(struct words *words, uint64_t value)
{
	if (!words_load(words)) {
		strbuf_add(words->out, &value, sizeof(value));
		return value;
	}
	value = 0;
	words_memory(words, &value, sizeof(value));
	return value;
}

size_t words_count(struct words *words, size_t count)
{
	uint64_t said = words_next(words, count);

	if (!words_load(words) || said <= words->left)
		return (size_t)said;
	words->failed = true;
	return 0;
}

int words_array(struct words *words, void *pointer, size_t *count, size_t *room,
		size_t element_bytes)
{
	size_t entries = words_count(words, *count);
	void *all;

	if (!words_load(words))
		return 0;
	*count = 0;
	if (entries * element_bytes / (16 * sizeof(uint64_t)) > words->left) {
		words->failed = true;
		return 0;
	}
	if (array_reserve(pointer, room, entries, element_bytes) < 0)
		return -ENOMEM;
	memcpy(&all, pointer, sizeof(all));
	if (entries > 0)
		memset(all, 0, entries * element_bytes);
	*count = entries;
	return 0;
}

void words_memory(struct words *words, void *memory, size_t bytes)
{
	if (!words_load(words)) {
		strbuf_add(words->out, memory, bytes);
		return;
	}
	if (bytes / sizeof(uint64_t) > words->left) {
		words->failed = true;
		words->left = 0;
		return;
	}
	memcpy(memory, words->at, bytes);
	words->at += bytes;
	words->left -= bytes / sizeof(uint64_t);
}
