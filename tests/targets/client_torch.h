/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How torch_npu's two allocators report: the gate, where they find the functions, and the calls with all that torch_npu leaves
 * uninitialised. The domain is created anew for each call, and a NULL domain does not stop them.
 */
#ifndef MSCOPE_TESTS_CLIENT_TORCH_H
#define MSCOPE_TESTS_CLIENT_TORCH_H

#include "client.h"

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

static struct {
	bool is_open;	    /* whether there is anybody to report to */
	const char *domain; /* name */
	mstxDomainHandle_t (*domain_create)(const char *);
	mstxMemHeapHandle_t (*heap_register)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	void (*regions_register)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	void (*regions_unregister)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
} torch;

/* Since 2026 a preload is asked first; `is_old` does without. */
static inline void *torch_find(const char *name, bool is_old)
{
	const char *preload = getenv("LD_PRELOAD");
	void *function = NULL;
	void *library;

	if (!is_old && preload != NULL && *preload != 0)
		function = dlsym(RTLD_DEFAULT, name);
	if (function == NULL) {
		library = dlopen("libms_tools_ext.so", RTLD_LAZY);
		function = library != NULL ? dlsym(library, name) : NULL;
	}
	target_check(function != NULL, "libms_tools_ext.so lacks a function");
	return function;
}

static inline void torch_open(const char *domain, bool is_old)
{
	char path[PATH_MAX];

	torch.domain = domain;
	torch.is_open = gate_is_open() && mstx_path(path);
	if (!torch.is_open)
		return;
	*(void **)&torch.domain_create = torch_find("mstxDomainCreateA", is_old);
	*(void **)&torch.heap_register = torch_find("mstxMemHeapRegister", is_old);
	*(void **)&torch.regions_register = torch_find("mstxMemRegionsRegister", is_old);
	*(void **)&torch.regions_unregister = torch_find("mstxMemRegionsUnregister", is_old);
}

/* The pool of the device has reserved so much. */
static inline void torch_set_heap(unsigned device, uint64_t address, uint64_t reserved)
{
	mstxMemVirtualRangeDesc_t range = {device, (void *)(uintptr_t)address, reserved};
	mstxDomainHandle_t domain;
	mstxMemHeapDesc_t heap;

	if (!torch.is_open)
		return;
	domain = torch.domain_create(torch.domain);
	fill_with_garbage(&heap, sizeof(heap));
	heap.typeSpecificDesc = &range;
	(void)torch.heap_register(domain, &heap);
}

static inline void torch_register(unsigned device, uint64_t address, uint64_t size)
{
	mstxMemVirtualRangeDesc_t range = {device, (void *)(uintptr_t)address, size};
	mstxMemRegionsRegisterBatch_t batch;
	mstxDomainHandle_t domain;

	if (!torch.is_open)
		return;
	domain = torch.domain_create(torch.domain);
	fill_with_garbage(&batch, sizeof(batch));
	batch.regionCount = 1;
	batch.regionDescArray = &range;
	torch.regions_register(domain, &batch);
}

static inline void torch_unregister(uint64_t address)
{
	mstxMemRegionRef_t reference = {MSTX_MEM_REGION_REF_TYPE_POINTER,
					{(void *)(uintptr_t)address}};
	mstxMemRegionsUnregisterBatch_t batch = {1, &reference};

	if (torch.is_open)
		torch.regions_unregister(torch.domain_create(torch.domain), &batch);
}

#endif
