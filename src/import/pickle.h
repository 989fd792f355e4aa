/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads pickles of plain data: dictionaries, lists, tuples, texts, numbers, None. A pickle is a program for a small machine; the
 * instructions that call functions or make objects of a class are not here, so that nothing in a file can ever be run. Protocols 2 to
 * 5. What is not known is refused with a sentence.
 *
 * Texts stay in the file's bytes, which the caller keeps. Memory grows with the bytes of the file and never faster: what is shared in
 * a file is shared here. A container may contain itself; whoever walks must not follow without a bound. Not thread-safe.
 */
#ifndef MSCOPE_IMPORT_PICKLE_H
#define MSCOPE_IMPORT_PICKLE_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"

enum pickle_type {
	PICKLE_NONE,
	PICKLE_BOOL,
	PICKLE_INT, /* of 64 bits; longer ones are cut to the nearest that fits */
	PICKLE_FLOAT,
	PICKLE_TEXT, /* str and bytes */
	PICKLE_LIST, /* and tuples */
	PICKLE_DICT, /* keys and values in turn */
};

struct pickle_value {
	uint8_t type;
	union {
		int64_t number;
		double real;
		const char *text; /* not NUL-terminated */
		uint32_t items;	  /* index in pickle.containers */
	};
	uint32_t length; /* of a text, in bytes */
};

struct pickle_items {
	uint32_t *values;
	size_t count, room;
	uint32_t nested; /* containers inside each other, in it */
};

struct pickle {
	struct pickle_value *values;
	size_t value_count, value_room;
	struct pickle_items *containers;
	size_t container_count, container_room;
	uint32_t root; /* index in `values` */
};

/* True for what begins as a pickle of these protocols does. */
bool pickle_probe(const void *data, size_t bytes);

/*
 * What a file has, up to its first hole, in memory that the caller frees: a copy and no mapping, so that a file that is cut while we read
 * does not end us. 0 or a negative code.
 */
int pickle_load(int fd, uint8_t **out_data, size_t *out_bytes);

/* Reads all of it. `name` is what messages call the file. Needs pickle_fini() in either case. */
int pickle_read(struct pickle *pickle, const void *data, size_t bytes, const char *name,
		struct mscope_error *err);
void pickle_fini(struct pickle *pickle);

/* ---- walking; all of it works on any value, also on UINT32_MAX, which is none ---- */

#define PICKLE_ABSENT UINT32_MAX

/* The items of a list; none of anything else. */
const uint32_t *pickle_list(const struct pickle *pickle, uint32_t value, size_t *out_count);

/* The value of a key of a dictionary; PICKLE_ABSENT if there is none. The last of several counts. */
uint32_t pickle_at(const struct pickle *pickle, uint32_t value, const char *key);

/* A number of at least 0, or `otherwise`. */
uint64_t pickle_u64(const struct pickle *pickle, uint32_t value, uint64_t otherwise);

/* Whether a dictionary has a number by this key that is negative or more than `most`. */
bool pickle_is_beyond(const struct pickle *pickle, uint32_t value, const char *key, uint64_t most);

/* The bytes of a text; "" of anything else. */
const char *pickle_text(const struct pickle *pickle, uint32_t value, size_t *out_length);
bool pickle_is(const struct pickle *pickle, uint32_t value, const char *text);

#endif
