/* SPDX-License-Identifier: Apache-2.0 */
#include "handle.h"

#include <pthread.h>
#include <sys/mman.h>

#include "vmm.h"

/* 4 Mi handles. Only those in use cost memory. */
#define HANDLE_COUNT_MAX (1u << 22)

/* All below is guarded by it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct drv_mem_handle *table;
static struct drv_mem_handle *free_list;
static uint32_t seen_count; /* entries of the table ever given out */

static struct drv_mem_handle *take(void)
{
	struct drv_mem_handle *handle = free_list;
	void *map;

	if (handle) {
		free_list = handle->next;
		return handle;
	}
	if (!table) {
		map = mmap(NULL, HANDLE_COUNT_MAX * sizeof(*table), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (map == MAP_FAILED)
			return NULL;
		table = map;
	}
	return seen_count < HANDLE_COUNT_MAX ? &table[seen_count++] : NULL;
}

drvError_t handle_new(struct arena *a, uint64_t bytes, struct drv_mem_handle **out)
{
	struct drv_mem_handle *handle;

	if (a && !arena_charge(a, bytes))
		return DRV_ERROR_OUT_OF_MEMORY;
	handle_lock();
	handle = take();
	if (handle)
		*handle = (struct drv_mem_handle){.arena = a, .bytes = bytes, .refs = 1};
	handle_unlock();
	if (!handle) {
		if (a)
			arena_uncharge(a, bytes);
		return DRV_ERROR_NO_RESOURCES;
	}
	*out = handle;
	return DRV_ERROR_NONE;
}

bool handle_is_live(const struct drv_mem_handle *handle)
{
	uint64_t offset = (uintptr_t)handle - (uintptr_t)table;

	return offset < seen_count * sizeof(*table) && offset % sizeof(*table) == 0 &&
	       handle->refs > 0;
}

void handle_drop(struct drv_mem_handle *handle)
{
	if (--handle->refs > 0)
		return;
	if (handle->backing)
		vmm_forget(handle);
	if (handle->arena)
		arena_uncharge(handle->arena, handle->bytes);
	handle->next = free_list;
	free_list = handle;
}

drvError_t handle_unref(struct drv_mem_handle *handle)
{
	drvError_t error = DRV_ERROR_NONE;

	handle_lock();
	if (handle_is_live(handle))
		handle_drop(handle);
	else
		error = DRV_ERROR_INVALID_HANDLE;
	handle_unlock();
	return error;
}

void handle_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void handle_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}
