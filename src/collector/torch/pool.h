/* SPDX-License-Identifier: Apache-2.0 */
/* What PyTorch's pool on CUDA tells about its blocks beyond its reports to c10: see pool.c. */
#ifndef MSCOPE_COLLECTOR_TORCH_POOL_H
#define MSCOPE_COLLECTOR_TORCH_POOL_H

#include <stdbool.h>

#include "base/compiler.h"

/* One thing that the pool told. */
struct pool_entry {
	uint64_t address;
	uint64_t size; /* of a block: as it was asked for */
	uint64_t stream;
	uint32_t private_first, private_second; /* POOL_PRIVATE_UNKNOWN: both unknown */
};

/*
 * The pool reports a block to c10, with its own lock held. `device` is PyTorch's number. True: the pool has told more about this block
 * just before.
 */
bool pool_take_alloc(int8_t device, uint64_t key, uint64_t address, uint64_t bytes,
		     struct pool_entry *out);
/* The same of a free, behind its record: one that waits for other streams is recorded as such. */
void pool_take_free(int8_t device, uint64_t key, uint64_t address, uint64_t bytes);

#endif
