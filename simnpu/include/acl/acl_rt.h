/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime part of AscendCL: devices, contexts, streams, events, memory, kernels.
 *
 * A device id is logical: its place in ASCEND_RT_VISIBLE_DEVICES, if that is set. A thread works in one context; most
 * functions answer ACL_ERROR_RT_CONTEXT_NULL when it has none. A NULL stream is the default stream of the context. What is
 * put on a stream runs later, in order, on a thread of the simulated device.
 */
#ifndef ACL_RT_H
#define ACL_RT_H

#include "acl_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How aclrtMalloc() chooses pages: 4 KiB, 2 MiB (HUGE) or 1 GiB (HUGE1G). HUGE_FIRST means huge pages above 1 MiB. */
typedef enum aclrtMemMallocPolicy {
	ACL_MEM_MALLOC_HUGE_FIRST = 0,
	ACL_MEM_MALLOC_HUGE_ONLY = 1,
	ACL_MEM_MALLOC_NORMAL_ONLY = 2,
	ACL_MEM_MALLOC_HUGE_FIRST_P2P = 3,
	ACL_MEM_MALLOC_HUGE_ONLY_P2P = 4,
	ACL_MEM_MALLOC_NORMAL_ONLY_P2P = 5,
	ACL_MEM_MALLOC_HUGE1G_ONLY = 6,
	ACL_MEM_MALLOC_HUGE1G_ONLY_P2P = 7,
	ACL_MEM_TYPE_LOW_BAND_WIDTH = 0x100,
	ACL_MEM_TYPE_HIGH_BAND_WIDTH = 0x1000,
	ACL_MEM_ACCESS_USER_SPACE_READONLY = 0x100000,
} aclrtMemMallocPolicy;

typedef enum aclrtMemcpyKind {
	ACL_MEMCPY_HOST_TO_HOST = 0,
	ACL_MEMCPY_HOST_TO_DEVICE = 1,
	ACL_MEMCPY_DEVICE_TO_HOST = 2,
	ACL_MEMCPY_DEVICE_TO_DEVICE = 3,
	ACL_MEMCPY_DEFAULT = 4,
	ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE = 5,
	ACL_MEMCPY_INNER_DEVICE_TO_DEVICE = 6,
	ACL_MEMCPY_INTER_DEVICE_TO_DEVICE = 7,
} aclrtMemcpyKind;

typedef enum aclrtMemAttr {
	ACL_DDR_MEM = 0,
	ACL_HBM_MEM = 1,
	ACL_DDR_MEM_HUGE = 2,
	ACL_DDR_MEM_NORMAL = 3,
	ACL_HBM_MEM_HUGE = 4,
	ACL_HBM_MEM_NORMAL = 5,
	ACL_DDR_MEM_P2P_HUGE = 6,
	ACL_DDR_MEM_P2P_NORMAL = 7,
	ACL_HBM_MEM_P2P_HUGE = 8,
	ACL_HBM_MEM_P2P_NORMAL = 9,
	ACL_HBM_MEM_HUGE1G = 10,
	ACL_HBM_MEM_P2P_HUGE1G = 11,
	ACL_MEM_NORMAL = 12,
	ACL_MEM_HUGE = 13,
	ACL_MEM_HUGE1G = 14,
	ACL_MEM_P2P_NORMAL = 15,
	ACL_MEM_P2P_HUGE = 16,
	ACL_MEM_P2P_HUGE1G = 17,
} aclrtMemAttr;

/* Flags of aclrtHostRegisterV2(). */
#define ACL_HOST_REG_MAPPED   0x2U
#define ACL_HOST_REG_IOMEMORY 0x4U
#define ACL_HOST_REG_READONLY 0x8U
#define ACL_HOST_REG_PINNED   0x10000000U

typedef enum aclrtMemLocationType {
	ACL_MEM_LOCATION_TYPE_HOST = 0,
	ACL_MEM_LOCATION_TYPE_DEVICE = 1,
	ACL_MEM_LOCATION_TYPE_UNREGISTERED = 2,
	ACL_MEM_LOCATION_TYPE_MANAGED = 3,
	ACL_MEM_LOCATION_TYPE_HOST_NUMA = 4,
} aclrtMemLocationType;

typedef struct aclrtMemLocation {
	uint32_t id;
	aclrtMemLocationType type;
} aclrtMemLocation;

typedef enum aclrtMemHandleType {
	ACL_MEM_HANDLE_TYPE_NONE = 0,
} aclrtMemHandleType;

typedef enum aclrtMemAllocationType {
	ACL_MEM_ALLOCATION_TYPE_PINNED = 0,
} aclrtMemAllocationType;

/* What aclrtMallocPhysical() is to take. 32 bytes. */
typedef struct aclrtPhysicalMemProp {
	aclrtMemHandleType handleType;
	aclrtMemAllocationType allocationType;
	aclrtMemAttr memAttr;
	aclrtMemLocation location;
	uint64_t reserve;
} aclrtPhysicalMemProp;

typedef void *aclrtDrvMemHandle;

typedef enum aclrtMallocAttrType {
	ACL_RT_MEM_ATTR_RSV = 0,
	ACL_RT_MEM_ATTR_MODULE_ID = 1,
	ACL_RT_MEM_ATTR_DEVICE_ID = 2,
	ACL_RT_MEM_ATTR_VA_FLAG = 3,
} aclrtMallocAttrType;

typedef union aclrtMallocAttrValue {
	uint16_t moduleId;
	uint32_t deviceId;
	uint32_t vaFlag;
	uint8_t rsv[8];
} aclrtMallocAttrValue;

typedef struct aclrtMallocAttribute {
	aclrtMallocAttrType attr;
	aclrtMallocAttrValue value;
} aclrtMallocAttribute;

typedef struct aclrtMallocConfig {
	aclrtMallocAttribute *attrs;
	size_t numAttrs;
} aclrtMallocConfig;

typedef enum aclrtRunMode {
	ACL_DEVICE = 0,
	ACL_HOST = 1,
} aclrtRunMode;

typedef enum aclrtEventRecordedStatus {
	ACL_EVENT_RECORDED_STATUS_NOT_READY = 0,
	ACL_EVENT_RECORDED_STATUS_COMPLETE = 1,
} aclrtEventRecordedStatus;

typedef void *aclrtFuncHandle;
typedef void *aclrtArgsHandle;
typedef void *aclrtParamHandle;

/* Accepted by the launches and not interpreted. */
typedef struct aclrtLaunchKernelCfg aclrtLaunchKernelCfg;

/* In arguments: the place of an address, and the place of the data that it is to point to. */
typedef struct aclrtPlaceHolderInfo {
	uint32_t addrOffset;
	uint32_t dataOffset;
} aclrtPlaceHolderInfo;

#pragma GCC visibility push(default)

/* Makes the device's own context the thread's. Each call wants an aclrtResetDevice(); the last one ends the context. */
aclError aclrtSetDevice(int32_t deviceId);
aclError aclrtResetDevice(int32_t deviceId);

/* The device of the thread's context. */
aclError aclrtGetDevice(int32_t *deviceId);
aclError aclrtGetDeviceCount(uint32_t *count);

/* Waits until every stream of the thread's device has done all that was put on it before. */
aclError aclrtSynchronizeDevice(void);

/* SIMNPU_SOC, or "Ascend910B1". */
const char *aclrtGetSocName(void);

/* Always ACL_HOST. */
aclError aclrtGetRunMode(aclrtRunMode *runMode);

/* A new context becomes the thread's. Its default stream ends with it; its other streams are destroyed before. */
aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId);
aclError aclrtDestroyContext(aclrtContext context);
aclError aclrtSetCurrentContext(aclrtContext context);
aclError aclrtGetCurrentContext(aclrtContext *context);

/* Destroying waits for what was put on the stream. Priority and flag are not interpreted. */
aclError aclrtCreateStream(aclrtStream *stream);
aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag);
aclError aclrtDestroyStream(aclrtStream stream);
aclError aclrtSynchronizeStream(aclrtStream stream);
aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId);

/*
 * An event stands for the place in a stream where it was recorded last. One that was never recorded counts as reached.
 * The time between two events is in milliseconds and known when both are reached.
 */
aclError aclrtCreateEvent(aclrtEvent *event);
aclError aclrtDestroyEvent(aclrtEvent event);
aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream);
aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event);
aclError aclrtSynchronizeEvent(aclrtEvent event);
aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status);
aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent);

/*
 * Device memory. The driver is asked for more than `size`: the next multiple of 32 above it, aclrtMallocAlign32() only for
 * the multiple. Above 1 MiB, HUGE_FIRST asks a second time, for normal pages, before it answers
 * ACL_ERROR_RT_MEMORY_ALLOCATION.
 */
aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy);
aclError aclrtFree(void *devPtr);

/* Pinned host memory. The configuration may name a module id, and with VA flag 1 ask for addresses the device shares. */
aclError aclrtMallocHost(void **hostPtr, size_t size);
aclError aclrtMallocHostWithCfg(void **ptr, uint64_t size, aclrtMallocConfig *cfg);
aclError aclrtFreeHost(void *hostPtr);

/* Makes memory that the program has known to the devices. */
aclError aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag);
aclError aclrtHostUnregister(void *ptr);

/* ACL_ERROR_INVALID_PARAM when more is to be written than `destMax`. */
aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count,
		     aclrtMemcpyKind kind);
aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count,
			  aclrtMemcpyKind kind, aclrtStream stream);
aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count);
aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count,
			  aclrtStream stream);

/* Bytes of the thread's device, as this process sees it. DDR, which the device has none of, is 0. */
aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total);

/*
 * Addresses and memory apart. `alignment`, `offset` and all flags are 0, except that flag 1 of the reservation asks for
 * huge pages. A handle is mapped as a whole; the mapping keeps its memory also after aclrtFreePhysical().
 */
aclError aclrtReserveMemAddress(void **virPtr, size_t size, size_t alignment, void *expectPtr,
				uint64_t flags);
aclError aclrtReleaseMemAddress(void *virPtr);
aclError aclrtMallocPhysical(aclrtDrvMemHandle *handle, size_t size,
			     const aclrtPhysicalMemProp *prop, uint64_t flags);
aclError aclrtFreePhysical(aclrtDrvMemHandle handle);
aclError aclrtMapMem(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
		     uint64_t flags);
aclError aclrtUnmapMem(void *virPtr);

/* Launches. A function handle comes from simnpuRegisterKernel() in simnpu.h; arguments are copied before the call ends. */
aclError aclrtLaunchKernel(aclrtFuncHandle funcHandle, uint32_t blockDim, const void *argsData,
			   size_t argsSize, aclrtStream stream);
aclError aclrtLaunchKernelV2(aclrtFuncHandle funcHandle, uint32_t blockDim, const void *argsData,
			     size_t argsSize, aclrtLaunchKernelCfg *cfg, aclrtStream stream);
aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle funcHandle, uint32_t blockDim,
				     aclrtStream stream, aclrtLaunchKernelCfg *cfg,
				     aclrtArgsHandle argsHandle, void *reserve);
aclError aclrtLaunchKernelWithHostArgs(aclrtFuncHandle funcHandle, uint32_t blockDim,
				       aclrtStream stream, aclrtLaunchKernelCfg *cfg,
				       void *hostArgs, size_t argsSize,
				       aclrtPlaceHolderInfo *placeHolderArray,
				       size_t placeHolderNum);

/*
 * An argument list, built parameter by parameter, each at a multiple of 8. It may be launched more than once, and lasts
 * until 4096 newer ones exist.
 */
aclError aclrtKernelArgsInit(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle);
aclError aclrtKernelArgsAppend(aclrtArgsHandle argsHandle, void *param, size_t paramSize,
			       aclrtParamHandle *paramHandle);
aclError aclrtKernelArgsFinalize(aclrtArgsHandle argsHandle);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
