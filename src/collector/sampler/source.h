/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the sampler gets its figures from: a file for the management library of each vendor. One thread, in a process of its own.
 */
#ifndef MSCOPE_COLLECTOR_SAMPLER_SOURCE_H
#define MSCOPE_COLLECTOR_SAMPLER_SOURCE_H

#include <stdbool.h>

#include "base/vendors.h"
#include "collector/sys.h"
#include "trace/sampler.h"

struct sampler_source {
	bool (*open)(void); /* false: this machine has no such library, or no such device */
	/* Sends a record per process on a device, then one of the device. `asked`: the engine wants all of it. */
	void (*sample)(bool asked);
};

extern const struct sampler_source sampler_dcmi, sampler_nvml;

/* Sends a record to the engine; see trace/sampler.h. Ends the process when nobody listens any more. */
void sampler_send(const struct sampler_record *record);

/* Finds a function; false and NULL in `out` if the library has none. */
bool sampler_find(void *library, const char *name, void *out);

#endif
