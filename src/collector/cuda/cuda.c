/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA as a vendor: which device is meant; for watch, waiting for a device and copying its memory, by the driver that the program has
 * loaded; and how much memory is left. Memory is reported by PyTorch (torch/c10.c) and by the driver (driver_calls.c).
 */
#include "collector/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>

#include "collector/watch/runtime.h"

#define CAPTURE_NONE 0

/*
 * A driver too old to know captures has none. While another stream is captured, the driver answers the question about the default
 * stream with an error; to wait for the device then would break the capture.
 */
static bool is_capturing(struct runtime *runtime, void *stream)
{
	int (*ask)(void *, int *) = (int (*)(void *, int *))lookup_function(&runtime->capturing);
	int status = CAPTURE_NONE;

	return ask != NULL && (ask(stream, &status) != 0 || status != CAPTURE_NONE);
}

#define VISIBLE_MAX 64u

/* Numbers of the machine by those of the program, from the environment; read once. */
static uint32_t visible[VISIBLE_MAX];
static uint32_t visible_count;
static _Atomic uint32_t visible_read;

/*
 * As the driver reads it: the first item that is no number ends the list. Devices named otherwise (GPU-..., MIG-...) keep the number
 * that the program has for them.
 */
static uint32_t read_visible(void)
{
	const char *at = getenv("CUDA_VISIBLE_DEVICES");
	uint32_t count = 0;

	while (at != NULL && count < VISIBLE_MAX) {
		char *end;
		unsigned long value;

		while (*at == ' ')
			at++;
		if (*at < '0' || *at > '9')
			break;
		value = strtoul(at, &end, 10);
		while (*end == ' ')
			end++;
		if (value > 1023 || (*end != ',' && *end != '\0'))
			break;
		visible[count++] = (uint32_t)value;
		at = *end == ',' ? end + 1 : NULL;
	}
	return count;
}

uint32_t cuda_physical_device(uint32_t logical)
{
	/* Threads that come at the same time read and store the same. */
	if (atomic_load_explicit(&visible_read, memory_order_acquire) == 0) {
		visible_count = read_visible();
		atomic_store_explicit(&visible_read, 1, memory_order_release);
	}
	return logical < visible_count ? visible[logical] : logical;
}

static struct runtime cuda = {
	.sync_stream.name = "cuStreamSynchronize",
	.sync_device.name = "cuCtxSynchronize",
	.capturing.name = "cuStreamIsCapturing",
	.copy.name = "cuMemcpyDtoH_v2",
	.is_capturing = is_capturing,
};

static int wait_for(void *stream, bool has_stream)
{
	return runtime_wait(&cuda, stream, has_stream);
}

static int64_t copy(void *out, uint64_t address, size_t bytes)
{
	int (*function)(void *, uint64_t, size_t) =
		(int (*)(void *, uint64_t, size_t))lookup_function(&cuda.copy);

	if (function == NULL)
		return -ENOSYS;
	return function(out, address, bytes) == 0 ? (int64_t)bytes : -EIO;
}

#define POINTER_MEMORY_TYPE    2
#define POINTER_DEVICE_ORDINAL 9
#define MEMORY_TYPE_DEVICE     2u

static struct lookup_function pointer_attribute = {.name = "cuPointerGetAttribute"};

static uint32_t device_of(uint64_t address)
{
	int (*ask)(void *, int, uint64_t) =
		(int (*)(void *, int, uint64_t))lookup_function(&pointer_attribute);
	uint32_t type = 0;
	int device = -1;

	if (ask == NULL || ask(&type, POINTER_MEMORY_TYPE, address) != 0 ||
	    type != MEMORY_TYPE_DEVICE || ask(&device, POINTER_DEVICE_ORDINAL, address) != 0 ||
	    device < 0)
		return DEVICE_UNKNOWN;
	return (uint32_t)device;
}

static struct lookup_function memory_info = {.name = "cuMemGetInfo_v2"};
static struct lookup_function context_device = {.name = "cuCtxGetDevice"};
static struct lookup_function device_count = {.name = "cuDeviceGetCount"};

static uint32_t count(void)
{
	int (*function)(int *) = (int (*)(int *))lookup_function(&device_count);
	int devices = 0;

	return function != NULL && function(&devices) == 0 && devices > 0 ? (uint32_t)devices : 0;
}

uint32_t cuda_device_here(void)
{
	int (*ask)(int *) = (int (*)(int *))lookup_function(&context_device);
	int device = -1;

	return ask != NULL && ask(&device) == 0 && device >= 0 ? (uint32_t)device : DEVICE_UNKNOWN;
}

/* Of the context that the thread has: PyTorch sets it to the device that it allocates on. A context elsewhere would take memory. */
static bool memory(uint32_t device, uint64_t *out_free, uint64_t *out_total)
{
	int (*function)(size_t *, size_t *) =
		(int (*)(size_t *, size_t *))lookup_function(&memory_info);
	size_t left = 0, total = 0;
	uint32_t here = cuda_device_here();

	if (function == NULL || here == DEVICE_UNKNOWN || cuda_physical_device(here) != device ||
	    function(&left, &total) != 0)
		return false;
	*out_free = left;
	*out_total = total;
	return true;
}

static void collect(void)
{
	activity_flush(atomic_load(&collector.ended) != 0);
}

static void reset(void)
{
	lookup_forget(&pointer_attribute);
	lookup_forget(&memory_info);
	lookup_forget(&context_device);
	lookup_forget(&device_count);
	atomic_store(&visible_read, 0);
	cupti_reset();
	pools_reset();
	physical_reset();
	runtime_reset(&cuda);
}

const struct vendor_ops cuda_vendor = {
	.driver = "cuInit",
	.physical_device = cuda_physical_device,
	.count = count,
	.reset = reset,
	.collect = collect,
	.wait = wait_for,
	.device_of = device_of,
	.copy = copy,
	.memory = memory,
};
