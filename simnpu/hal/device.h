/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the runtime needs of the simulated device beyond the driver's interface: which chip it is, its clock, and the way in
 * which it notes that a task begins or ends. Exported, because the runtime is a library of its own. Any thread may call.
 */
#ifndef SIMNPU_HAL_DEVICE_H
#define SIMNPU_HAL_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	SIMNPU_CLOCK_PERIOD_NS = 20, /* of the device's counter */
};

#pragma GCC visibility push(default)

/* Kinds of task as the device's scheduler numbers them. */
enum simnpu_task_kind {
	SIMNPU_TASK_AICORE = 0,
	SIMNPU_TASK_AICPU = 1,
	SIMNPU_TASK_PLACE_HOLDER = 3,
	SIMNPU_TASK_EVENT_RECORD = 4,
	SIMNPU_TASK_EVENT_WAIT = 5,
	SIMNPU_TASK_COPY = 11,
};

struct simnpu_task {
	uint32_t device; /* physical */
	uint32_t stream;
	uint32_t id; /* as the runtime reports it when it launches */
	enum simnpu_task_kind kind;
};

/* SIMNPU_SOC, or "Ascend910B1". */
const char *halSimSocName(void);

/* A chip of the 950 generation or later: records are shorter and task ids are 32 bits wide, unique on the device. */
bool halSimSocIsNew(void);

/* SIMNPU_EXPAND_STREAMS=1: stream ids have 15 bits instead of 11. */
bool halSimStreamsExpanded(void);

/* Nanoseconds of CLOCK_MONOTONIC, from which the device's counter comes. */
uint64_t halSimTime(void);

/* Where an address lies: nowhere that the driver knows, in memory of a device, or in host memory that the devices know. */
enum simnpu_place {
	SIMNPU_PLACE_UNKNOWN = 0,
	SIMNPU_PLACE_DEVICE,
	SIMNPU_PLACE_HOST,
};
enum simnpu_place halSimLocate(const void *address, uint32_t *device);

/* Writes a record into the device's STARS channel if that was started; of a time that halSimTime() gave. */
void halSimTaskBegins(const struct simnpu_task *task, uint64_t time_ns);
void halSimTaskEnds(const struct simnpu_task *task, uint64_t time_ns);

#pragma GCC visibility pop

#endif
