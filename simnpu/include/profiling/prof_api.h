/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libprofapi.so: where the runtime leaves word of what it launches, and where tools come for it. Names, values and layouts
 * are those of the real one.
 */
#ifndef PROF_API_H
#define PROF_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Callbacks that tools register. The ones not named here are accepted and never called. */
enum {
	PROFILE_REPORT_COMPACT_CALLBACK = 4,
	PROFILE_REPORT_API_C_CALLBACK = 9,
	PROFILE_REPORT_GET_HASH_ID_C_CALLBACK = 12,
	PROFILE_CALLBACK_COUNT = 17,
};
typedef int32_t (*MsprofReportCompactCallback)(uint32_t agingFlag, const void *data, uint32_t len);
typedef uint64_t (*MsprofGetHashIdCallback)(const char *text, size_t len);

#define MSPROF_REPORT_DATA_MAGIC_NUM 0x5A5AU
#define MSPROF_REPORT_RUNTIME_LEVEL  5000U

/* Types of struct MsprofCompactInfo. */
enum {
	RT_PROFILE_TYPE_TASK_TRACK = 802,
	MSPROF_STREAM_EXPAND_SPEC_TYPE = 804,
};

/* A task was put on a stream. */
struct MsprofRuntimeTrack {
	uint16_t deviceId; /* physical */
	uint16_t streamId;
	uint32_t taskId;
	uint64_t taskType;
	uint64_t kernelName; /* hash id, 0 for what is no kernel */
	uint8_t extra[16];
};

struct MsprofStreamExpandSpecInfo {
	uint8_t expandStatus; /* 1: ids of streams have 15 bits */
	uint8_t reserved[39];
};

/* What the compact callback gets. 64 bytes. */
struct MsprofCompactInfo {
	uint16_t magicNumber;
	uint16_t level;
	uint32_t type;
	uint32_t threadId;
	uint32_t dataLen;
	uint64_t timeStamp; /* as MsprofSysCycleTime() */
	union {
		uint8_t info[40];
		struct MsprofRuntimeTrack runtimeTrack;
		struct MsprofStreamExpandSpecInfo streamExpandInfo;
	} data;
};

#define PROF_TASK_TIME	   0x800ULL
#define PROF_RUNTIME_TRACE 0x4000000ULL

enum {
	PROF_COMMANDHANDLE_TYPE_INIT = 0,
	PROF_COMMANDHANDLE_TYPE_START = 1,
	PROF_COMMANDHANDLE_TYPE_STOP = 2,
	PROF_COMMANDHANDLE_TYPE_FINALIZE = 3,
};

/* The argument of profSetProfCommand(). 5424 bytes. */
typedef struct MsprofCommandHandle {
	uint64_t profSwitch;
	uint64_t profSwitchHi;
	uint32_t devNums;
	uint32_t devIdList[64];
	uint32_t modelId;
	uint32_t type;
	uint32_t cacheFlag;
	struct {
		uint32_t pathLen;
		uint32_t storageLimit;
		uint32_t profDataLen;
		char path[1024];
		char profData[4096];
	} params;
} MsprofCommandHandle;

/* How a module hears of commands. `type` is PROF_CTRL_SWITCH and `data` an MsprofCommandHandle. */
enum {
	PROF_CTRL_SWITCH = 1,
};
typedef int32_t (*ProfCommandHandle)(uint32_t type, void *data, uint32_t len);

#pragma GCC visibility push(default)

/* `len` is the size of a pointer. The last callback of a type wins. 0 or -1, also of all below. */
int32_t MsprofRegisterProfileCallback(int32_t callbackType, void *callback, uint32_t len);

/* Hands a command to every module, on this thread. */
int32_t profSetProfCommand(void *command, uint32_t len);

/* For modules: to hear of commands, also at once of the last one if it was a start. At most 16 modules. */
int32_t MsprofRegisterCallback(uint32_t moduleId, ProfCommandHandle handle);

/* For modules: the number that stands for a text, from the registered callback if there is one. */
uint64_t MsprofGetHashId(const char *hashInfo, size_t length);

/* For modules: hands a record to the registered callback; without one it is gone, which is no error. */
int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length);

/* For modules: a call that began and ended, and data of any other kind. Taken and gone: no tool asked for them yet. */
struct MsprofApi;
int32_t MsprofReportApi(uint32_t agingFlag, const struct MsprofApi *api);
int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length);

/* The clock of time stamps: nanoseconds of CLOCK_MONOTONIC. */
uint64_t MsprofSysCycleTime(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
