/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory for watch: waiting for a device and copying from it, by the runtime that the program has loaded. And how much of
 * it is left, by the driver alone.
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

#define LOCATION_DEVICE 1

/* What aclrtPointerGetAttributes() fills. Some runtimes tell more in the same room. */
struct pointer_attributes {
	uint32_t device;
	uint32_t type;
	uint32_t room[14];
};

static struct lookup_function attributes = {.name = "aclrtPointerGetAttributes"};

uint32_t device_memory_owner(uint64_t address)
{
	int (*function)(const void *, struct pointer_attributes *) =
		(int (*)(const void *, struct pointer_attributes *))lookup_function(&attributes);
	struct pointer_attributes found = {0};

	if (function == NULL || function((const void *)(uintptr_t)address, &found) != 0 ||
	    found.type != LOCATION_DEVICE)
		return DEVICE_UNKNOWN;
	return found.device;
}

#define MEM_INFO_TYPE_HBM_SIZE 2

/* What halMemGetInfo() fills: pages of each size have figures of their own. Some drivers tell more in the same room. */
struct memory_info {
	uint64_t total, free;
	uint64_t huge_total, huge_free;
	uint64_t giant_total, giant_free;
	uint64_t room[58];
};

static struct lookup_function memory_info = {.name = "halMemGetInfo"};

bool device_memory_left(uint32_t device, uint64_t *out_free, uint64_t *out_total)
{
	int (*function)(uint32_t, unsigned, struct memory_info *) =
		(int (*)(uint32_t, unsigned, struct memory_info *))lookup_function(&memory_info);
	struct memory_info info = {0};

	/* Pinned memory of the host is none of the device's. */
	if (device >= DEVICE_HOST || function == NULL ||
	    function(device, MEM_INFO_TYPE_HBM_SIZE, &info) != 0)
		return false;
	*out_free = info.free + info.huge_free + info.giant_free;
	*out_total = info.total + info.huge_total + info.giant_total;
	return *out_total != 0;
}

void device_memory_reset(void)
{
	lookup_forget(&attributes);
	lookup_forget(&memory_info);
	runtime_reset(&acl);
}
