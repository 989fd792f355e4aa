/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: what AscendCL adds to a request before the runtime gets it.
 */
#include <stdbool.h>

#include "ascend_hal.h"
#include "hal/device.h"
#include "impl.h"
#include "runtime/rt.h"

enum {
	MODULE_APP = 33, /* what the program itself asks for */
	UNIT = 32,	 /* sizes are multiples of it, */
	PADDING = 32,	 /* with so much behind the data, for instructions that read ahead */
	POLICY_MASK = 0xff,
};

/* The runtime's word for each policy. */
static const uint32_t policies[] = {
	[ACL_MEM_MALLOC_HUGE_FIRST] = RT_MEMORY_POLICY_HUGE_PAGE_FIRST,
	[ACL_MEM_MALLOC_HUGE_ONLY] = RT_MEMORY_POLICY_HUGE_PAGE_ONLY,
	[ACL_MEM_MALLOC_NORMAL_ONLY] = RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY,
	[ACL_MEM_MALLOC_HUGE_FIRST_P2P] = RT_MEMORY_POLICY_HUGE_PAGE_FIRST_P2P,
	[ACL_MEM_MALLOC_HUGE_ONLY_P2P] = RT_MEMORY_POLICY_HUGE_PAGE_ONLY_P2P,
	[ACL_MEM_MALLOC_NORMAL_ONLY_P2P] = RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY_P2P,
	[ACL_MEM_MALLOC_HUGE1G_ONLY] = RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY,
	[ACL_MEM_MALLOC_HUGE1G_ONLY_P2P] = RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY_P2P,
};

static aclError malloc_device(void **ptr, size_t size, uint32_t policy, size_t padding)
{
	uint32_t kind = policy & POLICY_MASK;
	uint32_t type;

	if (!ptr || size == 0 || kind >= sizeof(policies) / sizeof(policies[0]))
		return ACL_ERROR_INVALID_PARAM;
	if (kind == ACL_MEM_MALLOC_HUGE1G_ONLY || kind == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P)
		padding = 0;
	if (size > SIZE_MAX - UNIT - padding)
		return ACL_ERROR_INVALID_PARAM;
	size = (size + UNIT + padding - 1) / UNIT * UNIT;
	type = RT_MEMORY_HBM | policies[kind];
	if (policy & ACL_MEM_ACCESS_USER_SPACE_READONLY)
		type |= RT_MEMORY_ATTRIBUTE_READONLY;
	return rtMalloc(ptr, size, type, MODULE_APP);
}

aclError aclrtMallocImpl(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
{
	return acl_result(malloc_device(devPtr, size, (uint32_t)policy, PADDING));
}

aclError aclrtMallocAlign32Impl(void **devPtr, size_t size, aclrtMemMallocPolicy policy)
{
	return acl_result(malloc_device(devPtr, size, (uint32_t)policy, 0));
}

aclError aclrtFreeImpl(void *devPtr)
{
	return acl_result(devPtr ? rtFree(devPtr) : ACL_ERROR_INVALID_PARAM);
}

aclError aclrtMallocHostImpl(void **hostPtr, size_t size)
{
	if (!hostPtr || size == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtMallocHost(hostPtr, size, MODULE_APP));
}

/* The runtime takes the same configuration. */
_Static_assert(sizeof(aclrtMallocAttribute) == sizeof(rtMallocAttribute_t), "same layout");
_Static_assert(sizeof(aclrtMallocAttribute) == 12, "fixed by the interface");

aclError aclrtMallocHostWithCfgImpl(void **ptr, uint64_t size, aclrtMallocConfig *cfg)
{
	if (!ptr || size == 0 || (cfg && cfg->numAttrs && !cfg->attrs))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsMallocHost(ptr, size, (const rtMallocConfig_t *)(const void *)cfg));
}

aclError aclrtFreeHostImpl(void *hostPtr)
{
	return acl_result(hostPtr ? rtFreeHost(hostPtr) : ACL_ERROR_INVALID_PARAM);
}

aclError aclrtHostRegisterV2Impl(void *ptr, uint64_t size, uint32_t flag)
{
	if (!ptr || size == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtHostRegisterV2(ptr, size, flag));
}

aclError aclrtHostRegisterImpl(void *ptr, uint64_t size, aclrtHostRegisterType type, void **devPtr)
{
	aclError error;

	if (!ptr || size == 0 || !devPtr)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtHostRegisterV2(ptr, size, (uint32_t)type | ACL_HOST_REG_MAPPED);
	if (!error)
		*devPtr = ptr;
	return acl_result(error);
}

aclError aclrtHostUnregisterImpl(void *ptr)
{
	return acl_result(ptr ? rtHostUnregister(ptr) : ACL_ERROR_INVALID_PARAM);
}

_Static_assert(sizeof(aclrtPtrAttributes) == 28, "fixed by the interface");

aclError aclrtPointerGetAttributesImpl(const void *ptr, aclrtPtrAttributes *attributes)
{
	static const aclrtMemLocationType types[] = {
		[SIMNPU_PLACE_UNKNOWN] = ACL_MEM_LOCATION_TYPE_UNREGISTERED,
		[SIMNPU_PLACE_DEVICE] = ACL_MEM_LOCATION_TYPE_DEVICE,
		[SIMNPU_PLACE_HOST] = ACL_MEM_LOCATION_TYPE_HOST,
	};
	uint32_t device;

	if (!ptr || !attributes)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*attributes = (aclrtPtrAttributes){
		.location.type = types[halSimLocate(ptr, &device)],
		.pageSize = 4096,
	};
	attributes->location.id = device;
	return ACL_SUCCESS;
}

/* 0 bytes are fine, from anywhere to anywhere. */
aclError aclrtMemcpyImpl(void *dst, size_t destMax, const void *src, size_t count,
			 aclrtMemcpyKind kind)
{
	if (!dst || !src || count > destMax)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(count ? rtMemcpy(dst, destMax, src, count, (int32_t)kind) : ACL_SUCCESS);
}

aclError aclrtMemcpyAsyncImpl(void *dst, size_t destMax, const void *src, size_t count,
			      aclrtMemcpyKind kind, aclrtStream stream)
{
	if (!dst || !src || count > destMax)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(count ? rtMemcpyAsync(dst, destMax, src, count, (int32_t)kind, stream)
				: ACL_SUCCESS);
}

aclError aclrtMemcpyAsyncWithConditionImpl(void *dst, size_t destMax, const void *src, size_t count,
					   aclrtMemcpyKind kind, aclrtStream stream)
{
	return aclrtMemcpyAsyncImpl(dst, destMax, src, count, kind, stream);
}

_Static_assert(sizeof(aclrtMemcpyBatchAttr) == 32, "fixed by the interface");

/* What both kinds of batch have in common; without `asynchronous` the stream does not matter. */
static aclError copy_batch(void **dsts, const size_t *maxs, void **srcs, const size_t *sizes,
			   size_t count, size_t *fail_index, bool asynchronous, aclrtStream stream)
{
	aclError error = ACL_SUCCESS;
	size_t n;

	if (!dsts || !maxs || !srcs || !sizes || count == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	for (n = 0; n < count && !error; n++) {
		error = asynchronous ? aclrtMemcpyAsyncImpl(dsts[n], maxs[n], srcs[n], sizes[n],
							    ACL_MEMCPY_DEFAULT, stream)
				     : aclrtMemcpyImpl(dsts[n], maxs[n], srcs[n], sizes[n],
						       ACL_MEMCPY_DEFAULT);
		if (error && fail_index)
			*fail_index = n;
	}
	return error;
}

aclError aclrtMemcpyBatchImpl(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
			      size_t numBatches, aclrtMemcpyBatchAttr *attrs, size_t *attrsIndexes,
			      size_t numAttrs, size_t *failIndex)
{
	(void)attrs;
	(void)attrsIndexes;
	(void)numAttrs;
	return copy_batch(dsts, destMaxs, srcs, sizes, numBatches, failIndex, false, NULL);
}

aclError aclrtMemcpyBatchAsyncImpl(void **dsts, size_t *destMaxs, void **srcs, size_t *sizes,
				   size_t numBatches, aclrtMemcpyBatchAttr *attrs,
				   size_t *attrsIndexes, size_t numAttrs, size_t *failIndex,
				   aclrtStream stream)
{
	(void)attrs;
	(void)attrsIndexes;
	(void)numAttrs;
	return copy_batch(dsts, destMaxs, srcs, sizes, numBatches, failIndex, true, stream);
}

aclError aclrtMemsetImpl(void *devPtr, size_t maxCount, int32_t value, size_t count)
{
	if (!devPtr || count > maxCount)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(count ? rtMemset(devPtr, maxCount, (uint32_t)value, count) : ACL_SUCCESS);
}

aclError aclrtMemsetAsyncImpl(void *devPtr, size_t maxCount, int32_t value, size_t count,
			      aclrtStream stream)
{
	if (!devPtr || count > maxCount)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(count ? rtMemsetAsync(devPtr, maxCount, (uint32_t)value, count, stream)
				: ACL_SUCCESS);
}

/* What each attribute is to the driver. */
static const struct {
	uint8_t type;	 /* physical memory */
	uint8_t pages;	 /* size of them */
	uint8_t storage; /* what is asked about in aclrtGetMemInfo() */
} attributes[] = {
#define ATTRIBUTE(type, pages, info)                                                               \
	{                                                                                          \
		MEM_##type##_TYPE, MEM_##pages##_PAGE_TYPE, MEM_INFO_TYPE_##info##_SIZE            \
	}
	[ACL_DDR_MEM] = ATTRIBUTE(DDR, NORMAL, DDR),
	[ACL_HBM_MEM] = ATTRIBUTE(HBM, NORMAL, HBM),
	[ACL_DDR_MEM_HUGE] = ATTRIBUTE(DDR, HUGE, DDR),
	[ACL_DDR_MEM_NORMAL] = ATTRIBUTE(DDR, NORMAL, DDR),
	[ACL_HBM_MEM_HUGE] = ATTRIBUTE(HBM, HUGE, HBM),
	[ACL_HBM_MEM_NORMAL] = ATTRIBUTE(HBM, NORMAL, HBM),
	[ACL_DDR_MEM_P2P_HUGE] = ATTRIBUTE(P2P_DDR, HUGE, DDR_P2P),
	[ACL_DDR_MEM_P2P_NORMAL] = ATTRIBUTE(P2P_DDR, NORMAL, DDR_P2P),
	[ACL_HBM_MEM_P2P_HUGE] = ATTRIBUTE(P2P_HBM, HUGE, HBM_P2P),
	[ACL_HBM_MEM_P2P_NORMAL] = ATTRIBUTE(P2P_HBM, NORMAL, HBM_P2P),
	[ACL_HBM_MEM_HUGE1G] = ATTRIBUTE(HBM, GIANT, HBM),
	[ACL_HBM_MEM_P2P_HUGE1G] = ATTRIBUTE(P2P_HBM, GIANT, HBM_P2P),
	[ACL_MEM_NORMAL] = ATTRIBUTE(HBM, NORMAL, HBM),
	[ACL_MEM_HUGE] = ATTRIBUTE(HBM, HUGE, HBM),
	[ACL_MEM_HUGE1G] = ATTRIBUTE(HBM, GIANT, HBM),
	[ACL_MEM_P2P_NORMAL] = ATTRIBUTE(P2P_HBM, NORMAL, HBM_P2P),
	[ACL_MEM_P2P_HUGE] = ATTRIBUTE(P2P_HBM, HUGE, HBM_P2P),
	[ACL_MEM_P2P_HUGE1G] = ATTRIBUTE(P2P_HBM, GIANT, HBM_P2P),
#undef ATTRIBUTE
};

aclError aclrtGetMemInfoImpl(aclrtMemAttr attr, size_t *free, size_t *total)
{
	if (!free || !total || (size_t)attr >= sizeof(attributes) / sizeof(attributes[0]))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtMemGetInfoEx(attributes[attr].storage, free, total));
}

aclError aclrtReserveMemAddressImpl(void **virPtr, size_t size, size_t alignment, void *expectPtr,
				    uint64_t flags)
{
	if (!virPtr || size == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtReserveMemAddress(virPtr, size, alignment, expectPtr, flags));
}

aclError aclrtReleaseMemAddressImpl(void *virPtr)
{
	return acl_result(virPtr ? rtReleaseMemAddress(virPtr) : ACL_ERROR_INVALID_PARAM);
}

_Static_assert(sizeof(aclrtPhysicalMemProp) == 32, "fixed by the interface");

aclError aclrtMallocPhysicalImpl(aclrtDrvMemHandle *handle, size_t size,
				 const aclrtPhysicalMemProp *prop, uint64_t flags)
{
	struct drv_mem_handle *created;
	struct drv_mem_prop wanted = {.module_id = MODULE_APP};
	aclError error;

	if (!handle || !prop || size == 0 ||
	    (size_t)prop->memAttr >= sizeof(attributes) / sizeof(attributes[0]))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	switch (prop->location.type) {
	case ACL_MEM_LOCATION_TYPE_HOST:
		wanted.side = MEM_HOST_SIDE;
		break;
	case ACL_MEM_LOCATION_TYPE_DEVICE:
		wanted.side = MEM_DEV_SIDE;
		break;
	case ACL_MEM_LOCATION_TYPE_HOST_NUMA:
		wanted.side = MEM_HOST_NUMA_SIDE;
		break;
	default:
		return acl_result(ACL_ERROR_INVALID_PARAM);
	}
	wanted.devid = prop->location.id;
	wanted.pg_type = attributes[prop->memAttr].pages;
	wanted.mem_type = attributes[prop->memAttr].type;
	error = rtMallocPhysical(&created, size, &wanted, flags);
	if (!error)
		*handle = created;
	return acl_result(error);
}

aclError aclrtFreePhysicalImpl(aclrtDrvMemHandle handle)
{
	return acl_result(handle ? rtFreePhysical(handle) : ACL_ERROR_INVALID_PARAM);
}

aclError aclrtMapMemImpl(void *virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
			 uint64_t flags)
{
	if (!virPtr || !handle || size == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtMapMem(virPtr, size, offset, handle, flags));
}

aclError aclrtUnmapMemImpl(void *virPtr)
{
	return acl_result(virPtr ? rtUnmapMem(virPtr) : ACL_ERROR_INVALID_PARAM);
}
