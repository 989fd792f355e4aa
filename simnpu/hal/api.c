/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public names. They stand apart from what they call so that no compiler looks through the call: it goes by way of the
 * dynamic linker, and whoever defines an Inner name earlier in the process gets it, as with the real driver.
 */
#include "ascend_hal.h"

#include "config.h"
#include "inner.h"

drvError_t halMemAlloc(void **pp, unsigned long long size, unsigned long long flag)
{
	return halMemAllocInner(pp, size, flag);
}

drvError_t halMemFree(void *pp)
{
	return halMemFreeInner(pp);
}

drvError_t halMemCreate(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop,
			uint64_t flag)
{
#ifdef SIMNPU_OLD_DRIVER
	return mem_create(handle, size, prop, flag);
#else
	return halMemCreateInner(handle, size, prop, flag);
#endif
}

drvError_t halMemRelease(drv_mem_handle_t *handle)
{
#ifdef SIMNPU_OLD_DRIVER
	return mem_release(handle);
#else
	return halMemReleaseInner(handle);
#endif
}

drvError_t drvGetDevNum(uint32_t *num_dev)
{
	if (!num_dev)
		return DRV_ERROR_INVALID_VALUE;
	*num_dev = config_get()->device_count;
	return DRV_ERROR_NONE;
}
