/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which bytes of a stack may be read. A walk reads from the stack pointer outwards, and nothing that was not found to be readable.
 *
 * A thread's own stack lies between the stack pointer and a fixed end, and stays mapped while the thread runs on it: it is looked at
 * once, and again when the thread is deeper than ever. Any other stack (of a signal handler, of a coroutine) may be gone and its
 * place taken by a shorter one, so each walk looks at its pages anew.
 */
#ifndef MSCOPE_COLLECTOR_UNWIND_STACK_SPAN_H
#define MSCOPE_COLLECTOR_UNWIND_STACK_SPAN_H

#include <stdbool.h>

#include "base/compiler.h"

/* Reads words that other code wrote for itself, which sanitizers take for mistakes. */
#if defined(__has_attribute)
#if __has_attribute(no_sanitize)
#define UNWIND_RAW __attribute__((no_sanitize("address", "thread", "undefined")))
#endif
#endif
#ifndef UNWIND_RAW
#define UNWIND_RAW __attribute__((no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))
#endif

#define OWN_ROWS 256u
#if defined(__x86_64__)
#define OWN_SCRATCH_WORDS 288u
#else
#define OWN_SCRATCH_WORDS 448u
#endif

/* A row that was last used at some depth of the stack; see unwind.c. */
struct own_row {
	uint64_t key;
	uint64_t row;
	uint64_t next; /* number of the caller's; 0 as well where it is not known */
	uint64_t unused;
};

#define WALK_WORDS	   64u
#define WALK_BASE_REGISTER UINT32_MAX

/* An address of the stack that a walk went by, and where it lies, if not in the register. Both from the stack pointer on. */
struct walk_base {
	uint32_t value;
	uint32_t at;
};

/* What the last walk has read, from its stack pointer on; see known_walks.h. */
struct walk_reads {
	uint64_t tables; /* epoch and version of what it went by, mixed */
	uint64_t sp;
	bool complete; /* it is all here, and all that the walk went by */
	uint32_t words;
	uint32_t bases;
	void *end; /* the word after the last frame, if it is not an address */
	struct walk_base base[WALK_WORDS];
	uint32_t at[WALK_WORDS];
};

/* What is known of a thread's own stack. Zeroed: nothing. Belongs to the thread's writer. */
struct own_stack {
	uint64_t low;	 /* lowest byte known to be readable */
	uint64_t high;	 /* the end */
	uint64_t thread; /* the thread pointer that it was found with */
	uint64_t other;	 /* a stack pointer on another stack: those near it need not be looked at */
	struct walk_reads reads;
	struct own_row rows[OWN_ROWS + 1]; /* the last one has the first frame as `next` */
	/* Room for a walk that goes by tables: a coroutine's stack may be 8 KiB, most of it in use. See unwind.c. */
	uint64_t scratch[OWN_SCRATCH_WORDS];
};

/* The thread library keeps what it knows of a thread at the end of its stack; the first thread's lies elsewhere. */
static inline uint64_t thread_pointer(void)
{
	uint64_t pointer;

#if defined(__x86_64__)
	__asm__("movq %%fs:0, %0" : "=r"(pointer));
#else
	__asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
	return pointer;
}

/* Whether the stack from `sp` on is the thread's own and was found to be readable. */
static inline bool own_has_seen(const struct own_stack *own, uint64_t sp)
{
	return sp >= own->low && sp < own->high && own->thread == thread_pointer();
}

/* Bytes [low, high) may be read. */
struct stack_span {
	uint64_t low;
	uint64_t high;
	struct own_stack *own;
	uint32_t pages; /* that this walk may still look at */
};

/* Begins a walk at stack pointer `sp`. False: nothing there can be read. */
bool span_begin(struct stack_span *span, struct own_stack *own, uint64_t sp);

/* Goes on beyond a signal frame, at the stack pointer of what was interrupted. */
bool span_move(struct stack_span *span, uint64_t sp);

/* Takes in the word at `at`, at or above the span's end, with all bytes between. */
bool span_grow_slow(struct stack_span *span, uint64_t at);

/* The aligned word at `at`. False: it may not be read. */
UNWIND_RAW static inline bool span_load(struct stack_span *span, uint64_t at, uint64_t *out)
{
	if (MSCOPE_UNLIKELY((at & 7) != 0 || at < span->low))
		return false;
	if (MSCOPE_UNLIKELY(at >= span->high || span->high - at < 8) && !span_grow_slow(span, at))
		return false;
	*out = *(const volatile uint64_t *)(uintptr_t)at;
	return true;
}

#endif
