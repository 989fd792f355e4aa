/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory without an address, as halMemCreate() gives it: a reference count and a charge on a device. Handles lie
 * in a table of their own, so that any pointer can be checked without following it; a released one is the next to be
 * given out.
 */
#ifndef SIMNPU_HAL_HANDLE_H
#define SIMNPU_HAL_HANDLE_H

#include "arena.h"

/* What was mapped of a handle: vmm.c knows. */
struct backing;

/* Guarded by handle_lock(). */
struct drv_mem_handle {
	struct arena *arena;	     /* who is charged, NULL for nobody */
	uint64_t bytes;		     /* what is charged */
	struct drv_mem_handle *next; /* while free: the next free one */
	struct backing *backing;     /* NULL until it is mapped */
	uint32_t refs;		     /* 0 while free; each mapping has one */
};

/* A handle with one reference. `bytes` are charged to `a`, which is NULL for memory of the host. */
drvError_t handle_new(struct arena *a, uint64_t bytes, struct drv_mem_handle **out);

/* Drops one reference. INVALID_HANDLE for what is not a live handle. */
drvError_t handle_unref(struct drv_mem_handle *handle);

/* With the lock: whether it is a live handle, and an end to one reference of it. */
bool handle_is_live(const struct drv_mem_handle *handle);
void handle_drop(struct drv_mem_handle *handle);

/* Also keeps the table still over a fork. */
void handle_lock(void);
void handle_unlock(void);

#endif
