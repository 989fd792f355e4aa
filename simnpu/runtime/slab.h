/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects behind handles that programs hold. They lie in a table that never goes away, so any pointer can be checked without
 * following it, and what is inside a stale one (a mutex, say) is still memory of the same kind. An object that was given
 * back is the next to be given out, as its last user left it; at first it is all zero.
 *
 * The caller serialises slab_take() and slab_give(); any thread may call the others.
 */
#ifndef SIMNPU_RUNTIME_SLAB_H
#define SIMNPU_RUNTIME_SLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* First member of every object in a slab. */
struct slab_entry {
	_Atomic bool live; /* given out */
	uint32_t next;	   /* while free: number + 1 of the next free one */
};

struct slab {
	const size_t entry_bytes;
	const uint32_t count_max;
	char *_Atomic base;	/* NULL until the first use */
	_Atomic uint32_t count; /* objects ever given out */
	uint32_t free_top;	/* number + 1 */
};

#define SLAB_INIT(type, max)                                                                       \
	{                                                                                          \
		.entry_bytes = sizeof(type), .count_max = (max)                                    \
	}

/* NULL when there are too many. */
void *slab_take(struct slab *s);

/* `object` must be live. */
void slab_give(struct slab *s, void *object);

/* Whether the pointer is a live object. */
bool slab_holds(struct slab *s, const void *pointer);

/* How many were ever given out, which only grows, and number n of them, live or not. */
uint32_t slab_count(struct slab *s);
void *slab_at(struct slab *s, uint32_t n);

#endif
