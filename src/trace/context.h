/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a record's context means: which pool, device and kind of request. The collector decodes the foreign interface once per
 * distinct context and writes a context_def; the engine never sees a foreign flag word it would have to understand.
 */
#ifndef MSCOPE_TRACE_CONTEXT_H
#define MSCOPE_TRACE_CONTEXT_H

#include "base/compiler.h"

enum pool {
	POOL_UNKNOWN = 0,
#define POOL(number, name, event_type, meaning) POOL_##name = (number),
#include "trace/pools.def"
#undef POOL
	POOL_END
};

enum vendor {
	VENDOR_UNKNOWN = 0,
	VENDOR_ASCEND = 1,
	VENDOR_CUDA = 2,
	VENDOR_CPU = 3,
};

/* How a block was asked for; a free names the same kind, so that a handle never pairs with an address. */
enum block_kind {
	BLOCK_ALLOC = 0,  /* by address: halMemAlloc, cuMemAlloc */
	BLOCK_CREATE = 1, /* by handle, physical memory to be mapped: halMemCreate, cuMemCreate */
	BLOCK_REGISTER =
		2,	  /* host memory of the program's own that was pinned: aclrtHostRegister */
	BLOCK_HANDLE = 3, /* a part of a pool, given back by a handle */
};

enum page_class {
	PAGE_UNKNOWN = 0,
	PAGE_NORMAL = 1,
	PAGE_HUGE = 2,
	PAGE_GIANT = 3,
};

#define DEVICE_UNKNOWN UINT32_MAX
#define DEVICE_HOST    (UINT32_MAX - 1)
#define MODULE_UNKNOWN UINT32_MAX

/* A decoded context, as written by context_def. */
struct context {
	uint8_t pool;
	uint8_t kind;
	uint8_t page;
	uint8_t vendor;
	uint32_t device;
	uint32_t module;
	uint64_t flags;
};

#endif
