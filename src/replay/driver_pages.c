/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/driver_pages.h"

#define SMALL_MOST ((UINT64_C(1) << 20) - 1)
#define SMALL_UNIT UINT64_C(512)

/* Which of the sums a block is part of. */
static uint64_t *sum_of(struct driver_pages *pages, const struct context *context, uint64_t bytes)
{
	if (context->vendor != VENDOR_CUDA)
		return &pages->whole_bytes;
	switch (CUDA_FLAGS_MEMORY(context->flags)) {
	case CUDA_MEMORY_DEVICE:
	case CUDA_MEMORY_PITCH:
		return bytes <= SMALL_MOST ? &pages->small_bytes : &pages->whole_bytes;
	case CUDA_MEMORY_MANAGED:
		return &pages->managed_bytes;
	case CUDA_MEMORY_ASYNC:
		return &pages->pooled_bytes;
	default:
		return &pages->whole_bytes;
	}
}

uint64_t driver_pages_of(const struct context *context, uint64_t bytes)
{
	uint32_t memory = CUDA_FLAGS_MEMORY(context->flags);

	if (context->vendor != VENDOR_CUDA ||
	    (memory != CUDA_MEMORY_DEVICE && memory != CUDA_MEMORY_PITCH))
		return bytes;
	return round_up_u64(bytes, bytes <= SMALL_MOST ? SMALL_UNIT : DRIVER_PAGE);
}

void driver_pages_add(struct driver_pages *pages, const struct context *context, uint64_t bytes)
{
	*sum_of(pages, context, bytes) += driver_pages_of(context, bytes);
}

void driver_pages_remove(struct driver_pages *pages, const struct context *context, uint64_t bytes)
{
	uint64_t *sum = sum_of(pages, context, bytes), taken = driver_pages_of(context, bytes);

	*sum -= taken < *sum ? taken : *sum;
}

uint64_t driver_pages_taken(const struct driver_pages *pages)
{
	return pages->whole_bytes + round_up_u64(pages->small_bytes, DRIVER_PAGE) +
	       pages->pooled_bytes;
}
