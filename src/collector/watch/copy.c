/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/watch/copy.h"

#include <errno.h>
#include <stdatomic.h>

#include "collector/loader/lookup.h"
#include "trace/context.h"

#define ACL_DEVICE_TO_HOST 2
#define CAPTURE_NONE	   0 /* in both runtimes */

enum copy_function {
	COPY_SYNC_STREAM,
	COPY_SYNC_DEVICE,
	COPY_CAPTURING,
	COPY_MEMCPY,
	COPY_FUNCTIONS
};

struct runtime {
	const char *names[COPY_FUNCTIONS];
	_Atomic(void *) functions[COPY_FUNCTIONS];
};

static struct runtime acl = {.names = {"aclrtSynchronizeStream", "aclrtSynchronizeDevice",
				       "aclmdlRICaptureGetInfo", "aclrtMemcpy"}};
static struct runtime cuda = {.names = {"cuStreamSynchronize", "cuCtxSynchronize",
					"cuStreamIsCapturing", "cuMemcpyDtoH_v2"}};

static struct runtime *runtime_of(uint8_t vendor)
{
	return vendor == VENDOR_CUDA ? &cuda : &acl;
}

static void *function_of(struct runtime *runtime, enum copy_function which)
{
	void *function = atomic_load_explicit(&runtime->functions[which], memory_order_acquire);

	if (function == NULL) {
		function = lookup_symbol(runtime->names[which]);
		atomic_store_explicit(&runtime->functions[which], function, memory_order_release);
	}
	return function;
}

void copy_reset(void)
{
	uint32_t i;

	for (i = 0; i < COPY_FUNCTIONS; i++) {
		atomic_store(&acl.functions[i], NULL);
		atomic_store(&cuda.functions[i], NULL);
	}
}

/*
 * A runtime too old to know captures has none. CUDA answers the question about the default stream with an error while another
 * stream is captured, and to wait for the device then would spoil the capture.
 */
static bool is_capturing(uint8_t vendor, void *stream)
{
	void *function = function_of(runtime_of(vendor), COPY_CAPTURING);
	int status = CAPTURE_NONE, r;
	void *model = NULL;

	if (function == NULL)
		return false;
	if (vendor == VENDOR_CUDA)
		return ((int (*)(void *, int *))function)(stream, &status) != 0 ||
		       status != CAPTURE_NONE;
	r = ((int (*)(void *, int *, void **))function)(stream, &status, &model);
	return r == 0 && status != CAPTURE_NONE;
}

int copy_settle(uint8_t vendor, void *stream, bool has_stream)
{
	void *function =
		function_of(runtime_of(vendor), has_stream ? COPY_SYNC_STREAM : COPY_SYNC_DEVICE);
	int r;

	if (function == NULL)
		return -ENOSYS;
	if (is_capturing(vendor, has_stream ? stream : NULL))
		return -EBUSY;
	r = has_stream ? ((int (*)(void *))function)(stream) : ((int (*)(void))function)();
	return r == 0 ? 0 : -EIO;
}

int copy_from_device(uint8_t vendor, void *out, uint64_t address, size_t bytes)
{
	void *function = function_of(runtime_of(vendor), COPY_MEMCPY);
	int r;

	if (function == NULL)
		return -ENOSYS;
	if (vendor == VENDOR_CUDA)
		r = ((int (*)(void *, uint64_t, size_t))function)(out, address, bytes);
	else
		r = ((int (*)(void *, size_t, const void *, size_t, int))function)(
			out, bytes, (const void *)(uintptr_t)address, bytes, ACL_DEVICE_TO_HOST);
	return r == 0 ? 0 : -EIO;
}
