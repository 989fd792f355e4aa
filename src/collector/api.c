/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Python package asks of the collector. The package may be there without a collector that was preloaded, and the
 * collector without the package; they meet by the names of api.def.
 */
#include "collector/api.h"

#include "collector/hot/record.h"

MSCOPE_EXPORT uint32_t mscope_recording(void)
{
	uint32_t recording = recording_now();

	/* Another thread that is finding out is waited for. */
	return recording == RECORDING_LOOK || recording == RECORDING_LOOKING ? collector_look_slow()
									     : recording;
}
