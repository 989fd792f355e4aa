/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of mstx for memory pools. A pool takes memory from the driver as heaps and hands out regions of it; here it tells
 * a tool about both. Layouts are those of the real header, checked at the end.
 */
#include "ms_tools_ext.h"

#ifndef MSTX_MS_TOOLS_EXT_MEM_H
#define MSTX_MS_TOOLS_EXT_MEM_H

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mstxMemHeap_st mstxMemHeap_t;
typedef mstxMemHeap_t *mstxMemHeapHandle_t;

typedef struct mstxMemRegion_st mstxMemRegion_t;
typedef mstxMemRegion_t *mstxMemRegionHandle_t;

typedef enum mstxMemHeapUsageType {
	MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR = 0,
} mstxMemHeapUsageType;

typedef enum mstxMemType {
	MSTX_MEM_TYPE_VIRTUAL_ADDRESS = 0, /* described by mstxMemVirtualRangeDesc_t */
} mstxMemType;

typedef struct mstxMemVirtualRangeDesc_t {
	uint32_t deviceId;
	const void *ptr;
	uint64_t size; /* in bytes */
} mstxMemVirtualRangeDesc_t;

typedef struct mstxMemHeapDesc_t {
	mstxMemHeapUsageType usage;
	mstxMemType type;
	const void *typeSpecificDesc; /* one description of the kind that `type` says */
} mstxMemHeapDesc_t;

typedef struct mstxMemRegionsRegisterBatch_t {
	mstxMemHeapHandle_t heap;
	mstxMemType regionType;
	size_t regionCount;
	const void
		*regionDescArray; /* regionCount descriptions of the kind that `regionType` says */
	mstxMemRegionHandle_t *regionHandleArrayOut; /* room for regionCount handles */
} mstxMemRegionsRegisterBatch_t;

typedef enum mstxMemRegionRefType {
	MSTX_MEM_REGION_REF_TYPE_POINTER = 0,
	MSTX_MEM_REGION_REF_TYPE_HANDLE = 1,
} mstxMemRegionRefType;

typedef struct mstxMemRegionRef_t {
	mstxMemRegionRefType refType; /* says which one of the following holds */
	union {
		const void *pointer;
		mstxMemRegionHandle_t handle;
	};
} mstxMemRegionRef_t;

typedef struct mstxMemRegionsUnregisterBatch_t {
	size_t refCount;
	const mstxMemRegionRef_t *refArray;
} mstxMemRegionsUnregisterBatch_t;

/* Memory that the pool took, and gave back. NULL when nobody wants to know. */
MSTX_API mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain,
						 const mstxMemHeapDesc_t *desc);
MSTX_API void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap);

/* Regions that the pool handed out, and got back, by address or by the handle from their registration. */
MSTX_API void mstxMemRegionsRegister(mstxDomainHandle_t domain,
				     const mstxMemRegionsRegisterBatch_t *desc);
MSTX_API void mstxMemRegionsUnregister(mstxDomainHandle_t domain,
				       const mstxMemRegionsUnregisterBatch_t *desc);

#ifdef __cplusplus
}
#endif

/* A fact that does not hold is an array of negative size: works in every C and C++. */
#define MSTX_LAYOUT(name, fact) typedef char mstxLayout_##name[(fact) ? 1 : -1]

MSTX_LAYOUT(range, sizeof(mstxMemVirtualRangeDesc_t) == 24 &&
			   offsetof(mstxMemVirtualRangeDesc_t, deviceId) == 0 &&
			   offsetof(mstxMemVirtualRangeDesc_t, ptr) == 8 &&
			   offsetof(mstxMemVirtualRangeDesc_t, size) == 16);
MSTX_LAYOUT(heap, sizeof(mstxMemHeapDesc_t) == 16 && offsetof(mstxMemHeapDesc_t, usage) == 0 &&
			  offsetof(mstxMemHeapDesc_t, type) == 4 &&
			  offsetof(mstxMemHeapDesc_t, typeSpecificDesc) == 8);
MSTX_LAYOUT(register, sizeof(mstxMemRegionsRegisterBatch_t) == 40 &&
			      offsetof(mstxMemRegionsRegisterBatch_t, heap) == 0 &&
			      offsetof(mstxMemRegionsRegisterBatch_t, regionType) == 8 &&
			      offsetof(mstxMemRegionsRegisterBatch_t, regionCount) == 16 &&
			      offsetof(mstxMemRegionsRegisterBatch_t, regionDescArray) == 24 &&
			      offsetof(mstxMemRegionsRegisterBatch_t, regionHandleArrayOut) == 32);
MSTX_LAYOUT(reference, sizeof(mstxMemRegionRef_t) == 16 &&
			       offsetof(mstxMemRegionRef_t, refType) == 0 &&
			       offsetof(mstxMemRegionRef_t, pointer) == 8 &&
			       offsetof(mstxMemRegionRef_t, handle) == 8);
MSTX_LAYOUT(unregister, sizeof(mstxMemRegionsUnregisterBatch_t) == 16 &&
				offsetof(mstxMemRegionsUnregisterBatch_t, refCount) == 0 &&
				offsetof(mstxMemRegionsUnregisterBatch_t, refArray) == 8);

#undef MSTX_LAYOUT

#endif
