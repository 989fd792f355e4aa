/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of PYTORCH_CUDA_ALLOC_CONF, or of PYTORCH_NPU_ALLOC_CONF, as figures. Options that do not move a block (pinned memory, locks, backtraces) are
 * accepted and do nothing here; options that a release does not know, or that choose another allocator, are refused in
 * one sentence.
 */
#ifndef MSCOPE_TWIN_ALLOCATOR_SETTINGS_H
#define MSCOPE_TWIN_ALLOCATOR_SETTINGS_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/status.h"
#include "twin/release.h"

#define TWIN_DIVISIONS 16u /* one for each power of two from 1 MiB to 32 GiB */

struct twin_settings {
	/* Blocks of this size and more are handed out whole and to large requests alone. UINT64_MAX: no such blocks. */
	uint64_t max_split_bytes;
	/* How much larger than the request such a block may be. */
	uint64_t non_split_rounding_bytes;
	/* Segment for requests between 1 MiB and 10 MiB, and the unit of expandable segments of the large pool. */
	uint64_t large_segment_bytes;
	/* Only of torch_npu. Unit of expandable segments of the large pool; 0: as large_segment_bytes says. */
	uint64_t unit_bytes;
	/* Large blocks of expandable segments begin at a multiple of it; 0: anywhere. */
	uint64_t align_bytes;
	/* Sizes are rounded up to this many divisions of a power of two; 0 or 1: to multiples of 512. */
	uint32_t divisions[TWIN_DIVISIONS];
	double gc_threshold; /* 0: no garbage collection */
	double fraction;     /* of the device's memory; negative: none is set */
	bool expandable;
};

/* What PyTorch does without any setting. */
void twin_settings_default(struct twin_settings *out);

/* Reads `text` as `release` would. MSCOPE_E_USAGE and a sentence if that release refuses it or the twin cannot play it. */
int twin_settings_parse(const char *text, const struct twin_release *release,
			struct twin_settings *out, struct mscope_error *err);

#endif
