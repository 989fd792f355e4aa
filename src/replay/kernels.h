/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: launches that the program makes, and executions that the device reports later in its own time. A launch waits for its
 * execution by device, stream and task, and by task alone for devices that do not name the stream.
 */
#ifndef MSCOPE_REPLAY_KERNELS_H
#define MSCOPE_REPLAY_KERNELS_H

#include "base/map.h"
#include "replay/replay.h"
#include "replay/texts.h"

/* A device's counter at a time of ours. */
struct clock_pair {
	uint64_t time_ns; /* 0: there is none */
	uint64_t counter;
};

/* How a device's counter becomes our time: its rate is not quite what it says, and changes with its temperature. */
struct device_clock {
	uint32_t device;
	uint64_t frequency_hz; /* as it says */
	struct clock_pair first, before, latest;
};

/* A launch whose stream number and task were used again before the device told of its end. */
struct older_launch {
	struct map_key key;
	uint64_t value;	      /* as in `launches` */
	uint64_t replaced_ns; /* when the next one was launched */
	uint32_t step;
};

struct kernels {
	struct map launches; /* device, stream and task -> name and stream, until the kernel ends */
	struct map steps;    /* the same key -> step of the launch, if it lies in one */
	struct older_launch *older; /* of all keys, in order */
	size_t older_count, older_room;
	struct device_clock *clocks; /* in the order of their first record */
	size_t clock_count, clock_room;
	bool untold; /* another tool took the times of kernels */
};

void kernels_fini(struct replay *replay);

/* Launches that wait keep their names in a sweep. */
void kernels_keep_texts(struct kernels *kernels, struct texts_sweep *sweep);

#endif
