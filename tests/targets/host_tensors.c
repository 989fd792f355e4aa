/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch's allocator for the CPU does around its memory, without PyTorch: it asks whether memory is profiled, through a
 * function that others may define in its place, and reports only then. A negative size is a free.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device {
	int8_t type;
	int8_t index;
};

bool _ZN3c1022memoryProfilingEnabledEv(void);
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
							   size_t allocated, size_t reserved,
							   struct device device);
void host_tensor(void *ptr, int64_t bytes);

/* Written by nobody, but no compiler may know. */
static volatile bool profiling;
static volatile int64_t reported;

bool _ZN3c1022memoryProfilingEnabledEv(void)
{
	return profiling;
}

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
							   size_t allocated, size_t reserved,
							   struct device device)
{
	(void)ptr;
	(void)allocated;
	(void)reserved;
	(void)device;
	reported = reported + bytes;
}

void host_tensor(void *ptr, int64_t bytes)
{
	if (_ZN3c1022memoryProfilingEnabledEv())
		_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
			ptr, bytes, 0, 0, (struct device){.type = 0, .index = -1});
}
