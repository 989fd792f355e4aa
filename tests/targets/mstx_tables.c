/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mstx_tables GENERATION [--threads=N]: talks to the tool by the injection protocol itself, with the tables that an object
 * compiled with some generation of the mstx header has: `first` (marks and ranges only), `old` (no tool id), `new`, `future`
 * (more functions in each module than anybody knows). It checks that the tool fills every slot that it can, and writes to no
 * other, and then calls all there is, also with NULL where a program may pass it. Threads do this at the same time, each with
 * tables of its own. It ends with 77 when no tool is there.
 *
 * What it passes as a stream is none, as the Python module may; so nobody may ask the runtime about it.
 */
#include "client.h"

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

#define MODULES	  3
#define SLOTS_MAX 12 /* with the guards */

/* Functions that the tool is to know, and how many a generation has; indices are from 1. */
static const unsigned known[MODULES] = {4, 5, 4};
static const struct {
	const char *name;
	unsigned counts[MODULES];
} generations[] = {
	{"first", {3, 0, 0}},
	{"old", {3, 5, 4}},
	{"new", {4, 5, 4}},
	{"future", {6, 8, 7}},
};

struct tables {
	pthread_t thread;
	mstxFuncPointer slots[MODULES][SLOTS_MAX];
	mstxFuncPointer *pointers[MODULES][SLOTS_MAX];
};

static const unsigned *counts;
static char no_stream[64];

/* Stands before the runtime's. */
__attribute__((visibility("default"))) int aclrtStreamGetIdImpl(void *stream, int32_t *out_id);
int aclrtStreamGetIdImpl(void *stream, int32_t *out_id)
{
	(void)stream;
	(void)out_id;
	target_fail("a stream was looked into");
}

/* The protocol's question has no room for who asks. */
static _Thread_local struct tables *current;

static void untouched(void)
{
	target_fail("a slot was called that is not filled");
}

static int get_table(int module, mstxFuncPointer ***out_table, unsigned *out_size)
{
	if (module < 1 || module > MODULES || counts[module - 1] == 0)
		return MSTX_FAIL;
	*out_table = current->pointers[module - 1];
	*out_size = counts[module - 1] + 1;
	return MSTX_SUCCESS;
}

/* The end of a table is a NULL, as is its start; behind it lies what the tool must not know of. */
static void prepare(struct tables *tables)
{
	for (unsigned module = 0; module < MODULES; module++) {
		for (unsigned i = 0; i < SLOTS_MAX; i++) {
			tables->slots[module][i] = untouched;
			tables->pointers[module][i] = i == 0 || i == counts[module] + 1
							      ? NULL
							      : &tables->slots[module][i];
		}
	}
}

static void check_slots(const struct tables *tables)
{
	for (unsigned module = 0; module < MODULES; module++) {
		for (unsigned i = 0; i < SLOTS_MAX; i++) {
			bool is_ours = i >= 1 && i <= counts[module] && i <= known[module];

			target_check((tables->slots[module][i] != untouched) == is_ours,
				     is_ours ? "a slot was left empty"
					     : "a slot too many was filled");
			target_check(tables->slots[module][i] != NULL, "a slot was emptied");
		}
	}
}

static void log_mark(struct log *log, const char *op, uint64_t id, const char *domain,
		     const char *message)
{
	log_begin(log, op, id);
	log_string(log, domain);
	if (strcmp(op, "range_end") != 0)
		log_string(log, message);
	log_end(log);
}

typedef void mark_function(const char *, aclrtStream);
typedef mstxRangeId start_function(const char *, aclrtStream);
typedef void end_function(mstxRangeId);
typedef void id_function(uint64_t *);
typedef mstxDomainHandle_t create_function(const char *);
typedef void destroy_function(mstxDomainHandle_t);
typedef void domain_mark_function(mstxDomainHandle_t, const char *, aclrtStream);
typedef mstxRangeId domain_start_function(mstxDomainHandle_t, const char *, aclrtStream);
typedef void domain_end_function(mstxDomainHandle_t, mstxRangeId);
typedef mstxMemHeapHandle_t heap_function(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
typedef void heap_end_function(mstxDomainHandle_t, mstxMemHeapHandle_t);
typedef void regions_function(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
typedef void regions_end_function(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);

static void use_core(struct log *log, mstxFuncPointer *slots)
{
	mark_function *mark = (mark_function *)slots[1];
	start_function *start = (start_function *)slots[2];
	end_function *end = (end_function *)slots[3];
	id_function *get_id = (id_function *)slots[4];
	uint64_t range, last = 0, id = 0;

	mark("core", no_stream);
	log_mark(log, "mark", 0, NULL, "core");
	mark(NULL, NULL);
	log_mark(log, "mark", 0, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		range = start(i == 1 ? NULL : "range", no_stream);
		log_mark(log, "range_start", range, NULL, i == 1 ? NULL : "range");
		/* The Python module cuts ids, and 0 says that it failed. */
		target_check(range > last && range <= UINT32_MAX, "id of a range");
		last = range;
		end(range);
		log_mark(log, "range_end", range, NULL, NULL);
	}
	if (counts[0] >= 4) {
		get_id(&id);
		target_check(id == MSTX_TOOL_MSLEAKS_ID, "id of the tool");
		get_id(NULL);
	}
}

static mstxDomainHandle_t use_domains(struct log *log, mstxFuncPointer *slots)
{
	create_function *create = (create_function *)slots[1];
	destroy_function *destroy = (destroy_function *)slots[2];
	domain_mark_function *mark = (domain_mark_function *)slots[3];
	domain_start_function *start = (domain_start_function *)slots[4];
	domain_end_function *end = (domain_end_function *)slots[5];
	mstxDomainHandle_t domain = create("mine");
	/* The last one is no handle of the tool's. */
	mstxDomainHandle_t handles[] = {domain, NULL, (mstxDomainHandle_t)(uintptr_t)slots};
	uint64_t range;

	target_check(domain != NULL && create("mine") == domain, "a domain's handle changes");
	target_check(create("ptaCaching") != domain && create(NULL) == NULL, "handles of domains");
	for (unsigned i = 0; i < sizeof(handles) / sizeof(handles[0]); i++) {
		const char *name = handles[i] == domain ? "mine" : NULL;

		mark(handles[i], "domain", no_stream);
		log_mark(log, "mark", 0, name, "domain");
		mark(handles[i], NULL, NULL);
		log_mark(log, "mark", 0, name, NULL);
		range = start(handles[i], "domain range", no_stream);
		target_check(range != 0 && range <= UINT32_MAX, "id of a range");
		log_mark(log, "range_start", range, name, "domain range");
		end(handles[i], range);
		log_mark(log, "range_end", range, name, NULL);
	}
	destroy(domain);
	destroy(NULL);
	target_check(create("mine") == domain, "a domain's handle changes");
	return domain;
}

/* Memory of a domain that is no pool's, and calls that make no sense, are nobody's memory. */
static void use_memory(mstxFuncPointer *slots, mstxDomainHandle_t pool, mstxDomainHandle_t other)
{
	heap_function *heap_register = (heap_function *)slots[1];
	heap_end_function *heap_unregister = (heap_end_function *)slots[2];
	regions_function *regions_register = (regions_function *)slots[3];
	regions_end_function *regions_unregister = (regions_end_function *)slots[4];
	mstxMemVirtualRangeDesc_t range = {0, slots, 4096};
	mstxMemHeapDesc_t heap = {MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR,
				  MSTX_MEM_TYPE_VIRTUAL_ADDRESS, &range};
	mstxMemRegionsRegisterBatch_t batch = {NULL, MSTX_MEM_TYPE_VIRTUAL_ADDRESS, 1, &range,
					       NULL};
	mstxMemRegionRef_t reference = {MSTX_MEM_REGION_REF_TYPE_POINTER, {slots}};
	mstxMemRegionsUnregisterBatch_t ends = {1, &reference};
	mstxDomainHandle_t domains[] = {other, NULL, (mstxDomainHandle_t)(uintptr_t)slots};

	for (unsigned i = 0; i < sizeof(domains) / sizeof(domains[0]); i++) {
		target_check(heap_register(domains[i], &heap) == NULL, "a heap of no pool");
		regions_register(domains[i], &batch);
		regions_unregister(domains[i], &ends);
		heap_unregister(domains[i], NULL);
	}
	(void)heap_register(pool, NULL);
	regions_register(pool, NULL);
	regions_unregister(pool, NULL);
	heap_unregister(pool, NULL);
	batch.regionDescArray = NULL;
	regions_register(pool, &batch);
	ends.refArray = NULL;
	regions_unregister(pool, &ends);
}

static void *work(void *argument)
{
	mstxInitInjectionFunc init;
	struct log *log = log_new();
	mstxDomainHandle_t mine;

	current = argument;
	*(void **)&init = dlsym(RTLD_DEFAULT, "InitInjectionMstx");
	if (init == NULL)
		exit(77);
	prepare(current);
	target_check(init(get_table) == MSTX_SUCCESS, "the tool refuses");
	check_slots(current);
	/* A second time changes nothing. */
	target_check(init(get_table) == MSTX_SUCCESS, "the tool refuses");
	check_slots(current);
	use_core(log, current->slots[0]);
	if (counts[1] > 0) {
		mine = use_domains(log, current->slots[1]);
		use_memory(current->slots[2],
			   ((create_function *)current->slots[1][1])("ptaCaching"), mine);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned threads_count = option_number(argc, argv, "--threads", 1);
	struct tables *tables = calloc(threads_count, sizeof(*tables));

	for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]) && argc > 1; i++) {
		if (strcmp(generations[i].name, argv[1]) == 0)
			counts = generations[i].counts;
	}
	target_check(counts != NULL && tables != NULL, "which generation?");
	for (unsigned i = 0; i < threads_count; i++)
		target_check(pthread_create(&tables[i].thread, NULL, work, &tables[i]) == 0,
			     "pthread_create failed");
	for (unsigned i = 0; i < threads_count; i++)
		pthread_join(tables[i].thread, NULL);
	log_write("tables", true);
	return 0;
}
