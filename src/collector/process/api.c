/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python package asks of the collector. The package may be there without a collector that was preloaded, and the
 * collector without the package; they meet by the names of api.def.
 */
#include "collector/api.h"

#include <errno.h>
#include <string.h>

#include "collector/interp/interpreter.h"
#include "collector/record/codes.h"

MSCOPE_EXPORT uint32_t mscope_recording(void)
{
	uint32_t recording = recording_now();

	/* Waits for a thread that attaches. */
	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		recording = collector_attach_slow();
	return recording == RECORDING_EARLY ? RECORDING_OFF : recording;
}

MSCOPE_EXPORT int mscope_python_package(const char *directory)
{
	size_t bytes = strlen(directory);

	if (bytes >= sizeof(interp.own))
		return -ENAMETOOLONG;
	/* Once: a reader finds all of it or nothing. */
	if (atomic_load(&interp.own_bytes) != 0)
		return -EALREADY;
	memcpy(interp.own, directory, bytes);
	atomic_store_explicit(&interp.own_bytes, (uint32_t)bytes, memory_order_release);
	return 0;
}

MSCOPE_EXPORT int mscope_name_file(const char *file, const char *name)
{
	return codes_name_file(file, name);
}
