/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host as a vendor: there is nothing to wait for, and its memory is read directly.
 */
#include "collector/memory.h"
#include "collector/vendor.h"

static int wait_for(void *stream, bool has_stream)
{
	(void)stream;
	(void)has_stream;
	return 0;
}

static int64_t copy(void *out, uint64_t address, size_t bytes)
{
	return (int64_t)memory_read(out, address, bytes);
}

const struct vendor_ops cpu_vendor = {
	.wait = wait_for,
	.copy = copy,
};
