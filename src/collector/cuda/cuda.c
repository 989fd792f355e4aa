/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA as a vendor: which device is meant; for watch, waiting for a device and copying its memory, by the driver that the program has
 * loaded; and how much memory is left. Memory is reported by PyTorch (torch/c10.c) and by the driver (driver_calls.c).
 */
#include "collector/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collector/watch/runtime.h"

#define CAPTURE_NONE	     0
#define CAPTURE_MODE_RELAXED 2

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
 * As the driver reads it: the first item that begins with no number ends the list. If devices are named otherwise (GPU-..., MIG-...),
 * all keep the numbers that the program has for them; some of a list would have the numbers of others.
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
		if (strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0)
			return 0;
		if (*at < '0' || *at > '9')
			break;
		value = strtoul(at, &end, 10);
		if (value > 1023)
			break;
		visible[count++] = (uint32_t)value;
		at = strchr(end, ',');
		at = at == NULL ? NULL : at + 1;
	}
	return count;
}

#define CARD_QUESTIONS 1000u /* before the driver answers; then it is not there, or of no use */

static struct lookup_function device_count = {.name = "cuDeviceGetCount"};
static struct lookup_function device_uuid = {.name = "cuDeviceGetUuid_v2"};
/* Before CUDA 11.4; of a part of a GPU (MIG) it names the whole one. */
static struct lookup_function device_uuid_1 = {.name = "cuDeviceGetUuid"};
static _Atomic uint32_t card_questions;

static uint32_t count(void)
{
	int (*function)(int *) = (int (*)(int *))lookup_function(&device_count);
	int devices = 0;

	return function != NULL && function(&devices) == 0 && devices > 0 ? (uint32_t)devices : 0;
}

/*
 * Which cards the process sees, as the driver says: it knows all ways to name and to sort them. Threads that come at the same time
 * write the same.
 */
static MSCOPE_COLD __attribute__((noinline)) void tell_cards_slow(struct trace_cards *cards)
{
	int (*ask)(uint8_t *, int);
	uint32_t devices, i;

	if (atomic_fetch_add(&card_questions, 1) >= CARD_QUESTIONS || (devices = count()) == 0)
		return;
	ask = (int (*)(uint8_t *, int))lookup_function(&device_uuid);
	if (ask == NULL)
		ask = (int (*)(uint8_t *, int))lookup_function(&device_uuid_1);
	for (i = 0; i < devices && i < TRACE_CARDS; i++) {
		uint8_t uuid[16] = {0};

		if (ask == NULL || ask(uuid, (int)i) != 0)
			memset(uuid, 0, sizeof(uuid));
		cards->card[i].device = i < visible_count ? visible[i] : i;
		memcpy(cards->card[i].uuid, uuid, sizeof(uuid));
	}
	/* Pairs with the acquire in engine/cards.c. */
	atomic_store_explicit(&cards->count, i, memory_order_release);
}

uint32_t cuda_physical_device(uint32_t logical)
{
	struct trace_header *header = collector.header;

	/* Threads that come at the same time read and store the same. */
	if (atomic_load_explicit(&visible_read, memory_order_acquire) == 0) {
		visible_count = read_visible();
		atomic_store_explicit(&visible_read, 1, memory_order_release);
	}
	if (header != NULL &&
	    atomic_load_explicit(&header->cards.count, memory_order_relaxed) == 0 &&
	    atomic_load_explicit(&card_questions, memory_order_relaxed) < CARD_QUESTIONS)
		tell_cards_slow(&header->cards);
	return logical < visible_count ? visible[logical] : logical;
}

static struct runtime cuda = {
	.sync_stream.name = "cuStreamSynchronize",
	.sync_device.name = "cuCtxSynchronize",
	.capturing.name = "cuStreamIsCapturing",
	.copy.name = "cuMemcpyDtoH_v2",
	.is_capturing = is_capturing,
};

static struct lookup_function capture_mode = {.name = "cuThreadExchangeStreamCaptureMode"};

/* With the thread's mode relaxed: the stream may be waited for while another one is captured. */
static int wait_for(void *stream, bool has_stream)
{
	int (*exchange)(int *) = (int (*)(int *))lookup_function(&capture_mode);
	int mode = CAPTURE_MODE_RELAXED, r;

	if (exchange != NULL && exchange(&mode) != 0)
		exchange = NULL;
	r = runtime_wait(&cuda, stream, has_stream);
	if (exchange != NULL)
		(void)exchange(&mode);
	return r;
}

static int64_t copy(void *out, uint64_t address, size_t bytes)
{
	int (*function)(void *, uint64_t, size_t) =
		(int (*)(void *, uint64_t, size_t))lookup_function(&cuda.copy);

	int64_t got = reading_copy(out, address, bytes);

	if (got != -ENOSYS || function == NULL)
		return got;
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
	lookup_forget(&device_uuid);
	lookup_forget(&device_uuid_1);
	atomic_store(&card_questions, 0);
	lookup_forget(&capture_mode);
	atomic_store(&visible_read, 0);
	cupti_reset();
	pools_reset();
	physical_reset();
	reading_reset();
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
	.sums = reading_sums,
	.memory = memory,
};
