/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pools that report through mstx domains. A new pool is one line of the table.
 *
 * Fields that clients leave uninitialised are never read: usage and type of a heap, heap and region type of a batch, and the array
 * of handles of the pools that free by pointer. A registered heap is the new total of its pool; except for ATB, which registers
 * each workspace as a heap, so that the total is their sum.
 */
#include "collector/ascend/ascend.h"

#include <string.h>

#include "collector/torch/torch.h"
#include "collector/watch/watch_dump.h"

struct mstx_range {
	uint32_t device;
	const void *ptr;
	uint64_t bytes;
};

struct mstx_heap_desc {
	int usage;
	int type;
	const struct mstx_range *range;
};

struct mstx_register_batch {
	void *heap;
	int type;
	size_t count;
	const struct mstx_range *ranges;
	void **handles;
};

struct mstx_reference {
	int type; /* 0 pointer, 1 handle */
	const void *value;
};

struct mstx_unregister_batch {
	size_t count;
	const struct mstx_reference *references;
};

struct pool_row {
	const char *domain;
	uint8_t pool;
	bool by_handle; /* regions get handles and are freed by them; heaps add up */
	bool follows;	/* the total is told behind the region that made it grow */
};

static const struct pool_row pools[] = {
	{"ptaCaching", POOL_pta, false, false},
	{"msleaks", POOL_pta, false, false}, /* torch_npu from March to August 2025 */
	{"ptaWorkspace", POOL_pta_workspace, false, false},
	{"mindsporeMemPool", POOL_mindspore, false, true},
	{"atb", POOL_atb, true, false},
};

#define HEAPS_MAX 1024u
#define DEVICES	  64u

struct heap {
	_Atomic uint64_t bytes; /* 0: free entry */
	uint32_t device;
};

static struct heap heaps[HEAPS_MAX];
static _Atomic uint64_t heap_totals[DEVICES];
static _Atomic uint64_t next_handle = 1;

/* Last total recorded, + 1, by pool and device: clients repeat it at every call, and only a change is worth a record. */
static _Atomic uint64_t last_totals[POOL_END][DEVICES];

uint8_t pool_of_domain(const char *name)
{
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(pools); i++) {
		if (strcmp(pools[i].domain, name) == 0)
			return pools[i].pool;
	}
	return POOL_UNKNOWN;
}

static const struct pool_row *row_of(uint8_t pool)
{
	static const struct pool_row none;
	size_t i;

	for (i = 0; i < MSCOPE_COUNT(pools); i++) {
		if (pools[i].pool == pool)
			return &pools[i];
	}
	return &none;
}

static bool by_handle(uint8_t pool)
{
	return row_of(pool)->by_handle;
}

void pool_reset(void)
{
	memset(heap_totals, 0, sizeof(heap_totals));
	memset(last_totals, 0, sizeof(last_totals));
	memset(heaps, 0, sizeof(heaps));
}

/* Key: pool:8, device:32. */
static uint64_t pool_key(uint8_t pool, uint32_t device)
{
	return (uint64_t)pool << 32 | device;
}

static void decode_pool(uint64_t key, struct context *out)
{
	out->vendor = VENDOR_ASCEND;
	out->pool = (uint8_t)(key >> 32);
	out->kind = by_handle(out->pool) ? BLOCK_HANDLE : BLOCK_ALLOC;
	out->device = (uint32_t)key;
	out->module = MODULE_UNKNOWN;
}

static uint32_t device_of(const struct mstx_range *range)
{
	return range->device == UINT32_MAX ? DEVICE_UNKNOWN : ascend_physical_device(range->device);
}

static void event_total(uint8_t pool, uint32_t device, uint64_t bytes)
{
	struct event_pool_total event = {.reserved_bytes = bytes};
	struct event_pool_total_late late = {.reserved_bytes = bytes};
	struct writer *w;
	uint32_t context;

	if (device < DEVICES && atomic_exchange(&last_totals[pool][device], bytes + 1) == bytes + 1)
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	context = writer_context(w, SOURCE_POOL, pool_key(pool, device), decode_pool);
	if (row_of(pool)->follows)
		WRITER_PUT(w, pool_total_late, context, &late);
	else
		WRITER_PUT(w, pool_total, context, &event);
	writer_leave(w);
}

void pools_begin(struct writer *w)
{
	uint32_t device;
	uint8_t pool;

	for (pool = 0; pool < POOL_END; pool++) {
		for (device = 0; device < DEVICES; device++) {
			uint64_t last = atomic_load(&last_totals[pool][device]);
			struct event_pool_total event = {.reserved_bytes = last - 1};

			if (last != 0)
				WRITER_PUT(w, pool_total,
					   writer_context(w, SOURCE_POOL, pool_key(pool, device),
							  decode_pool),
					   &event);
		}
	}
}

void *pool_heap_register(uint8_t pool, const struct mstx_heap_desc *desc)
{
	const struct mstx_range *range = desc == NULL ? NULL : desc->range;
	uint32_t device, i;
	uint64_t total;

	if (range == NULL)
		return NULL;
	device = device_of(range);
	if (!by_handle(pool)) {
		if (recording_now() != RECORDING_OFF)
			event_total(pool, device, range->bytes);
		return (void *)(uintptr_t)1; /* not used by the client, but must not be NULL */
	}
	for (i = 0; i < HEAPS_MAX; i++) {
		uint64_t empty = 0;

		if (atomic_load_explicit(&heaps[i].bytes, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong(&heaps[i].bytes, &empty, range->bytes + 1)) {
			heaps[i].device = device;
			break;
		}
	}
	if (i == HEAPS_MAX)
		return (void *)(uintptr_t)1;
	total = atomic_fetch_add(&heap_totals[device % DEVICES], range->bytes) + range->bytes;
	if (recording_now() != RECORDING_OFF)
		event_total(pool, device, total);
	return &heaps[i];
}

void pool_heap_unregister(uint8_t pool, void *handle)
{
	struct heap *heap = handle;
	uint32_t device;
	uint64_t bytes, total;

	if (heap < heaps || heap >= heaps + HEAPS_MAX)
		return;
	device = heap->device;
	bytes = atomic_exchange(&heap->bytes, 0);
	if (bytes == 0)
		return;
	total = atomic_fetch_sub(&heap_totals[device % DEVICES], bytes - 1) - (bytes - 1);
	if (recording_now() != RECORDING_OFF)
		event_total(pool, device, total);
}

void pool_regions_register(uint8_t pool, const struct mstx_register_batch *batch,
			   const void *caller)
{
	bool handles = by_handle(pool);
	size_t i;

	if (batch == NULL || batch->ranges == NULL)
		return;
	torch_notice_question();
	for (i = 0; i < batch->count; i++) {
		const struct mstx_range *range = &batch->ranges[i];
		uint64_t handle = handles ? atomic_fetch_add(&next_handle, 1) : 0;

		/* ATB frees by the handles, so it gets them also while nothing is recorded. */
		if (handles && batch->handles != NULL)
			batch->handles[i] = (void *)(uintptr_t)handle;
		if (recording_now() == RECORDING_OFF)
			continue;
		if (handles) {
			event_region_slow(SOURCE_POOL, pool_key(pool, device_of(range)),
					  decode_pool, handle, (uint64_t)(uintptr_t)range->ptr,
					  range->bytes, caller);
		} else {
			event_alloc(SOURCE_POOL, pool_key(pool, device_of(range)), decode_pool,
				    (uint64_t)(uintptr_t)range->ptr, range->bytes, caller);
			watch_allocated(pool, (uint64_t)(uintptr_t)range->ptr, range->bytes);
		}
	}
}

void pool_regions_unregister(uint8_t pool, const struct mstx_unregister_batch *batch,
			     const void *caller)
{
	size_t i;

	if (batch == NULL || batch->references == NULL || recording_now() == RECORDING_OFF)
		return;
	for (i = 0; i < batch->count; i++) {
		uint64_t value = (uint64_t)(uintptr_t)batch->references[i].value;

		if (!by_handle(pool))
			watch_freed(pool, value, 0);
		event_free(SOURCE_POOL, pool_key(pool, DEVICE_UNKNOWN), decode_pool, value, caller);
	}
}
