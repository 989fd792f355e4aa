/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuzz_unwind.c takes: this, then the bytes of the segment that has .eh_frame_hdr and .eh_frame in it.
 */
#ifndef MSCOPE_FUZZ_UNWIND_INPUT_H
#define MSCOPE_FUZZ_UNWIND_INPUT_H

#include <stdint.h>

struct unwind_input {
	int32_t pc;	    /* from the segment's first byte; code lies around the segment */
	uint32_t index;	    /* .eh_frame_hdr, likewise */
	uint32_t known;	    /* registers that are known */
	uint32_t registers; /* where they point to in the stack, mixed with their numbers */
};

#endif
