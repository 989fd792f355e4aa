/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum of watched memory: a CRC of 64 bits that shifts right and uses 0x42f0e1eba9ea3693 as it stands, with all ones
 * before and after. That is no usual variant, so no library has it; files of the original are compared with ours by it.
 */
#ifndef MSCOPE_COLLECTOR_CHECKSUM_H
#define MSCOPE_COLLECTOR_CHECKSUM_H

#include <stddef.h>

#include "base/compiler.h"

#define CHECKSUM_BEGIN UINT64_MAX

/* Goes on with `bytes` more; begin with CHECKSUM_BEGIN, and checksum_end() gives the sum. Any thread, any time. */
uint64_t checksum_add(uint64_t state, const void *data, size_t bytes);

MSCOPE_INLINE uint64_t checksum_end(uint64_t state)
{
	return ~state;
}

#endif
