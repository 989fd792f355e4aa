/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching, for the Python package: blocks by address, and operators of frameworks that Python code sees. The functions that may
 * dump wait for the device, so they are called without the interpreter's lock.
 */
#include <errno.h>
#include <stdio.h>

#include "collector/api.h"
#include "collector/ascend/ascend.h"
#include "collector/copy.h"
#include "collector/watch_dump.h"

#define STREAM_UNKNOWN UINT64_MAX

/* Frameworks count devices as the program sees them. */
static uint32_t device_number(uint32_t device, uint32_t vendor)
{
	return vendor == VENDOR_ASCEND && device < DEVICE_HOST ? ascend_physical_device(device)
							       : device;
}

MSCOPE_EXPORT uint32_t mscope_watch_active(void)
{
	return watch_is_active();
}

MSCOPE_EXPORT uint32_t mscope_watch_wants(const char *name)
{
	return watch_wants_outputs(&collector_watch, name, NULL);
}

MSCOPE_EXPORT int mscope_watch_add(uint64_t address, uint64_t bytes, const char *name,
				   int64_t limit, uint32_t device, uint32_t vendor, uint32_t sure)
{
	struct watch_range range = {.address = address,
				    .bytes = bytes,
				    .device = device_number(device, vendor),
				    .vendor = (uint8_t)vendor,
				    .from_api = true};
	uint32_t recording = mscope_recording();
	char byte;

	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return -ENODEV;
	if (name == NULL || bytes == 0 || address + bytes < address)
		return -EINVAL;
	(void)snprintf(range.name, sizeof(range.name), "%s", name);
	if (!sure && copy_from_host(&byte, address, 1) == 1)
		range.device = DEVICE_HOST;
	if (range.device == DEVICE_HOST)
		range.vendor = VENDOR_CPU;
	return watch_add(&collector_watch, &range, limit < 0 ? WATCH_UNLIMITED : limit);
}

MSCOPE_EXPORT int mscope_watch_remove(uint64_t address, uint64_t bytes)
{
	return watch_remove(&collector_watch, address, bytes);
}

static struct watch_call call_of(const char *name, uint32_t device, uint32_t vendor,
				 uint64_t stream)
{
	return (struct watch_call){.level = SESSION_LEVEL_OP,
				   .name = name,
				   .device = device_number(device, vendor),
				   .vendor = (uint8_t)vendor,
				   .has_stream = stream != STREAM_UNKNOWN,
				   .stream = (void *)(uintptr_t)stream};
}

MSCOPE_EXPORT uint64_t mscope_watch_op_begin(const char *name, uint32_t device, uint32_t vendor,
					     uint64_t stream)
{
	struct watch_call call;

	if (!watch_is_active())
		return 0;
	call = call_of(name, device, vendor, stream);
	return watch_begin(&call);
}

MSCOPE_EXPORT void mscope_watch_op_end(uint64_t number, const char *name, uint32_t device,
				       uint32_t vendor, uint64_t stream, const uint64_t *addresses,
				       const uint64_t *sizes, uint32_t count)
{
	struct watch_output outputs[64];
	struct watch_call call;
	uint32_t i;

	if (!watch_is_active())
		return;
	call = call_of(name, device, vendor, stream);
	call.number = number;
	call.outputs = outputs;
	for (i = 0; i < count && i < MSCOPE_COUNT(outputs); i++)
		outputs[i] = (struct watch_output){addresses[i], sizes[i]};
	call.output_count = i;
	watch_end(&call);
}
