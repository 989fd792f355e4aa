/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions by number. A writer defines a code object once and names it by its number then; the table maps a print of
 * the object (python_code_print()) to it. Code objects die, and others come to lie where they were: those have another print and
 * are defined anew. The table has sets of four slots, a cache line each; in a full set the oldest makes room.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/interp/interpreter.h"
#include "collector/memory.h"
#include "collector/record/hot.h"

#define SET_SLOTS 4u

_Static_assert(SET_SLOTS * sizeof(struct code_slot) == 64, "a set is one cache line");

/* ---- texts ---- */

static uint32_t put_character(char *out, uint32_t c)
{
	/* Half a pair: Python's way to keep a byte of a file name that is not UTF-8. */
	if (c >= 0xdc80 && c <= 0xdcff) {
		out[0] = (char)(c - 0xdc00);
		return 1;
	}
	if ((c >= 0xd800 && c <= 0xdfff) || c > 0x10ffff || c == 0)
		c = '?';
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

int python_text(const void *text, char *out, uint32_t room)
{
	const struct python_layout *at = &python.at;
	uint32_t state, kind, used = 0;
	uint64_t length, i;
	const char *data;

	if (!memory_readable(text, at->text_compact) ||
	    python_pointer(text, at->object_type) != python.text_type)
		return -EINVAL;
	state = python_text_state(text);
	kind = state & 7;
	length = python_u64(text, at->text_length);
	if ((state & PYTHON_TEXT_COMPACT) == 0 || (kind != 1 && kind != 2 && kind != 4))
		return -EINVAL;
	if (length > room)
		length = room; /* each character takes a byte at least */
	data = (const char *)text +
	       ((state & PYTHON_TEXT_ASCII) != 0 ? at->text_ascii : at->text_compact);
	if (!memory_readable(data, length * kind))
		return -EINVAL;
	for (i = 0; i < length; i++) {
		uint32_t c, bytes;
		char utf8[4];

		if (kind == 1) {
			c = (uint8_t)data[i];
		} else if (kind == 2) {
			uint16_t wide;

			memcpy(&wide, data + i * 2, sizeof(wide));
			c = wide;
		} else {
			memcpy(&c, data + i * 4, sizeof(c));
		}
		bytes = put_character(utf8, c);
		if (used + bytes > room)
			break;
		memcpy(out + used, utf8, bytes);
		used += bytes;
	}
	return (int)used;
}

/* ---- definitions ---- */

static bool is_own(const char *file, uint32_t bytes)
{
	uint32_t own = atomic_load_explicit(&python.own_bytes, memory_order_acquire);

	return own != 0 && bytes > own && memcmp(file, python.own, own) == 0;
}

static MSCOPE_COLD uint32_t define(struct writer *w, struct code_slot *set, uint64_t print,
				   const void *code)
{
	const struct python_layout *at = &python.at;
	struct python_codes *codes = w->codes;
	const void *table = python_pointer(code, at->code_table);
	int file =
		python_text(python_pointer(code, at->code_file), codes->file, sizeof(codes->file));
	int name =
		python_text(python_pointer(code, at->code_name), codes->name, sizeof(codes->name));
	uint32_t id = 0;

	if (file >= 0 && name >= 0 && is_own(codes->file, (uint32_t)file)) {
		atomic_store_explicit(&python.own_seen, 1, memory_order_relaxed);
	} else if (file >= 0 && name >= 0) {
		struct event_code_def event = {
			.id = w->next_code,
			.first_line = (uint32_t)python_i32(code, at->code_first_line),
			.minor = at->minor,
			.file_bytes = (uint32_t)file,
			.name_bytes = (uint32_t)name,
		};
		uint64_t words[EVENT_BYTES_code_def / 8];
		const void *parts[3] = {codes->file, codes->name};
		uint32_t bytes[3] = {(uint32_t)file, (uint32_t)name};

		/* Without its table a function is still worth its name. */
		if (memory_readable(table, at->bytes_data) &&
		    python_pointer(table, at->object_type) == python.bytes_type) {
			uint64_t size = python_u64(table, at->bytes_size);

			bytes[2] = size < PYTHON_TABLE_MAX ? (uint32_t)size : PYTHON_TABLE_MAX;
			parts[2] = (const char *)table + at->bytes_data;
			if (!memory_readable(parts[2], bytes[2]))
				bytes[2] = 0;
		}
		event.table_bytes = bytes[2];
		event_code_def_encode(words, &event);
		if (!writer_put(w, EVENT_code_def, 0, words, MSCOPE_COUNT(words), parts, bytes,
				bytes[2] != 0 ? 3 : 2))
			return 0;
		id = w->next_code++;
	}
	memmove(set + 1, set, (SET_SLOTS - 1) * sizeof(*set));
	set[0] = (struct code_slot){.print = print, .id = id};
	return id;
}

static MSCOPE_COLD bool codes_map(struct writer *w)
{
	int saved_errno = errno;
	void *p = mmap(NULL, sizeof(*w->codes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	errno = saved_errno;
	if (p == MAP_FAILED)
		return false;
	w->codes = p;
	return true;
}

uint32_t python_code(struct writer *w, const void *code)
{
	struct code_slot *set;
	uint64_t print;
	uint32_t i;

	if (MSCOPE_UNLIKELY(atomic_load_explicit(&python.state, memory_order_acquire) !=
			    PYTHON_READY) &&
	    !python_verify_slow(NULL))
		return 0;
	if (MSCOPE_UNLIKELY(w->codes == NULL) && !codes_map(w))
		return 0;
	print = python_code_print(code);
	print = (print ^ print >> 32) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	set = &w->codes->slots[print >> 40 & (PYTHON_CODES - SET_SLOTS)];
	for (i = 0; i < SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].print == print))
			return set[i].id;
	}
	return define(w, set, print, code);
}
