// SPDX-License-Identifier: Apache-2.0
// Shapes as in unwind_shapes.c, with an exception in flight while they call the next one.
#include <cstdint>

extern "C" {
#include "unwind_shapes.h"
}

#define SHAPE static __attribute__((noinline)) void

namespace {

struct thrown {
	uint64_t value;
};

// Calls the next shape while the stack below its function is taken apart.
struct guard {
	shadow *s;

	explicit guard(shadow *of) : s(of) {}
	guard(const guard &) = delete;
	guard &operator=(const guard &) = delete;
	__attribute__((noinline)) ~guard()
	{
		SHADOW_ENTER(s);
		s->next(s);
		SHADOW_LEAVE(s);
	}
};

} // namespace

SHAPE raise_deep(shadow *s, uint32_t more)
{
	volatile char room[200];

	room[more] = 1;
	if (more == 0)
		throw thrown{s->sink};
	raise_deep(s, more - 1);
	s->sink += static_cast<uint64_t>(room[more]);
}

// In a handler: the exception is alive.
SHAPE handling(shadow *s)
{
	SHADOW_ENTER(s);
	try {
		raise_deep(s, s->depth % 5);
	} catch (const thrown &one) {
		s->next(s);
		s->sink += one.value;
	}
	SHADOW_LEAVE(s);
}

SHAPE throw_behind(shadow *s)
{
	guard last(s);

	SHADOW_ENTER(s);
	raise_deep(s, s->depth % 3);
	SHADOW_LEAVE(s);
}

// In a destructor, between throw and catch.
SHAPE unwinding(shadow *s)
{
	uint32_t depth;

	SHADOW_ENTER(s);
	depth = s->depth;
	try {
		throw_behind(s);
	} catch (const thrown &one) {
		s->depth = depth;
		s->sink += one.value;
	}
	SHADOW_LEAVE(s);
}

SHAPE handle_and_throw(shadow *s)
{
	SHADOW_ENTER(s);
	try {
		raise_deep(s, 1);
	} catch (const thrown &) {
		s->next(s);
		SHADOW_LEAVE(s);
		throw;
	}
}

// In the handler of an exception that is thrown again, inside the handler of another one.
SHAPE again(shadow *s)
{
	SHADOW_ENTER(s);
	try {
		throw 7;
	} catch (int) {
		try {
			handle_and_throw(s);
		} catch (const thrown &one) {
			s->next(s);
			s->sink += one.value;
		}
	}
	SHADOW_LEAVE(s);
}

extern "C" __attribute__((visibility("default"))) shape *const *shapes(void)
{
	static shape *const all[] = {handling, unwinding, again, nullptr};

	return all;
}
