/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An mstx tool of its own that writes down what clients register and passes every call on to the tool that was preloaded, if there
 * is one. MSTX_INJECTION_PATH names it; RECEIVER is the file it appends to, or a directory
 * with a file for each process, named by its number; one line per region:
 *
 *     MALLOC domain device address size heap_size
 *     FREE domain - address - -
 *     HEAP domain device address size -          with RECEIVER_HEAPS only
 *
 * heap_size is the size of the last heap that the thread registered in this domain, which is how clients say how much they hold.
 * Written from the header and the lines of the interface alone: it shares no code with the collector that it judges.
 */
#define MSTX_NO_IMPL
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mstx/ms_tools_ext.h>

enum {
	MODULES = MSTX_API_MODULE_CORE_MEM + 1,
	FUNCTIONS = 8,
	DOMAINS = 64,
};

/* What the other tool stored, and the table that it was given to do so. */
static mstxFuncPointer next[MODULES][FUNCTIONS];
static mstxFuncPointer *next_table[MODULES][FUNCTIONS + 1];
static unsigned next_size[MODULES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	char name[64];
	mstxDomainHandle_t theirs; /* of the tool behind us */
} domains[DOMAINS];
static unsigned domain_count;
static _Thread_local unsigned long long heap_size;

static void say(const char *text, int length)
{
	const char *path = getenv("RECEIVER");
	char name[4096];
	int file = -1;

	if (path) {
		(void)snprintf(name, sizeof(name), "%s/%d", path, (int)getpid());
		file = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (file < 0)
			file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	}
	if (file >= 0) {
		(void)!write(file, text, (size_t)length);
		(void)close(file);
	}
}

/* Our handles are the places in the table, so the other tool's can be anything, NULL too. */
static const char *name_of(mstxDomainHandle_t domain)
{
	uintptr_t n = (uintptr_t)domain;

	return n && n <= domain_count ? domains[n - 1].name : "-";
}

static mstxDomainHandle_t theirs(mstxDomainHandle_t domain)
{
	uintptr_t n = (uintptr_t)domain;

	return n && n <= domain_count ? domains[n - 1].theirs : NULL;
}

static mstxDomainHandle_t create_domain(const char *name)
{
	mstxDomainHandle_t (*call)(const char *) = NULL;
	mstxDomainHandle_t handle = NULL;
	unsigned n;

	*(void **)&call =
		(void *)(uintptr_t)next[MSTX_API_MODULE_CORE_DOMAIN][MSTX_FUNC_DOMAIN_CREATEA];
	(void)pthread_mutex_lock(&lock);
	for (n = 0; n < domain_count && strcmp(domains[n].name, name) != 0; n++)
		;
	if (n < DOMAINS) {
		if (n == domain_count) {
			(void)snprintf(domains[n].name, sizeof(domains[n].name), "%s", name);
			domain_count++;
		}
		handle = (mstxDomainHandle_t)(uintptr_t)(n + 1);
	}
	(void)pthread_mutex_unlock(&lock);
	if (handle && call)
		domains[n].theirs = call(name);
	return handle;
}

static mstxMemHeapHandle_t register_heap(mstxDomainHandle_t domain, const mstxMemHeapDesc_t *desc)
{
	mstxMemHeapHandle_t (*call)(mstxDomainHandle_t, const mstxMemHeapDesc_t *) = NULL;
	const mstxMemVirtualRangeDesc_t *range = desc->typeSpecificDesc;
	char line[256];

	heap_size = range->size;
	if (getenv("RECEIVER_HEAPS"))
		say(line, snprintf(line, sizeof(line), "HEAP %s %u %p %llu -\n", name_of(domain),
				   range->deviceId, range->ptr, heap_size));
	*(void **)&call =
		(void *)(uintptr_t)next[MSTX_API_MODULE_CORE_MEM][MSTX_FUNC_MEM_HEAP_REGISTER];
	return call ? call(theirs(domain), desc) : NULL;
}

static void register_regions(mstxDomainHandle_t domain, const mstxMemRegionsRegisterBatch_t *batch)
{
	void (*call)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *) = NULL;
	const mstxMemVirtualRangeDesc_t *ranges = batch->regionDescArray;
	char line[256];
	size_t n;

	for (n = 0; n < batch->regionCount; n++)
		say(line, snprintf(line, sizeof(line), "MALLOC %s %u %p %llu %llu\n",
				   name_of(domain), ranges[n].deviceId, ranges[n].ptr,
				   (unsigned long long)ranges[n].size, heap_size));
	*(void **)&call =
		(void *)(uintptr_t)next[MSTX_API_MODULE_CORE_MEM][MSTX_FUNC_MEM_REGIONS_REGISTER];
	if (call)
		call(theirs(domain), batch);
}

static void unregister_regions(mstxDomainHandle_t domain,
			       const mstxMemRegionsUnregisterBatch_t *batch)
{
	void (*call)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *) = NULL;
	char line[256];
	size_t n;

	for (n = 0; n < batch->refCount; n++)
		say(line, snprintf(line, sizeof(line), "FREE %s - %p - -\n", name_of(domain),
				   batch->refArray[n].pointer));
	*(void **)&call =
		(void *)(uintptr_t)next[MSTX_API_MODULE_CORE_MEM][MSTX_FUNC_MEM_REGIONS_UNREGISTER];
	if (call)
		call(theirs(domain), batch);
}

/* What the other tool gets instead of the client's tables. */
static int get_next_table(int module, mstxFuncPointer ***table, unsigned *size)
{
	unsigned n;

	if (module <= 0 || module >= MODULES || !next_size[module])
		return MSTX_FAIL;
	for (n = 1; n < next_size[module]; n++)
		next_table[module][n] = &next[module][n];
	*table = next_table[module];
	*size = next_size[module];
	return MSTX_SUCCESS;
}

static void take(mstxFuncPointer **table, unsigned n, void *function)
{
	*table[n] = (mstxFuncPointer)(uintptr_t)function;
}

__attribute__((visibility("default"))) int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table);

int InitInjectionMstx(mstxGetModuleFuncTableFunc get_table)
{
	mstxFuncPointer **tables[MODULES] = {NULL};
	mstxInitInjectionFunc init;
	unsigned n;
	int module;

	(void)pthread_mutex_lock(&lock);
	for (module = 1; module < MODULES; module++) {
		if (get_table(module, &tables[module], &next_size[module]) != MSTX_SUCCESS ||
		    next_size[module] > FUNCTIONS)
			next_size[module] = 0;
	}
	/* We are not in the global scope, so this finds a tool that was preloaded, or nothing. */
	init = (mstxInitInjectionFunc)(uintptr_t)dlsym(RTLD_DEFAULT, "InitInjectionMstx");
	if (init)
		(void)init(get_next_table);
	(void)pthread_mutex_unlock(&lock);
	for (module = 1; module < MODULES; module++) {
		for (n = 1; n < next_size[module]; n++)
			take(tables[module], n, (void *)(uintptr_t)next[module][n]);
	}
	if (next_size[MSTX_API_MODULE_CORE_DOMAIN])
		take(tables[MSTX_API_MODULE_CORE_DOMAIN], MSTX_FUNC_DOMAIN_CREATEA,
		     (void *)(uintptr_t)create_domain);
	if (next_size[MSTX_API_MODULE_CORE_MEM]) {
		take(tables[MSTX_API_MODULE_CORE_MEM], MSTX_FUNC_MEM_HEAP_REGISTER,
		     (void *)(uintptr_t)register_heap);
		take(tables[MSTX_API_MODULE_CORE_MEM], MSTX_FUNC_MEM_REGIONS_REGISTER,
		     (void *)(uintptr_t)register_regions);
		take(tables[MSTX_API_MODULE_CORE_MEM], MSTX_FUNC_MEM_REGIONS_UNREGISTER,
		     (void *)(uintptr_t)unregister_regions);
	}
	return MSTX_SUCCESS;
}
