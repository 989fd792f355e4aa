/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory without an address, as halMemCreate() gives it: a reference count and a charge on a device. Handles lie
 * in a table of their own, so that any pointer can be checked without following it; a released one is the next to be
 * given out.
 */
#ifndef SIMNPU_HAL_HANDLE_H
#define SIMNPU_HAL_HANDLE_H

#include "arena.h"

/* A handle with one reference. `bytes` are charged to `a`, which is NULL for memory of the host. */
drvError_t handle_new(struct arena *a, uint64_t bytes, struct drv_mem_handle **out);

/* Drops one reference. INVALID_HANDLE for what is not a live handle. */
drvError_t handle_unref(struct drv_mem_handle *handle);

/* Keeps the table still over a fork. */
void handle_lock(void);
void handle_unlock(void);

#endif
