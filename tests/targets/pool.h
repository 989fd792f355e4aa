/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool of 1 GiB on device 0 that reports as PyTorch's through mstx, for targets that need one and no particular client: it hands
 * out memory in the order of addresses and never the same twice.
 */
#ifndef TARGETS_POOL_H
#define TARGETS_POOL_H

#include "mstx/ms_tools_ext.h"
#include "target.h"

#define POOL_BYTES ((uint64_t)1 << 30)
#define POOL_FLAG                                                                                  \
	(MEM_DEV | MEM_PAGE_NORMAL |                                                               \
	 (uint64_t)3 << 56) /* driver memory of device 0, asked for by the program */

static struct {
	mstxDomainHandle_t domain;
	mstxMemHeapHandle_t heap;
	char *at;
	uint64_t taken;
} pool;

static void pool_open(void)
{
	mstxMemVirtualRangeDesc_t range = {.deviceId = 0, .size = POOL_BYTES};
	mstxMemHeapDesc_t description = {.usage = MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
					 .type = MSTX_MEM_TYPE_VIRTUAL_ADDRESS,
					 .typeSpecificDesc = &range};
	void *memory = NULL;

	target_check(halMemAlloc(&memory, POOL_BYTES, POOL_FLAG) == 0, "no memory for the pool");
	range.ptr = memory;
	pool.at = memory;
	pool.domain = mstxDomainCreateA("ptaCaching");
	pool.heap = mstxMemHeapRegister(pool.domain, &description);
}

static void *pool_take(uint64_t bytes)
{
	mstxMemVirtualRangeDesc_t range = {
		.deviceId = 0, .ptr = pool.at + pool.taken, .size = bytes};
	mstxMemRegionHandle_t handle;
	mstxMemRegionsRegisterBatch_t batch = {pool.heap, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1, &range,
					       &handle};

	pool.taken += (bytes + 511) & ~(uint64_t)511;
	target_check(pool.taken <= POOL_BYTES, "the pool is used up");
	mstxMemRegionsRegister(pool.domain, &batch);
	return (void *)(uintptr_t)range.ptr;
}

static void pool_give(void *address)
{
	mstxMemRegionRef_t reference = {MSTX_MEM_REGION_REF_TYPE_POINTER, {address}};
	mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

	mstxMemRegionsUnregister(pool.domain, &batch);
}

#endif
