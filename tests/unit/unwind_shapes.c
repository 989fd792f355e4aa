/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind_shapes.h"

#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE static __attribute__((noinline)) void

static __thread struct shadow *volatile current; /* for functions that libc calls */

SHAPE plain(struct shadow *s)
{
	SHADOW_ENTER(s);
	s->next(s);
	SHADOW_LEAVE(s);
}

SHAPE registers(struct shadow *s)
{
	uint64_t a = s->sink, b = a * 3, c = b ^ 5, d = c + a, e = d * b, f = e - c;

	SHADOW_ENTER(s);
	s->next(s);
	s->sink += a + b * c + d * e + f;
	SHADOW_LEAVE(s);
	s->sink ^= a ^ b ^ c ^ d ^ e ^ f;
}

SHAPE large(struct shadow *s)
{
	volatile char room[5000];

	SHADOW_ENTER(s);
	room[s->depth] = 1;
	s->next(s);
	s->sink += (uint64_t)room[s->depth];
	SHADOW_LEAVE(s);
}

SHAPE huge(struct shadow *s)
{
	volatile char room[300000];

	SHADOW_ENTER(s);
	room[s->depth] = 1;
	s->next(s);
	s->sink += (uint64_t)room[s->depth];
	SHADOW_LEAVE(s);
}

SHAPE growing(struct shadow *s)
{
	volatile char *room = alloca(s->depth % 7 * 24 + 8);

	SHADOW_ENTER(s);
	room[0] = 1;
	s->next(s);
	s->sink += (uint64_t)room[0];
	SHADOW_LEAVE(s);
}

SHAPE aligned(struct shadow *s)
{
	volatile char vectors[128] __attribute__((aligned(64)));
	volatile char *room = alloca(s->depth % 5 * 40 + 8);

	SHADOW_ENTER(s);
	vectors[s->depth % 128] = room[0] = 1;
	s->next(s);
	s->sink += (uint64_t)(vectors[3] + room[0]);
	SHADOW_LEAVE(s);
}

SHAPE aligned_alone(struct shadow *s)
{
	volatile char vectors[64] __attribute__((aligned(32)));

	SHADOW_ENTER(s);
	vectors[s->depth % 64] = 1;
	s->next(s);
	s->sink += (uint64_t)vectors[3];
	SHADOW_LEAVE(s);
}

static __attribute__((noinline)) void take_any(struct shadow *s, ...)
{
	volatile double vectors[8] __attribute__((aligned(64)));
	va_list list;

	SHADOW_ENTER(s);
	va_start(list, s);
	vectors[0] = va_arg(list, double);
	va_end(list);
	s->next(s);
	s->sink += (uint64_t)vectors[0];
	SHADOW_LEAVE(s);
}

SHAPE any(struct shadow *s)
{
	SHADOW_ENTER(s);
	take_any(s, 1.0, 2, "three", 4.0, 5, 6, 7, 8, 9, 10);
	SHADOW_LEAVE(s);
}

struct block {
	uint64_t words[9];
};

static __attribute__((noinline)) uint64_t take_many(struct block block, uint64_t a, uint64_t b,
						    uint64_t c, uint64_t d, uint64_t e, uint64_t f,
						    uint64_t g, uint64_t h, uint64_t i,
						    struct shadow *s)
{
	SHADOW_ENTER(s);
	s->next(s);
	SHADOW_LEAVE(s);
	return block.words[4] + a + b + c + d + e + f + g + h + i;
}

SHAPE many(struct shadow *s)
{
	struct block block = {{s->sink}};

	SHADOW_ENTER(s);
	s->sink += take_many(block, 1, 2, 3, 4, 5, 6, 7, 8, s->sink, s);
	SHADOW_LEAVE(s);
}

/* Where the compiler makes a jump of it, there is no frame; else it is one that the shadow does not have. */
SHAPE jumping(struct shadow *s)
{
	s->next(s);
}

static __attribute__((noinline, noreturn)) void never(struct shadow *s, jmp_buf *back)
{
	SHADOW_ENTER(s);
	s->next(s);
	s->sink++;
	longjmp(*back, 1);
}

/* Returns to the first byte behind the function. */
static __attribute__((noinline, noreturn)) void last_call(struct shadow *s, jmp_buf *back)
{
	SHADOW_ENTER(s);
	never(s, back);
}

SHAPE leaving(struct shadow *s)
{
	uint32_t depth = s->depth;
	jmp_buf back;

	SHADOW_ENTER(s);
	if (setjmp(back) == 0)
		last_call(s, &back);
	s->depth = depth + 1;
	SHADOW_LEAVE(s);
}

static void clean(struct shadow **s)
{
	(*s)->sink++;
}

SHAPE cleaning(struct shadow *s)
{
	struct shadow *cleaned __attribute__((cleanup(clean))) = s;

	SHADOW_ENTER(s);
	s->next(s);
	SHADOW_LEAVE(s);
}

static int compare(const void *a, const void *b)
{
	struct shadow *s = current;

	(void)a;
	(void)b;
	if (s == NULL)
		return 0;
	current = NULL;
	SHADOW_ENTER(s);
	s->next(s);
	SHADOW_LEAVE(s);
	return 1;
}

SHAPE through_libc(struct shadow *s)
{
	struct shadow *before = current;
	int pair[2] = {1, 2};

	SHADOW_ENTER(s);
	current = s;
	qsort(pair, 2, sizeof(pair[0]), compare);
	current = before;
	SHADOW_LEAVE(s);
}

static void handle(int signal)
{
	struct shadow *s = current;

	(void)signal;
	current = NULL;
	SHADOW_ENTER(s);
	s->next(s);
	SHADOW_LEAVE(s);
}

static void send(struct shadow *s, int flags)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_NODEFER | flags}, old;
	struct shadow *before = current;

	(void)sigaction(SIGUSR1, &action, &old);
	current = s;
	(void)raise(SIGUSR1);
	current = before;
	(void)sigaction(SIGUSR1, &old, NULL);
}

SHAPE signalled(struct shadow *s)
{
	SHADOW_ENTER(s);
	send(s, 0);
	SHADOW_LEAVE(s);
}

/* On the handlers' own stack, if there is one and it is not in use. */
SHAPE signalled_aside(struct shadow *s)
{
	SHADOW_ENTER(s);
	send(s, SA_ONSTACK | SA_SIGINFO);
	SHADOW_LEAVE(s);
}

#if !defined(__clang__)
SHAPE nested(struct shadow *s)
{
	volatile char vectors[64] __attribute__((aligned(64)));
	uint64_t seen = 0;

	__attribute__((noinline)) void inner(struct shadow * t)
	{
		volatile char own[64] __attribute__((aligned(64)));

		SHADOW_ENTER(t);
		own[0] = vectors[1];
		t->next(t);
		seen += (uint64_t)own[0];
		SHADOW_LEAVE(t);
	}

	SHADOW_ENTER(s);
	vectors[1] = 1;
	inner(s);
	s->sink += seen;
	SHADOW_LEAVE(s);
}
#endif

static shape *const all[] = {
	plain,	registers, large,   growing,  aligned,	    aligned_alone, any,
	many,	jumping,   leaving, cleaning, through_libc, signalled,	   signalled_aside,
	plain,	registers, huge,
#if !defined(__clang__)
	nested,
#endif
	NULL,
};

__attribute__((visibility("default"))) shape *const *shapes(void)
{
	return all;
}
