/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots that the program asks for: one record for each device, in a window or not. The figures of a framework's pool come from
 * its own counters, by our Python code; what is unknown there the driver is asked for, and replay knows the rest from the blocks.
 */
#include <errno.h>

#include "collector/api.h"
#include "collector/process/process.h"
#include "collector/quiet.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"
#include "trace/settings.h"

MSCOPE_EXPORT uint32_t mscope_devices(uint32_t type)
{
	const struct vendor_ops *ops =
		vendor_ops(device_key_vendor(vendor_torch_device(type << 8)));

	return ops->count == NULL || quiet_is_on() ? 0 : ops->count();
}

/* The driver is asked outside of the record path, as foreign code; not at all where a system call might kill. */
static void ask_driver(uint64_t key, struct event_snapshot *event)
{
	const struct vendor_ops *ops = vendor_ops(device_key_vendor(key));
	uint64_t left, total;

	if (event->total_bytes != UINT64_MAX || ops->memory == NULL || quiet_is_on() ||
	    !ops->memory((uint32_t)key, &left, &total))
		return;
	event->free_bytes = left;
	event->total_bytes = total;
}

static bool is_written(uint64_t key)
{
	uint32_t device = (uint32_t)key;

	return device == DEVICE_HOST || settings_take_device(SETTINGS_NPUS(&collector.chosen),
							     SETTINGS_GPUS(&collector.chosen),
							     device_key_vendor(key), device);
}

int snapshot_take(uint64_t key, bool named, const char *name, const uint64_t *figures)
{
	struct event_snapshot event = {.reserved_bytes = figures[0],
				       .max_reserved_bytes = figures[1],
				       .allocated_bytes = figures[2],
				       .max_allocated_bytes = figures[3],
				       .total_bytes = figures[4],
				       .free_bytes = figures[5]};
	uint32_t recording = mscope_recording();
	int saved_errno = errno;
	struct writer *w;

	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return -ENOENT;
	if (!named && !is_written(key))
		return 0;
	event.tracked = (collector.chosen.events & SESSION_ALLOC) != 0 &&
			((uint32_t)key != DEVICE_HOST || collector.chosen.host);
	ask_driver(key, &event);
	w = writer_enter();
	if (w != NULL) {
		event.name = writer_text(w, name);
		WRITER_PUT(w, snapshot, writer_device(w, key), &event);
		writer_leave(w);
	}
	errno = saved_errno;
	return w == NULL ? -EBUSY : 0;
}

MSCOPE_EXPORT int32_t mscope_snapshot(uint32_t device, uint32_t named, const char *name,
				      const uint64_t *figures)
{
	return snapshot_take(vendor_torch_device(device), named != 0, name, figures);
}
