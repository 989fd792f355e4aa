/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that a program made known to a device. The functions are those of ascend_hal.h.
 */
#ifndef SIMNPU_HAL_HOST_H
#define SIMNPU_HAL_HOST_H

#include <stdbool.h>

/* Whether the address is in a range that was registered. */
bool host_is_registered(const void *address);

#endif
