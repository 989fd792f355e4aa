/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Ascend driver's memory calls (libascend_hal.so). An allocation is recorded after the driver made it, a free before the
 * driver gets it, with an undo when it fails: so in the trace no address is allocated again before it was freed.
 */
#include "collector/ascend/ascend.h"

#include "collector/record/refused.h"
#include "collector/watch/watch_dump.h"

#define DRV_ERROR_NONE	      0
#define DRV_ERROR_OOM	      6
#define DRV_ERROR_NOT_SUPPORT 0xfffe
#define DRV_ERROR_RESERVED    0xffff

/* The flag word of halMemAlloc. */
#define HAL_DEVICE(flag) ((uint32_t)((flag)&0x3ff))
#define HAL_SPACE(flag)	 ((flag) >> 10 & 0xf)
#define HAL_HUGE	 (UINT64_C(1) << 17)
#define HAL_GIANT	 (UINT64_C(1) << 31)
#define HAL_MODULE(flag) ((uint32_t)((flag) >> 56))

enum hal_space {
	HAL_SPACE_HOST = 2,
	HAL_SPACE_HOST_AGENT = 4,
	HAL_SPACE_HOST_UVA = 6,
};

/* What halMemCreate is asked for; the driver's own layout. */
struct drv_mem_prop {
	uint32_t side; /* 0 host, 1 device, 2 host NUMA node */
	uint32_t devid;
	uint32_t module_id;
	uint32_t page; /* 0 normal, 1 huge, 2 giant */
	uint32_t memory;
	uint64_t reserved;
};

static void decode_alloc(uint64_t flag, struct context *out)
{
	uint64_t space = HAL_SPACE(flag);

	out->vendor = VENDOR_ASCEND;
	out->kind = BLOCK_ALLOC;
	out->module = HAL_MODULE(flag);
	out->flags = flag;
	if (flag & HAL_GIANT)
		out->page = PAGE_GIANT;
	else
		out->page = flag & HAL_HUGE ? PAGE_HUGE : PAGE_NORMAL;
	if (space == HAL_SPACE_HOST || space == HAL_SPACE_HOST_AGENT ||
	    space == HAL_SPACE_HOST_UVA) {
		out->pool = POOL_host_pinned;
		out->device = DEVICE_HOST;
	} else {
		out->pool = POOL_hal;
		out->device = HAL_DEVICE(flag);
	}
}

/* A creation's key packs the parts of its properties that matter: side:8 page:8 module:16 device:32. */
static uint64_t create_key(const struct drv_mem_prop *prop)
{
	return (uint64_t)(prop->side & 0xff) << 56 | (uint64_t)(prop->page & 0xff) << 48 |
	       (uint64_t)(prop->module_id & 0xffff) << 32 | prop->devid;
}

static void decode_create(uint64_t key, struct context *out)
{
	static const uint8_t pages[] = {PAGE_NORMAL, PAGE_HUGE, PAGE_GIANT};
	uint64_t page = key >> 48 & 0xff;

	out->vendor = VENDOR_ASCEND;
	out->kind = BLOCK_CREATE;
	out->module = (uint32_t)(key >> 32 & 0xffff);
	out->page = page < MSCOPE_COUNT(pages) ? pages[page] : PAGE_UNKNOWN;
	out->flags = key;
	if (key >> 56 == 1) {
		out->pool = POOL_hal;
		out->device = (uint32_t)key;
	} else {
		out->pool = POOL_host_pinned;
		out->device = DEVICE_HOST;
	}
}

/* A free says only how the block was made; pool and device are those of the live block. */
static void decode_free(uint64_t kind, struct context *out)
{
	out->vendor = VENDOR_ASCEND;
	out->kind = (uint8_t)kind;
	out->pool = POOL_hal;
	out->device = DEVICE_UNKNOWN;
	out->module = MODULE_UNKNOWN;
}

/*
 * The driver refused, and perhaps because memory is short. Called last, so that the hook keeps nothing for it and its frame is
 * replaced by ours: stacks have room for so many of our own.
 */
static MSCOPE_COLD __attribute__((noinline)) int
alloc_refused_slow(int r, uint64_t size, uint64_t flag, const void *caller)
{
	if (r == DRV_ERROR_OOM)
		event_oom_slow(SOURCE_HAL_ALLOC, flag, decode_alloc,
			       &(struct refusal){OOM_HAL_ALLOC, size, flag, UINT64_MAX, UINT64_MAX},
			       caller);
	return r;
}

static MSCOPE_COLD __attribute__((noinline)) int
create_refused_slow(int r, uint64_t size, const struct drv_mem_prop *prop, uint64_t flag,
		    const void *caller)
{
	if (r == DRV_ERROR_OOM && prop != NULL)
		event_oom_slow(
			SOURCE_HAL_CREATE, create_key(prop), decode_create,
			&(struct refusal){OOM_HAL_CREATE, size, flag, UINT64_MAX, UINT64_MAX},
			caller);
	return r;
}

MSCOPE_EXPORT int halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	hook_halMemAlloc *original = HOOK_ORIGINAL(halMemAlloc);
	int r;

	if (MSCOPE_UNLIKELY(original == NULL))
		return DRV_ERROR_NOT_SUPPORT;
	if (recording_now() == RECORDING_OFF)
		return original(pp, size, flag);
	r = original(pp, size, flag);
	if (MSCOPE_UNLIKELY(r != DRV_ERROR_NONE))
		return alloc_refused_slow(r, size, flag, __builtin_return_address(0));
	event_alloc(SOURCE_HAL_ALLOC, flag, decode_alloc, (uint64_t)(uintptr_t)*pp, size,
		    __builtin_return_address(0));
	watch_allocated(POOL_hal, (uint64_t)(uintptr_t)*pp, size);
	return r;
}

MSCOPE_EXPORT int halMemFree(void *pp)
{
	hook_halMemFree *original = HOOK_ORIGINAL(halMemFree);
	int r;

	if (MSCOPE_UNLIKELY(original == NULL))
		return DRV_ERROR_NOT_SUPPORT;
	if (recording_now() == RECORDING_OFF)
		return original(pp);
	watch_freed(POOL_hal, (uint64_t)(uintptr_t)pp, 0);
	event_free(SOURCE_HAL_FREE, BLOCK_ALLOC, decode_free, (uint64_t)(uintptr_t)pp,
		   __builtin_return_address(0));
	r = original(pp);
	if (MSCOPE_UNLIKELY(r != DRV_ERROR_NONE))
		event_free_undo_slow(SOURCE_HAL_FREE, BLOCK_ALLOC, decode_free,
				     (uint64_t)(uintptr_t)pp);
	return r;
}

MSCOPE_EXPORT int halMemCreate(struct drv_mem_handle **handle, size_t size,
			       const struct drv_mem_prop *prop, uint64_t flag)
{
	hook_halMemCreate *original = HOOK_ORIGINAL(halMemCreate);
	int r;

	if (MSCOPE_UNLIKELY(original == NULL))
		return DRV_ERROR_RESERVED;
	if (recording_now() == RECORDING_OFF)
		return original(handle, size, prop, flag);
	r = original(handle, size, prop, flag);
	if (r == DRV_ERROR_NONE && prop != NULL)
		event_alloc(SOURCE_HAL_CREATE, create_key(prop), decode_create,
			    (uint64_t)(uintptr_t)*handle, size, __builtin_return_address(0));
	else if (r != DRV_ERROR_NONE)
		return create_refused_slow(r, size, prop, flag, __builtin_return_address(0));
	return r;
}

MSCOPE_EXPORT int halMemRelease(struct drv_mem_handle *handle)
{
	hook_halMemRelease *original = HOOK_ORIGINAL(halMemRelease);
	int r;

	if (MSCOPE_UNLIKELY(original == NULL))
		return DRV_ERROR_RESERVED;
	if (recording_now() == RECORDING_OFF)
		return original(handle);
	event_free(SOURCE_HAL_FREE, BLOCK_CREATE, decode_free, (uint64_t)(uintptr_t)handle,
		   __builtin_return_address(0));
	r = original(handle);
	if (MSCOPE_UNLIKELY(r != DRV_ERROR_NONE))
		event_free_undo_slow(SOURCE_HAL_FREE, BLOCK_CREATE, decode_free,
				     (uint64_t)(uintptr_t)handle);
	return r;
}
