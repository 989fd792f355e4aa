/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What there is to record: whether this machine has an NPU or a GPU, and whether a program has PyTorch loaded. Whatever starts
 * recording without a --device chooses by it, and "nothing was recorded" names the cure.
 */
#ifndef MSCOPE_CLI_MACHINE_H
#define MSCOPE_CLI_MACHINE_H

#include <stdbool.h>
#include <sys/types.h>

#include "options/options.h"

struct machine {
	bool npu; /* a device file, or the driver's library (a simulated NPU has nothing else) */
	bool gpu;
};

struct machine machine_look(void);

/* True where nothing but CPU tensors can be recorded. */
bool machine_is_bare(const struct machine *machine);

/*
 * The one default of --device, for the command, the API and attach: every NPU and GPU; where there is none, CPU tensors too. An
 * explicit --device is left alone. True: CPU tensors were added; machine_choice_text() says so.
 */
bool machine_default_device(const struct machine *machine, struct options *options);

/* The line that says what was chosen and why; `api`: by a program that would name devices in config(). */
const char *machine_choice_text(bool api);

/* True when a process or one of its descendants has PyTorch's library mapped now. */
bool machine_runs_torch(pid_t pid);

#endif
