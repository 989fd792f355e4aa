/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event table as text, generated from events.def. Each trace carries the copy of its writer, so that a later reader can
 * skip or print what it does not know. One line per event:  number name words FIXED|VARIABLE field:word:shift:bits ...
 */
#ifndef MSCOPE_TRACE_TABLE_H
#define MSCOPE_TRACE_TABLE_H

#include "base/compiler.h"

#define FIELD(name, word, shift, bits, meaning) " " #name ":" #word ":" #shift ":" #bits
#define EVENT(number, name, words, shape, fields, meaning)                                         \
#number " " #name " " #words " " #shape fields "\n"
static const char trace_table[] =
#include "trace/events.def"
	;
#undef EVENT
#undef FIELD

static inline const char *trace_table_text(void)
{
	return trace_table;
}

static inline size_t trace_table_bytes(void)
{
	return sizeof(trace_table) - 1;
}

#endif
