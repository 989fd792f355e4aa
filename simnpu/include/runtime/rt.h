/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime below AscendCL, libruntime.so. Names, values and layouts are those of the real one. Results are the codes of
 * acl/acl_base.h; device ids, contexts and streams are as in acl/acl_rt.h. Every function may be called from any thread.
 */
#ifndef RUNTIME_RT_H
#define RUNTIME_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t rtError_t;
typedef void *rtContext_t;
typedef void *rtStream_t;
typedef void *rtEvent_t;
typedef void *rtModel_t;
typedef void *rtFuncHandle;
typedef void *rtArgsHandle;
typedef void *rtLaunchArgsHandle;
typedef void *rtParaHandle;

/* Memory type in bits 0 to 9, page policy and attributes above. */
typedef uint32_t rtMemType_t;
#define RT_MEMORY_DEFAULT		       0x0U
#define RT_MEMORY_HBM			       0x2U
#define RT_MEMORY_DDR			       0x4U
#define RT_MEMORY_SVM			       0x90U
#define RT_MEMORY_POLICY_HUGE_PAGE_FIRST       0x400U
#define RT_MEMORY_POLICY_HUGE_PAGE_ONLY	       0x800U
#define RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY     0x1000U
#define RT_MEMORY_POLICY_HUGE_PAGE_FIRST_P2P   0x2000U
#define RT_MEMORY_POLICY_HUGE_PAGE_ONLY_P2P    0x4000U
#define RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY_P2P 0x8000U
#define RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY      0x10000U
#define RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY_P2P  0x20000U
#define RT_MEMORY_ATTRIBUTE_READONLY	       0x100000U

/* In arguments: the place of an address, and the place of the data that it is to point to. */
typedef struct rtHostInputInfo {
	uint32_t addrOffset;
	uint32_t dataOffset;
} rtHostInputInfo_t;

/* Arguments of a kernel. 40 bytes. */
typedef struct tagRtArgsEx {
	void *args;
	rtHostInputInfo_t *hostInputInfoPtr;
	uint32_t argsSize;
	uint32_t tilingAddrOffset;
	uint32_t tilingDataOffset;
	uint16_t hostInputInfoNum;
	uint8_t hasTiling;
	uint8_t isNoNeedH2DCopy; /* not interpreted: arguments are always copied */
	uint8_t reserved[4];
} rtArgsEx_t;

/* Arguments of an AI CPU kernel. 48 bytes. */
typedef struct tagRtAicpuArgsEx {
	void *args;
	rtHostInputInfo_t *hostInputInfoPtr;
	rtHostInputInfo_t *kernelOffsetInfoPtr; /* not interpreted */
	uint32_t argsSize;
	uint16_t hostInputInfoNum;
	uint16_t kernelOffsetInfoNum;
	uint32_t soNameAddrOffset;
	uint32_t kernelNameAddrOffset;
	bool isNoNeedH2DCopy;
	uint16_t timeout;
	uint8_t reserved;
} rtAicpuArgsEx_t;

/* As aclrtMallocConfig. */
enum {
	RT_MEM_MALLOC_ATTR_MODULE_ID = 1,
	RT_MEM_MALLOC_ATTR_DEVICE_ID = 2,
	RT_MEM_MALLOC_ATTR_VA_FLAG = 3,
};

typedef struct {
	uint32_t attr;
	union {
		uint16_t moduleId;
		uint32_t deviceId;
		uint32_t vaFlag;
		uint8_t rsv[8];
	} value;
} rtMallocAttribute_t;

typedef struct {
	rtMallocAttribute_t *attrs;
	size_t numAttrs;
} rtMallocConfig_t;

/* Accepted and not interpreted. */
typedef struct tagRtSmCtrl rtSmDesc_t;
typedef struct tagRtTaskCfgInfo rtTaskCfgInfo_t;

struct drv_mem_handle;
struct drv_mem_prop;

#pragma GCC visibility push(default)

rtError_t rtSetDevice(int32_t devId);
rtError_t rtDeviceReset(int32_t devId);
rtError_t rtGetDevice(int32_t *devId);
rtError_t rtGetDeviceCount(int32_t *cnt);
rtError_t rtDeviceSynchronize(void);
/* Milliseconds, -1 for no limit; ACL_ERROR_RT_STREAM_SYNC_TIMEOUT after them. */
rtError_t rtDeviceSynchronizeWithTimeout(int32_t timeout);
/* Whether any thread has set the device and not reset it. */
rtError_t rtSimDeviceInUse(int32_t devId, bool *inUse);
rtError_t rtGetSocVersion(char *ver, uint32_t maxLen);

rtError_t rtCtxCreate(rtContext_t *createCtx, uint32_t flags, int32_t devId);
rtError_t rtCtxDestroy(rtContext_t destroyCtx);
rtError_t rtCtxSetCurrent(rtContext_t currentCtx);
rtError_t rtCtxGetCurrent(rtContext_t *currentCtx);

rtError_t rtStreamCreate(rtStream_t *stm, int32_t priority);
rtError_t rtStreamDestroy(rtStream_t stm);
rtError_t rtStreamSynchronize(rtStream_t stm);
rtError_t rtStreamSynchronizeWithTimeout(rtStream_t stm, int32_t timeout);
/* Whether all tasks of the stream have ended. */
rtError_t rtSimStreamIdle(rtStream_t stm, bool *idle);
/*
 * In a kernel: it failed, and why. Whoever waits for its stream, or for all of the device, gets ACL_ERROR_RT_AICORE_EXCEPTION from now on;
 * then rtSimFailure() in the same thread says why.
 */
void rtSimTaskFailed(const char *why);
const char *rtSimFailure(void);
/* Elements of the largest tensor that operators compute with: RT_SIM_ALL unless SIMNPU_SHAPES=1. */
#define RT_SIM_ALL (INT64_MAX - 1)
int64_t rtSimComputed(void);
/*
 * With it: which bytes of devices have values that were computed; all of them otherwise. rtSimUnknown(), in a task, says that the program gets
 * others, enum rt_sim_unknown; whoever waits next for a stream, an event or a device calls the listener with it, on its own thread. Names
 * stay where they are.
 */
enum rt_sim_unknown {
	RT_SIM_READ_ZERO, /* the host gets zeros */
	RT_SIM_READ,	  /* the host gets what was made of zeros, or keeps what it had */
	RT_SIM_FULL, /* an operator of this name gives a result that is as large as it can be */
};
typedef void (*rtSimListener)(uint32_t kind, const char *name);
void rtSimKnow(const void *data, uint64_t bytes, bool is_known);
bool rtSimIsKnown(const void *data, uint64_t bytes);
void rtSimUnknown(uint32_t kind, const char *name);
void rtSimListen(rtSimListener listener);
rtError_t rtGetStreamId(rtStream_t stm, int32_t *streamId);

rtError_t rtEventCreate(rtEvent_t *evt);
rtError_t rtEventDestroy(rtEvent_t evt);
rtError_t rtEventRecord(rtEvent_t evt, rtStream_t stm);
rtError_t rtStreamWaitEvent(rtStream_t stm, rtEvent_t evt);
rtError_t rtEventSynchronize(rtEvent_t evt);
rtError_t rtEventQueryStatus(rtEvent_t evt, int32_t *status);
rtError_t rtEventReset(rtEvent_t evt, rtStream_t stm);
/* Nanoseconds at which the event was reached. */
rtError_t rtEventGetTimeStamp(uint64_t *timeval, rtEvent_t evt);
rtError_t rtEventElapsedTime(float *timeInterval, rtEvent_t startEvent, rtEvent_t endEvent);

/* The device runs `fn` when the stream gets there. */
typedef void (*rtCallback_t)(void *fnData);
rtError_t rtsLaunchHostFunc(rtStream_t stm, rtCallback_t fn, void *args);
/* The subscribed thread runs `fn` in rtProcessReport(); with `isBlock` the stream waits for that. */
rtError_t rtSubscribeReport(uint64_t threadId, rtStream_t stm);
rtError_t rtUnSubscribeReport(uint64_t threadId, rtStream_t stm);
rtError_t rtCallbackLaunch(rtCallback_t fn, void *fnData, rtStream_t stm, bool isBlock);
rtError_t rtProcessReport(int32_t timeout);

/*
 * Captures what is put on the stream into a model, which the end stores. Tasks of the model run together, in order, as often as
 * it is executed; it stays until it is destroyed and no execution needs it.
 */
rtError_t rtsStreamBeginCapture(rtStream_t stm);
rtError_t rtsStreamEndCapture(rtStream_t stm, rtModel_t *captureMdl);
rtError_t rtsModelExecuteAsync(rtModel_t mdl, rtStream_t stm);
rtError_t rtsModelDestroy(rtModel_t mdl);
/* The model that the stream is captured into, NULL for none. */
rtError_t rtSimStreamCapture(rtStream_t stm, rtModel_t *captureMdl);

/* `type` decides pages and physical memory; `moduleId` goes to the driver as it is. */
rtError_t rtMalloc(void **devPtr, uint64_t size, rtMemType_t type, uint16_t moduleId);
rtError_t rtFree(void *devPtr);
rtError_t rtMallocHost(void **hostPtr, uint64_t size, uint16_t moduleId);
rtError_t rtFreeHost(void *hostPtr);
rtError_t rtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);
rtError_t rtHostUnregister(void *ptr);
rtError_t rtMemcpy(void *dst, uint64_t destMax, const void *src, uint64_t cnt, int32_t kind);
rtError_t rtMemcpyAsync(void *dst, uint64_t destMax, const void *src, uint64_t cnt, int32_t kind,
			rtStream_t stm);
rtError_t rtMemset(void *devPtr, uint64_t destMax, uint32_t val, uint64_t cnt);
rtError_t rtMemsetAsync(void *devPtr, uint64_t destMax, uint32_t val, uint64_t cnt, rtStream_t stm);

/* Free and total bytes of the thread's device; `type` is 1 for DDR and 2 for HBM. */
rtError_t rtMemGetInfoEx(uint32_t type, size_t *freeSize, size_t *totalSize);

/* rtMallocHost() with attributes: module id, and VA flag 1 for addresses that the device shares. NULL means none. */
rtError_t rtsMallocHost(void **hostPtr, uint64_t size, const rtMallocConfig_t *cfg);

rtError_t rtReserveMemAddress(void **devPtr, size_t size, size_t alignment, void *devAddr,
			      uint64_t flags);
rtError_t rtReleaseMemAddress(void *devPtr);
/* `prop->devid` is logical here. */
rtError_t rtMallocPhysical(struct drv_mem_handle **handle, size_t size,
			   const struct drv_mem_prop *prop, uint64_t flags);
rtError_t rtFreePhysical(struct drv_mem_handle *handle);
rtError_t rtMapMem(void *devPtr, size_t size, size_t offset, struct drv_mem_handle *handle,
		   uint64_t flags);
rtError_t rtUnmapMem(void *devPtr);

rtError_t rtKernelLaunch(const void *stubFunc, uint32_t blockDim, void *args, uint32_t argsSize,
			 rtSmDesc_t *smDesc, rtStream_t stm);
rtError_t rtKernelLaunchWithHandleV2(void *hdl, uint64_t tilingKey, uint32_t blockDim,
				     rtArgsEx_t *argsInfo, rtSmDesc_t *smDesc, rtStream_t stm,
				     const rtTaskCfgInfo_t *cfgInfo);
rtError_t rtKernelLaunchWithFlagV2(const void *stubFunc, uint32_t blockDim, rtArgsEx_t *argsInfo,
				   rtSmDesc_t *smDesc, rtStream_t stm, uint32_t flags,
				   const rtTaskCfgInfo_t *cfgInfo);
rtError_t rtAicpuKernelLaunchExWithArgs(uint32_t kernelType, const char *opName, uint32_t blockDim,
					const rtAicpuArgsEx_t *argsInfo, rtSmDesc_t *smDesc,
					rtStream_t stm, uint32_t flags);
rtError_t rtLaunchKernelByFuncHandle(rtFuncHandle funcHandle, uint32_t blockDim,
				     rtLaunchArgsHandle argsHandle, rtStream_t stm);
rtError_t rtLaunchKernelByFuncHandleV2(rtFuncHandle funcHandle, uint32_t blockDim,
				       rtLaunchArgsHandle argsHandle, rtStream_t stm,
				       const rtTaskCfgInfo_t *cfgInfo);
/*
 * As simnpuRegisterKernel() of simnpu.h, for kernels whose arguments own something: `release` is called once for each launch that
 * did not fail, when its arguments are needed no more.
 */
rtError_t rtSimRegisterKernel(const char *name,
			      void (*fn)(void *args, size_t args_size, uint32_t block_dim),
			      void (*release)(void *args, size_t args_size),
			      void **out_func_handle);
/* What AscendCL's launches come down to. */
rtError_t rtLaunchKernelByFuncHandleV3(rtFuncHandle funcHandle, uint32_t blockDim,
				       const rtArgsEx_t *argsInfo, rtStream_t stm,
				       const rtTaskCfgInfo_t *cfgInfo);

rtError_t rtsLaunchKernelWithConfig(rtFuncHandle funcHandle, uint32_t blockDim, rtStream_t stm,
				    void *cfg, rtArgsHandle argsHandle, void *reserve);
rtError_t rtsLaunchKernelWithHostArgs(rtFuncHandle funcHandle, uint32_t blockDim, rtStream_t stm,
				      void *cfg, void *hostArgs, uint32_t argsSize,
				      rtHostInputInfo_t *placeHolderArray, uint32_t placeHolderNum);

/* An argument list for the ...ByFuncHandle launches; see aclrtKernelArgsInit(). */
rtError_t rtsKernelArgsInit(rtFuncHandle funcHandle, rtArgsHandle *argsHandle);
rtError_t rtsKernelArgsAppend(rtArgsHandle argsHandle, void *para, size_t paraSize,
			      rtParaHandle *paraHandle);
rtError_t rtsKernelArgsFinalize(rtArgsHandle argsHandle);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
