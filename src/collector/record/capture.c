/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call stacks, C and Python as one. C frames come from the libunwind that lies beside us (about 10 ns a frame), else from glibc's
 * backtrace(); Python frames from the interpreter's own memory (interp/frames.c).
 *
 * A stack is written once per writer and then named by its number: the table maps a 64-bit hash of the frames to the number. Two
 * different stacks with the same hash are as likely as a flipped bit in memory. The table has sets of four slots, a cache line
 * each; a full set evicts its oldest stack, which is written again when it comes back.
 */
#include "collector/record/capture.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/loader/lookup.h"
#include "collector/record/codes.h"
#include "collector/record/module_map.h"
#include "collector/sys.h"

#define SET_SLOTS 4u

_Static_assert(SET_SLOTS * sizeof(struct stack_slot) == 64, "a set is one cache line");

/* The linker defines these where a function is CAPTURE_LEFT_OUT. */
extern const char __start_mscope_left_out[] __attribute__((weak, visibility("hidden")));
extern const char __stop_mscope_left_out[] __attribute__((weak, visibility("hidden")));

/* libunwind's or glibc's, NULL: none. */
static int (*unwind)(void **frames, int count);

void stack_set_unwinder(int (*backtrace)(void **frames, int count))
{
	unwind = backtrace;
}

/* Where the libunwind lies that we brought along. */
static char *own_libunwind(void)
{
	char *path = collector.path_scratch;

	lookup_own_directory(path, sizeof(collector.path_scratch) - sizeof("libunwind.so.8"));
	return strcat(path, "libunwind.so.8");
}

static bool open_unwinder(const char *path)
{
	void *handle, *function = NULL;

	if (dlopen == NULL || dlsym == NULL)
		return false;
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (handle != NULL)
		function = dlsym(handle, "unw_backtrace");
	if (function == NULL)
		return false;
	memcpy(&unwind, &function, sizeof(function));
	return true;
}

/* A copy in memory: the loader takes a file that it knows for the same library, whatever its name. -1: none. */
static int copy_in_memory(const char *path)
{
	int from = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	int to = from < 0 ? -1 : (int)syscall(SYS_NR_memfd_create, "libunwind", SYS_MFD_CLOEXEC);
	ssize_t sent = 1;

	while (to >= 0 && sent > 0)
		sent = syscall(SYS_sendfile, to, from, NULL, 1 << 20);
	if (from >= 0)
		sys_close(from);
	if (to >= 0 && sent < 0) {
		sys_close(to);
		to = -1;
	}
	return to;
}

bool stack_setup_again(void)
{
	char path[32];
	int fd;
	bool opened;

	if (unwind == backtrace)
		return false;
	fd = copy_in_memory(own_libunwind());
	if (fd < 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	opened = open_unwinder(path);
	sys_close(fd);
	return opened;
}

void stack_setup(void)
{
	if (unwind != NULL || open_unwinder(own_libunwind()))
		return;
	unwind = backtrace;
	collector_note("libunwind.so.8 could not be opened beside the collector: stacks come from "
		       "glibc, at ten times the cost");
}

bool stack_is_ready(void)
{
	return unwind != NULL && !collector.unwinder_stuck;
}

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

/* The frames of a stack, in the writer's own room. */
struct found {
	void **frames;
	uint32_t c_frames;
	uint32_t c_known; /* with those beyond the depth that is asked for */
	uint32_t python_frames;
};

/* The program's stack without ours: leaves out frames between main() and what calls it, and takes others in their place. */
static void leave_out(struct found *found)
{
	uint32_t kept = 0, i;

	for (i = 0; i < found->c_known && kept < found->c_frames; i++) {
		const char *at = found->frames[i];

		if (at < __start_mscope_left_out || at >= __stop_mscope_left_out)
			found->frames[kept++] = found->frames[i];
	}
	found->c_frames = kept;
}

static MSCOPE_COLD uint32_t define(struct writer *w, struct stack_slot *set, uint64_t hash,
				   uint32_t epoch, struct found *found, uint32_t python_depth)
{
	struct event_stack_def event = {0};
	uint64_t words[EVENT_BYTES_stack_def / 8];
	const void *parts[2] = {found->frames};
	uint32_t bytes[2];

	leave_out(found);
	event.c_frames = found->c_frames;
	bytes[0] = found->c_frames * 8;
	if (found->c_frames > 0)
		modules_refresh(w);
	/* What the stack refers to is defined before it. */
	if (found->python_frames > 0)
		event.python_frames =
			writer_code_frames(w, found->python_frames, python_depth, &parts[1]);
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

/* `deep`: from the first frame on that is not ours; else from `caller` on, which is near. */
MSCOPE_INLINE uint32_t capture(struct writer *w, const void *caller, uint32_t c_depth,
			       uint32_t python_depth, bool deep)
{
	uint32_t epoch = 0, skip = 0, i, id;
	struct found found = {.frames = w->frames};
	struct stack_slot *set;
	uint64_t hash = 0;
	int got, saved_errno = errno;

	if (c_depth != 0) {
		epoch = atomic_load_explicit(&modules_epoch, memory_order_acquire);
		/* A few frames more than asked for, since the innermost are ours. */
		w->unwinding = 1;
		atomic_signal_fence(memory_order_seq_cst);
		got = unwind(w->frames, (int)c_depth + (deep ? 16 : 4));
		atomic_signal_fence(memory_order_seq_cst);
		w->unwinding = 0;
		errno = saved_errno; /* the unwinder asks the kernel whether memory is there */
		found.c_frames = got > 0 ? (uint32_t)got : 0;
#if defined(__aarch64__)
		/*
		 * There, libunwind gives addresses inside the call instruction. The trace has those behind it, as glibc gives
		 * them.
		 */
		for (i = 0; i < found.c_frames; i++)
			w->frames[i] = (void *)(((uintptr_t)w->frames[i] + 3) & ~(uintptr_t)3);
#endif
		while (!deep && skip < 4 && skip < found.c_frames && w->frames[skip] != caller)
			skip++;
		if (deep)
			skip = count_ours(w->frames, found.c_frames);
		else if (skip == 4 || skip == found.c_frames)
			skip = 0; /* the unwinder did not find the caller: keep all frames */
		found.frames += skip;
		found.c_frames -= skip;
		found.c_known = found.c_frames;
		if (found.c_frames > c_depth)
			found.c_frames = c_depth;
		hash = hash_frames(found.frames, found.c_frames);
	}
	if (python_depth != 0)
		found.python_frames = interp_frames(w->python_frames, python_depth, &hash);
	/* The interpreter may have been refused just now. */
	if (found.python_frames == 0 && python_depth != 0 &&
	    atomic_load_explicit(&collector.note_count, memory_order_relaxed) != 0)
		writer_put_notes(w);
	if (found.c_frames + found.python_frames == 0)
		return 0;
	if (MSCOPE_UNLIKELY(w->stacks == NULL) && !table_map(w))
		return 0;
	hash |= 1;
	set = &w->stacks[hash >> 20 & (WRITER_STACKS - SET_SLOTS)];
	for (i = 0; i < SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].hash == hash && set[i].epoch == epoch))
			return set[i].id;
	}
	id = define(w, set, hash, epoch, &found, python_depth);
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
