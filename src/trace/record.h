/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as C sees them, all generated from events.def: numbers, one struct per event with a member per field, a decoder and
 * an encoder for each, and the length table. Header-only, because the injected library uses it as well as the engine.
 */
#ifndef MSCOPE_TRACE_RECORD_H
#define MSCOPE_TRACE_RECORD_H

#include <string.h>

#include "base/compiler.h"

enum event_type {
	EVENT_NONE = 0, /* never valid: zeroed memory is not a record */
#define EVENT(number, name, words, shape, fields, meaning) EVENT_##name = (number),
#include "trace/events.def"
#undef EVENT
	EVENT_END
};

/* Bytes of the fixed part, as EVENT_BYTES_block_alloc. */
enum event_bytes {
#define EVENT(number, name, words, shape, fields, meaning) EVENT_BYTES_##name = (words)*8,
#include "trace/events.def"
#undef EVENT
};

#define FIELD(name, word, shift, bits, meaning) uint64_t name;
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	struct event_##name {                                                                      \
		fields                                                                             \
	};
#include "trace/events.def"
#undef EVENT
#undef FIELD

#define RECORD_MASK(bits) ((bits) == 64 ? UINT64_MAX : (UINT64_C(1) << ((bits)&63)) - 1)

#define FIELD(name, word, shift, bits, meaning) out->name = w[word] >> (shift)&RECORD_MASK(bits);
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	MSCOPE_INLINE void event_##name##_decode(const uint64_t *w, struct event_##name *out)      \
	{                                                                                          \
		fields                                                                             \
	}
#include "trace/events.def"
#undef EVENT
#undef FIELD

/*
 * Fills words 1.. of the fixed part; word 0 is record_word0()'s, but for the fields of the few events that have some there. Values wider
 * than their field are cut.
 */
#define FIELD(name, word, shift, bits, meaning)                                                    \
	w[word] = (w[word] & ~(RECORD_MASK(bits) << (shift))) | (in->name & RECORD_MASK(bits))     \
									<< (shift);
#define EVENT(number, name, words, shape, fields, meaning)                                         \
	MSCOPE_INLINE void event_##name##_encode(uint64_t *w, const struct event_##name *in)       \
	{                                                                                          \
		for (int i = 1; i < (words); i++)                                                  \
			w[i] = 0;                                                                  \
		fields                                                                             \
	}
#include "trace/events.def"
#undef EVENT
#undef FIELD

MSCOPE_INLINE uint64_t record_word0(enum event_type type, uint32_t context, uint32_t delta_ns)
{
	return (uint64_t)type | (uint64_t)context << 8 | (uint64_t)delta_ns << 32;
}

MSCOPE_INLINE uint32_t record_type(uint64_t word0)
{
	return word0 & 0xff;
}

MSCOPE_INLINE uint32_t record_context(uint64_t word0)
{
	return word0 >> 8 & 0xffffff;
}

MSCOPE_INLINE uint32_t record_delta(uint64_t word0)
{
	return (uint32_t)(word0 >> 32);
}

#define CONTEXT_MAX	0xffffffu
#define STACK_MAX	0xffffffu
#define SIZE_NARROW_MAX ((UINT64_C(1) << 40) - 1)

#endif
