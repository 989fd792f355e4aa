/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shared object that includes the mstx header as users do. Built as C, as C++ (mstx_object.cpp), and with the header as it
 * was before mstxGetToolId(); test_simnpu_mstx.c loads each of them. As C it has a second source file that includes the header
 * again (OBJECT_SECOND).
 */
#include "mstx/ms_tools_ext.h"

#define EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

#ifdef OBJECT_SECOND
EXPORT void object_mark_second(const char *message);

void object_mark_second(const char *message)
{
	mstxMarkA(message, NULL);
}
#else
EXPORT void object_mark(const char *message);
EXPORT uint64_t object_range(const char *message);
EXPORT int object_all(void);

void object_mark(const char *message)
{
	mstxMarkA(message, NULL);
}

uint64_t object_range(const char *message)
{
	uint64_t id = mstxRangeStartA(message, NULL);

	mstxRangeEnd(id);
	return id;
}

/* One call of each function; how many that are. */
int object_all(void)
{
	mstxMemHeapDesc_t heap_desc = {MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
				       MSTX_MEM_TYPE_VIRTUAL_ADDRESS, NULL};
	mstxMemRegionsRegisterBatch_t batch = {NULL, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 0, NULL, NULL};
	mstxMemRegionsUnregisterBatch_t back = {0, NULL};
	mstxDomainHandle_t domain = mstxDomainCreateA("object");
	mstxMemHeapHandle_t heap = mstxMemHeapRegister(domain, &heap_desc);

	mstxMemRegionsRegister(domain, &batch);
	mstxMemRegionsUnregister(domain, &back);
	mstxMemHeapUnregister(domain, heap);
	mstxDomainMarkA(domain, "m", NULL);
	mstxDomainRangeEnd(domain, mstxDomainRangeStartA(domain, "r", NULL));
	mstxDomainDestroy(domain);
	mstxMarkA("m", NULL);
	mstxRangeEnd(mstxRangeStartA("r", NULL));
#ifdef MSTX_SIM_OLD_HEADER
	return 12;
#else
	uint64_t tool = 0;

	mstxGetToolId(&tool);
	return 13;
#endif
}
#endif

#ifdef __cplusplus
}
#endif
