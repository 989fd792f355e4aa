/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in driver that refuses every seventh free of a block that is there, as a busy one may. Memory is numbers that nobody
 * may touch, never handed out twice.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "ascend_hal.h"

#define BASE 0x120000000000ull
#define SLOT ((uint64_t)1 << 20)

static _Atomic uint64_t next_slot, frees;

drvError_t halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	(void)size;
	(void)flag;
	*pp = (void *)(uintptr_t)(BASE + SLOT * atomic_fetch_add(&next_slot, 1));
	return DRV_ERROR_NONE;
}

drvError_t halMemFree(void *pp)
{
	(void)pp;
	return atomic_fetch_add(&frees, 1) % 7 == 6 ? DRV_ERROR_INVALID_VALUE : DRV_ERROR_NONE;
}
