/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool as objects with mstx find it. The variable MSTX_TOOL says what it does when it starts:
 *
 *     all       fills every slot
 *     none      fills none and succeeds
 *     core      fills the first module only
 *     refuse    fills every slot and fails
 *     slow      as all, after a while
 */
#include "mstx_tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Each copy has its own, whichever was loaded first. */
__attribute__((visibility("protected"))) struct mstx_tool_seen mstx_tool_seen;
EXPORT int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table);

#define seen mstx_tool_seen

static void note(const char *name)
{
	seen.calls++;
	seen.name = name;
}

static void mark(const char *message, aclrtStream stream)
{
	note("mark");
	seen.text = message;
	seen.stream = stream;
}

static mstxRangeId range_start(const char *message, aclrtStream stream)
{
	note("range_start");
	seen.text = message;
	seen.stream = stream;
	return 0x123456789abcdef0;
}

static void range_end(mstxRangeId id)
{
	note("range_end");
	seen.id = id;
}

static void get_tool_id(uint64_t *id)
{
	note("get_tool_id");
	*id = MSTX_TOOL_MSLEAKS_ID;
}

static mstxDomainHandle_t domain_create(const char *name)
{
	note("domain_create");
	seen.text = name;
	return (mstxDomainHandle_t)(uintptr_t)0xd0;
}

static void domain_destroy(mstxDomainHandle_t domain)
{
	note("domain_destroy");
	seen.domain = domain;
}

static void domain_mark(mstxDomainHandle_t domain, const char *message, aclrtStream stream)
{
	note("domain_mark");
	seen.domain = domain;
	seen.text = message;
	seen.stream = stream;
}

static mstxRangeId domain_range_start(mstxDomainHandle_t domain, const char *message,
				      aclrtStream stream)
{
	note("domain_range_start");
	seen.domain = domain;
	seen.text = message;
	seen.stream = stream;
	return 77;
}

static void domain_range_end(mstxDomainHandle_t domain, mstxRangeId id)
{
	note("domain_range_end");
	seen.domain = domain;
	seen.id = id;
}

static mstxMemHeapHandle_t heap_register(mstxDomainHandle_t domain, const mstxMemHeapDesc_t *desc)
{
	note("heap_register");
	seen.domain = domain;
	seen.desc = desc;
	return (mstxMemHeapHandle_t)(uintptr_t)0x4ea9;
}

static void heap_unregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap)
{
	note("heap_unregister");
	seen.domain = domain;
	seen.id = (uintptr_t)heap;
}

static void regions_register(mstxDomainHandle_t domain, const mstxMemRegionsRegisterBatch_t *desc)
{
	note("regions_register");
	seen.domain = domain;
	seen.desc = desc;
}

static void regions_unregister(mstxDomainHandle_t domain,
			       const mstxMemRegionsUnregisterBatch_t *desc)
{
	note("regions_unregister");
	seen.domain = domain;
	seen.desc = desc;
}

static const mstxFuncPointer core_functions[] = {
	NULL,
	(mstxFuncPointer)mark,
	(mstxFuncPointer)range_start,
	(mstxFuncPointer)range_end,
	(mstxFuncPointer)get_tool_id,
};

static const mstxFuncPointer domain_functions[] = {
	NULL,
	(mstxFuncPointer)domain_create,
	(mstxFuncPointer)domain_destroy,
	(mstxFuncPointer)domain_mark,
	(mstxFuncPointer)domain_range_start,
	(mstxFuncPointer)domain_range_end,
};

static const mstxFuncPointer mem_functions[] = {
	NULL,
	(mstxFuncPointer)heap_register,
	(mstxFuncPointer)heap_unregister,
	(mstxFuncPointer)regions_register,
	(mstxFuncPointer)regions_unregister,
};

static int is_mode(const char *mode)
{
	const char *wanted = getenv("MSTX_TOOL");

	return strcmp(wanted ? wanted : "all", mode) == 0;
}

int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table)
{
	static const mstxFuncPointer *const functions[] = {NULL, core_functions, domain_functions,
							   mem_functions};
	static _Atomic unsigned inside;
	mstxFuncPointer **table;
	unsigned size;

	seen.starts++;
	if (++inside > seen.at_once)
		seen.at_once = inside;
	seen.ends_are_null = 1;
	seen.unknown_module_fails = get_table(0, &table, &size) == MSTX_FAIL &&
				    get_table(4, &table, &size) == MSTX_FAIL &&
				    get_table(-1, &table, &size) == MSTX_FAIL;
	if (is_mode("slow"))
		(void)usleep(50 * 1000);
	for (int module = 1; module < MSTX_TOOL_TABLES; module++) {
		if (get_table(module, &table, &size) != MSTX_SUCCESS)
			return MSTX_FAIL;
		seen.tables[module] = table;
		seen.sizes[module] = size;
		seen.ends_are_null &= table[0] == NULL && table[size] == NULL;
		for (unsigned i = 1; i < size; i++) {
			if (!is_mode("none") && !(is_mode("core") && module > 1))
				*table[i] = functions[module][i];
		}
	}
	inside--;
	return is_mode("refuse") ? MSTX_FAIL : MSTX_SUCCESS;
}
