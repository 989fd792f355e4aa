/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA, as far as watch needs it: waiting for a device and copying its memory, by the driver that the program has loaded. Memory
 * itself is reported by PyTorch (torch/c10.c).
 */
#include <errno.h>

#include "collector/loader/lookup.h"
#include "collector/vendor.h"

#define CAPTURE_NONE 0

static struct lookup_function sync_stream = {.name = "cuStreamSynchronize"};
static struct lookup_function sync_device = {.name = "cuCtxSynchronize"};
static struct lookup_function capturing = {.name = "cuStreamIsCapturing"};
static struct lookup_function copy_to_host = {.name = "cuMemcpyDtoH_v2"};

/*
 * A driver too old to know captures has none. While another stream is captured, the driver answers the question about the default
 * stream with an error; to wait for the device then would break the capture.
 */
static bool is_capturing(void *stream)
{
	int (*ask)(void *, int *) = (int (*)(void *, int *))lookup_function(&capturing);
	int status = CAPTURE_NONE;

	return ask != NULL && (ask(stream, &status) != 0 || status != CAPTURE_NONE);
}

static int wait_for(void *stream, bool has_stream)
{
	void *function = lookup_function(has_stream ? &sync_stream : &sync_device);
	int r;

	if (function == NULL)
		return -ENOSYS;
	if (is_capturing(has_stream ? stream : NULL))
		return -EBUSY;
	r = has_stream ? ((int (*)(void *))function)(stream) : ((int (*)(void))function)();
	return r == 0 ? 0 : -EIO;
}

static int64_t copy(void *out, uint64_t address, size_t bytes)
{
	int (*function)(void *, uint64_t, size_t) =
		(int (*)(void *, uint64_t, size_t))lookup_function(&copy_to_host);

	if (function == NULL)
		return -ENOSYS;
	return function(out, address, bytes) == 0 ? (int64_t)bytes : -EIO;
}

/* The driver of a child may be loaded elsewhere. */
static void reset(void)
{
	lookup_forget(&sync_stream);
	lookup_forget(&sync_device);
	lookup_forget(&capturing);
	lookup_forget(&copy_to_host);
}

const struct vendor_ops cuda_vendor = {
	.reset = reset,
	.wait = wait_for,
	.copy = copy,
};
