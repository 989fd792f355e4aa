/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for watch: waiting for a device and copying from it, by the runtime that the program has loaded.
 */
#include "collector/ascend/ascend.h"

#include <errno.h>

#include "collector/watch/runtime.h"

#define ACL_DEVICE_TO_HOST 2
#define CAPTURE_NONE	   0

/* A runtime too old to know captures has none. */
static bool is_capturing(struct runtime *runtime, void *stream)
{
	int (*ask)(void *, int *, void **) =
		(int (*)(void *, int *, void **))lookup_function(&runtime->capturing);
	int status = CAPTURE_NONE;
	void *model = NULL;

	return ask != NULL && ask(stream, &status, &model) == 0 && status != CAPTURE_NONE;
}

static struct runtime acl = {
	.sync_stream.name = "aclrtSynchronizeStream",
	.sync_device.name = "aclrtSynchronizeDevice",
	.capturing.name = "aclmdlRICaptureGetInfo",
	.copy.name = "aclrtMemcpy",
	.is_capturing = is_capturing,
};

int device_memory_wait(void *stream, bool has_stream)
{
	return runtime_wait(&acl, stream, has_stream);
}

int64_t device_memory_copy(void *out, uint64_t address, size_t bytes)
{
	int (*function)(void *, size_t, const void *, size_t, int) =
		(int (*)(void *, size_t, const void *, size_t, int))lookup_function(&acl.copy);
	int r;

	if (function == NULL)
		return -ENOSYS;
	r = function(out, bytes, (const void *)(uintptr_t)address, bytes, ACL_DEVICE_TO_HOST);
	return r == 0 ? (int64_t)bytes : -EIO;
}

void device_memory_reset(void)
{
	runtime_reset(&acl);
}
