/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Create and release as both generations of the driver have them. The new one also exports them, as halMemCreateInner() and
 * halMemReleaseInner(); in the old one (SIMNPU_OLD_DRIVER) they are known inside the library only.
 */
#ifndef SIMNPU_HAL_INNER_H
#define SIMNPU_HAL_INNER_H

#include "ascend_hal.h"

drvError_t mem_create(drv_mem_handle_t **handle, size_t size, const struct drv_mem_prop *prop,
		      uint64_t flag);
drvError_t mem_release(drv_mem_handle_t *handle);

#endif
