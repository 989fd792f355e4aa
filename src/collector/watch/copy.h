/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading a device's memory from inside the process that uses it, for watch alone: the runtimes that the program has loaded are
 * asked by name. Called outside the record path: these functions are foreign code, wait for the device and may call our hooks.
 */
#ifndef MSCOPE_COLLECTOR_COPY_H
#define MSCOPE_COLLECTOR_COPY_H

#include <stdbool.h>

#include "base/compiler.h"

/*
 * Waits until what was handed to the stream is done; without one (`has_stream` false) for all of the present device.
 * -EBUSY: the stream is being captured into a graph, and waiting would break that; -ENOSYS: no runtime is loaded; -EIO: it failed.
 */
int copy_settle(uint8_t vendor, void *stream, bool has_stream);

/* Copies from the device. -ENOSYS, -EIO: it failed. */
int copy_from_device(uint8_t vendor, void *out, uint64_t address, size_t bytes);

/* In a forked child: its runtime may be loaded elsewhere. */
void copy_reset(void);

#endif
