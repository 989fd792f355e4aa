/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks, C and Python as one. C frames come from our own unwinder (unwind/unwind.c), Python frames from the interpreter's own
 * memory (interp/frames.c).
 *
 * A stack is written once per writer and then named by its number: the table maps a 64-bit hash of the frames to the number. Two
 * different stacks with the same hash are as likely as a flipped bit in memory. The table has sets of four slots, a cache line
 * each; a full set evicts its oldest stack, which is written again when it comes back.
 */
#include "collector/record/capture.h"

#include <errno.h>
#include <string.h>

#include "collector/record/codes.h"
#include "collector/record/module_map.h"
#include "collector/sys.h"
#include "collector/unwind/frame_tables.h"
#include "collector/unwind/unwind.h"

#define SET_SLOTS 4u

/* Frames of ours and of a driver that are left out at most. */
#define DRIVER_FRAMES 48u

_Static_assert(SET_SLOTS * sizeof(struct stack_slot) == 64, "a set is one cache line");

/* The linker defines these where a function is CAPTURE_LEFT_OUT. */
extern const char __start_mscope_left_out[] __attribute__((weak, visibility("hidden")));
extern const char __stop_mscope_left_out[] __attribute__((weak, visibility("hidden")));

void stack_switch(bool on)
{
	uint32_t c = on ? collector.c_depth : 0;
	uint32_t python_depth = on && interp_find_slow() ? collector.python_depth : 0;

	if (c > WRITER_FRAMES_MAX)
		c = WRITER_FRAMES_MAX;
	if (python_depth > WRITER_FRAMES_MAX)
		python_depth = WRITER_FRAMES_MAX;
	atomic_store(&collector_switch.c_depth, c);
	atomic_store(&collector_switch.python_depth, python_depth);
	atomic_store(&collector_switch.python_shown,
		     collector.python_shown != 0 ? python_depth : 0);
}

void stack_check_interpreter(void)
{
	bool on = recording_now() == RECORDING_ON, set;

	if (MSCOPE_LIKELY(!on || collector.python_depth == 0 ||
			  atomic_load_explicit(&collector_switch.python_depth,
					       memory_order_relaxed) != 0))
		return;
	/* A window may begin or end meanwhile: the last one to set the depths must have seen the final state. */
	do {
		set = on;
		stack_switch(set);
		on = atomic_load(&collector_switch.recording) == RECORDING_ON;
	} while (on != set);
}

static uint64_t hash_frames(void *const *frames, uint32_t count)
{
	uint64_t hash = count;
	uint32_t i;

	for (i = 0; i < count; i++) {
		hash ^= (uint64_t)(uintptr_t)frames[i];
		hash *= UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	return hash;
}

/* The frames of a stack, in the writer's own room or in that of a known walk. */
struct found {
	void **frames;
	uint32_t c_frames;
	uint32_t c_known; /* with those beyond the depth that is asked for */
	uint32_t python_frames;
	struct known_walk *walk; /* of the C frames, NULL: it is new */
};

static bool is_left_out(const void *frame)
{
	const char *at = frame;

	return at >= __start_mscope_left_out && at < __stop_mscope_left_out;
}

/* The program's stack without ours: leaves out frames between main() and what calls it, and takes others in their place. */
static void leave_out(struct found *found)
{
	uint32_t kept = 0, i;

	for (i = 0; i < found->c_known && kept < found->c_frames; i++) {
		if (!is_left_out(found->frames[i]))
			found->frames[kept++] = found->frames[i];
	}
	found->c_frames = kept;
}

static MSCOPE_COLD uint32_t define(struct writer *w, struct stack_slot *set, uint64_t hash,
				   uint32_t epoch, struct found *found, uint32_t python_depth)
{
	struct event_stack_def event = {0};
	uint64_t words[EVENT_BYTES_stack_def / 8];
	const void *parts[2];
	uint32_t bytes[2];

	if (found->frames < w->frames || found->frames >= w->frames + MSCOPE_COUNT(w->frames)) {
		memcpy(w->frames, found->frames, found->c_known * sizeof(found->frames[0]));
		found->frames = w->frames;
	}
	leave_out(found);
	parts[0] = found->frames;
	event.c_frames = found->c_frames;
	bytes[0] = found->c_frames * 8;
	/* What the stack refers to is defined before it. */
	if (found->python_frames > 0) {
		bool site = atomic_load(&collector_switch.python_shown) == 0, cut;

		event.python_frames = writer_code_frames(w, found->python_frames, python_depth,
							 site && SESSION_SITE_FRAMES < python_depth
								 ? SESSION_SITE_FRAMES
								 : python_depth,
							 &cut, &parts[1]);
		event.python_cut = cut;
	}
	if (event.c_frames + event.python_frames == 0)
		return 0;
	event.id = w->next_stack;
	bytes[1] = (uint32_t)event.python_frames * 8;
	event_stack_def_encode(words, &event);
	if (!writer_put(w, EVENT_stack_def, 0, words, MSCOPE_COUNT(words), parts, bytes,
			bytes[1] != 0 ? 2 : 1))
		return 0;
	memmove(set + 1, set, (SET_SLOTS - 1) * sizeof(*set));
	set[0] = (struct stack_slot){.hash = hash, .id = w->next_stack++, .epoch = epoch};
	return set[0].id;
}

static MSCOPE_COLD bool table_map(struct writer *w)
{
	w->stacks = quiet_map(WRITER_STACKS * sizeof(*w->stacks));
	/* Faster with it, the same without. */
	if (w->walks.store == NULL)
		w->walks.store = quiet_map(sizeof(*w->walks.store));
	return w->stacks != NULL;
}

extern const char __ehdr_start[] MSCOPE_HIDDEN;
extern const char etext[] MSCOPE_HIDDEN;

/* How many of the innermost frames are this library's. */
static uint32_t count_ours(void *const *frames, uint32_t count)
{
	uint32_t ours = 0;

	while (ours < count && (const char *)frames[ours] >= __ehdr_start &&
	       (const char *)frames[ours] < etext)
		ours++;
	return ours;
}

/* Code of a driver that calls us, and of its interface for tools. */
#define DRIVERS_MAX 4u
static struct code_span {
	uintptr_t start;
	_Atomic uintptr_t bytes; /* 0: none */
} drivers[DRIVERS_MAX];

void stack_add_driver(uintptr_t start, size_t bytes)
{
	uint32_t i;

	for (i = 0; i < DRIVERS_MAX; i++) {
		if (atomic_load(&drivers[i].bytes) != 0 && drivers[i].start != start)
			continue;
		drivers[i].start = start;
		atomic_store_explicit(&drivers[i].bytes, bytes, memory_order_release);
		break;
	}
}

static bool is_driver(uintptr_t at)
{
	uint32_t i;

	for (i = 0; i < DRIVERS_MAX; i++) {
		uintptr_t bytes = atomic_load_explicit(&drivers[i].bytes, memory_order_acquire);

		if (bytes != 0 && at - drivers[i].start < bytes)
			return true;
	}
	return false;
}

/* C frames from the one on that called the driver. */
static __attribute__((noinline)) uint32_t walk_past_driver(struct writer *w, uint32_t depth,
							   uint32_t *out_skip)
{
	const uint32_t room = WRITER_FRAMES_MAX + 16;
	uint32_t most = depth + DRIVER_FRAMES < room ? depth + DRIVER_FRAMES : room;
	uint32_t got = unwind_frames(&w->stack, NULL, w->frames, most);
	uint32_t skip = count_ours(w->frames, got), ours = skip;

	while (skip < got && is_driver((uintptr_t)w->frames[skip]))
		skip++;
	*out_skip = skip < got ? skip : ours;
	return got;
}

/* What a walk knew of the loaded objects. */
struct tables_seen {
	uint32_t epoch;
	uint32_t version;
};

MSCOPE_INLINE struct tables_seen tables_now(void)
{
	return (struct tables_seen){
		.epoch = atomic_load_explicit(&unwind_now.epoch, memory_order_acquire),
		.version = atomic_load_explicit(&unwind_now.version, memory_order_acquire),
	};
}

/* Of a walk's frames those behind the innermost `skip`. */
MSCOPE_INLINE void take_frames(struct found *found, void **frames, uint32_t got, uint32_t skip,
			       uint32_t depth)
{
	found->frames = frames + skip;
	found->c_known = got - skip;
	found->c_frames = found->c_known < depth ? found->c_known : depth;
}

/*
 * Remembers a walk with the frames that make the stack and no more: ways that differ further out are one stack, and one walk. All of it where
 * frames further out take the place of ours.
 */
static void keep_walk(struct writer *w, uint32_t got, uint32_t depth, uint32_t skip, uint64_t hash)
{
	uint32_t taken = skip + depth, i;

	for (i = skip; i < taken && i < got && !is_left_out(w->frames[i]); i++)
		;
	if (i == taken && taken < got) {
		got = taken;
		walk_cut(&w->stack.reads, got);
	}
	walk_keep(&w->walks, &w->stack, w->frames, got, depth + 4, skip, hash);
}

/* Finds C frames, from `caller` on, which is near; `deep`: from the first frame on that is not ours. Returns their hash. */
MSCOPE_INLINE uint64_t walk_c(struct writer *w, const void *caller, uint32_t depth, bool deep,
			      struct found *found)
{
	struct known_walks *walks = !deep && w->walks.store != NULL ? &w->walks : NULL;
	uint32_t got, skip = 0;
	uint64_t hash;

	found->walk = NULL;
	if (MSCOPE_UNLIKELY(caller == STACK_PAST_DRIVER)) {
		got = walk_past_driver(w, depth, &skip);
		goto found;
	}
	/* A few frames more than asked for, since the innermost are ours. */
	got = unwind_frames(&w->stack, walks, w->frames, depth + (deep ? 16 : 4));
	if (MSCOPE_LIKELY(walks != NULL && walks->found != NULL)) {
		struct known_walk *known = walks->found;

		found->walk = known;
		take_frames(found, walk_frames(known), got, known->skip, depth);
		return known->hash;
	}
	while (!deep && skip < 4 && skip < got && w->frames[skip] != caller)
		skip++;
	if (deep)
		skip = count_ours(w->frames, got);
	else if (skip == 4 || skip == got)
		skip = 0; /* the unwinder did not find the caller: keep all frames */
found:
	take_frames(found, w->frames, got, skip, depth);
	hash = hash_frames(found->frames, found->c_frames);
	if (walks != NULL && caller != STACK_PAST_DRIVER)
		keep_walk(w, got, depth, skip, hash);
	return hash;
}

/* The slot of a stack that is known, NULL: it is new. */
MSCOPE_INLINE struct stack_slot *slot_find(struct stack_slot *set, uint64_t hash, uint32_t epoch)
{
	uint32_t i;

	for (i = 0; i < SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].hash == hash && set[i].epoch == epoch))
			return &set[i];
	}
	return NULL;
}

MSCOPE_INLINE struct stack_slot *set_of(struct writer *w, uint64_t hash)
{
	return &w->stacks[hash >> 20 & (WRITER_STACKS - SET_SLOTS)];
}

MSCOPE_INLINE uint32_t capture(struct writer *w, const void *caller, uint32_t c_depth,
			       uint32_t python_depth, bool deep)
{
	struct found found = {.frames = w->frames};
	struct tables_seen seen = {0};
	struct stack_slot *slot;
	uint32_t id, tries = 0;
	int saved_errno;
	uint64_t hash;

again:
	hash = 0;
	if (c_depth != 0) {
		seen = tables_now();
		hash = walk_c(w, caller, c_depth, deep, &found);
	}
	if (python_depth != 0)
		found.python_frames = interp_hash_frames(python_depth, &hash);
	/* The interpreter may have been refused just now. */
	if (found.python_frames == 0 && python_depth != 0 &&
	    atomic_load_explicit(&collector.note_count, memory_order_relaxed) != 0)
		writer_put_notes(w);
	if (found.c_frames + found.python_frames == 0 && c_depth == 0)
		return 0;
	if (MSCOPE_UNLIKELY(w->stacks == NULL) && !table_map(w))
		return 0;
	hash |= 1;
	if (found.walk != NULL && found.walk->whole == hash)
		return found.walk->stack;
	/* Without any C frame the objects are not known yet; the Python frames alone would be another stack, which may be known. */
	slot = c_depth != 0 && found.c_frames == 0 && tries == 0
		       ? NULL
		       : slot_find(set_of(w, hash), hash, seen.epoch);
	if (MSCOPE_LIKELY(slot != NULL)) {
		if (found.walk != NULL) {
			found.walk->whole = hash;
			found.walk->stack = slot->id;
		}
		return slot->id;
	}
	saved_errno = errno;
	if (c_depth != 0 && tries++ == 0) {
		struct tables_seen now;

		/* A new stack: the objects that it is in may be new, too. */
		modules_refresh(w);
		now = tables_now();
		errno = saved_errno;
		if (now.epoch != seen.epoch || now.version != seen.version)
			goto again;
	}
	id = define(w, set_of(w, hash), hash, seen.epoch, &found, python_depth);
	errno = saved_errno;
	return id;
}

uint32_t stack_capture(struct writer *w, const void *caller, uint32_t c_depth,
		       uint32_t python_depth)
{
	return capture(w, caller, c_depth, python_depth, false);
}

MSCOPE_COLD uint32_t stack_capture_deep(struct writer *w)
{
	uint32_t c = atomic_load(&collector_switch.c_depth);
	uint32_t frames = atomic_load(&collector_switch.python_depth);

	return (c | frames) != 0 ? capture(w, NULL, c, frames, true) : 0;
}
