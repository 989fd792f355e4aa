/* SPDX-License-Identifier: Apache-2.0 */
#include "track.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device.h"
#include "profiling/prof_api.h"

enum {
	MODULE_RUNTIME = 7,
	NOT_OF_A_MODEL = 1, /* the aging flag: the record need not be kept for later */
};

/* Bit n: records of physical device n are wanted. */
static _Atomic uint64_t tracked;

static void report(uint32_t type, const void *data, uint32_t size)
{
	struct MsprofCompactInfo record = {
		.magicNumber = MSPROF_REPORT_DATA_MAGIC_NUM,
		.level = MSPROF_REPORT_RUNTIME_LEVEL,
		.type = type,
		.threadId = (uint32_t)syscall(SYS_gettid),
		.dataLen = size,
		.timeStamp = MsprofSysCycleTime(),
	};

	memcpy(record.data.info, data, size);
	/* A tool's failure is its own. */
	(void)MsprofReportCompactInfo(NOT_OF_A_MODEL, &record, sizeof(record));
}

void track_task(const struct simnpu_task *task, enum task_type type, const char *kernel)
{
	struct MsprofRuntimeTrack track = {
		.deviceId = (uint16_t)task->device,
		.streamId = (uint16_t)task->stream,
		.taskId = task->id,
		.taskType = type,
	};

	if (kernel)
		track.kernelName = MsprofGetHashId(kernel, strlen(kernel));
	if (atomic_load_explicit(&tracked, memory_order_relaxed) >> task->device & 1)
		report(RT_PROFILE_TYPE_TASK_TRACK, &track, sizeof(track));
}

/* The devices that a command names, all for none. */
static uint64_t devices_of(const MsprofCommandHandle *command)
{
	uint64_t devices = 0;
	uint32_t n;

	if (command->devNums == 0)
		return UINT64_MAX;
	for (n = 0; n < command->devNums && n < 64; n++) {
		if (command->devIdList[n] < DEVICE_MAX)
			devices |= 1ULL << command->devIdList[n];
	}
	return devices;
}

static int32_t obey(uint32_t type, void *data, uint32_t len)
{
	static const struct MsprofStreamExpandSpecInfo expanded = {.expandStatus = 1};
	const MsprofCommandHandle *command = data;

	if (type != PROF_CTRL_SWITCH || len < sizeof(*command))
		return 0;
	switch (command->type) {
	case PROF_COMMANDHANDLE_TYPE_START:
		if (!(command->profSwitch & PROF_TASK_TIME))
			break;
		/* Before any task: its ids can only be read with this. */
		if (halSimStreamsExpanded())
			report(MSPROF_STREAM_EXPAND_SPEC_TYPE, &expanded, sizeof(expanded));
		atomic_fetch_or_explicit(&tracked, devices_of(command), memory_order_relaxed);
		break;
	case PROF_COMMANDHANDLE_TYPE_STOP:
		atomic_fetch_and_explicit(&tracked, ~devices_of(command), memory_order_relaxed);
		break;
	case PROF_COMMANDHANDLE_TYPE_FINALIZE:
		atomic_store_explicit(&tracked, 0, memory_order_relaxed);
		break;
	default:
		break;
	}
	return 0;
}

__attribute__((constructor)) static void hear_of_commands(void)
{
	(void)MsprofRegisterCallback(MODULE_RUNTIME, obey);
}
