/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to record: whether this machine has an NPU or a GPU, and whether a program has PyTorch loaded. A launch that
 * names no --device chooses by it, and "nothing was recorded" names the cure.
 */
#ifndef MSCOPE_CLI_MACHINE_H
#define MSCOPE_CLI_MACHINE_H

#include <stdbool.h>
#include <sys/types.h>

struct machine {
	bool npu; /* a device file, or the driver's library (a simulated NPU has nothing else) */
	bool gpu;
};

struct machine machine_look(void);

/* True when a process or one of its descendants has PyTorch's library mapped now. */
bool machine_runs_torch(pid_t pid);

#endif
