/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checksum of watched memory: a CRC of 64 bits that shifts right, with the unreflected polynomial 0x42f0e1eba9ea3693 and all
 * ones before and after. No library has this variant; msMemScope uses it, and its files are compared with ours.
 */
#ifndef MSCOPE_COLLECTOR_CHECKSUM_H
#define MSCOPE_COLLECTOR_CHECKSUM_H

#include <stddef.h>

#include "base/compiler.h"

#define CHECKSUM_BEGIN UINT64_MAX

/* Goes on with `bytes` more; begin with CHECKSUM_BEGIN, and checksum_end() gives the sum. Any thread, any time. */
uint64_t checksum_add(uint64_t state, const void *data, size_t bytes);

/*
 * Goes on with `bytes` more that somebody else has summed up, CHECKSUM_CHUNK of them at most: `sum` is checksum_add(0, data, bytes).
 * So parts of a block can be summed up at the same time.
 */
#define CHECKSUM_CHUNK 4096u
uint64_t checksum_join(uint64_t state, uint64_t sum, size_t bytes);

MSCOPE_INLINE uint64_t checksum_end(uint64_t state)
{
	return ~state;
}

#endif
