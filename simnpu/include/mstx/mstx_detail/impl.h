/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an object that includes ms_tools_ext.h carries: one context and the functions over it. Included from there only.
 *
 * The context is zero until the first call, which looks for a tool and lets it fill in the function pointers. Threads that
 * call meanwhile wait for that, by yielding: it happens once, and there is nothing here that every program has linked to
 * wait with.
 */
#ifndef MSTX_MSTX_DETAIL_IMPL_H
#define MSTX_MSTX_DETAIL_IMPL_H

#ifndef MSTX_MS_TOOLS_EXT_H
#error "include mstx/ms_tools_ext.h"
#endif

#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	MSTX_SIM_STATE_NEW = 0,
	MSTX_SIM_STATE_STARTING = 1,
	MSTX_SIM_STATE_READY = 2,
};

struct mstxSimContext {
	int state;
	/* The slots, by the numbers of the protocol: NULL is a call that does nothing. The tool may write them at any time. */
	mstxFuncPointer core[MSTX_FUNC_END];
	mstxFuncPointer domain[MSTX_FUNC_DOMAIN_END];
	mstxFuncPointer mem[MSTX_FUNC_MEM_END];
	/* Their addresses, as the tool gets them. */
	mstxFuncPointer *coreTable[MSTX_FUNC_END + 1];
	mstxFuncPointer *domainTable[MSTX_FUNC_DOMAIN_END + 1];
	mstxFuncPointer *memTable[MSTX_FUNC_MEM_END + 1];
};

MSTX_PRIVATE struct mstxSimContext mstxSimContext;

MSTX_PRIVATE int mstxSimGetFuncTable(int module, mstxFuncPointer ***outTable,
				     unsigned int *outSize);
MSTX_PRIVATE void mstxSimStart(void);
MSTX_PRIVATE mstxFuncPointer mstxSimGet(mstxFuncPointer *slot);

MSTX_PRIVATE int mstxSimGetFuncTable(int module, mstxFuncPointer ***outTable, unsigned int *outSize)
{
	struct mstxSimContext *context = &mstxSimContext;
	mstxFuncPointer **table;
	mstxFuncPointer *slots;
	unsigned int size;
	unsigned int i;

	switch (module) {
	case MSTX_API_MODULE_CORE:
		table = context->coreTable;
		slots = context->core;
		size = MSTX_FUNC_END;
		break;
	case MSTX_API_MODULE_CORE_DOMAIN:
		table = context->domainTable;
		slots = context->domain;
		size = MSTX_FUNC_DOMAIN_END;
		break;
	case MSTX_API_MODULE_CORE_MEM:
		table = context->memTable;
		slots = context->mem;
		size = MSTX_FUNC_MEM_END;
		break;
	default:
		return MSTX_FAIL;
	}
	for (i = 1; i < size; i++)
		table[i] = &slots[i];
	if (outTable)
		*outTable = table;
	if (outSize)
		*outSize = size;
	return MSTX_SUCCESS;
}

/* Runs on one thread of the object. Where the named file cannot be opened, the process is searched, as without a name. */
MSTX_PRIVATE void mstxSimStart(void)
{
	struct mstxSimContext *context = &mstxSimContext;
	const char *path = getenv("MSTX_INJECTION_PATH");
	void *library = path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
	mstxInitInjectionFunc init;
	unsigned int i;

	init = (mstxInitInjectionFunc)(uintptr_t)dlsym(library, "InitInjectionMstx");
	if (!init || init(mstxSimGetFuncTable) == MSTX_SUCCESS)
		return;
	for (i = 0; i < MSTX_FUNC_END; i++)
		context->core[i] = NULL;
	for (i = 0; i < MSTX_FUNC_DOMAIN_END; i++)
		context->domain[i] = NULL;
	for (i = 0; i < MSTX_FUNC_MEM_END; i++)
		context->mem[i] = NULL;
}

/* What to call, NULL for nothing. */
MSTX_PRIVATE mstxFuncPointer mstxSimGet(mstxFuncPointer *slot)
{
	int *state = &mstxSimContext.state;
	int expected = MSTX_SIM_STATE_NEW;

	/* Acquire here and below pairs with the release: who sees READY sees the slots. */
	if (__atomic_load_n(state, __ATOMIC_ACQUIRE) != MSTX_SIM_STATE_READY) {
		if (__atomic_compare_exchange_n(state, &expected, MSTX_SIM_STATE_STARTING, 0,
						__ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
			mstxSimStart();
			__atomic_store_n(state, MSTX_SIM_STATE_READY, __ATOMIC_RELEASE);
		}
		while (__atomic_load_n(state, __ATOMIC_ACQUIRE) != MSTX_SIM_STATE_READY)
			(void)sched_yield();
	}
	return __atomic_load_n(slot, __ATOMIC_RELAXED);
}

MSTX_API void mstxMarkA(const char *message, aclrtStream stream)
{
	typedef void (*func)(const char *, aclrtStream);
	func call = (func)mstxSimGet(&mstxSimContext.core[MSTX_FUNC_MARKA]);

	if (call)
		call(message, stream);
}

MSTX_API mstxRangeId mstxRangeStartA(const char *message, aclrtStream stream)
{
	typedef mstxRangeId (*func)(const char *, aclrtStream);
	func call = (func)mstxSimGet(&mstxSimContext.core[MSTX_FUNC_RANGE_STARTA]);

	return call ? call(message, stream) : MSTX_INVALID_ID;
}

MSTX_API void mstxRangeEnd(mstxRangeId id)
{
	typedef void (*func)(mstxRangeId);
	func call = (func)mstxSimGet(&mstxSimContext.core[MSTX_FUNC_RANGE_END]);

	if (call)
		call(id);
}

#ifndef MSTX_SIM_OLD_HEADER
MSTX_API void mstxGetToolId(uint64_t *id)
{
	typedef void (*func)(uint64_t *);
	func call = (func)mstxSimGet(&mstxSimContext.core[MSTX_FUNC_GET_TOOL_ID]);

	if (call)
		call(id);
}
#endif

MSTX_API mstxDomainHandle_t mstxDomainCreateA(const char *name)
{
	typedef mstxDomainHandle_t (*func)(const char *);
	func call = (func)mstxSimGet(&mstxSimContext.domain[MSTX_FUNC_DOMAIN_CREATEA]);

	return call ? call(name) : NULL;
}

MSTX_API void mstxDomainDestroy(mstxDomainHandle_t domain)
{
	typedef void (*func)(mstxDomainHandle_t);
	func call = (func)mstxSimGet(&mstxSimContext.domain[MSTX_FUNC_DOMAIN_DESTROY]);

	if (call)
		call(domain);
}

MSTX_API void mstxDomainMarkA(mstxDomainHandle_t domain, const char *message, aclrtStream stream)
{
	typedef void (*func)(mstxDomainHandle_t, const char *, aclrtStream);
	func call = (func)mstxSimGet(&mstxSimContext.domain[MSTX_FUNC_DOMAIN_MARKA]);

	if (call)
		call(domain, message, stream);
}

MSTX_API mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char *message,
					   aclrtStream stream)
{
	typedef mstxRangeId (*func)(mstxDomainHandle_t, const char *, aclrtStream);
	func call = (func)mstxSimGet(&mstxSimContext.domain[MSTX_FUNC_DOMAIN_RANGE_STARTA]);

	return call ? call(domain, message, stream) : MSTX_INVALID_ID;
}

MSTX_API void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id)
{
	typedef void (*func)(mstxDomainHandle_t, mstxRangeId);
	func call = (func)mstxSimGet(&mstxSimContext.domain[MSTX_FUNC_DOMAIN_RANGE_END]);

	if (call)
		call(domain, id);
}

MSTX_API mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain,
						 const mstxMemHeapDesc_t *desc)
{
	typedef mstxMemHeapHandle_t (*func)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	func call = (func)mstxSimGet(&mstxSimContext.mem[MSTX_FUNC_MEM_HEAP_REGISTER]);

	return call ? call(domain, desc) : NULL;
}

MSTX_API void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap)
{
	typedef void (*func)(mstxDomainHandle_t, mstxMemHeapHandle_t);
	func call = (func)mstxSimGet(&mstxSimContext.mem[MSTX_FUNC_MEM_HEAP_UNREGISTER]);

	if (call)
		call(domain, heap);
}

MSTX_API void mstxMemRegionsRegister(mstxDomainHandle_t domain,
				     const mstxMemRegionsRegisterBatch_t *desc)
{
	typedef void (*func)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	func call = (func)mstxSimGet(&mstxSimContext.mem[MSTX_FUNC_MEM_REGIONS_REGISTER]);

	if (call)
		call(domain, desc);
}

MSTX_API void mstxMemRegionsUnregister(mstxDomainHandle_t domain,
				       const mstxMemRegionsUnregisterBatch_t *desc)
{
	typedef void (*func)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
	func call = (func)mstxSimGet(&mstxSimContext.mem[MSTX_FUNC_MEM_REGIONS_UNREGISTER]);

	if (call)
		call(domain, desc);
}

#ifdef __cplusplus
}
#endif

#endif
