/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C call stacks. Frames come from the libunwind that lies beside us (about 10 ns a frame), else from glibc's backtrace(). A
 * stack is written once per writer and then named by its number: the table maps a 64-bit hash of the addresses to it. Two
 * different stacks with one hash are as likely as a flipped bit in memory. The table has sets of four slots, a cache line each;
 * in a full set the stack defined first makes room, and is written again when it comes back.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "collector/hot/record.h"

#define SET_SLOTS 4u

_Static_assert(SET_SLOTS * sizeof(struct stack_slot) == 64, "a set is one cache line");

bool stack_unwinder_is_free(struct writer *const *writers, uint32_t count)
{
	static bool stuck; /* and so for every child of this child */
	uint32_t i;

	for (i = 0; i < count && i < COLLECTOR_WRITERS_MAX; i++)
		stuck = stuck || (writers[i] != NULL && writers[i]->unwinding != 0);
	return !stuck;
}

void stack_setup(void)
{
	char *path = collector.path_scratch;
	void *handle, *function = NULL;

	if (collector.backtrace != NULL)
		return;
	if (dlopen != NULL && dlsym != NULL) {
		lookup_own_directory(path,
				     sizeof(collector.path_scratch) - sizeof("libunwind.so.8"));
		strcat(path, "libunwind.so.8");
		handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (handle != NULL)
			function = dlsym(handle, "unw_backtrace");
	}
	if (function != NULL) {
		memcpy(&collector.backtrace, &function, sizeof(function));
		return;
	}
	collector.backtrace = backtrace;
	collector_note("libunwind.so.8 could not be opened beside the collector: stacks come from "
		       "glibc, at ten times the cost");
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
	return hash | 1;
}

static MSCOPE_COLD uint32_t define(struct writer *w, struct stack_slot *set, uint64_t hash,
				   uint32_t epoch, void *const *frames, uint32_t count)
{
	struct event_stack_def event = {.id = w->next_stack, .c_frames = count};
	uint64_t words[EVENT_BYTES_stack_def / 8];
	uint32_t bytes = count * 8;
	const void *part = frames;

	modules_refresh(w);
	event_stack_def_encode(words, &event);
	if (!writer_put(w, EVENT_stack_def, 0, words, MSCOPE_COUNT(words), &part, &bytes, 1))
		return 0;
	memmove(set + 1, set, (SET_SLOTS - 1) * sizeof(*set));
	set[0] = (struct stack_slot){.hash = hash, .id = w->next_stack++, .epoch = epoch};
	return set[0].id;
}

uint32_t stack_capture(struct writer *w, const void *caller, uint32_t depth)
{
	uint32_t epoch = atomic_load_explicit(&collector.unload_epoch, memory_order_acquire);
	uint32_t skip = 0, count, i, id;
	struct stack_slot *set;
	uint64_t hash;
	int got, saved_errno = errno;

	if (MSCOPE_UNLIKELY(w->stacks == NULL)) {
		void *p = mmap(NULL, COLLECTOR_STACKS * sizeof(*w->stacks), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p == MAP_FAILED)
			return 0;
		w->stacks = p;
	}
	/* A few frames more than asked for, since the innermost are ours. */
	w->unwinding = 1;
	atomic_signal_fence(memory_order_seq_cst);
	got = collector.backtrace(w->frames, (int)depth + 4);
	atomic_signal_fence(memory_order_seq_cst);
	w->unwinding = 0;
	errno = saved_errno; /* the unwinder asks the kernel whether memory is there */
	if (got <= 0)
		return 0;
	count = (uint32_t)got;
#if defined(__aarch64__)
	/* libunwind gives addresses inside the call instruction there, and glibc the ones behind it, which is what we want. */
	for (i = 0; i < count; i++)
		w->frames[i] = (void *)(((uintptr_t)w->frames[i] + 3) & ~(uintptr_t)3);
#endif
	while (skip < 4 && skip < count && w->frames[skip] != caller)
		skip++;
	if (skip == 4 || skip == count)
		skip = 0; /* the unwinder did not see the caller as we did: keep all rather than guess */
	count -= skip;
	if (count > depth)
		count = depth;
	hash = hash_frames(w->frames + skip, count);
	set = &w->stacks[hash >> 20 & (COLLECTOR_STACKS - SET_SLOTS)];
	for (i = 0; i < SET_SLOTS; i++) {
		if (MSCOPE_LIKELY(set[i].hash == hash && set[i].epoch == epoch))
			return set[i].id;
	}
	id = define(w, set, hash, epoch, w->frames + skip, count);
	errno = saved_errno;
	return id;
}
