/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "codes.h"
#include "runtime/rt.h"
#include "simnpu.h"
#include "slab.h"
#include "stream.h"

enum {
	KERNEL_MAX = 1 << 16,
	ARGS_MAX = 4096,	  /* argument lists that a program may hold */
	ARGS_BYTES_MAX = 1 << 20, /* in one list */
	ARGS_ALIGN = 8,
};

typedef void (*kernel_fn)(void *args, size_t args_size, uint32_t block_dim);
typedef void (*release_fn)(void *args, size_t args_size);

/* Fixed once it is live. Kernels are never taken back. */
struct kernel {
	struct slab_entry entry;
	kernel_fn fn;
	release_fn release; /* may be NULL */
	char *name;
};

struct args {
	struct slab_entry entry;
	unsigned char *data;
	size_t size;
	size_t capacity;
};

struct kernel_task {
	struct task task;
	kernel_fn fn;
	release_fn release;
	uint32_t block_dim;
	size_t args_size;
	_Alignas(max_align_t) unsigned char args[];
};

/* What the launch functions have in common. */
struct launch {
	const void *kernel; /* handle */
	enum task_type type;
	uint32_t block_dim;
	const void *args;
	size_t args_size;
	const rtHostInputInfo_t *inputs;
	size_t input_count;
	const rtHostInputInfo_t *tiling; /* NULL for none */
	void *stream;
};

/* Guards both tables and the contents of argument lists. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab kernels = SLAB_INIT(struct kernel, KERNEL_MAX);
static struct slab args_lists = SLAB_INIT(struct args, ARGS_MAX);
static uint32_t args_oldest;

void kernel_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void kernel_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

/* With the lock. */
static struct kernel *find_name(const char *name)
{
	uint32_t n;

	for (n = 0; n < slab_count(&kernels); n++) {
		struct kernel *kernel = slab_at(&kernels, n);

		if (kernel->name && strcmp(kernel->name, name) == 0)
			return kernel;
	}
	return NULL;
}

int simnpuRegisterKernel(const char *name,
			 void (*fn)(void *args, size_t args_size, uint32_t block_dim),
			 void **out_func_handle)
{
	return rtSimRegisterKernel(name, fn, NULL, out_func_handle);
}

rtError_t rtSimRegisterKernel(const char *name,
			      void (*fn)(void *args, size_t args_size, uint32_t block_dim),
			      void (*release)(void *args, size_t args_size), void **out_func_handle)
{
	int error = ACL_SUCCESS;
	struct kernel *kernel;

	if (!name || !*name || name[strcspn(name, " \t\r\n")] || !fn || !out_func_handle)
		return ACL_ERROR_RT_PARAM_INVALID;
	kernel_lock();
	kernel = find_name(name);
	if (kernel) {
		if (kernel->fn != fn)
			error = ACL_ERROR_RT_PARAM_INVALID;
	} else {
		char *copy = strdup(name);

		kernel = copy ? slab_take(&kernels) : NULL;
		if (kernel) {
			kernel->fn = fn;
			kernel->release = release;
			kernel->name = copy;
		} else {
			free(copy);
			error = ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
		}
	}
	if (!error)
		*out_func_handle = kernel;
	kernel_unlock();
	return error;
}

static void run_kernel(struct task *task)
{
	struct kernel_task *t = (struct kernel_task *)task;

	t->fn(t->args, t->args_size, t->block_dim);
}

static void release_kernel(struct task *task)
{
	struct kernel_task *t = (struct kernel_task *)task;

	t->release(t->args, t->args_size);
}

/* Lets an address in the arguments point to data further on in them. */
static bool link_input(struct kernel_task *t, const rtHostInputInfo_t *input)
{
	void *address;

	if (t->args_size < sizeof(address) || input->addrOffset > t->args_size - sizeof(address) ||
	    input->dataOffset > t->args_size)
		return false;
	address = t->args + input->dataOffset;
	memcpy(t->args + input->addrOffset, &address, sizeof(address));
	return true;
}

static bool link_inputs(struct kernel_task *t, const struct launch *l)
{
	size_t n;

	if (l->input_count && !l->inputs)
		return false;
	for (n = 0; n < l->input_count; n++) {
		if (!link_input(t, &l->inputs[n]))
			return false;
	}
	return !l->tiling || link_input(t, l->tiling);
}

static int launch(const struct launch *l)
{
	const struct kernel *kernel = l->kernel;
	struct kernel_task *t;
	struct stream *s;
	int error;

	if (!slab_holds(&kernels, kernel))
		return ACL_ERROR_RT_INVALID_HANDLE;
	if (l->block_dim == 0 || (l->args_size && !l->args) || l->args_size > ARGS_BYTES_MAX)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = stream_find(l->stream, &s);
	if (error)
		return error;
	t = task_new(sizeof(*t) + l->args_size);
	if (!t)
		return ACL_ERROR_BAD_ALLOC;
	t->task.run = run_kernel;
	t->task.kernel = kernel->name;
	t->task.type = l->type;
	t->fn = kernel->fn;
	t->block_dim = l->block_dim;
	t->args_size = l->args_size;
	if (l->args_size)
		memcpy(t->args, l->args, l->args_size);
	if (!link_inputs(t, l)) {
		free(t);
		return ACL_ERROR_RT_PARAM_INVALID;
	}
	/* From here on the arguments are the task's. */
	t->release = kernel->release;
	t->task.release = kernel->release ? release_kernel : NULL;
	return stream_submit(s, &t->task);
}

static int launch_with_info(const void *kernel, uint32_t block_dim, const rtArgsEx_t *info,
			    void *stream)
{
	rtHostInputInfo_t tiling;

	if (!info)
		return ACL_ERROR_RT_PARAM_INVALID;
	tiling = (rtHostInputInfo_t){info->tilingAddrOffset, info->tilingDataOffset};
	return launch(&(struct launch){
		.kernel = kernel,
		.block_dim = block_dim,
		.args = info->args,
		.args_size = info->argsSize,
		.inputs = info->hostInputInfoPtr,
		.input_count = info->hostInputInfoNum,
		.tiling = info->hasTiling ? &tiling : NULL,
		.stream = stream,
	});
}

static int launch_with_list(const void *kernel, uint32_t block_dim, void *handle, void *stream)
{
	struct launch l = {.kernel = kernel, .block_dim = block_dim, .stream = stream};
	const struct args *list = handle;
	void *copy = NULL;
	int error = ACL_SUCCESS;

	kernel_lock();
	if (!slab_holds(&args_lists, list)) {
		error = ACL_ERROR_RT_INVALID_HANDLE;
	} else if (list->size) {
		/* Launching may call a tool, so not under the lock. */
		copy = malloc(list->size);
		if (copy)
			memcpy(copy, list->data, list->size);
		else
			error = ACL_ERROR_BAD_ALLOC;
		l.args_size = list->size;
	}
	kernel_unlock();
	l.args = copy;
	if (!error)
		error = launch(&l);
	free(copy);
	return error;
}

rtError_t rtKernelLaunch(const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize,
			 rtSmDesc_t *smDesc, rtStream_t stm)
{
	(void)smDesc;
	return launch(&(struct launch){
		.kernel = stubFunc,
		.block_dim = blockDim,
		.args = args,
		.args_size = argsSize,
		.stream = stm,
	});
}

rtError_t rtKernelLaunchWithHandleV2(void *hdl, uint64_t tilingKey, uint32_t blockDim,
				     rtArgsEx_t *argsInfo, rtSmDesc_t *smDesc, rtStream_t stm,
				     const rtTaskCfgInfo_t *cfgInfo)
{
	(void)tilingKey;
	(void)smDesc;
	(void)cfgInfo;
	return launch_with_info(hdl, blockDim, argsInfo, stm);
}

rtError_t rtKernelLaunchWithFlagV2(const void *stubFunc, uint32_t blockDim, rtArgsEx_t *argsInfo,
				   rtSmDesc_t *smDesc, rtStream_t stm, uint32_t flags,
				   const rtTaskCfgInfo_t *cfgInfo)
{
	(void)smDesc;
	(void)flags;
	(void)cfgInfo;
	return launch_with_info(stubFunc, blockDim, argsInfo, stm);
}

rtError_t rtAicpuKernelLaunchExWithArgs(uint32_t kernelType, const char *opName, uint32_t blockDim,
					const rtAicpuArgsEx_t *argsInfo, rtSmDesc_t *smDesc,
					rtStream_t stm, uint32_t flags)
{
	const struct kernel *kernel;

	(void)kernelType;
	(void)smDesc;
	(void)flags;
	if (!opName || !argsInfo)
		return ACL_ERROR_RT_PARAM_INVALID;
	kernel_lock();
	kernel = find_name(opName);
	kernel_unlock();
	return launch(&(struct launch){
		.kernel = kernel,
		.type = TASK_TYPE_AICPU,
		.block_dim = blockDim,
		.args = argsInfo->args,
		.args_size = argsInfo->argsSize,
		.inputs = argsInfo->hostInputInfoPtr,
		.input_count = argsInfo->hostInputInfoNum,
		.stream = stm,
	});
}

rtError_t rtLaunchKernelByFuncHandle(rtFuncHandle funcHandle, uint32_t blockDim,
				     rtLaunchArgsHandle argsHandle, rtStream_t stm)
{
	return launch_with_list(funcHandle, blockDim, argsHandle, stm);
}

rtError_t rtLaunchKernelByFuncHandleV2(rtFuncHandle funcHandle, uint32_t blockDim,
				       rtLaunchArgsHandle argsHandle, rtStream_t stm,
				       const rtTaskCfgInfo_t *cfgInfo)
{
	(void)cfgInfo;
	return launch_with_list(funcHandle, blockDim, argsHandle, stm);
}

rtError_t rtLaunchKernelByFuncHandleV3(rtFuncHandle funcHandle, uint32_t blockDim,
				       const rtArgsEx_t *argsInfo, rtStream_t stm,
				       const rtTaskCfgInfo_t *cfgInfo)
{
	(void)cfgInfo;
	return launch_with_info(funcHandle, blockDim, argsInfo, stm);
}

rtError_t rtsLaunchKernelWithConfig(rtFuncHandle funcHandle, uint32_t blockDim, rtStream_t stm,
				    void *cfg, rtArgsHandle argsHandle, void *reserve)
{
	(void)cfg;
	(void)reserve;
	return launch_with_list(funcHandle, blockDim, argsHandle, stm);
}

rtError_t rtsLaunchKernelWithHostArgs(rtFuncHandle funcHandle, uint32_t blockDim, rtStream_t stm,
				      void *cfg, void *hostArgs, uint32_t argsSize,
				      rtHostInputInfo_t *placeHolderArray, uint32_t placeHolderNum)
{
	(void)cfg;
	return launch(&(struct launch){
		.kernel = funcHandle,
		.block_dim = blockDim,
		.args = hostArgs,
		.args_size = argsSize,
		.inputs = placeHolderArray,
		.input_count = placeHolderNum,
		.stream = stm,
	});
}

rtError_t rtsKernelArgsInit(rtFuncHandle funcHandle, rtArgsHandle *argsHandle)
{
	struct args *list;

	if (!argsHandle)
		return ACL_ERROR_RT_PARAM_INVALID;
	if (!slab_holds(&kernels, funcHandle))
		return ACL_ERROR_RT_INVALID_HANDLE;
	kernel_lock();
	list = slab_take(&args_lists);
	if (!list && slab_count(&args_lists) == ARGS_MAX) {
		list = slab_at(&args_lists, args_oldest);
		args_oldest = (args_oldest + 1) % ARGS_MAX;
	}
	if (list) {
		list->size = 0;
		*argsHandle = list;
	}
	kernel_unlock();
	return list ? ACL_SUCCESS : ACL_ERROR_BAD_ALLOC;
}

/* With the lock. */
static bool reserve(struct args *list, size_t size)
{
	size_t capacity = list->capacity ? list->capacity : 256;
	unsigned char *data;

	while (capacity < size)
		capacity *= 2;
	if (capacity == list->capacity)
		return true;
	data = realloc(list->data, capacity);
	if (!data)
		return false;
	list->data = data;
	list->capacity = capacity;
	return true;
}

rtError_t rtsKernelArgsAppend(rtArgsHandle argsHandle, void *para, size_t paraSize,
			      rtParaHandle *paraHandle)
{
	struct args *list = argsHandle;
	int error = ACL_SUCCESS;
	size_t at;

	if (!para || paraSize == 0 || paraSize > ARGS_BYTES_MAX || !paraHandle)
		return ACL_ERROR_RT_PARAM_INVALID;
	kernel_lock();
	if (!slab_holds(&args_lists, list)) {
		error = ACL_ERROR_RT_INVALID_HANDLE;
	} else {
		at = (list->size + ARGS_ALIGN - 1) / ARGS_ALIGN * ARGS_ALIGN;
		if (at + paraSize > ARGS_BYTES_MAX) {
			error = ACL_ERROR_RT_PARAM_INVALID;
		} else if (!reserve(list, at + paraSize)) {
			error = ACL_ERROR_BAD_ALLOC;
		} else {
			memset(list->data + list->size, 0, at - list->size);
			memcpy(list->data + at, para, paraSize);
			list->size = at + paraSize;
			/* A parameter is known by its place; nothing here changes one later. */
			*paraHandle = (void *)(uintptr_t)(at + 1);
		}
	}
	kernel_unlock();
	return error;
}

rtError_t rtsKernelArgsFinalize(rtArgsHandle argsHandle)
{
	return slab_holds(&args_lists, argsHandle) ? ACL_SUCCESS : ACL_ERROR_RT_INVALID_HANDLE;
}
