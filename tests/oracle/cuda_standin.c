/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcudart and libcuda that has no device: it hands out addresses and counts bytes. It is all that PyTorch's
 * libc10_cuda.so needs to run its caching allocator. Segments lie in ascending order from 0x7f0000000000, reserved ranges from
 * 0x300000000000 with a gap of up to 1 GiB after each. No address is given twice. Streams are never captured, events are always complete.
 *
 * STANDIN_BYTES is the memory of the device. Names that are not here are added by oracle.py as functions that return 0.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_OUT_OF_MEMORY 2
#define SLOTS		   65536u
#define GIB		   ((uint64_t)1 << 30)

static uint64_t used, next_segment = 0x7f0000000000, next_range = 0x300000000000, next_handle = 1;
static struct {
	uint64_t address, bytes;
} segments[SLOTS];
static uint64_t handles[SLOTS * 16];

static uint64_t device_bytes(void)
{
	static uint64_t bytes;

	if (bytes == 0)
		bytes = getenv("STANDIN_BYTES") ? strtoull(getenv("STANDIN_BYTES"), NULL, 10)
						: 8 * GIB;
	return bytes;
}

/* ---- runtime ---- */

int cudaMalloc(void **out, size_t bytes)
{
	static unsigned int slot;

	if (used + bytes > device_bytes())
		return CUDA_OUT_OF_MEMORY;
	while (segments[slot % SLOTS].address != 0)
		slot++;
	segments[slot % SLOTS].address = next_segment;
	segments[slot % SLOTS].bytes = bytes;
	*out = (void *)next_segment;
	next_segment += bytes;
	used += bytes;
	return 0;
}

int cudaFree(void *address)
{
	for (unsigned int i = 0; i < SLOTS && address != NULL; i++)
		if (segments[i].address == (uint64_t)address) {
			used -= segments[i].bytes;
			segments[i].address = 0;
			return 0;
		}
	return 0;
}

int cudaMemGetInfo(size_t *unused, size_t *total)
{
	*unused = device_bytes() - used;
	*total = device_bytes();
	return 0;
}

int cudaGetDeviceCount(int *out)
{
	*out = 1;
	return 0;
}

int cudaGetDevice(int *out)
{
	*out = 0;
	return 0;
}

/* The name is at the start, the bytes of the device after the two identifiers. */
static int properties(char *out)
{
	uint64_t total = device_bytes();

	memset(out, 0, 512);
	strcpy(out, "stand-in");
	memcpy(out + 288, &total, sizeof(total));
	return 0;
}

int cudaGetDeviceProperties(void *out, int device)
{
	(void)device;
	return properties(out);
}

int cudaGetDeviceProperties_v2(void *out, int device)
{
	(void)device;
	return properties(out);
}

int cudaStreamIsCapturing(void *stream, int *out)
{
	(void)stream;
	*out = 0;
	return 0;
}

int cudaStreamGetCaptureInfo_v2(void *stream, int *status)
{
	(void)stream;
	*status = 0;
	return 0;
}

int cudaStreamGetCaptureInfo(void *stream, int *status)
{
	(void)stream;
	*status = 0;
	return 0;
}

int cudaEventCreateWithFlags(void **out, unsigned int flags)
{
	(void)flags;
	*out = (void *)0x10;
	return 0;
}

const char *cudaGetErrorString(int code)
{
	return code == CUDA_OUT_OF_MEMORY ? "out of memory" : "error";
}

const char *cudaGetErrorName(int code)
{
	return cudaGetErrorString(code);
}

int cudaDriverGetVersion(int *out)
{
	*out = 13000;
	return 0;
}

/* ---- driver ---- */

int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t alignment, uint64_t address,
			uint64_t flags)
{
	(void)alignment;
	(void)address;
	(void)flags;
	*out = next_range;
	next_range += (bytes / GIB + 1) * GIB;
	return 0;
}

int cuMemCreate(uint64_t *out, size_t bytes, const void *kind, uint64_t flags)
{
	(void)kind;
	(void)flags;
	if (used + bytes > device_bytes())
		return CUDA_OUT_OF_MEMORY;
	*out = next_handle++;
	handles[*out % (SLOTS * 16)] = bytes;
	used += bytes;
	return 0;
}

int cuMemRelease(uint64_t handle)
{
	used -= handles[handle % (SLOTS * 16)];
	handles[handle % (SLOTS * 16)] = 0;
	return 0;
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
	(void)attribute;
	(void)device;
	*out = 0;
	return 0;
}

int cuMemGetAllocationGranularity(size_t *out, const void *kind, int option)
{
	(void)kind;
	(void)option;
	*out = (size_t)2 << 20;
	return 0;
}

int cuCtxGetCurrent(void **out)
{
	*out = (void *)0x20;
	return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active)
{
	(void)device;
	*flags = 0;
	*active = 1;
	return 0;
}

int cuGetErrorString(int code, const char **out)
{
	*out = cudaGetErrorString(code);
	return 0;
}

static int succeed(void)
{
	return 0;
}

/* What libc10_cuda.so asks for by name. */
static void *entry_point(const char *name)
{
	static const struct {
		const char *name;
		void *function;
	} known[] = {
		{"cuMemAddressReserve", (void *)cuMemAddressReserve},
		{"cuMemCreate", (void *)cuMemCreate},
		{"cuMemRelease", (void *)cuMemRelease},
		{"cuDeviceGetAttribute", (void *)cuDeviceGetAttribute},
		{"cuMemGetAllocationGranularity", (void *)cuMemGetAllocationGranularity},
		{"cuCtxGetCurrent", (void *)cuCtxGetCurrent},
		{"cuDevicePrimaryCtxGetState", (void *)cuDevicePrimaryCtxGetState},
		{"cuGetErrorString", (void *)cuGetErrorString},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].function;
	return (void *)succeed;
}

int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned int version,
				     uint64_t flags, int *found)
{
	(void)version;
	(void)flags;
	*out = entry_point(name);
	if (found != NULL)
		*found = 0;
	return 0;
}

int cudaGetDriverEntryPoint(const char *name, void **out, uint64_t flags, int *found)
{
	return cudaGetDriverEntryPointByVersion(name, out, 0, flags, found);
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found)
{
	return cudaGetDriverEntryPointByVersion(name, out, (unsigned int)version, flags, found);
}
