/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How large a block and its segment are for a request.
 */
#ifndef MSCOPE_TWIN_BLOCK_SIZES_H
#define MSCOPE_TWIN_BLOCK_SIZES_H

#include "twin/allocator_settings.h"

#define TWIN_BLOCK_LEAST   512u
#define TWIN_SMALL_MOST	   ((uint64_t)1 << 20) /* larger blocks are in the large pool */
#define TWIN_PADDING_BYTES 32u		       /* that torch_npu adds to each request */
#define TWIN_SMALL_SEGMENT ((uint64_t)2 << 20)

/* Size of the block for a request of `requested` bytes. */
uint64_t block_size_of(const struct twin_settings *settings, const struct twin_release *release,
		       uint64_t requested);

/* Size of the segment that is asked of the driver for a block of `size` bytes. */
uint64_t segment_size_of(const struct twin_settings *settings, uint64_t size);

#endif
