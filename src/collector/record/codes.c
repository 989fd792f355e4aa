/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python functions by number. A writer defines a code object once and then names it by its number; the table maps a fingerprint of
 * the object (interp_code_print()) to the number. When a code object dies and another one gets its address, the fingerprint
 * differs and the new one is defined. The table has sets of four slots, a cache line each; a full set evicts its oldest entry.
 */
#include "collector/record/codes.h"

#include <errno.h>
#include <string.h>

#include "collector/lock.h"
#include "collector/memory.h"
#include "collector/quiet.h"

/* Of the frames of a site, the last ones are kept for the user's own. */
#define SITE_USER_FRAMES 4u

enum code_kind {
	CODE_PASSING = 1, /* of PyTorch, and only calls on: a site does not show it */
	CODE_OTHERS = 2,  /* not the user's own */
};

_Static_assert(CODE_SET_SLOTS * sizeof(struct code_slot) == 64, "a set is one cache line");

/* ---- files that have another name for people ---- */

/* Cells of a notebook, whose files are temporary ones. The newest name of a file is the one that counts. */
#define FILE_NAMES 4096u

struct file_name {
	char file[216];
	char name[40]; /* "": its functions are left out */
};

static struct {
	struct lock lock; /* of those who add */
	_Atomic(struct file_name *) all;
	_Atomic uint32_t count; /* of those that are complete */
} file_names;

static const char *name_of_file(const char *file, uint32_t bytes)
{
	uint32_t i = atomic_load_explicit(&file_names.count, memory_order_acquire);
	const struct file_name *all = atomic_load_explicit(&file_names.all, memory_order_relaxed);

	while (i-- > 0) {
		if (strlen(all[i].file) == bytes && memcmp(all[i].file, file, bytes) == 0)
			return all[i].name;
	}
	return NULL;
}

static int add_file_name(const char *file, const char *name)
{
	struct file_name *all = atomic_load(&file_names.all);
	uint32_t count = atomic_load(&file_names.count);
	const char *now = name_of_file(file, (uint32_t)strlen(file));

	if (now != NULL && strcmp(now, name) == 0)
		return 0;
	if (count == FILE_NAMES)
		return -ENOSPC;
	if (all == NULL) {
		all = quiet_map(FILE_NAMES * sizeof(*all));
		if (all == NULL)
			return -ENOMEM;
		atomic_store(&file_names.all, all);
	}
	memcpy(all[count].file, file, strlen(file) + 1);
	memcpy(all[count].name, name, strlen(name) + 1);
	atomic_store_explicit(&file_names.count, count + 1, memory_order_release);
	return 0;
}

int codes_name_file(const char *file, const char *name)
{
	int result;

	if (strlen(file) >= sizeof(((struct file_name *)0)->file) ||
	    strlen(name) >= sizeof(((struct file_name *)0)->name))
		return -ENAMETOOLONG;
	if (!lock_take(&file_names.lock))
		return -EBUSY;
	result = add_file_name(file, name);
	lock_release(&file_names.lock);
	return result;
}

/* Gives the file in `codes` its name for people; how long that is, -1: its functions are left out. */
static int rename_file(struct known_codes *codes, int bytes)
{
	const char *name = bytes < 0 ? NULL : name_of_file(codes->file, (uint32_t)bytes);

	if (name == NULL)
		return bytes;
	if (name[0] == '\0')
		return -1;
	memcpy(codes->file, name, strlen(name) + 1);
	return (int)strlen(name);
}

/* ---- definitions ---- */

static bool is_own(const char *file, uint32_t bytes)
{
	uint32_t own = atomic_load_explicit(&interp.own_bytes, memory_order_acquire);

	return own != 0 && bytes > own && memcmp(file, interp.own, own) == 0;
}

/* Whether a text has a part; `<` in front of it means that it starts so. */
static bool has_part(const char *text, uint32_t bytes, const char *part)
{
	size_t length = strlen(part);

	if (part[0] == '<')
		return bytes >= length - 1 && memcmp(text, part + 1, length - 1) == 0;
	return memmem(text, bytes, part, length) != NULL;
}

/* Whether a path ends so, and a function's name, without the class or function that it is in. */
static bool is_function(const struct known_codes *codes, uint32_t file_bytes, uint32_t name_bytes,
			const char *file, const char *name)
{
	size_t file_end = strlen(file), name_end = strlen(name);

	return file_bytes >= file_end && name_bytes >= name_end &&
	       memcmp(codes->file + file_bytes - file_end, file, file_end) == 0 &&
	       memcmp(codes->name + name_bytes - name_end, name, name_end) == 0 &&
	       (name_bytes == name_end || codes->name[name_bytes - name_end - 1] == '.');
}

static uint32_t kinds_of(const struct known_codes *codes, uint32_t file_bytes, uint32_t name_bytes)
{
	static const char *const others[] = {
#define SCRIPT(origin, text) text,
#include "base/scripts.def"
	};
	static const struct {
		const char *file, *name;
	} passing[] = {
#define PASSING_SCRIPT(file_, text) {file_, text},
#include "base/scripts.def"
	};
	uint32_t kinds = 0;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(others); i++) {
		if (has_part(codes->file, file_bytes, others[i]))
			kinds |= CODE_OTHERS;
	}
	for (i = 0; i < MSCOPE_COUNT(passing); i++) {
		if (is_function(codes, file_bytes, name_bytes, passing[i].file, passing[i].name))
			kinds |= CODE_PASSING;
	}
	return kinds;
}

static MSCOPE_COLD struct code_slot *define(struct writer *w, struct code_slot *set, uint64_t print,
					    const void *code)
{
	const struct interp_layout *at = &interp.at;
	struct known_codes *codes = w->codes;
	const void *table = interp_pointer(code, at->code_table);
	int file = rename_file(codes, interp_text(interp_pointer(code, at->code_file), codes->file,
						  sizeof(codes->file)));
	int name =
		interp_text(interp_pointer(code, at->code_name), codes->name, sizeof(codes->name));
	uint32_t id = 0, kinds = 0;

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
			return NULL;
		id = w->next_code++;
		kinds = kinds_of(codes, (uint32_t)file, (uint32_t)name);
	}
	memmove(set + 1, set, (CODE_SET_SLOTS - 1) * sizeof(*set));
	set[0] = (struct code_slot){.print = print, .id = id, .kinds = (uint16_t)kinds};
	return set;
}

static MSCOPE_COLD bool codes_map(struct writer *w)
{
	int saved_errno = errno;

	w->codes = quiet_map(sizeof(*w->codes));
	errno = saved_errno;
	return w->codes != NULL;
}

struct code_slot *writer_code_slot_slow(struct writer *w, const void *code)
{
	struct code_slot *set;
	uint64_t print;
	uint32_t i;

	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.state, memory_order_acquire) !=
			    INTERP_READY) &&
	    !interp_verify_slow(NULL))
		return NULL;
	if (MSCOPE_UNLIKELY(w->codes == NULL) && !codes_map(w))
		return NULL;
	print = code_print(code);
	set = code_set(w, print);
	for (i = 0; i < CODE_SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].print == print))
			return &set[i];
	}
	return define(w, set, print, code);
}

uint32_t writer_code(struct writer *w, const void *code)
{
	const struct code_slot *slot = writer_code_slot(w, code);

	return slot == NULL ? 0 : slot->id;
}

/* ---- frames ---- */

/* A frame whose function has its number, in the place of a struct interp_frame. */
struct numbered_frame {
	uint32_t id; /* 0: it is left out */
	uint32_t kinds;
	uint64_t offset;
};

_Static_assert(sizeof(struct numbered_frame) == sizeof(struct interp_frame), "in place");

/* Frames that are left, and of those from the ordinal `from` on the user's own. */
struct frame_counts {
	uint32_t left;
	uint32_t user;
};

static struct frame_counts number_frames(struct writer *w, uint32_t count, bool site, uint32_t from)
{
	struct frame_counts counts = {0};
	uint32_t i;

	for (i = 0; i < count; i++) {
		struct interp_frame frame = w->python_frames[i];
		const struct code_slot *slot = writer_code_slot(w, frame.code);
		struct numbered_frame numbered = {.offset = frame.offset};

		if (slot != NULL && !(site && (slot->kinds & CODE_PASSING))) {
			numbered.id = slot->id;
			numbered.kinds = slot->kinds;
		}
		counts.left += numbered.id != 0;
		counts.user +=
			numbered.id != 0 && counts.left > from && !(numbered.kinds & CODE_OTHERS);
		memcpy(&w->python_frames[i], &numbered, sizeof(numbered));
	}
	return counts;
}

/*
 * Where there are too many, the innermost are kept; a site keeps its last ones for the user's own, or nobody would know who called the
 * framework.
 */
static uint32_t make_words(struct writer *w, uint32_t count, uint32_t depth, bool site, bool *cut,
			   const void **out)
{
	/* In place: a word is half the size of a frame, so words written from the front never overwrite a frame not yet read. */
	uint64_t *words = (uint64_t *)(void *)w->python_frames;
	uint32_t front = site && depth > SITE_USER_FRAMES ? depth - SITE_USER_FRAMES : depth;
	struct frame_counts counts = number_frames(w, count, site, front);
	uint32_t i, used = 0, seen = 0, user, others;

	user = counts.user < depth - front ? counts.user : depth - front;
	others = depth - front - user;
	for (i = 0; i < count; i++) {
		struct numbered_frame frame;

		memcpy(&frame, &w->python_frames[i], sizeof(frame));
		if (frame.id == 0)
			continue;
		if (counts.left > depth && seen++ >= front) {
			uint32_t *room = frame.kinds & CODE_OTHERS ? &others : &user;

			if (*room == 0)
				continue;
			--*room;
		}
		words[used++] = frame.id | frame.offset << 32;
	}
	*cut = counts.left > depth;
	*out = words;
	return used;
}

uint32_t writer_code_frames(struct writer *w, uint32_t count, uint32_t walked, uint32_t depth,
			    bool *cut, const void **out)
{
	uint32_t seen = atomic_load_explicit(&interp.own_seen, memory_order_relaxed);
	uint32_t room = WRITER_FRAMES_MAX, used, found;
	bool site = depth < walked, more;

	/* One frame beyond those says whether the stack goes on. */
	found = interp_frames(w->python_frames, walked < room ? walked + 1 : room);
	more = found > count;
	used = make_words(w, count, depth, site, cut, out);
	/* The first frame of our own package took the place of another one: capture again, with more frames. */
	if (seen == 0 && atomic_load_explicit(&interp.own_seen, memory_order_relaxed) != 0) {
		count = interp_frames(w->python_frames, walked);
		more = false;
		used = make_words(w, count, depth, site, cut, out);
	}
	*cut = *cut || more;
	return used;
}
