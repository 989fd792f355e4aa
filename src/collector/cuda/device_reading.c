/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watched memory of a GPU, read beside the program: on a stream of our own that waits for no other stream and that none waits for,
 * through pinned memory of 1 MiB, and checksums of large blocks by a kernel of our own (sums_kernel.h). So a context has that much
 * of ours, made at the first dump, and it ends with the context. CUPTI's callbacks of these calls are not recorded.
 *
 * The thread's capture mode is relaxed meanwhile: what we call is then allowed while somebody else captures a graph, and does not
 * break it. A stream that is itself captured is never touched (runtime_wait()).
 *
 * A copy of memory that is not there is refused by the driver. A kernel that reads it would end the program's context, so the whole
 * block is asked for first. Whatever is missing here, the plain copy of cuda.c does it.
 */
#include "collector/cuda/cuda.h"

#include <errno.h>
#include <string.h>

#include "collector/cuda/sums_kernel.h"
#include "collector/lock.h"
#include "collector/process/process.h"
#include "collector/sys.h"
#include "collector/watch/checksum.h"

#define CONTEXTS	   16u
#define BUFFER_BYTES	   (1u << 20)
#define SUMS_AT_A_TIME	   (BUFFER_BYTES / 8u / 4u) /* 128 MiB */
#define THREADS		   256u
#define GRANULE		   (UINT64_C(2) << 20) /* the least that can be mapped */
#define WAIT_NS		   UINT64_C(1000000000)
#define CAPTURE_RELAXED	   2
#define STREAM_NONBLOCKING 1u
#define HOST_MAPPED	   2u
#define MEMORY_DEVICE	   2u

/* CUpointer_attribute. */
enum {
	POINTER_CONTEXT = 1,
	POINTER_TYPE = 2,
	POINTER_MANAGED = 8,
	POINTER_DEVICE = 9,
	POINTER_IPC = 10, /* memory of cuMemAlloc: all of it is there */
	POINTER_START = 11,
	POINTER_SIZE = 12,
	POINTER_MAPPED = 13,
};

/* The functions of the driver; all of them, or none is used. */
static struct functions {
	int (*context_get)(void **out);
	int (*context_number)(void *context, uint64_t *out); /* never used again; of CUDA 12 */
	int (*context_device)(int *out);
	int (*context_push)(void *context);
	int (*context_pop)(void **out);
	int (*primary_state)(int device, unsigned int *flags, int *active);
	int (*primary_retain)(void **out, int device);
	int (*primary_release)(int device);
	int (*capture_mode)(int *mode);
	int (*attribute)(void *out, int attribute, uint64_t address);
	int (*stream_create)(void **out, unsigned int flags);
	int (*stream_wait)(void *stream);
	int (*host_alloc)(void **out, size_t bytes, unsigned int flags);
	int (*copy)(void *out, uint64_t address, size_t bytes, void *stream);
	int (*module_load)(void **out, const void *image);
	int (*module_function)(void **out, void *module, const char *name);
	int (*launch)(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		      unsigned int block_x, unsigned int block_y, unsigned int block_z,
		      unsigned int shared, void *stream, void **arguments, void **extra);
} driver;

static const char *const names[] = {
	"cuCtxGetCurrent",
	"cuCtxGetId",
	"cuCtxGetDevice",
	"cuCtxPushCurrent_v2",
	"cuCtxPopCurrent_v2",
	"cuDevicePrimaryCtxGetState",
	"cuDevicePrimaryCtxRetain",
	"cuDevicePrimaryCtxRelease_v2",
	"cuThreadExchangeStreamCaptureMode",
	"cuPointerGetAttribute",
	"cuStreamCreate",
	"cuStreamSynchronize",
	"cuMemHostAlloc",
	"cuMemcpyDtoHAsync_v2",
	"cuModuleLoadData",
	"cuModuleGetFunction",
	"cuLaunchKernel",
};

_Static_assert(sizeof(driver) == MSCOPE_COUNT(names) * sizeof(void *), "a name for each function");

/* What we have in one context. */
struct own {
	uint64_t number; /* of the context, 0: free */
	void *stream;
	uint8_t *buffer;
	void *kernel;
	bool kernel_tried;
};

/* One visit to a context. */
struct visit {
	struct own *own;
	void *context;
	int pushed; /* device whose primary context was made current, -1: none */
	int mode;
};

static struct lock lock = {.foreign = true}; /* guards what follows */
static struct own owned[CONTEXTS];
static uint32_t next_taken; /* when there are too many contexts */
static bool found, missing;

/* What is noted once. */
enum { NOTED_STREAM = 1, NOTED_KERNEL = 2, NOTED_REFUSED = 4 };
static uint32_t noted;
static bool note_waits; /* until the lock is given back */

static _Atomic uint32_t visitor; /* thread in our own calls, 0: none */

bool reading_is_own(void)
{
	uint32_t thread = atomic_load_explicit(&visitor, memory_order_relaxed);

	return MSCOPE_UNLIKELY(thread != 0) && thread == sys_gettid();
}

bool reading_is_own_kernel(const char *name)
{
	return strcmp(name, SUMS_KERNEL_NAME) == 0;
}

static void note(uint32_t which, const char *text)
{
	if (noted & which)
		return;
	noted |= which;
	note_waits = true;
	collector_note("%s", text);
}

static bool find_functions(void)
{
	void *all[MSCOPE_COUNT(names)];
	size_t i;

	if (found || missing)
		return found;
	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		all[i] = lookup_symbol(names[i]);
		missing = missing || all[i] == NULL;
	}
	if (!missing)
		memcpy(&driver, all, sizeof(driver));
	found = !missing;
	return found;
}

/* A stream and a buffer in the present context, made if it has none of ours. NULL: the driver refused. */
static struct own *own_of(void *context)
{
	struct own *own = NULL;
	uint64_t number = 0;
	uint32_t i;

	if (driver.context_number(context, &number) != 0 || number == 0)
		return NULL;
	for (i = 0; i < CONTEXTS && owned[i].number != number; i++) {
		if (own == NULL && owned[i].number == 0)
			own = &owned[i];
	}
	if (i < CONTEXTS)
		return owned[i].buffer == NULL ? NULL : &owned[i];
	/* What ours was in a context that is gone went with it. */
	if (own == NULL)
		own = &owned[next_taken++ % CONTEXTS];
	*own = (struct own){.number = number};
	if (driver.stream_create(&own->stream, STREAM_NONBLOCKING) != 0 ||
	    driver.host_alloc((void **)&own->buffer, BUFFER_BYTES, HOST_MAPPED) != 0) {
		own->buffer = NULL; /* not tried again */
		return NULL;
	}
	note(NOTED_STREAM,
	     "watch: msmemscope uses a stream and 1 MiB of pinned host memory in the program's CUDA context");
	return own;
}

/* The context of the device that has the memory: the present one, or that device's primary one where the program uses it. */
static bool context_enter(struct visit *visit, uint64_t address)
{
	int wanted = -1, now = -1, active = 0;
	unsigned int flags = 0;

	visit->pushed = -1;
	if (driver.attribute(&wanted, POINTER_DEVICE, address) != 0 || wanted < 0)
		return false;
	if (driver.context_get(&visit->context) == 0 && visit->context != NULL &&
	    driver.context_device(&now) == 0 && now == wanted)
		return true;
	if (driver.primary_state(wanted, &flags, &active) != 0 || !active ||
	    driver.primary_retain(&visit->context, wanted) != 0)
		return false;
	if (driver.context_push(visit->context) != 0) {
		(void)driver.primary_release(wanted);
		return false;
	}
	visit->pushed = wanted;
	return true;
}

static void leave(struct visit *visit)
{
	bool waits = note_waits;
	void *context;

	note_waits = false;

	if (visit->pushed >= 0) {
		(void)driver.context_pop(&context);
		(void)driver.primary_release(visit->pushed);
	}
	(void)driver.capture_mode(&visit->mode);
	atomic_store_explicit(&visitor, 0, memory_order_relaxed);
	lock_release(&lock);
	if (waits)
		collector_write_notes();
}

/* True: leave() must follow. */
static bool enter(struct visit *visit, uint64_t address)
{
	if (!lock_take_within(&lock, WAIT_NS))
		return false;
	if (!find_functions()) {
		lock_release(&lock);
		return false;
	}
	atomic_store_explicit(&visitor, sys_gettid(), memory_order_relaxed);
	visit->mode = CAPTURE_RELAXED;
	if (driver.capture_mode(&visit->mode) != 0) {
		atomic_store_explicit(&visitor, 0, memory_order_relaxed);
		lock_release(&lock);
		return false;
	}
	visit->own = context_enter(visit, address) ? own_of(visit->context) : NULL;
	if (visit->own == NULL)
		leave(visit);
	return visit->own != NULL;
}

int64_t reading_copy(uint8_t *out, uint64_t address, size_t bytes)
{
	struct visit visit;
	size_t at = 0;

	if (!enter(&visit, address))
		return -ENOSYS;
	while (at < bytes) {
		size_t piece = bytes - at < BUFFER_BYTES ? bytes - at : BUFFER_BYTES;

		if (driver.copy(visit.own->buffer, address + at, piece, visit.own->stream) != 0 ||
		    driver.stream_wait(visit.own->stream) != 0)
			break;
		memcpy(out + at, visit.own->buffer, piece);
		at += piece;
	}
	leave(&visit);
	return at == 0 ? -EIO : (int64_t)at;
}

/* ---- checksums by the device ---- */

static void make_kernel(struct own *own)
{
	void *module = NULL;

	if (own->kernel_tried)
		return;
	own->kernel_tried = true;
	if (driver.module_load(&module, sums_kernel) == 0 &&
	    driver.module_function(&own->kernel, module, SUMS_KERNEL_NAME) != 0)
		own->kernel = NULL;
	if (own->kernel == NULL)
		note(NOTED_REFUSED,
		     "watch: the driver refuses the checksum kernel; whole blocks are copied");
}

/* Whether a kernel in this context may read all of it. */
static bool is_whole(uint64_t address, uint64_t bytes, const void *context)
{
	uint64_t at = address, end = address + bytes;
	uint64_t managed = 0; /* the driver writes a truth value of one byte or of four */
	uint32_t type = 0;

	if (driver.attribute(&type, POINTER_TYPE, address) != 0 || type != MEMORY_DEVICE ||
	    driver.attribute(&managed, POINTER_MANAGED, address) != 0 || managed != 0)
		return false;
	while (at < end) {
		uint64_t start = 0, size = 0, legacy = 0, mapped = 0;
		void *of = NULL;

		if (driver.attribute(&legacy, POINTER_IPC, at) == 0 && legacy != 0) {
			if (driver.attribute(&of, POINTER_CONTEXT, at) != 0 || of != context ||
			    driver.attribute(&start, POINTER_START, at) != 0 ||
			    driver.attribute(&size, POINTER_SIZE, at) != 0 || start + size <= at)
				return false;
			at = start + size;
		} else {
			/* Mapped by pieces, or of a pool of the driver: every context of the device may read it. */
			if (driver.attribute(&mapped, POINTER_MAPPED, at) != 0 || mapped == 0)
				return false;
			at = (at | (GRANULE - 1)) + 1;
		}
	}
	return true;
}

static int sum_some(const struct own *own, uint64_t address, uint64_t bytes, uint64_t *out)
{
	uint64_t chunk = CHECKSUM_CHUNK, result = (uint64_t)(uintptr_t)own->buffer;
	uint32_t count = (uint32_t)((bytes + CHECKSUM_CHUNK - 1) / CHECKSUM_CHUNK);
	void *arguments[] = {&address, &bytes, &chunk, &result};

	if (driver.launch(own->kernel, (count + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0,
			  own->stream, arguments, NULL) != 0 ||
	    driver.stream_wait(own->stream) != 0)
		return -EIO;
	memcpy(out, own->buffer, count * sizeof(*out));
	return 0;
}

int reading_sums(uint64_t address, uint64_t bytes, uint64_t *out)
{
	struct visit visit;
	uint64_t at;
	int r = -ENOSYS;

	if (!enter(&visit, address))
		return -ENOSYS;
	make_kernel(visit.own);
	if (visit.own->kernel != NULL && is_whole(address, bytes, visit.context)) {
		for (at = 0, r = 0; at < bytes && r == 0; at += SUMS_AT_A_TIME * CHECKSUM_CHUNK) {
			uint64_t left = bytes - at;
			uint64_t most = (uint64_t)SUMS_AT_A_TIME * CHECKSUM_CHUNK;

			r = sum_some(visit.own, address + at, left < most ? left : most,
				     out + at / CHECKSUM_CHUNK);
		}
	}
	if (r == 0)
		note(NOTED_KERNEL, "watch: checksums of large blocks are computed on the GPU");
	/* Not asked again: the copy that follows says whether the device still answers. */
	if (r == -EIO)
		visit.own->kernel = NULL;
	leave(&visit);
	return r;
}

void reading_reset(void)
{
	memset(owned, 0, sizeof(owned));
	found = missing = false;
	noted = 0;
	atomic_store(&visitor, 0);
}
