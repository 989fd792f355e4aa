/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved addresses, and memory of handles mapped there.
 *
 * The pages of a handle are an anonymous shared mapping without a descriptor, so they can be at several addresses. They
 * begin with the first halMemMap(). While nothing is mapped but the handle lives they are parked at an address that nobody
 * knows, so that the next mapping finds the old contents. A mapping holds a reference to its handle.
 *
 * Reserved addresses are always covered by a mapping, of pages or of nothing: what is to change is replaced in one step, so
 * that no other thread's mmap() can land there.
 *
 * A forked child shares the pages that were mapped before, unlike all other memory of a device.
 *
 * Everything here is guarded by the handles' lock.
 */
#include "vmm.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ascend_hal.h"
#include "handle.h"

/* First member of what lies in a tree of ranges that do not overlap. */
struct range {
	uintptr_t start;
	uintptr_t end;
};

struct mapping {
	struct range range;
	struct drv_mem_handle *handle;
	struct mapping *next; /* of the same handle */
};

struct backing {
	void *parked;	       /* where the pages are while they are mapped nowhere else */
	struct mapping *first; /* NULL: parked */
};

static void *reservations; /* trees of struct range, and of struct mapping */
static void *mappings;

/* Ranges that overlap count as equal, so looking for a range finds whatever is there. */
static int compare(const void *left, const void *right)
{
	const struct range *a = left;
	const struct range *b = right;

	if (a->end <= b->start)
		return -1;
	return a->start >= b->end;
}

static void *find(void *const *tree, uintptr_t start, size_t size)
{
	struct range range = {start, start + size};
	void *node = tfind(&range, tree, compare);

	return node ? *(void **)node : NULL;
}

/* What begins at exactly this address. */
static void *find_start(void *const *tree, const void *address)
{
	struct range *found = find(tree, (uintptr_t)address, 1);

	return found && found->start == (uintptr_t)address ? found : NULL;
}

static size_t size_of(const struct range *range)
{
	return range->end - range->start;
}

static void *map_nothing(void *at, size_t size, int flags)
{
	void *map = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
			 -1, 0);

	return map == MAP_FAILED ? NULL : map;
}

static void *map_pages(void *at, size_t size, int flags)
{
	void *map = mmap(at, size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);

	if (map == MAP_FAILED)
		return NULL;
	(void)madvise(map, size, MADV_DONTDUMP);
	return map;
}

/* Address space at a multiple of `align`. */
static char *reserve(size_t size, size_t align)
{
	char *start;
	size_t head;

	if (size > SIZE_MAX - align)
		return NULL;
	start = map_nothing(NULL, size + align, 0);
	if (!start)
		return NULL;
	head = (align - (uintptr_t)start % align) % align;
	if (head)
		(void)munmap(start, head);
	if (align - head)
		(void)munmap(start + head + size, align - head);
	return start + head;
}

static char *reserve_at(void *address, size_t size)
{
	char *start = map_nothing(address, size, 0);

	if (start && start != address) {
		(void)munmap(start, size);
		return NULL;
	}
	return start;
}

drvError_t halMemAddressReserve(void **ptr, size_t size, size_t align, void *addr, uint64_t flag)
{
	const size_t huge = 2UL << 20;
	const size_t giant = 1UL << 30;
	struct range *range;
	char *start = NULL;

	if (!ptr || size == 0 || align || flag > 1 || (uintptr_t)addr % huge)
		return DRV_ERROR_INVALID_VALUE;
	if (size > SIZE_MAX - huge)
		return DRV_ERROR_OUT_OF_MEMORY;
	size = (size + huge - 1) / huge * huge;
	range = malloc(sizeof(*range));
	if (!range)
		return DRV_ERROR_OUT_OF_MEMORY;
	if (addr)
		start = reserve_at(addr, size);
	if (!start)
		start = reserve(size, size < giant ? huge : giant);
	if (!start) {
		free(range);
		return DRV_ERROR_OUT_OF_MEMORY;
	}
	*range = (struct range){(uintptr_t)start, (uintptr_t)start + size};
	handle_lock();
	if (!tsearch(range, &reservations, compare)) {
		handle_unlock();
		(void)munmap(start, size);
		free(range);
		return DRV_ERROR_OUT_OF_MEMORY;
	}
	handle_unlock();
	*ptr = start;
	return DRV_ERROR_NONE;
}

drvError_t halMemAddressFree(void *ptr)
{
	drvError_t error = DRV_ERROR_NONE;
	struct range *range;

	handle_lock();
	range = find_start(&reservations, ptr);
	if (!range) {
		error = DRV_ERROR_INVALID_VALUE;
	} else if (find(&mappings, range->start, size_of(range))) {
		error = DRV_ERROR_BUSY;
	} else {
		(void)tdelete(range, &reservations, compare);
		(void)munmap(ptr, size_of(range));
		free(range);
	}
	handle_unlock();
	return error;
}

/* Lets the pages of a handle appear at `at`, and nowhere else if they were parked. */
static drvError_t show(struct drv_mem_handle *handle, void *at)
{
	struct backing *backing = handle->backing;

	if (!backing) {
		backing = calloc(1, sizeof(*backing));
		if (!backing || !map_pages(at, handle->bytes, MAP_FIXED)) {
			free(backing);
			return DRV_ERROR_OUT_OF_MEMORY;
		}
		handle->backing = backing;
	} else if (!backing->first) {
		if (mremap(backing->parked, handle->bytes, handle->bytes,
			   MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
			return DRV_ERROR_OUT_OF_MEMORY;
		backing->parked = NULL;
	} else if (mremap((void *)backing->first->range.start, 0, handle->bytes,
			  MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
		/* An old size of 0 leaves the pages where they are, too. */
		return DRV_ERROR_NOT_SUPPORT;
	}
	return DRV_ERROR_NONE;
}

/* Keeps what is at `at` at another address. */
static bool park(struct drv_mem_handle *handle, void *at)
{
	void *parked = mremap(at, 0, handle->bytes, MREMAP_MAYMOVE);

	if (parked == MAP_FAILED) {
		parked = map_pages(NULL, handle->bytes, 0);
		if (!parked)
			return false;
		memcpy(parked, at, handle->bytes);
	}
	handle->backing->parked = parked;
	return true;
}

void vmm_forget(struct drv_mem_handle *handle)
{
	if (handle->backing->parked)
		(void)munmap(handle->backing->parked, handle->bytes);
	free(handle->backing);
	handle->backing = NULL;
}

static drvError_t check_map(const void *ptr, size_t size, const struct drv_mem_handle *handle)
{
	const size_t page = 4096;
	uintptr_t start = (uintptr_t)ptr;
	struct range *reservation;

	if (!handle_is_live(handle))
		return DRV_ERROR_INVALID_HANDLE;
	if (size != handle->bytes || start % page)
		return DRV_ERROR_INVALID_VALUE;
	reservation = find(&reservations, start, 1);
	if (!reservation || reservation->end - start < size)
		return DRV_ERROR_INVALID_VALUE;
	return find(&mappings, start, size) ? DRV_ERROR_BUSY : DRV_ERROR_NONE;
}

/* With the lock and everything checked. */
static drvError_t add_mapping(void *ptr, size_t size, struct drv_mem_handle *handle)
{
	struct mapping *mapping = malloc(sizeof(*mapping));
	drvError_t error;

	if (!mapping)
		return DRV_ERROR_OUT_OF_MEMORY;
	mapping->range = (struct range){(uintptr_t)ptr, (uintptr_t)ptr + size};
	mapping->handle = handle;
	if (!tsearch(mapping, &mappings, compare)) {
		free(mapping);
		return DRV_ERROR_OUT_OF_MEMORY;
	}
	error = show(handle, ptr);
	if (error) {
		(void)tdelete(mapping, &mappings, compare);
		free(mapping);
		return error;
	}
	mapping->next = handle->backing->first;
	handle->backing->first = mapping;
	handle->refs++;
	return DRV_ERROR_NONE;
}

drvError_t halMemMap(void *ptr, size_t size, size_t offset, drv_mem_handle_t *handle, uint64_t flag)
{
	drvError_t error;

	if (!ptr || size == 0 || offset || flag)
		return DRV_ERROR_INVALID_VALUE;
	handle_lock();
	error = check_map(ptr, size, handle);
	if (!error)
		error = add_mapping(ptr, size, handle);
	handle_unlock();
	return error;
}

bool vmm_locate(const void *address, bool *of_host, uint32_t *device)
{
	const struct mapping *mapping;

	handle_lock();
	mapping = find(&mappings, (uintptr_t)address, 1);
	if (mapping) {
		*of_host = !mapping->handle->arena;
		*device = *of_host ? 0 : arena_device(mapping->handle->arena);
	}
	handle_unlock();
	return mapping;
}

static void unlink_mapping(struct mapping *mapping)
{
	struct mapping **link = &mapping->handle->backing->first;

	while (*link != mapping)
		link = &(*link)->next;
	*link = mapping->next;
}

drvError_t halMemUnmap(void *ptr)
{
	struct drv_mem_handle *handle;
	struct mapping *mapping;
	drvError_t error = DRV_ERROR_NONE;

	handle_lock();
	mapping = find_start(&mappings, ptr);
	if (!mapping) {
		error = DRV_ERROR_INVALID_VALUE;
	} else {
		bool last_place;

		handle = mapping->handle;
		last_place = handle->backing->first == mapping && !mapping->next;
		if (last_place && handle->refs > 1 && !park(handle, ptr)) {
			error = DRV_ERROR_OUT_OF_MEMORY;
		} else if (!map_nothing(ptr, size_of(&mapping->range), MAP_FIXED)) {
			/* The pages stay where they are; that they are parked as well does no harm. */
			if (handle->backing->parked)
				(void)munmap(handle->backing->parked, handle->bytes);
			handle->backing->parked = NULL;
			error = DRV_ERROR_OUT_OF_MEMORY;
		} else {
			unlink_mapping(mapping);
			(void)tdelete(mapping, &mappings, compare);
			free(mapping);
			handle_drop(handle);
		}
	}
	handle_unlock();
	return error;
}
