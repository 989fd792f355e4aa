/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching, for the Python package: blocks by address, and operators of frameworks that Python code sees. The functions that may
 * dump wait for the device, so they are called without the interpreter's lock.
 */
#include <errno.h>
#include <stdio.h>

#include "collector/api.h"
#include "collector/memory.h"
#include "collector/vendor.h"
#include "collector/watch/watch_dump.h"

#define STREAM_UNKNOWN UINT64_MAX
#define PIECE	       128u /* tensors that are handed on at a time */

static uint32_t device_of(uint32_t device, uint8_t *out_vendor)
{
	uint64_t key = vendor_torch_device(device);

	*out_vendor = device_key_vendor(key);
	return (uint32_t)key;
}

MSCOPE_EXPORT uint32_t mscope_watch_active(void)
{
	/* A program that has touched nothing of ours yet does not know its session. */
	return mscope_recording() == RECORDING_ON && watch_is_active();
}

MSCOPE_EXPORT uint32_t mscope_watch_wants(const char *name, const char *alias)
{
	return watch_wants_outputs(&collector_watch, name, alias);
}

MSCOPE_EXPORT int mscope_watch_add(uint64_t address, uint64_t bytes, const char *name,
				   int64_t limit, uint32_t device, uint32_t sure)
{
	struct watch_range range = {.address = address, .bytes = bytes, .from_api = true};
	uint32_t recording = mscope_recording();
	char byte;

	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return -ENODEV;
	if (name == NULL || bytes == 0 || address + bytes < address)
		return -EINVAL;
	range.device = device_of(device, &range.vendor);
	(void)snprintf(range.name, sizeof(range.name), "%s", name);
	if (!sure) {
		/* A driver knows its memory, also where the host can read it. */
		uint64_t key = vendor_of_address(address);

		if (key == DEVICE_KEY_NONE && memory_read(&byte, address, 1) == 1)
			key = device_key(VENDOR_CPU, DEVICE_HOST);
		if (key != DEVICE_KEY_NONE) {
			range.device = (uint32_t)key;
			range.vendor = device_key_vendor(key);
		}
	}
	return watch_add(&collector_watch, &range, limit < 0 ? WATCH_UNLIMITED : limit);
}

MSCOPE_EXPORT int mscope_watch_remove(uint64_t address, uint64_t bytes)
{
	return watch_remove(&collector_watch, address, bytes);
}

MSCOPE_EXPORT void mscope_watch_gone(uint64_t address, uint64_t bytes)
{
	if (bytes > 0)
		watch_freed(POOL_UNKNOWN, address, bytes);
}

static struct watch_call call_of(uint32_t device, const char *name, const char *alias,
				 uint64_t stream)
{
	struct watch_call call = {.level = SESSION_LEVEL_OP,
				  .name = name,
				  .path = alias != NULL && alias[0] != '\0' ? alias : NULL,
				  .has_stream = stream != STREAM_UNKNOWN,
				  .stream = (void *)(uintptr_t)stream};

	call.device = device_of(device, &call.vendor);
	return call;
}

MSCOPE_EXPORT uint64_t mscope_watch_op_begin(uint32_t device, const char *name, const char *alias,
					     uint64_t stream)
{
	struct watch_call call;

	if (!watch_is_active())
		return 0;
	call = call_of(device, name, alias, stream);
	return watch_begin(&call);
}

MSCOPE_EXPORT void mscope_watch_writes(const uint64_t *addresses, const uint64_t *sizes,
				       uint32_t count, uint32_t lasting)
{
	struct watch_output outputs[PIECE];
	uint32_t i, filled = 0;

	if (!watch_is_active())
		return;
	for (i = 0; i < count; i++) {
		outputs[filled++] = (struct watch_output){addresses[i], sizes[i]};
		if (filled == PIECE || i + 1 == count) {
			watch_writes(outputs, filled, lasting != 0);
			filled = 0;
		}
	}
}

MSCOPE_EXPORT void mscope_watch_off(void)
{
	watch_off(&collector_watch);
}

MSCOPE_EXPORT void mscope_watch_op_end(uint64_t number, uint32_t device, const char *name,
				       const char *alias, uint64_t stream,
				       const uint64_t *addresses, const uint64_t *sizes,
				       uint32_t count)
{
	struct watch_output outputs[WATCH_RANGES];
	struct watch_call call;
	uint32_t i;

	if (!watch_is_active())
		return;
	call = call_of(device, name, alias, stream);
	call.number = number;
	call.outputs = outputs;
	for (i = 0; i < count && i < MSCOPE_COUNT(outputs); i++)
		outputs[i] = (struct watch_output){addresses[i], sizes[i]};
	call.output_count = i;
	watch_end(&call);
}
