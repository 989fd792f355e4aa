/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions by number. A writer defines a code object once and then names it by its number; the table maps a fingerprint of
 * the object (interp_code_print()) to the number. When a code object dies and another one gets its address, the fingerprint
 * differs and the new one is defined. The table has sets of four slots, a cache line each; a full set evicts its oldest entry.
 */
#include "collector/record/codes.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/memory.h"

#define CODE_SLOTS 4096u /* a power of two */
#define SET_SLOTS  4u

struct code_slot {
	uint64_t print; /* 0: empty */
	uint32_t id;	/* 0: not to be named */
	uint32_t reserved;
};

struct known_codes {
	struct code_slot slots[CODE_SLOTS];
	char file[INTERP_PATH_MAX];
	char name[INTERP_NAME_MAX];
};

_Static_assert(SET_SLOTS * sizeof(struct code_slot) == 64, "a set is one cache line");

/* ---- definitions ---- */

static bool is_own(const char *file, uint32_t bytes)
{
	uint32_t own = atomic_load_explicit(&interp.own_bytes, memory_order_acquire);

	return own != 0 && bytes > own && memcmp(file, interp.own, own) == 0;
}

static MSCOPE_COLD uint32_t define(struct writer *w, struct code_slot *set, uint64_t print,
				   const void *code)
{
	const struct interp_layout *at = &interp.at;
	struct known_codes *codes = w->codes;
	const void *table = interp_pointer(code, at->code_table);
	int file =
		interp_text(interp_pointer(code, at->code_file), codes->file, sizeof(codes->file));
	int name =
		interp_text(interp_pointer(code, at->code_name), codes->name, sizeof(codes->name));
	uint32_t id = 0;

	if (file >= 0 && name >= 0 && is_own(codes->file, (uint32_t)file)) {
		atomic_store_explicit(&interp.own_seen, 1, memory_order_relaxed);
	} else if (file >= 0 && name >= 0) {
		struct event_code_def event = {
			.id = w->next_code,
			.first_line = (uint32_t)interp_i32(code, at->code_first_line),
			.minor = at->minor,
			.file_bytes = (uint32_t)file,
			.name_bytes = (uint32_t)name,
		};
		uint64_t words[EVENT_BYTES_code_def / 8];
		const void *parts[3] = {codes->file, codes->name};
		uint32_t bytes[3] = {(uint32_t)file, (uint32_t)name};

		/* A function without its line table still has its name. */
		if (memory_readable(table, at->bytes_data) &&
		    interp_pointer(table, at->object_type) == interp.bytes_type) {
			uint64_t size = interp_u64(table, at->bytes_size);

			bytes[2] = size < INTERP_TABLE_MAX ? (uint32_t)size : INTERP_TABLE_MAX;
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

uint32_t writer_code(struct writer *w, const void *code)
{
	struct code_slot *set;
	uint64_t print;
	uint32_t i;

	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.state, memory_order_acquire) !=
			    INTERP_READY) &&
	    !interp_verify_slow(NULL))
		return 0;
	if (MSCOPE_UNLIKELY(w->codes == NULL) && !codes_map(w))
		return 0;
	print = interp_code_print(code);
	print = (print ^ print >> 32) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	set = &w->codes->slots[print >> 40 & (CODE_SLOTS - SET_SLOTS)];
	for (i = 0; i < SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].print == print))
			return set[i].id;
	}
	return define(w, set, print, code);
}

/* ---- frames ---- */

static uint32_t make_words(struct writer *w, uint32_t count, uint32_t depth, const void **out)
{
	/* In place: a word is half the size of a frame, so words written from the front never overwrite a frame not yet read. */
	uint64_t *words = (uint64_t *)(void *)w->python_frames;
	uint32_t i, used = 0;

	for (i = 0; i < count && used < depth; i++) {
		struct interp_frame frame = w->python_frames[i];
		uint32_t code = writer_code(w, frame.code);

		if (code != 0)
			words[used++] = code | frame.offset << 32;
	}
	*out = words;
	return used;
}

uint32_t writer_code_frames(struct writer *w, uint32_t count, uint32_t depth, const void **out)
{
	uint32_t seen = atomic_load_explicit(&interp.own_seen, memory_order_relaxed);
	uint32_t used = make_words(w, count, depth, out);
	uint64_t hash = 0;

	/* The first frame of our own package took the place of another one: capture again, with more frames. */
	if (seen == 0 && atomic_load_explicit(&interp.own_seen, memory_order_relaxed) != 0)
		used = make_words(w, interp_frames(w->python_frames, depth, &hash), depth, out);
	return used;
}
