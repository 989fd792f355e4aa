/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: which flag word goes to the driver for which wish, and copies.
 */
#include <stdbool.h>
#include <string.h>

#include "acl/acl_rt.h"
#include "codes.h"
#include "device.h"
#include "runtime/rt.h"
#include "known.h"
#include "shapes.h"
#include "stream.h"

enum {
	ALIGN_SHIFT = 9, /* 512 bytes, in every flag word but that of giant pages */
	TYPE_MASK = 0x3ff,
};

/* Below this, wishes for huge pages that also take normal ones get normal ones. */
#define HUGE_FIRST_MIN (1ULL << 20)

enum pages {
	PAGES_HUGE_FIRST,
	PAGES_HUGE,
	PAGES_NORMAL,
	PAGES_GIANT,
};

struct policy {
	uint32_t bit;
	enum pages pages;
	bool p2p;
};

static struct policy find_policy(rtMemType_t type)
{
	static const struct policy policies[] = {
		{RT_MEMORY_POLICY_HUGE_PAGE_FIRST, PAGES_HUGE_FIRST, false},
		{RT_MEMORY_POLICY_HUGE_PAGE_ONLY, PAGES_HUGE, false},
		{RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY, PAGES_NORMAL, false},
		{RT_MEMORY_POLICY_HUGE_PAGE_FIRST_P2P, PAGES_HUGE_FIRST, true},
		{RT_MEMORY_POLICY_HUGE_PAGE_ONLY_P2P, PAGES_HUGE, true},
		{RT_MEMORY_POLICY_DEFAULT_PAGE_ONLY_P2P, PAGES_NORMAL, true},
		{RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY, PAGES_GIANT, false},
		{RT_MEMORY_POLICY_HUGE1G_PAGE_ONLY_P2P, PAGES_GIANT, true},
	};
	size_t n;

	for (n = 0; n < sizeof(policies) / sizeof(policies[0]); n++) {
		if (type & policies[n].bit)
			return policies[n];
	}
	return policies[0];
}

static uint64_t module_bits(uint16_t module)
{
	return (uint64_t)(module & 0xff) << MEM_MODULE_ID_BIT;
}

/* All but pages and alignment. */
static uint64_t device_bits(uint32_t device, rtMemType_t type, bool p2p)
{
	uint64_t flag = device;

	switch (type & TYPE_MASK) {
	case RT_MEMORY_SVM:
		flag |= MEM_SVM;
		break;
	case RT_MEMORY_DDR:
		flag |= MEM_DEV | MEM_TYPE_DDR;
		break;
	default:
		flag |= MEM_DEV | MEM_TYPE_HBM;
		break;
	}
	if (p2p)
		flag |= MEM_ADVISE_P2P;
	if (type & RT_MEMORY_ATTRIBUTE_READONLY)
		flag |= MEM_READONLY;
	return flag;
}

rtError_t rtMalloc(void **devPtr, uint64_t size, rtMemType_t type, uint16_t moduleId)
{
	struct policy policy = find_policy(type);
	enum pages pages = policy.pages;
	struct context *context;
	drvError_t failure;
	uint64_t flag;
	int error;

	if (!devPtr || size == 0)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = context_current(&context);
	if (error)
		return error;
	flag = device_bits(context_device(context), type, policy.p2p) | module_bits(moduleId);
	if (pages == PAGES_GIANT)
		return code_of_driver(halMemAlloc(devPtr, size, flag | MEM_PAGE_GIANT));
	flag |= MEM_SET_ALIGN(ALIGN_SHIFT);
	if (pages == PAGES_HUGE || (pages == PAGES_HUGE_FIRST && size > HUGE_FIRST_MIN)) {
		failure = halMemAlloc(devPtr, size, flag | MEM_PAGE_HUGE);
		if (!failure || pages == PAGES_HUGE)
			return code_of_driver(failure);
	}
	return code_of_driver(halMemAlloc(devPtr, size, flag));
}

rtError_t rtFree(void *devPtr)
{
	return code_of_driver(halMemFree(devPtr));
}

static int malloc_host(void **hostPtr, uint64_t size, uint64_t kind, uint16_t module)
{
	if (!hostPtr || size == 0)
		return ACL_ERROR_RT_PARAM_INVALID;
	return code_of_driver(halMemAlloc(hostPtr, size,
					  kind | MEM_SET_ALIGN(ALIGN_SHIFT) | module_bits(module)));
}

rtError_t rtMallocHost(void **hostPtr, uint64_t size, uint16_t moduleId)
{
	return malloc_host(hostPtr, size, MEM_HOST, moduleId);
}

rtError_t rtsMallocHost(void **hostPtr, uint64_t size, const rtMallocConfig_t *cfg)
{
	const uint16_t module_app = 33;
	uint16_t module = module_app;
	uint64_t kind = MEM_HOST;
	size_t n;

	for (n = 0; cfg && n < cfg->numAttrs; n++) {
		const rtMallocAttribute_t *attribute = &cfg->attrs[n];

		if (attribute->attr == RT_MEM_MALLOC_ATTR_MODULE_ID)
			module = attribute->value.moduleId;
		else if (attribute->attr == RT_MEM_MALLOC_ATTR_VA_FLAG)
			kind = attribute->value.vaFlag == 1 ? MEM_HOST_UVA : MEM_HOST;
		else
			return ACL_ERROR_RT_PARAM_INVALID;
	}
	return malloc_host(hostPtr, size, kind, module);
}

rtError_t rtFreeHost(void *hostPtr)
{
	return code_of_driver(halMemFree(hostPtr));
}

rtError_t rtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)
{
	struct context *context;
	void *mapped;
	int error;

	error = context_current(&context);
	if (error)
		return error;
	return code_of_driver(halHostRegister(ptr, size, flag, context_device(context), &mapped));
}

rtError_t rtHostUnregister(void *ptr)
{
	/* Programs do this late, when the thread has no context any more; the driver knows the pages without the device. */
	return code_of_driver(halHostUnregister(ptr, 0));
}

struct copy_task {
	struct task task;
	void *dst;
	const void *src;
	int value;
	int32_t kind;
	enum copy_way way;
	size_t size;
};

static void copy(void *dst, const void *src, size_t size, int32_t kind, enum copy_way way)
{
	if (way == COPY_IS_DONE)
		memmove(dst, src, size);
	else if (way == COPY_IS_ZERO)
		memset(dst, 0, size);
	known_copied(dst, src, size, kind, way);
}

static void run_copy(struct task *task)
{
	struct copy_task *t = (struct copy_task *)task;

	copy(t->dst, t->src, t->size, t->kind, t->way);
}

static void set(void *dst, int value, size_t size)
{
	bool whole = shapes_copy(size, ACL_MEMCPY_DEVICE_TO_DEVICE) == COPY_IS_DONE;

	if (whole)
		memset(dst, value, size);
	rtSimKnow(dst, size, whole);
}

static void run_set(struct task *task)
{
	struct copy_task *t = (struct copy_task *)task;

	set(t->dst, t->value, t->size);
}

static bool may_copy(const void *dst, uint64_t dst_max, const void *src, uint64_t count,
		     int32_t kind)
{
	const int32_t kind_max = 7;

	return dst && src && count > 0 && count <= dst_max && kind >= 0 && kind <= kind_max;
}

static int submit(const struct copy_task *what, void *stream)
{
	struct copy_task *t;
	struct stream *s;
	int error;

	error = stream_find(stream, &s);
	if (error)
		return error;
	t = task_new(sizeof(*t));
	if (!t)
		return ACL_ERROR_BAD_ALLOC;
	*t = *what;
	t->task.type = TASK_TYPE_MEMCPY;
	return stream_submit(s, &t->task);
}

rtError_t rtMemcpy(void *dst, uint64_t destMax, const void *src, uint64_t cnt, int32_t kind)
{
	if (!may_copy(dst, destMax, src, cnt, kind))
		return ACL_ERROR_RT_PARAM_INVALID;
	copy(dst, src, cnt, kind, shapes_copy(cnt, kind));
	known_tell();
	return ACL_SUCCESS;
}

rtError_t rtMemcpyAsync(void *dst, uint64_t destMax, const void *src, uint64_t cnt, int32_t kind,
			rtStream_t stm)
{
	if (!may_copy(dst, destMax, src, cnt, kind))
		return ACL_ERROR_RT_PARAM_INVALID;
	return submit(
		&(struct copy_task){
			.task.run = run_copy,
			.dst = dst,
			.src = src,
			.kind = kind,
			.way = shapes_copy(cnt, kind),
			.size = cnt,
		},
		stm);
}

rtError_t rtMemset(void *devPtr, uint64_t destMax, uint32_t val, uint64_t cnt)
{
	if (!devPtr || cnt == 0 || cnt > destMax)
		return ACL_ERROR_RT_PARAM_INVALID;
	set(devPtr, (int)val, cnt);
	return ACL_SUCCESS;
}

rtError_t rtMemsetAsync(void *devPtr, uint64_t destMax, uint32_t val, uint64_t cnt, rtStream_t stm)
{
	if (!devPtr || cnt == 0 || cnt > destMax)
		return ACL_ERROR_RT_PARAM_INVALID;
	return submit(
		&(struct copy_task){
			.task.run = run_set,
			.dst = devPtr,
			.value = (int)val,
			.size = cnt,
		},
		stm);
}

rtError_t rtMemGetInfoEx(uint32_t type, size_t *freeSize, size_t *totalSize)
{
	struct context *context;
	struct MemInfo info;
	int error;

	if (!freeSize || !totalSize)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = context_current(&context);
	if (!error)
		error = code_of_driver(halMemGetInfo(context_device(context), type, &info));
	if (!error) {
		*freeSize = info.phy_info.free;
		*totalSize = info.phy_info.total;
	}
	return error;
}

rtError_t rtReserveMemAddress(void **devPtr, size_t size, size_t alignment, void *devAddr,
			      uint64_t flags)
{
	return code_of_driver(halMemAddressReserve(devPtr, size, alignment, devAddr, flags));
}

rtError_t rtReleaseMemAddress(void *devPtr)
{
	return code_of_driver(halMemAddressFree(devPtr));
}

rtError_t rtMallocPhysical(struct drv_mem_handle **handle, size_t size,
			   const struct drv_mem_prop *prop, uint64_t flags)
{
	struct drv_mem_prop physical;
	int error;

	if (!handle || !prop)
		return ACL_ERROR_RT_PARAM_INVALID;
	physical = *prop;
	if (physical.side == MEM_DEV_SIDE) {
		error = device_physical(prop->devid, &physical.devid);
		if (error)
			return error;
	}
	return code_of_driver(halMemCreate(handle, size, &physical, flags));
}

rtError_t rtFreePhysical(struct drv_mem_handle *handle)
{
	return code_of_driver(halMemRelease(handle));
}

rtError_t rtMapMem(void *devPtr, size_t size, size_t offset, struct drv_mem_handle *handle,
		   uint64_t flags)
{
	return code_of_driver(halMemMap(devPtr, size, offset, handle, flags));
}

rtError_t rtUnmapMem(void *devPtr)
{
	return code_of_driver(halMemUnmap(devPtr));
}
