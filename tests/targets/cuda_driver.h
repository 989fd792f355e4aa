/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's driver for programs to trace, found as real programs find it, and a log of what they did with its memory, which is the
 * ground truth. Needs no header of NVIDIA; runs on the stand-in of tests/fakes and on a GPU.
 *
 * The variable WAY says how functions are found: "proc" (default) by cuGetProcAddress_v2, as the CUDA runtime does, "ptsz" the same for
 * the per-thread default stream, "dlsym" one by one, "linked" through the program's own symbols (programs that link libcuda).
 *
 * A thread has a log of its own. At the end cuda_tell() writes a line of JSON for each to the file that TRUTH names, or to stdout:
 *
 *     {"pid":7,"tid":8,"events":[["MALLOC",address,size,device,"HAL"],["FREE",address], ...]}
 */
#ifndef MSCOPE_TESTS_CUDA_DRIVER_H
#define MSCOPE_TESTS_CUDA_DRIVER_H

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef uint64_t cu_address;
typedef void *cu_handle;

struct cu_location {
	uint32_t type;
	int32_t id;
};

struct cu_properties {
	uint32_t type; /* 1: pinned */
	uint32_t handle_types;
	struct cu_location location;
	void *metadata;
	uint64_t flags;
};

struct cu_pool_properties {
	uint32_t type;
	uint32_t handle_types;
	struct cu_location location;
	void *security;
	size_t max_bytes;
	unsigned char reserved[56];
};

struct cu_alloc_node {
	struct cu_pool_properties properties;
	const void *access;
	size_t access_count, bytes;
	cu_address address;
};

struct cu_access {
	struct cu_location location;
	uint32_t flags; /* 3: read and write */
};

struct cu_array_2d {
	size_t width, height;
	uint32_t format, channels;
};

struct cu_array_3d {
	size_t width, height, depth;
	uint32_t format, channels, flags;
};

struct cu_launch_config {
	unsigned int grid[3], block[3], shared;
	void *stream;
	void *attributes;
	unsigned int attribute_count;
};

/* name as programs ask for it, symbol that older ways find, parameters */
#define CUDA_FUNCTIONS(F)                                                                          \
	F(cuInit, cuInit, (unsigned int))                                                          \
	F(cuDeviceGetCount, cuDeviceGetCount, (int *))                                             \
	F(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (cu_handle *, int))                  \
	F(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (int))                              \
	F(cuCtxSetCurrent, cuCtxSetCurrent, (cu_handle))                                           \
	F(cuCtxSynchronize, cuCtxSynchronize, (void))                                              \
	F(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                     \
	F(cuStreamCreate, cuStreamCreate, (cu_handle *, unsigned int))                             \
	F(cuStreamSynchronize, cuStreamSynchronize, (cu_handle))                                   \
	F(cuStreamBeginCapture, cuStreamBeginCapture_v2, (cu_handle, int))                         \
	F(cuStreamEndCapture, cuStreamEndCapture, (cu_handle, cu_handle *))                        \
	F(cuEventCreate, cuEventCreate, (cu_handle *, unsigned int))                               \
	F(cuEventRecord, cuEventRecord, (cu_handle, cu_handle))                                    \
	F(cuEventSynchronize, cuEventSynchronize, (cu_handle))                                     \
	F(cuEventElapsedTime, cuEventElapsedTime, (float *, cu_handle, cu_handle))                 \
	F(cuGraphCreate, cuGraphCreate, (cu_handle *, unsigned int))                               \
	F(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode,                                          \
	  (cu_handle *, cu_handle, const cu_handle *, size_t, struct cu_alloc_node *))             \
	F(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode,                                            \
	  (cu_handle *, cu_handle, const cu_handle *, size_t, cu_address))                         \
	F(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                \
	  (cu_handle *, cu_handle, unsigned long long))                                            \
	F(cuGraphLaunch, cuGraphLaunch, (cu_handle, cu_handle))                                    \
	F(cuGraphExecDestroy, cuGraphExecDestroy, (cu_handle))                                     \
	F(cuGraphDestroy, cuGraphDestroy, (cu_handle))                                             \
	F(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, (int))                                       \
	F(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, (int, int, void *))          \
	F(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (cu_handle *, int))                \
	F(cuDeviceSetMemPool, cuDeviceSetMemPool, (int, cu_handle))                                \
	F(cuMemPoolSetAttribute, cuMemPoolSetAttribute, (cu_handle, int, void *))                  \
	F(cuMemPoolGetAttribute, cuMemPoolGetAttribute, (cu_handle, int, void *))                  \
	F(cuMemAlloc, cuMemAlloc_v2, (cu_address *, size_t))                                       \
	F(cuMemAllocPitch, cuMemAllocPitch_v2,                                                     \
	  (cu_address *, size_t *, size_t, size_t, unsigned int))                                  \
	F(cuMemAllocManaged, cuMemAllocManaged, (cu_address *, size_t, unsigned int))              \
	F(cuMemFree, cuMemFree_v2, (cu_address))                                                   \
	F(cuMemAllocAsync, cuMemAllocAsync, (cu_address *, size_t, void *))                        \
	F(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync,                                        \
	  (cu_address *, size_t, cu_handle, void *))                                               \
	F(cuMemFreeAsync, cuMemFreeAsync, (cu_address, void *))                                    \
	F(cuMemPoolCreate, cuMemPoolCreate, (cu_handle *, const struct cu_pool_properties *))      \
	F(cuMemPoolDestroy, cuMemPoolDestroy, (cu_handle))                                         \
	F(cuMemPoolTrimTo, cuMemPoolTrimTo, (cu_handle, size_t))                                   \
	F(cuMemCreate, cuMemCreate,                                                                \
	  (cu_address *, size_t, const struct cu_properties *, unsigned long long))                \
	F(cuMemRelease, cuMemRelease, (cu_address))                                                \
	F(cuMemAddressReserve, cuMemAddressReserve,                                                \
	  (cu_address *, size_t, size_t, cu_address, unsigned long long))                          \
	F(cuMemAddressFree, cuMemAddressFree, (cu_address, size_t))                                \
	F(cuMemMap, cuMemMap, (cu_address, size_t, size_t, cu_address, unsigned long long))        \
	F(cuMemSetAccess, cuMemSetAccess, (cu_address, size_t, const struct cu_access *, size_t))  \
	F(cuMemUnmap, cuMemUnmap, (cu_address, size_t))                                            \
	F(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (cu_address *, void *))        \
	F(cuArrayCreate, cuArrayCreate_v2, (cu_handle *, const struct cu_array_2d *))              \
	F(cuArray3DCreate, cuArray3DCreate_v2, (cu_handle *, const struct cu_array_3d *))          \
	F(cuMipmappedArrayCreate, cuMipmappedArrayCreate,                                          \
	  (cu_handle *, const struct cu_array_3d *, unsigned int))                                 \
	F(cuArrayDestroy, cuArrayDestroy, (cu_handle))                                             \
	F(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, (cu_handle))                           \
	F(cuMemAllocHost, cuMemAllocHost_v2, (void **, size_t))                                    \
	F(cuMemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned int))                         \
	F(cuMemFreeHost, cuMemFreeHost, (void *))                                                  \
	F(cuMemHostRegister, cuMemHostRegister_v2, (void *, size_t, unsigned int))                 \
	F(cuMemHostUnregister, cuMemHostUnregister, (void *))                                      \
	F(cuModuleLoadData, cuModuleLoadData, (cu_handle *, const void *))                         \
	F(cuModuleUnload, cuModuleUnload, (cu_handle))                                             \
	F(cuModuleGetFunction, cuModuleGetFunction, (cu_handle *, cu_handle, const char *))        \
	F(cuLaunchKernel, cuLaunchKernel,                                                          \
	  (cu_handle, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,        \
	   unsigned int, unsigned int, void *, void **, void **))                                  \
	F(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,                                    \
	  (cu_handle, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,        \
	   unsigned int, unsigned int, void *, void **))                                           \
	F(cuLaunchKernelEx, cuLaunchKernelEx,                                                      \
	  (const struct cu_launch_config *, cu_handle, void **, void **))

/* Functions are called as cuda.cuMemAlloc(...). */
#define MEMBER(name, symbol, parameters) int(*name) parameters;
static struct {
	CUDA_FUNCTIONS(MEMBER)
} cuda;
#undef MEMBER

#define CUDA_DEVICES_MAX 16
static cu_handle cuda_contexts[CUDA_DEVICES_MAX]; /* primary ones */
static int cuda_numbers[CUDA_DEVICES_MAX];	  /* as the machine numbers devices */
static int cuda_devices;

_Noreturn static inline void cuda_fail(const char *what, int result)
{
	(void)fprintf(stderr, "target: %s: %d\n", what, result);
	_exit(99);
}

#define CUDA(call)                                                                                 \
	do {                                                                                       \
		int cuda_result = cuda.call;                                                       \
		if (cuda_result != 0)                                                              \
			cuda_fail(#call, cuda_result);                                             \
	} while (0)

static inline void *cuda_find(void *driver, const char *name, const char *symbol, const char *way)
{
	int (*find)(const char *, void **, int, uint64_t, int *);
	void *found = NULL;
	int status;

	if (strcmp(way, "linked") == 0)
		return dlsym(RTLD_DEFAULT, symbol);
	if (strcmp(way, "dlsym") == 0)
		return dlsym(driver, symbol);
	*(void **)&find = dlsym(driver, "cuGetProcAddress_v2");
	if (find == NULL ||
	    find(name, &found, 12000, strcmp(way, "ptsz") == 0 ? 2 : 0, &status) != 0)
		return NULL;
	return found;
}

/* Reads CUDA_VISIBLE_DEVICES as the tool does: rows have the machine's numbers, unless devices have names. */
static inline void cuda_read_numbers(void)
{
	const char *at = getenv("CUDA_VISIBLE_DEVICES");
	int i;

	for (i = 0; i < CUDA_DEVICES_MAX; i++)
		cuda_numbers[i] = i;
	if (at != NULL && (strstr(at, "GPU-") != NULL || strstr(at, "MIG-") != NULL))
		return;
	for (i = 0; at != NULL && *at != '\0' && i < CUDA_DEVICES_MAX; i++) {
		cuda_numbers[i] = atoi(at);
		at = strchr(at, ',');
		at = at == NULL ? NULL : at + 1;
	}
}

/* Loads and initialises the driver; a context on each device. */
static inline void cuda_begin(void)
{
	const char *way = getenv("WAY") == NULL ? "proc" : getenv("WAY");
	void *driver = strcmp(way, "linked") == 0 ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
	int i;

	if (driver == NULL && strcmp(way, "linked") != 0)
		cuda_fail(dlerror(), 0);
#define FIND(name, symbol, parameters)                                                             \
	*(void **)&cuda.name = cuda_find(driver, #name, #symbol, way);                             \
	if (cuda.name == NULL)                                                                     \
		cuda_fail("no " #name, 0);
	CUDA_FUNCTIONS(FIND)
#undef FIND
	CUDA(cuInit(0));
	CUDA(cuDeviceGetCount(&cuda_devices));
	cuda_devices = cuda_devices > CUDA_DEVICES_MAX ? CUDA_DEVICES_MAX : cuda_devices;
	cuda_read_numbers();
	for (i = 0; i < cuda_devices; i++)
		CUDA(cuDevicePrimaryCtxRetain(&cuda_contexts[i], i));
	CUDA(cuCtxSetCurrent(cuda_contexts[0]));
}

/* ---- the truth ---- */

#define CUDA_LOGS_MAX 256

struct cuda_log {
	pid_t tid;
	char *text;
	size_t used, room;
};

static struct cuda_log cuda_logs[CUDA_LOGS_MAX];
static _Atomic int cuda_log_count;
static _Thread_local struct cuda_log *cuda_log_here;

static inline void cuda_log_add(const char *text)
{
	size_t length = strlen(text);
	struct cuda_log *log = cuda_log_here;

	if (log == NULL) {
		log = cuda_log_here = &cuda_logs[cuda_log_count++];
		*log = (struct cuda_log){.tid = (pid_t)syscall(SYS_gettid)};
	}
	if (log->used + length + 2 > log->room) {
		log->room = (log->used + length + 2) * 2;
		log->text = realloc(log->text, log->room);
	}
	log->used +=
		(size_t)sprintf(log->text + log->used, "%s%s", log->used == 0 ? "" : ",", text);
}

static inline void cuda_took(uint64_t address, uint64_t bytes, int device, const char *type)
{
	char text[128];

	(void)snprintf(text, sizeof(text), "[\"MALLOC\",%llu,%llu,%d,\"%s\"]",
		       (unsigned long long)address, (unsigned long long)bytes,
		       device < 0 ? -1 : cuda_numbers[device], type);
	cuda_log_add(text);
}

static inline void cuda_gives(uint64_t address)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "[\"FREE\",%llu]", (unsigned long long)address);
	cuda_log_add(text);
}

static inline void cuda_tell(void)
{
	const char *path = getenv("TRUTH");
	int out = path == NULL ? 1 : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	int i;

	for (i = 0; i < cuda_log_count; i++) {
		const struct cuda_log *log = &cuda_logs[i];
		char *line = malloc(log->used + 128);
		int length = sprintf(line, "{\"pid\":%d,\"tid\":%d,\"events\":[%s]}\n", getpid(),
				     log->tid, log->text);

		if (write(out, line, (size_t)length) != length)
			cuda_fail("cannot tell", 0);
		free(line);
	}
}

#endif
