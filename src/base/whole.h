/* SPDX-License-Identifier: Apache-2.0 */
/* A computed number as a whole one: what no word holds becomes the nearest that it does. Sums of damaged records may be anything. */
#ifndef MSCOPE_BASE_WHOLE_H
#define MSCOPE_BASE_WHOLE_H

#include <stdint.h>

static inline uint64_t whole(double value)
{
	if (!(value > 0))
		return 0;
	return value < 0x1p64 ? (uint64_t)value : UINT64_MAX;
}

#endif
