/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/unwind/stack_span.h"

#include "collector/memory.h"

#define PAGE UINT64_C(4096)
#define RED_ZONE                                                                                   \
	UINT64_C(128) /* bytes below the stack pointer that a signal handler leaves alone */
#define NEAR	  UINT64_C(65536)
#define PAGES_MAX 4096u /* that one walk looks at: 16 MiB */

/* Set by the loader before anything runs: the first thread's stack ends there. */
extern void *__libc_stack_end __attribute__((weak));

static bool are_readable(uint64_t from, uint64_t to)
{
	return memory_readable((const void *)(uintptr_t)from, to - from);
}

/* Whether the stack from `sp` on ends at `end`, with no hole between. */
static bool ends_at(uint64_t sp, uint64_t end)
{
	return sp < end && end - sp <= PAGES_MAX * PAGE && are_readable(sp, end);
}

static MSCOPE_COLD bool own_learn(struct own_stack *own, uint64_t sp)
{
	uint64_t thread = thread_pointer(), first = 0;

	/* Deeper than ever before: the pages between must be there, else it is another stack. */
	if (own->thread == thread && own->high != 0 && sp < own->low) {
		if (!ends_at(sp, own->low))
			return false;
		own->low = sp;
		return true;
	}
	if (own->thread == thread && own->high != 0)
		return false;
	if (&__libc_stack_end != NULL)
		first = (uint64_t)(uintptr_t)__libc_stack_end & ~UINT64_C(7);
	if (ends_at(sp, thread & ~UINT64_C(7)))
		own->high = thread & ~UINT64_C(7);
	else if (ends_at(sp, first))
		own->high = first;
	else
		return false;
	own->low = sp;
	own->thread = thread;
	return true;
}

static bool own_has(struct own_stack *own, uint64_t sp)
{
	if (MSCOPE_LIKELY(own_has_seen(own, sp)))
		return true;
	if (sp - own->other + NEAR < 2 * NEAR)
		return false;
	if (own_learn(own, sp))
		return true;
	own->other = sp;
	return false;
}

static bool begin_at(struct stack_span *span, uint64_t sp)
{
	if ((sp & 7) != 0)
		return false;
	if (MSCOPE_LIKELY(own_has(span->own, sp))) {
		span->low = sp;
		span->high = span->own->high;
		return true;
	}
	span->low = span->high = sp;
	return span_grow_slow(span, sp);
}

bool span_begin(struct stack_span *span, struct own_stack *own, uint64_t sp)
{
	span->own = own;
	span->pages = PAGES_MAX;
	return begin_at(span, sp);
}

bool span_move(struct stack_span *span, uint64_t sp)
{
	if (!begin_at(span, sp))
		return false;
	/* A function that was interrupted may just have left its frame, with what it saved still there. */
	if (((sp - RED_ZONE) & ~(PAGE - 1)) == (sp & ~(PAGE - 1)) ||
	    are_readable(sp - RED_ZONE, sp))
		span->low = sp - RED_ZONE;
	return true;
}

MSCOPE_COLD bool span_grow_slow(struct stack_span *span, uint64_t at)
{
	/* The own stack has its end. */
	if (span->high == span->own->high || at > UINT64_MAX - 2 * PAGE)
		return false;
	while (span->high < at + 8) {
		uint64_t page = span->high & ~(PAGE - 1);

		if (span->pages == 0 || !are_readable(page, page + PAGE))
			return false;
		span->pages--;
		span->high = page + PAGE;
	}
	return true;
}
