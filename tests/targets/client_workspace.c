/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client_workspace [--threads=N] [--rounds=N] [--streams=N] [--nested] [--old-loader]: scratch memory for operators as
 * torch_npu's workspace allocator keeps it. Each stream has one block, which only grows, in steps of 2 MiB; a larger one
 * replaces it. A thread has a device of its own, as torch_npu has one thread per device that runs operators.
 *
 * The heap is set to all it has reserved when a block comes or goes. The region that it registers for each operator has the
 * address of the block and the size of everything handed out now, and the same address comes again and again. --nested asks a
 * second time before the first is given back: the second unregistration is then of an address that is no longer known.
 */
#include "client.h"

#define MSTX_NO_IMPL
#include "mstx/ms_tools_ext.h"

#define ROUND	    (2 * MIB)
#define PADDING	    32
#define STREAMS_MAX 16

struct workspace {
	struct segment segment; /* size 0: none yet */
};

/* All of one device. Used by one thread. */
struct device {
	pthread_t thread;
	unsigned number;
	struct log *log;
	uint64_t reserved;
	uint64_t allocated;
	uint64_t last_size; /* what the next free takes from `allocated` */
	struct workspace *last;
	struct workspace streams[STREAMS_MAX];
	/* What a tool should have by its rules: the last region, and the bytes in use. */
	uint64_t region_id;
	uint64_t region_size;
	uint64_t used;
};

static struct {
	mstxDomainHandle_t (*domain_create)(const char *);
	mstxMemHeapHandle_t (*heap_register)(mstxDomainHandle_t, const mstxMemHeapDesc_t *);
	void (*regions_register)(mstxDomainHandle_t, const mstxMemRegionsRegisterBatch_t *);
	void (*regions_unregister)(mstxDomainHandle_t, const mstxMemRegionsUnregisterBatch_t *);
} mstx;

static unsigned rounds_count;
static unsigned streams_count;
static bool is_nested;
static bool is_reporting;

static void *find_function(const char *name, bool is_new_loader)
{
	const char *preload = getenv("LD_PRELOAD");
	void *function = NULL;
	void *library;

	if (is_new_loader && preload != NULL && *preload != 0)
		function = dlsym(RTLD_DEFAULT, name);
	if (function == NULL) {
		library = dlopen("libms_tools_ext.so", RTLD_LAZY);
		function = library != NULL ? dlsym(library, name) : NULL;
	}
	return function;
}
