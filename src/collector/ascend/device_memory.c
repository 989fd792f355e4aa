/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for watch: waiting for a device and copying from it, by the runtime that the program has loaded. Called outside
 * the record path: these functions are foreign code and may call our hooks.
 */
#include "collector/ascend/ascend.h"

#include <errno.h>

#define ACL_DEVICE_TO_HOST 2
#define CAPTURE_NONE	   0

static struct lookup_function sync_stream = {.name = "aclrtSynchronizeStream"};
static struct lookup_function sync_device = {.name = "aclrtSynchronizeDevice"};
static struct lookup_function capturing = {.name = "aclmdlRICaptureGetInfo"};
static struct lookup_function copy_to_host = {.name = "aclrtMemcpy"};

/* A runtime too old to know captures has none. */
static bool is_capturing(void *stream)
{
	int (*ask)(void *, int *, void **) =
		(int (*)(void *, int *, void **))lookup_function(&capturing);
	int status = CAPTURE_NONE;
	void *model = NULL;

	return ask != NULL && ask(stream, &status, &model) == 0 && status != CAPTURE_NONE;
}

int device_memory_wait(void *stream, bool has_stream)
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

int64_t device_memory_copy(void *out, uint64_t address, size_t bytes)
{
	int (*function)(void *, size_t, const void *, size_t, int) =
		(int (*)(void *, size_t, const void *, size_t, int))lookup_function(&copy_to_host);
	int r;

	if (function == NULL)
		return -ENOSYS;
	r = function(out, bytes, (const void *)(uintptr_t)address, bytes, ACL_DEVICE_TO_HOST);
	return r == 0 ? (int64_t)bytes : -EIO;
}

void device_memory_reset(void)
{
	lookup_forget(&sync_stream);
	lookup_forget(&sync_device);
	lookup_forget(&capturing);
	lookup_forget(&copy_to_host);
}
