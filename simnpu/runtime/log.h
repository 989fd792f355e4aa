/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth about what ran, for tests to compare with: SIMNPU_LOG=FILE makes each kernel append a line when it ends,
 *
 *     device stream task name begin_ns end_ns
 *
 * with physical device, the task number that the profiler was told, and times of CLOCK_MONOTONIC. "%p" in FILE stands for
 * the process id. Lines of several processes may go to one file.
 */
#ifndef SIMNPU_RUNTIME_LOG_H
#define SIMNPU_RUNTIME_LOG_H

#include <stdint.h>

#include "hal/device.h"

void log_kernel(const struct simnpu_task *task, const char *name, uint64_t begin_ns,
		uint64_t end_ns);

#endif
