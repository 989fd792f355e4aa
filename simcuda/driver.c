/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver as PyTorch finds it: physical memory and addresses by themselves (expandable segments), contexts, modules that were compiled at run
 * time, and the three libraries beside it: NVML, NVRTC and NCCL's version.
 */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDLES_MAGIC 0x7363756461ULL
#define GRANULE	      (UINT64_C(2) << 20)

SIM_API int cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
				    int *out_result);
SIM_API int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned int version,
					     unsigned long long flags, int *out_result);
SIM_API int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags,
				int *out_result);
SIM_API int cuMemGetAllocationGranularity(size_t *out, const void *properties, int kind);
SIM_API int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t alignment, uint64_t wanted,
				unsigned long long flags);
SIM_API int cuMemAddressFree(uint64_t address, size_t bytes);
SIM_API int cuMemCreate(uint64_t *out, size_t bytes, const void *properties,
			unsigned long long flags);
SIM_API int cuMemRelease(uint64_t handle);
SIM_API int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
		     unsigned long long flags);
SIM_API int cuMemUnmap(uint64_t address, size_t bytes);
SIM_API int cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count);
SIM_API int cuMemAlloc_v2(uint64_t *out, size_t bytes);
SIM_API int cuMemFree_v2(uint64_t address);
SIM_API int cuMemsetD32Async(uint64_t address, unsigned int value, size_t count, void *stream);
SIM_API int cuStreamWriteValue32(void *stream, uint64_t address, uint32_t value,
				 unsigned int flags);
SIM_API int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value,
				    unsigned int flags);
SIM_API int cuCtxGetCurrent(void **out);
SIM_API int cuCtxSetCurrent(void *context);
SIM_API int cuCtxGetDevice(int *out);
SIM_API int cuCtxSynchronize(void);
SIM_API int cuLogsRegisterCallback(void *function, void *data, uint64_t *out);
SIM_API int cuLogsUnregisterCallback(uint64_t callback);
SIM_API int cuDevicePrimaryCtxGetState(int device, unsigned int *out_flags, int *out_active);
SIM_API int cuDevicePrimaryCtxRetain(void **out, int device);
SIM_API int cuDevicePrimaryCtxRelease_v2(int device);
SIM_API int cuPointerGetAttribute(void *out, int attribute, uint64_t address);
SIM_API int cuModuleLoadData(void **out, const void *image);
SIM_API int cuModuleLoadDataEx(void **out, const void *image, unsigned int count, int *options,
			       void **values);
SIM_API int cuModuleGetFunction(void **out, void *module, const char *name);
SIM_API int cuModuleUnload(void *module);
SIM_API int cuFuncSetAttribute(void *function, int attribute, int value);
SIM_API int cuFuncGetAttribute(int *out, int attribute, void *function);
SIM_API int cuLaunchKernel(void *function);
SIM_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *function, int threads,
							size_t shared);
SIM_API int nvrtcVersion(int *major, int *minor);
SIM_API const char *nvrtcGetErrorString(int code);
SIM_API int nvrtcCreateProgram(void **out, const char *source, const char *name);
SIM_API int nvrtcDestroyProgram(void **program);
SIM_API int nvrtcAddNameExpression(void *program, const char *name);
SIM_API int nvrtcCompileProgram(void *program, int count, const char *const *options);
SIM_API int nvrtcGetLoweredName(void *program, const char *name, const char **out);
SIM_API int nvrtcGetCUBINSize(void *program, size_t *out);
SIM_API int nvrtcGetCUBIN(void *program, char *out);
SIM_API int nvrtcGetPTXSize(void *program, size_t *out);
SIM_API int nvrtcGetPTX(void *program, char *out);
SIM_API int nvrtcGetProgramLogSize(void *program, size_t *out);
SIM_API int nvrtcGetProgramLog(void *program, char *out);
SIM_API int nvmlInit(void);
SIM_API int nvmlInit_v2(void);
SIM_API int nvmlShutdown(void);
SIM_API int nvmlDeviceGetCount_v2(unsigned int *out);
SIM_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out);
SIM_API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **out);
SIM_API int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned int *count, void *out);
SIM_API int ncclGetVersion(int *out);

/* ---- functions by name ---- */

/* Functions that have a second form are asked for by the name of the first. */
static void *lookup(const char *name)
{
	char second[128];
	void *found;

	(void)snprintf(second, sizeof(second), "%s_v2", name);
	found = dlsym(RTLD_DEFAULT, second);
	return found != NULL ? found : dlsym(RTLD_DEFAULT, name);
}

int cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags, int *out_result)
{
	(void)flags;
	*out = lookup(name);
	if (*out == NULL)
		*out = sim_missing_function(name);
	if (out_result != NULL)
		*out_result = *out == NULL ? 1 : 0;
	return SIM_OK;
}

int cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned int version,
				     unsigned long long flags, int *out_result)
{
	(void)version;
	return cudaGetDriverEntryPoint(name, out, flags, out_result);
}

int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *out_result)
{
	(void)version;
	return cudaGetDriverEntryPoint(name, out, flags, out_result);
}

/* ---- memory ---- */

struct physical {
	uint64_t magic, bytes;
	unsigned int users; /* its owner and its mappings */
};

struct mapping {
	uint64_t address;
	struct physical *physical;
	struct mapping *next;
};

static struct mapping *mappings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void leave(struct physical *physical)
{
	if (__atomic_sub_fetch(&physical->users, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	(void)sim_count(-(int64_t)physical->bytes);
	free(physical);
}

int cuMemGetAllocationGranularity(size_t *out, const void *properties, int kind)
{
	(void)properties;
	(void)kind;
	*out = GRANULE;
	return SIM_OK;
}

int cuMemAddressReserve(uint64_t *out, size_t bytes, size_t alignment, uint64_t wanted,
			unsigned long long flags)
{
	(void)alignment;
	(void)wanted;
	(void)flags;
	*out = (uint64_t)(uintptr_t)sim_reserve(bytes);
	return *out == 0 ? SIM_OUT_OF_MEMORY : SIM_OK;
}

/* Addresses are plenty. */
int cuMemAddressFree(uint64_t address, size_t bytes)
{
	(void)address;
	(void)bytes;
	return SIM_OK;
}

int cuMemCreate(uint64_t *out, size_t bytes, const void *properties, unsigned long long flags)
{
	struct physical *new = malloc(sizeof(*new));

	(void)properties;
	(void)flags;
	if (new == NULL || bytes % GRANULE != 0 || sim_count((int64_t)bytes) != SIM_OK) {
		free(new);
		return SIM_OUT_OF_MEMORY;
	}
	*new = (struct physical){HANDLES_MAGIC, bytes, 1};
	*out = (uint64_t)(uintptr_t) new;
	return SIM_OK;
}

int cuMemRelease(uint64_t handle)
{
	leave((struct physical *)(uintptr_t)handle);
	return SIM_OK;
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle,
	     unsigned long long flags)
{
	struct physical *physical = (struct physical *)(uintptr_t)handle;
	struct mapping *new = malloc(sizeof(*new));

	(void)bytes;
	(void)offset;
	(void)flags;
	if (new == NULL || physical->magic != HANDLES_MAGIC) {
		free(new);
		return SIM_INVALID_VALUE;
	}
	(void)__atomic_add_fetch(&physical->users, 1, __ATOMIC_ACQ_REL);
	new->address = address;
	new->physical = physical;
	(void)pthread_mutex_lock(&lock);
	new->next = mappings;
	mappings = new;
	(void)pthread_mutex_unlock(&lock);
	return SIM_OK;
}

int cuMemUnmap(uint64_t address, size_t bytes)
{
	struct mapping **at, *gone = NULL, *next;

	(void)pthread_mutex_lock(&lock);
	for (at = &mappings; *at != NULL;) {
		if ((*at)->address - address >= bytes) {
			at = &(*at)->next;
			continue;
		}
		next = (*at)->next;
		(*at)->next = gone;
		gone = *at;
		*at = next;
	}
	(void)pthread_mutex_unlock(&lock);
	sim_fill((void *)(uintptr_t)address, 0, 0);
	for (; gone != NULL; gone = next) {
		next = gone->next;
		leave(gone->physical);
		free(gone);
	}
	return SIM_OK;
}

int cuMemSetAccess(uint64_t address, size_t bytes, const void *access, size_t count)
{
	(void)address;
	(void)bytes;
	(void)access;
	(void)count;
	return SIM_OK;
}

int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
	void *address = NULL;
	int code = sim_take(bytes, &address);

	*out = (uint64_t)(uintptr_t)address;
	return code;
}

int cuMemFree_v2(uint64_t address)
{
	return sim_give((void *)(uintptr_t)address);
}

int cuMemsetD32Async(uint64_t address, unsigned int value, size_t count, void *stream)
{
	(void)stream;
	(void)value;
	(void)address;
	(void)count;
	sim_launched();
	return SIM_OK;
}

int cuStreamWriteValue32(void *stream, uint64_t address, uint32_t value, unsigned int flags)
{
	(void)flags;
	return cuMemsetD32Async(address, value, 1, stream);
}

int cuStreamWriteValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned int flags)
{
	return cuStreamWriteValue32(stream, address, value, flags);
}

int cuPointerGetAttribute(void *out, int attribute, uint64_t address)
{
	const void *at = (const void *)(uintptr_t)address;
	char what[64];
	unsigned int kind = sim_is_device(at) ? 2 : 1;
	int device = 0;

	switch (attribute) {
	case 2: /* kind of memory */
		memcpy(out, &kind, sizeof(kind));
		return SIM_OK;
	case 9: /* number of the card */
		memcpy(out, &device, sizeof(device));
		return SIM_OK;
	default:
		(void)snprintf(what, sizeof(what), "attribute %d of a pointer is not simulated",
			       attribute);
		return sim_fail(what);
	}
}

/* ---- contexts ---- */

static char context;

int cuCtxGetCurrent(void **out)
{
	*out = &context;
	return SIM_OK;
}

int cuCtxSetCurrent(void *wanted)
{
	(void)wanted;
	return SIM_OK;
}

int cuCtxGetDevice(int *out)
{
	*out = 0;
	return SIM_OK;
}

int cuCtxSynchronize(void)
{
	return SIM_OK;
}

/* A driver that logs nothing: PyTorch 2.15 asks for its errors in words. */
int cuLogsRegisterCallback(void *function, void *data, uint64_t *out)
{
	(void)function;
	(void)data;
	if (out != NULL)
		*out = 1;
	return SIM_OK;
}

int cuLogsUnregisterCallback(uint64_t callback)
{
	(void)callback;
	return SIM_OK;
}

int cuDevicePrimaryCtxGetState(int device, unsigned int *out_flags, int *out_active)
{
	*out_flags = 0;
	*out_active = device == 0;
	return SIM_OK;
}

int cuDevicePrimaryCtxRetain(void **out, int device)
{
	(void)device;
	*out = &context;
	return SIM_OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	return SIM_OK;
}

/* ---- kernels that are compiled at run time: PyTorch's own, so they are launched ---- */

static char compiled;

int cuModuleLoadData(void **out, const void *image)
{
	(void)image;
	*out = &compiled;
	return SIM_OK;
}

int cuModuleLoadDataEx(void **out, const void *image, unsigned int count, int *options,
		       void **values)
{
	(void)count;
	(void)options;
	(void)values;
	return cuModuleLoadData(out, image);
}

int cuModuleGetFunction(void **out, void *module, const char *name)
{
	(void)name;
	*out = module;
	return SIM_OK;
}

int cuModuleUnload(void *module)
{
	(void)module;
	return SIM_OK;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
	(void)function;
	(void)attribute;
	(void)value;
	return SIM_OK;
}

int cuFuncGetAttribute(int *out, int attribute, void *function)
{
	(void)function;
	*out = attribute == 0 ? 1024 : 0;
	return SIM_OK;
}

int cuLaunchKernel(void *function)
{
	if (function != &compiled)
		return sim_fail("a kernel that is not PyTorch's own, whose memory is not known");
	sim_launched();
	return SIM_OK;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, void *function, int threads,
						size_t shared)
{
	(void)function;
	(void)shared;
	*out = threads <= 0 ? 1 : sim_card()->sm_threads / threads;
	return SIM_OK;
}

/* ---- NVRTC ---- */

int nvrtcVersion(int *major, int *minor)
{
	*major = sim_version() / 1000;
	*minor = sim_version() % 1000 / 10;
	return SIM_OK;
}

const char *nvrtcGetErrorString(int code)
{
	return code == SIM_OK ? "NVRTC_SUCCESS" : "simcuda: NVRTC";
}

int nvrtcCreateProgram(void **out, const char *source, const char *name)
{
	(void)source;
	(void)name;
	*out = &compiled;
	return SIM_OK;
}

int nvrtcDestroyProgram(void **program)
{
	*program = NULL;
	return SIM_OK;
}

int nvrtcAddNameExpression(void *program, const char *name)
{
	(void)program;
	(void)name;
	return SIM_OK;
}

int nvrtcCompileProgram(void *program, int count, const char *const *options)
{
	(void)program;
	(void)count;
	(void)options;
	return SIM_OK;
}

int nvrtcGetLoweredName(void *program, const char *name, const char **out)
{
	(void)program;
	*out = name;
	return SIM_OK;
}

int nvrtcGetCUBINSize(void *program, size_t *out)
{
	(void)program;
	*out = 1;
	return SIM_OK;
}

int nvrtcGetCUBIN(void *program, char *out)
{
	(void)program;
	*out = '\0';
	return SIM_OK;
}

int nvrtcGetPTXSize(void *program, size_t *out)
{
	return nvrtcGetCUBINSize(program, out);
}

int nvrtcGetPTX(void *program, char *out)
{
	return nvrtcGetCUBIN(program, out);
}

int nvrtcGetProgramLogSize(void *program, size_t *out)
{
	return nvrtcGetCUBINSize(program, out);
}

int nvrtcGetProgramLog(void *program, char *out)
{
	return nvrtcGetCUBIN(program, out);
}

/* ---- NVML: the card alone, without processes ---- */

int nvmlInit(void)
{
	return SIM_OK;
}

int nvmlInit_v2(void)
{
	return SIM_OK;
}

int nvmlShutdown(void)
{
	return SIM_OK;
}

int nvmlDeviceGetCount_v2(unsigned int *out)
{
	*out = 1;
	return SIM_OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out)
{
	(void)bus;
	*out = &context;
	return SIM_OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **out)
{
	*out = &context;
	return index == 0 ? SIM_OK : 2;
}

int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned int *count, void *out)
{
	(void)device;
	(void)out;
	*count = 0;
	return SIM_OK;
}

/* PyTorch asks for it when it is imported. */
int ncclGetVersion(int *out)
{
	*out = 22809;
	return SIM_OK;
}
