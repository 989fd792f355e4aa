/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of oom_causes.c: an NPU by the runtime and torch_npu's reports through mstx, or with ON_CUDA a GPU by the driver and
 * PyTorch's reports through libc10.
 *
 *     device_open()                  returns what it has in all
 *     device_take(), device_give()   memory of the driver; 0: refused
 *     device_left()                  what is free
 *     pool_took(), pool_gave()       the pool tells about a block, and what it has reserved
 *     pool_refused()                 it gives up on a request
 *     DEVICE_PADDING                 what the runtime adds to a request
 */
#ifndef MSCOPE_TESTS_OOM_DEVICE_H
#define MSCOPE_TESTS_OOM_DEVICE_H

#include "client_torch.h"

#define DO(call) target_check((call) == 0, #call " failed")

#ifdef ON_CUDA

#define DEVICE_PADDING 0u
#define C10_CUDA       1

/* c10::Device. */
struct c10_device {
	int8_t type, index;
};

/* Of libc10.so, here a stand-in; the allocators of PyTorch call it through the PLT. */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
							   size_t allocated, size_t reserved,
							   struct c10_device device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated,
							 size_t reserved, struct c10_device device);

static const struct c10_device first_gpu = {C10_CUDA, 0};

static struct {
	int (*alloc)(uint64_t *out, size_t bytes);
	int (*free)(uint64_t address);
	int (*info)(size_t *left, size_t *total);
} cuda;

/* As libcudart does: the driver by dlopen, its functions by the driver itself. */
static inline void *cuda_find(void *library, const char *name, int version)
{
	int (*get)(const char *, void **, int, uint64_t) =
		(int (*)(const char *, void **, int, uint64_t))dlsym(library, "cuGetProcAddress");
	void *function = NULL;

	target_check(get != NULL && get(name, &function, version, 0) == 0 && function != NULL,
		     name);
	return function;
}

static inline uint64_t device_left(void)
{
	size_t left = 0, total = 0;

	DO(cuda.info(&left, &total));
	return left;
}

static inline uint64_t device_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	int (*init)(unsigned int), (*retain)(void **, int), (*set)(void *);
	size_t left = 0, total = 0;
	void *context = NULL;

	target_check(library != NULL, "no libcuda.so.1");
	*(void **)&init = cuda_find(library, "cuInit", 2000);
	*(void **)&retain = cuda_find(library, "cuDevicePrimaryCtxRetain", 7000);
	*(void **)&set = cuda_find(library, "cuCtxSetCurrent", 4000);
	*(void **)&cuda.alloc = cuda_find(library, "cuMemAlloc", 3020);
	*(void **)&cuda.free = cuda_find(library, "cuMemFree", 3020);
	*(void **)&cuda.info = cuda_find(library, "cuMemGetInfo", 3020);
	DO(init(0));
	DO(retain(&context, 0));
	DO(set(context));
	DO(cuda.info(&left, &total));
	return total;
}

static inline uint64_t device_take(uint64_t size)
{
	uint64_t address = 0;

	return cuda.alloc(&address, size) == 0 ? address : 0;
}

static inline void device_give(uint64_t address)
{
	DO(cuda.free(address));
}

static inline void pool_took(uint64_t address, uint64_t size, uint64_t allocated, uint64_t reserved)
{
	_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
		(void *)(uintptr_t)address, (int64_t)size, allocated, reserved, first_gpu);
}

static inline void pool_gave(uint64_t address, uint64_t size, uint64_t allocated, uint64_t reserved)
{
	_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
		(void *)(uintptr_t)address, -(int64_t)size, allocated, reserved, first_gpu);
}

static inline void pool_refused(uint64_t size, uint64_t allocated, uint64_t reserved)
{
	_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE((int64_t)size, allocated, reserved,
							    first_gpu);
}

#else

#include "acl/acl.h"

#define DEVICE_PADDING 32u

static inline uint64_t device_left(void)
{
	size_t left = 0, total = 0;

	DO(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total));
	return left;
}

static inline uint64_t device_open(void)
{
	size_t left = 0, total = 0;

	DO(aclInit(NULL));
	DO(aclrtSetDevice(0));
	DO(aclrtGetMemInfo(ACL_HBM_MEM, &left, &total));
	torch_open("ptaCaching", false);
	return total;
}

static inline uint64_t device_take(uint64_t size)
{
	void *address = NULL;

	if (aclrtMalloc(&address, size, ACL_MEM_MALLOC_HUGE_FIRST) != 0)
		return 0;
	return (uint64_t)(uintptr_t)address;
}

static inline void device_give(uint64_t address)
{
	DO(aclrtFree((void *)(uintptr_t)address));
}

static inline void pool_took(uint64_t address, uint64_t size, uint64_t allocated, uint64_t reserved)
{
	(void)allocated;
	torch_set_heap(0, address, reserved);
	torch_register(0, address, size);
}

static inline void pool_gave(uint64_t address, uint64_t size, uint64_t allocated, uint64_t reserved)
{
	(void)size;
	(void)allocated;
	torch_set_heap(0, address, reserved);
	torch_unregister(address);
}

/* torch_npu tells nobody. */
static inline void pool_refused(uint64_t size, uint64_t allocated, uint64_t reserved)
{
	(void)size;
	(void)allocated;
	(void)reserved;
}

#endif
#endif
