/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libc10.so: the functions that PyTorch's allocators report to, which do nothing.
 */
#include <stddef.h>
#include <stdint.h>

struct c10_device {
	int8_t type, index;
};

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
							   size_t allocated, size_t reserved,
							   struct c10_device device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
							 size_t reserved, struct c10_device device);

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
							   size_t allocated, size_t reserved,
							   struct c10_device device)
{
	(void)ptr;
	(void)bytes;
	(void)allocated;
	(void)reserved;
	(void)device;
}

void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
							 size_t reserved, struct c10_device device)
{
	(void)bytes;
	(void)allocated;
	(void)reserved;
	(void)device;
}
