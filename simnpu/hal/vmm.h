/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of handles at addresses. The functions are those of ascend_hal.h; here is what handles need.
 */
#ifndef SIMNPU_HAL_VMM_H
#define SIMNPU_HAL_VMM_H

#include <stdbool.h>
#include <stdint.h>

struct drv_mem_handle;

/* Whether memory of a handle is mapped at `address`, and of whom. */
bool vmm_locate(const void *address, bool *of_host, uint32_t *device);

/* With the handles' lock, of a handle that was mapped and is no more: gives its pages back. */
void vmm_forget(struct drv_mem_handle *handle);

#endif
