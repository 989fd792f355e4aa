/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a thread has for the Python trace: the functions that it is in, the texts of C functions, and how its records are made. A call that
 * is known and its return are a word each, with the time by the near clock; all else is a `call` of three words.
 */
#ifndef MSCOPE_COLLECTOR_PYTHON_CALL_RECORDS_H
#define MSCOPE_COLLECTOR_PYTHON_CALL_RECORDS_H

#include "collector/python/near_clock.h"
#include "collector/record/codes.h"

#define C_FUNCTIONS 2048u /* slots for texts of C functions, a power of two */

struct c_function {
	const void *definition; /* PyMethodDef, NULL: empty */
	const void *name;	/* of the definition: another one may come to lie there */
	const void *type;	/* of the object that it is a method of */
	uint32_t text;
	uint32_t reserved;
};

/* A function that this thread is in. Its code object lives as long, so the address identifies it. */
struct entered {
	const void *code;
	uint32_t id;
	uint32_t imports; /* it is of the import system */
};

/* Functions that are remembered; deeper ones are looked up again when they are left. */
#define DEPTH 1024u

/* Of a thread; belongs to its writer and passes on with it. */
struct call_state {
	struct near_clock clock;
	uint32_t depth; /* may be larger than what is remembered */
	struct entered entered[DEPTH];
	struct c_function functions[C_FUNCTIONS];
};

/* ---- records ---- */

#define NOT_BEGUN UINT32_MAX

MSCOPE_INLINE void put_call(struct writer *w, uint32_t kind, uint32_t what, uint32_t at)
{
	uint64_t *words;
	uint32_t delta;

	if (!record_room(w, RECORD_ROOM))
		return;
	delta = record_begin(w);
	words = (uint64_t *)(void *)(w->chunk + w->used);
	words[0] = record_word0(EVENT_call, 0, delta);
	words[1] = what | (uint64_t)at << 32;
	words[2] = kind;
	record_commit(w, EVENT_BYTES_call);
}

/* The same in `bytes`: word 0 without its time, and a second word where there is room. */
MSCOPE_INLINE void put_near(struct writer *w, uint64_t word0, uint64_t word1, uint32_t bytes)
{
	struct near_clock *near = &w->calls->clock;
	uint8_t *at;
	uint64_t delta;

	if (!record_room(w, RECORD_ROOM))
		return;
	at = w->chunk + w->used;
	record_busy(w);
	delta = near_clock_delta(near, w, &at);
	memcpy(at, &(uint64_t){word0 | delta << 32}, 8);
	if (bytes > 8)
		memcpy(at + 8, &word1, 8);
	record_commit(w, bytes);
	near->next = at + bytes;
}

/* Functions with a number that fits a record of one word. */
#define SHORT_CODES (UINT32_C(1) << 21)

/* A function that has a number, and such a one. */
MSCOPE_INLINE bool is_short(uint32_t code)
{
	return code - 1 < SHORT_CODES - 1;
}

MSCOPE_INLINE void put_short(struct writer *w, uint32_t kind, uint32_t code)
{
	put_near(w, EVENT_call_short | kind << 8 | (uint64_t)code << 11, 0, EVENT_BYTES_call_short);
}

MSCOPE_INLINE void put_function(struct writer *w, uint32_t kind, uint32_t code)
{
	if (MSCOPE_LIKELY(is_short(code)))
		put_short(w, kind, code);
	else
		put_call(w, kind, code, NOT_BEGUN);
}

MSCOPE_INLINE void put_c(struct writer *w, uint32_t text, uint32_t offset)
{
	put_near(w, EVENT_call_c, text | (uint64_t)offset << 32, EVENT_BYTES_call_c);
}

/* ---- what the thread is in ---- */

/*
 * The code number of the function that the thread is in, without computing its fingerprint. Where calls and returns do not pair
 * (greenlets), or the call was not seen, nothing is remembered and the number is looked up.
 */
MSCOPE_INLINE uint32_t innermost_id(struct writer *w, const void *code)
{
	struct call_state *calls = w->calls;

	if (MSCOPE_LIKELY(calls->depth > 0 && calls->depth <= DEPTH &&
			  calls->entered[calls->depth - 1].code == code))
		return calls->entered[calls->depth - 1].id;
	if (calls->depth <= DEPTH)
		calls->depth = 0;
	return writer_code(w, code);
}

MSCOPE_INLINE void remember(struct call_state *calls, const void *code, uint32_t id, bool imports)
{
	if (MSCOPE_LIKELY(calls->depth < DEPTH))
		calls->entered[calls->depth] =
			(struct entered){.code = code, .id = id, .imports = imports};
	calls->depth++;
}

MSCOPE_INLINE void forget(struct call_state *calls)
{
	if (calls->depth > 0)
		calls->depth--;
}

/* The innermost function that the thread is in, if it is this one and has records of one word. */
MSCOPE_INLINE const struct entered *near_innermost(const struct writer *w, const void *code)
{
	const struct call_state *calls = w->calls;
	const struct entered *entered;

	if (MSCOPE_UNLIKELY(calls->depth - 1 >= DEPTH))
		return NULL;
	entered = &calls->entered[calls->depth - 1];
	return MSCOPE_LIKELY(entered->code == code && is_short(entered->id)) ? entered : NULL;
}

#endif
