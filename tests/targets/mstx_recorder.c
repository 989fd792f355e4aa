/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tool that writes down every mstx call, to see that what the clients say of themselves is true. Preloaded under the name
 * that frameworks look for; the file is in the variable RECORD, one JSON line per call, in the order of the calls:
 *
 *     {"tid":8,"call":"regions_register","domain":"atb","ranges":[[device,address,size],...]}
 *
 * A domain that is none of the known pools has no handle, and null for a name. RECORD_REFUSE=1 gives no handle to heaps,
 * RECORD_FIRST=N numbers ranges from N + 1 on, RECORD_SLEEP=N lets each mark take N milliseconds.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table);

static const char *const pools[] = {"ptaCaching", "msleaks", "ptaWorkspace", "mindsporeMemPool",
				    "atb"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file;
static uint64_t last_id;
static uint64_t last_handle;

static void put_string(const char *string)
{
	if (string == NULL) {
		(void)fputs("null", file);
		return;
	}
	(void)fputc('"', file);
	for (; *string != 0; string++) {
		if ((unsigned char)*string < 0x20 || *string == '"' || *string == '\\')
			(void)fprintf(file, "\\u%04x", (unsigned)*string);
		else
			(void)fputc(*string, file);
	}
	(void)fputc('"', file);
}

/* Handles of domains are the addresses of their names' places. */
static void begin(const char *call, mstxDomainHandle_t domain)
{
	pthread_mutex_lock(&lock);
	(void)fprintf(file, "{\"tid\":%ld,\"call\":\"%s\",\"domain\":", syscall(SYS_gettid), call);
	put_string(domain != NULL ? *(const char *const *)(const void *)domain : NULL);
}

/* Each line is out before the program goes on, or is killed. */
static void end(void)
{
	(void)fputs("}\n", file);
	(void)fflush(file);
	pthread_mutex_unlock(&lock);
}

static uint64_t variable(const char *name)
{
	const char *value = getenv(name);

	return value != NULL ? strtoull(value, NULL, 0) : 0;
}

static void domain_mark(mstxDomainHandle_t domain, const char *message, aclrtStream stream)
{
	(void)usleep((useconds_t)variable("RECORD_SLEEP") * 1000);
	begin("mark", domain);
	(void)fputs(",\"message\":", file);
	put_string(message);
	(void)fprintf(file, ",\"stream\":%llu", (unsigned long long)(uintptr_t)stream);
	end();
}

static mstxRangeId domain_range_start(mstxDomainHandle_t domain, const char *message,
				      aclrtStream stream)
{
	mstxRangeId id;

	begin("range_start", domain);
	id = ++last_id;
	(void)fputs(",\"message\":", file);
	put_string(message);
	(void)fprintf(file, ",\"stream\":%llu,\"id\":%llu", (unsigned long long)(uintptr_t)stream,
		      (unsigned long long)id);
	end();
	return id;
}

static void domain_range_end(mstxDomainHandle_t domain, mstxRangeId id)
{
	begin("range_end", domain);
	(void)fprintf(file, ",\"id\":%llu", (unsigned long long)id);
	end();
}

static void mark(const char *message, aclrtStream stream)
{
	domain_mark(NULL, message, stream);
}

static mstxRangeId range_start(const char *message, aclrtStream stream)
{
	return domain_range_start(NULL, message, stream);
}

static void range_end(mstxRangeId id)
{
	domain_range_end(NULL, id);
}

static void get_tool_id(uint64_t *id)
{
	*id = UINT64_C(0x100000000) | MSTX_TOOL_MSLEAKS_ID;
}

static mstxDomainHandle_t domain_create(const char *name)
{
	begin("domain_create", NULL);
	(void)fputs(",\"name\":", file);
	put_string(name);
	end();
	for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
		if (name != NULL && strcmp(name, pools[i]) == 0)
			return (mstxDomainHandle_t)(uintptr_t)&pools[i];
	}
	return NULL;
}

static void domain_destroy(mstxDomainHandle_t domain)
{
	begin("domain_destroy", domain);
	end();
}

static void put_range(const mstxMemVirtualRangeDesc_t *range)
{
	(void)fprintf(file, "[%u,%llu,%llu]", range->deviceId,
		      (unsigned long long)(uintptr_t)range->ptr, (unsigned long long)range->size);
}

static mstxMemHeapHandle_t heap_register(mstxDomainHandle_t domain, const mstxMemHeapDesc_t *desc)
{
	const mstxMemVirtualRangeDesc_t *range = desc->typeSpecificDesc;

	begin("heap_register", domain);
	(void)fputs(",\"ranges\":[", file);
	put_range(range);
	(void)fprintf(file, "],\"usage\":%d,\"type\":%d", (int)desc->usage, (int)desc->type);
	end();
	if (variable("RECORD_REFUSE") != 0)
		return NULL;
	return (mstxMemHeapHandle_t)(uintptr_t)range->ptr;
}

static void heap_unregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap)
{
	begin("heap_unregister", domain);
	(void)fprintf(file, ",\"heap\":%llu", (unsigned long long)(uintptr_t)heap);
	end();
}

/* Only ATB says where handles go. */
static void regions_register(mstxDomainHandle_t domain, const mstxMemRegionsRegisterBatch_t *desc)
{
	const mstxMemVirtualRangeDesc_t *ranges = desc->regionDescArray;
	int has_handles = domain != NULL && *(const char *const *)(const void *)domain == pools[4];

	begin("regions_register", domain);
	(void)fprintf(file, ",\"heap\":%llu,\"ranges\":[",
		      (unsigned long long)(uintptr_t)desc->heap);
	for (size_t i = 0; i < desc->regionCount; i++) {
		(void)fputs(i > 0 ? "," : "", file);
		put_range(&ranges[i]);
	}
	(void)fputs("],\"handles\":[", file);
	for (size_t i = 0; has_handles && i < desc->regionCount; i++) {
		desc->regionHandleArrayOut[i] = (mstxMemRegionHandle_t)(uintptr_t)++last_handle;
		(void)fprintf(file, "%s%llu", i > 0 ? "," : "", (unsigned long long)last_handle);
	}
	(void)fputs("]", file);
	end();
}

static void regions_unregister(mstxDomainHandle_t domain,
			       const mstxMemRegionsUnregisterBatch_t *desc)
{
	begin("regions_unregister", domain);
	(void)fputs(",\"references\":[", file);
	for (size_t i = 0; i < desc->refCount; i++) {
		const mstxMemRegionRef_t *reference = &desc->refArray[i];

		(void)fprintf(file, "%s[%d,%llu]", i > 0 ? "," : "", (int)reference->refType,
			      (unsigned long long)(uintptr_t)reference->pointer);
	}
	(void)fputs("]", file);
	end();
}

static void fill(mstxGetModuleFuncTableFunc get_table, int module, const mstxFuncPointer *functions)
{
	mstxFuncPointer **table;
	unsigned size;

	if (get_table(module, &table, &size) != MSTX_SUCCESS)
		return;
	for (unsigned i = 1; i < size; i++)
		*table[i] = functions[i];
}

int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table)
{
	static const mstxFuncPointer core[] = {
		NULL, (mstxFuncPointer)mark, (mstxFuncPointer)range_start,
		(mstxFuncPointer)range_end, (mstxFuncPointer)get_tool_id};
	static const mstxFuncPointer domain[] = {NULL,
						 (mstxFuncPointer)domain_create,
						 (mstxFuncPointer)domain_destroy,
						 (mstxFuncPointer)domain_mark,
						 (mstxFuncPointer)domain_range_start,
						 (mstxFuncPointer)domain_range_end};
	static const mstxFuncPointer memory[] = {
		NULL, (mstxFuncPointer)heap_register, (mstxFuncPointer)heap_unregister,
		(mstxFuncPointer)regions_register, (mstxFuncPointer)regions_unregister};
	const char *path = getenv("RECORD");

	pthread_mutex_lock(&lock);
	if (file == NULL && path != NULL) {
		file = fopen(path, "ae");
		last_id = variable("RECORD_FIRST");
	}
	pthread_mutex_unlock(&lock);
	if (file == NULL)
		return MSTX_FAIL;
	fill(get_table, MSTX_API_MODULE_CORE, core);
	fill(get_table, MSTX_API_MODULE_CORE_DOMAIN, domain);
	fill(get_table, MSTX_API_MODULE_CORE_MEM, memory);
	return MSTX_SUCCESS;
}
