/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver does behind the public names: decode the flag word, check, and ask the arena or the handle table.
 */
#include "inner.h"

#include "arena.h"
#include "handle.h"

static uint64_t field(uint64_t flag, unsigned bit, unsigned width)
{
	return flag >> bit & ((1ULL << width) - 1);
}

drvError_t halMemAllocInner(void **pp, unsigned long long size, unsigned long long flag)
{
	enum page_shift page = PAGE_SHIFT_NORMAL;
	struct arena *a;
	drvError_t error;

	if (!pp || size == 0)
		return DRV_ERROR_INVALID_VALUE;
	if (flag & MEM_PAGE_HUGE)
		page = PAGE_SHIFT_HUGE;
	if (flag & MEM_PAGE_GIANT) {
		if (flag & MEM_PAGE_HUGE)
			return DRV_ERROR_INVALID_VALUE;
		page = PAGE_SHIFT_GIANT;
	}

	switch (field(flag, MEM_VIRT_BIT, MEM_VIRT_WIDTH)) {
	case MEM_SVM_VAL:
	case MEM_DEV_VAL:
	case MEM_DVPP_VAL:
	case MEM_UVM_VAL:
		error = arena_of_device((uint32_t)(flag & MEM_DEVID_MASK), &a);
		break;
	case MEM_HOST_VAL:
	case MEM_HOST_AGENT_VAL:
	case MEM_HOST_UVA_VAL:
		error = arena_of_host(&a);
		break;
	case MEM_RESERVE_VAL:
		error = DRV_ERROR_NOT_SUPPORT;
		break;
	default:
		error = DRV_ERROR_INVALID_MALLOC_TYPE;
		break;
	}
	if (error)
		return error;
	return arena_alloc(a, size, page, (unsigned)field(flag, MEM_ALIGN_BIT, MEM_ALIGN_WIDTH),
			   pp);
}

drvError_t halMemFreeInner(void *pp)
{
	return arena_free(pp);
}

drvError_t mem_create(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop,
		      uint64_t flag)
{
	static const enum page_shift pages[] = {
		[MEM_NORMAL_PAGE_TYPE] = PAGE_SHIFT_NORMAL,
		[MEM_HUGE_PAGE_TYPE] = PAGE_SHIFT_HUGE,
		[MEM_GIANT_PAGE_TYPE] = PAGE_SHIFT_GIANT,
	};
	struct arena *a = NULL;
	drvError_t error;

	if (!handle || !prop || size == 0 || flag != 0)
		return DRV_ERROR_INVALID_VALUE;
	if (prop->side > MEM_HOST_NUMA_SIDE || prop->pg_type > MEM_GIANT_PAGE_TYPE ||
	    prop->mem_type > MEM_TS_DDR_TYPE)
		return DRV_ERROR_INVALID_VALUE;
	if (prop->side == MEM_DEV_SIDE) {
		error = arena_of_device(prop->devid, &a);
		if (error)
			return error;
	}
	if (size & ((1ULL << pages[prop->pg_type]) - 1))
		return DRV_ERROR_INVALID_VALUE;
	return handle_new(a, size, handle);
}

drvError_t mem_release(drv_mem_handle_t *handle)
{
	return handle ? handle_unref(handle) : DRV_ERROR_INVALID_VALUE;
}

#ifndef SIMNPU_OLD_DRIVER
drvError_t halMemCreateInner(drv_mem_handle_t **handle, size_t size,
			     const struct drv_mem_prop *prop, uint64_t flag)
{
	return mem_create(handle, size, prop, flag);
}

drvError_t halMemReleaseInner(drv_mem_handle_t *handle)
{
	return mem_release(handle);
}
#endif
