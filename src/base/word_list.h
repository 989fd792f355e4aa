/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that a checkpoint keeps, as words of 64 bits. One function names the fields, and serves to save them and to load them:
 *
 *     KEEP(words, place->bytes);                               saving: its value is appended; loading: it gets what was saved
 *     r = words_array(words, &all, &count, &room, sizeof(*all));   how many elements there are; loading: makes them, zeroed
 *
 * What is loaded comes from a file. Who loads it checks it, and sets `failed` when it cannot be.
 */
#ifndef MSCOPE_BASE_WORD_LIST_H
#define MSCOPE_BASE_WORD_LIST_H

#include "base/strbuf.h"

/* Zeroed but for `out`, or for `at` and `left`. */
struct words {
	struct strbuf *out; /* saving: where words go; NULL: they are loaded */
	const uint8_t *at;  /* loading: what is left, aligned in any way */
	size_t left;	    /* words */
	bool failed;	    /* there were not enough, or they cannot be */
};

static inline bool words_load(const struct words *words)
{
	return words->out == NULL;
}

/* Saving: appends `value` and returns it. Loading: the next word; 0 and `failed` when there is none. */
uint64_t words_next(struct words *words, uint64_t value);

/* The number of entries that follow, each of at least one word. Loading, a number that the words left cannot hold is 0 and `failed`. */
size_t words_count(struct words *words, size_t count);

/*
 * The elements of an array (base/array.h), which the caller then saves or loads one by one. Loading, there are none if what is left is
 * less than a sixteenth of them. 0 or -ENOMEM.
 */
int words_array(struct words *words, void *pointer, size_t *count, size_t *room,
		size_t element_bytes);

/* Plain memory of whole words: structs of numbers, without pointers and padding. */
void words_memory(struct words *words, void *memory, size_t bytes);

/* A number or a bool. */
#define KEEP(words, field) ((field) = (__typeof__(field))words_next(words, (uint64_t)(field)))

#endif
