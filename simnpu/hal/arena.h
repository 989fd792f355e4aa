/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of one device, or of the host for pinned allocations: an address range reserved from the first use on, and a
 * count of the bytes in use against the capacity. What is charged is decided by the page size alone, never by where a
 * block lies.
 *
 * Blocks of up to 2 MiB come from stacks that a few threads share, so a freed address is the next one handed out; a stack
 * that grows too deep returns to the buddy system behind it. Larger blocks go straight there. Memory that stays free goes
 * back to the kernel.
 *
 * All functions may be called from any thread, and in a forked child, which goes on with a private copy of everything.
 */
#ifndef SIMNPU_HAL_ARENA_H
#define SIMNPU_HAL_ARENA_H

#include <stdbool.h>
#include <stdint.h>

#include "ascend_hal.h"

struct arena;

enum page_shift {
	PAGE_SHIFT_NORMAL = 12, /* 4 KiB */
	PAGE_SHIFT_HUGE = 21,	/* 2 MiB */
	PAGE_SHIFT_GIANT = 30,	/* 1 GiB */
};

/* The arena of a device, ready for use: INVALID_DEVICE, or OUT_OF_MEMORY when no addresses can be reserved. */
drvError_t arena_of_device(uint32_t id, struct arena **out);

/* The arena of host memory, which has no capacity of its own. */
drvError_t arena_of_host(struct arena **out);

/* `size` is not 0. The address is a multiple of the page and of 2^align_shift. */
drvError_t arena_alloc(struct arena *a, uint64_t size, enum page_shift page, unsigned align_shift,
		       void **out);

/* INVALID_VALUE unless `address` is what arena_alloc() gave and nobody freed since. Of two racing frees one succeeds. */
drvError_t arena_free(const void *address);

/* Counts bytes as used, or says that they do not fit. For memory that has no address of its own. */
bool arena_charge(struct arena *a, uint64_t bytes);
void arena_uncharge(struct arena *a, uint64_t bytes);

/* Whether `address` is of a device or of host memory, and of which device. */
bool arena_locate(const void *address, bool *of_host, uint32_t *device);

/* The number of the device whose arena it is. */
uint32_t arena_device(const struct arena *a);

/* Bytes that are not in use. */
uint64_t arena_free_bytes(struct arena *a);

#endif
