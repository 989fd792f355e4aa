/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each process uses of each device, for others to read: a real driver knows that of all processes, this one only of its
 * own. Processes of one user and one pid namespace meet in a file, simnpu-UID-NAMESPACE in the directory that SIMNPU_SHARE
 * names, else in /dev/shm:
 *
 *     owners     one word per slot: who has it, 0 for nobody
 *     slots      which devices it opened, and the bytes in use by device, spread over LANES so that threads do not meet
 *
 * A process takes a slot with its first device and never gives it back: a slot whose owner is dead counts for nothing and is
 * free to be taken. An owner is a pid and the time that process started, so a pid that is used again is not mistaken for it.
 * What is not seen: that a process exec's a program which opens no device (its last figures stand until it ends), and forks
 * without handlers such as _Fork() (the child's figures mix with its parent's).
 *
 * Nothing here can fail for the program: without the file (no space, no right, all slots taken) nothing is published.
 */
#ifndef SIMNPU_HAL_PUBLISHED_H
#define SIMNPU_HAL_PUBLISHED_H

#include <stdatomic.h>
#include <stdint.h>

enum {
	PUBLISHED_DEVICES = 32,
	PUBLISHED_LANES = 16, /* a power of two */
	PUBLISHED_SLOTS = 1024,
};

/* Of one process. A lane is four cache lines of few threads; its figures wrap, as a block may be freed on another lane. */
struct published_slot {
	_Alignas(64) _Atomic uint64_t devices; /* bit n: device n was opened */
	_Alignas(64) _Atomic uint64_t
		bytes[PUBLISHED_LANES][PUBLISHED_DEVICES]; /* the sum of lanes counts */
};

/* What one process uses, in sum. */
struct published_use {
	uint64_t devices;
	uint64_t bytes[PUBLISHED_DEVICES];
};

/* Internals of the functions below: the slot of this process, NULL when it has none yet. */
extern struct published_slot *_Atomic published_own;
struct published_slot *published_take_slow(void);

static inline struct published_slot *published_slot(void)
{
	/* Acquire pairs with the release in published_take_slow(). */
	struct published_slot *slot = atomic_load_explicit(&published_own, memory_order_acquire);

	return __builtin_expect(!!slot, 1) ? slot : published_take_slow();
}

/* This process opened `device`. */
static inline void published_open(uint32_t device)
{
	atomic_fetch_or_explicit(&published_slot()->devices, 1ULL << device, memory_order_relaxed);
}

/*
 * This process uses `bytes` more of `device`; modulo 2^64, so a negative number for less. `lane` is any number that few threads
 * share. The figures are statistics: no order is promised.
 */
static inline void published_add(uint32_t device, uint32_t lane, uint64_t bytes)
{
	atomic_fetch_add_explicit(&published_slot()->bytes[lane % PUBLISHED_LANES][device], bytes,
				  memory_order_relaxed);
}

/* Held over a fork. */
void published_lock(void);
void published_unlock(void);

/* In a forked child, with the lock: it takes a slot of its own when it next adds, and starts there with `use`. */
void published_restart(const struct published_use *use);

/* For the reader: calls `visit` for each living process that has a slot, until it returns something else than 0. */
void published_visit(int (*visit)(int pid, const struct published_use *use, void *context),
		     void *context);

#endif
