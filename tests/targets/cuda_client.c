/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for libtorch_cuda.so in tests of the simulated CUDA: a pool that takes each block from CUDA's runtime and reports it as PyTorch's does.
 * The functions are called from Python, by ctypes.
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
int cudaMalloc(void **out, size_t bytes);
int cudaFree(void *address);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemset(void *to, int value, size_t bytes);
int cudaMemGetInfo(size_t *out_free, size_t *out_total);
struct dimensions {
	unsigned int x, y, z;
};
int cudaLaunchKernel(const void *function, struct dimensions grid, struct dimensions block,
		     void **arguments, size_t shared, void *stream);
const char *cudaGetErrorString(int code);
int cudaMadeUp(int argument);
int ncclMadeUp(void);

void *client_take(int64_t bytes);
void client_give(void *block, int64_t bytes);
int client_read(void *block);
void client_write(void *block, int value);
int client_launch(void);
int client_missing(void);
int client_missing_nccl(void);
const char *client_error(int code);
size_t client_free(void);

static const struct c10_device device = {.type = 1};
static size_t allocated;

void *client_take(int64_t bytes)
{
	void *block = NULL;

	if (cudaMalloc(&block, (size_t)bytes) != 0) {
		_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(bytes, allocated, allocated,
								    device);
		return NULL;
	}
	allocated += (size_t)bytes;
	_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block, bytes, allocated, allocated,
							      device);
	return block;
}

void client_give(void *block, int64_t bytes)
{
	allocated -= (size_t)bytes;
	_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(block, -bytes, allocated, allocated,
							      device);
	(void)cudaFree(block);
}

int client_read(void *block)
{
	int value = -1;

	(void)cudaMemcpy(&value, block, sizeof(value), 2);
	return value;
}

void client_write(void *block, int value)
{
	(void)cudaMemcpy(block, &value, sizeof(value), 1);
}

int client_launch(void)
{
	return cudaLaunchKernel((const void *)&device, (struct dimensions){1, 1, 1},
				(struct dimensions){32, 1, 1}, NULL, 0, NULL);
}

int client_missing(void)
{
	return cudaMadeUp(7);
}

int client_missing_nccl(void)
{
	return ncclMadeUp();
}

const char *client_error(int code)
{
	return cudaGetErrorString(code);
}

size_t client_free(void)
{
	size_t left = 0, total = 0;

	(void)cudaMemGetInfo(&left, &total);
	return left;
}
