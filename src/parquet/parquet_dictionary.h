/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dictionary of a column in one row group: each distinct value once, numbered as they come. `body` is what the dictionary page
 * holds: texts with their length, 32 bits, before them, or numbers of 64 bits. A zeroed struct is an empty one.
 */
#ifndef MSCOPE_PARQUET_PARQUET_DICTIONARY_H
#define MSCOPE_PARQUET_PARQUET_DICTIONARY_H

#include <stdbool.h>

#include "base/strbuf.h"

#define DICTIONARY_NONE UINT32_MAX

struct dictionary_entry {
	uint64_t hash;
	uint32_t at; /* in `body`, of a text its length */
};

struct parquet_dictionary {
	struct strbuf body;
	struct dictionary_entry *entries; /* of texts */
	size_t entry_room;
	uint32_t *slots; /* entry + 1; 0: free */
	uint32_t mask;	 /* slots - 1; 0 while there are none */
	uint32_t count;
	uint32_t last; /* entry that was asked for last */
};

void dictionary_fini(struct parquet_dictionary *dictionary);

/* Empties it; its memory stays for the next row group. */
void dictionary_reset(struct parquet_dictionary *dictionary);

/* Number of a text or of a number, added if it is new; DICTIONARY_NONE: no memory. */
uint32_t dictionary_text(struct parquet_dictionary *dictionary, const char *text, size_t bytes);
uint32_t dictionary_number(struct parquet_dictionary *dictionary, int64_t value);

/* A text of the dictionary. */
const char *dictionary_get(const struct parquet_dictionary *dictionary, uint32_t entry,
			   size_t *out_bytes);

/* Bytes that it takes. */
size_t dictionary_bytes(const struct parquet_dictionary *dictionary);

#endif
