/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libprofapi.so keeps two short tables: the callbacks of tools, and the modules that want to hear of commands. Both are
 * only ever filled, so readers need no lock.
 */
#include "profiling/prof_api.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

enum {
	OK = 0,
	FAILED = -1,
	MODULES_MAX = 16,
};

_Static_assert(sizeof(struct MsprofCompactInfo) == 64, "fixed by the interface");
_Static_assert(sizeof(MsprofCommandHandle) == 5424, "fixed by the interface");

static void *_Atomic callbacks[PROFILE_CALLBACK_COUNT];

/* Guards what follows. Never held while others are called. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ProfCommandHandle modules[MODULES_MAX];
static unsigned module_count;
static MsprofCommandHandle last_start;
static bool started;

/* The types that the real library takes without keeping them. */
static bool is_ignored(int32_t type)
{
	return type <= 3 || (type >= 6 && type <= 8) || type == 14;
}

int32_t MsprofRegisterProfileCallback(int32_t callbackType, void *callback, uint32_t len)
{
	if (callbackType < 0 || callbackType >= PROFILE_CALLBACK_COUNT || !callback ||
	    len != sizeof(callback))
		return FAILED;
	if (!is_ignored(callbackType)) {
		/* Pairs with the acquire in callback_of(). */
		atomic_store_explicit(&callbacks[callbackType], callback, memory_order_release);
	}
	return OK;
}

static void *callback_of(int type)
{
	/* Pairs with the release in MsprofRegisterProfileCallback(). */
	return atomic_load_explicit(&callbacks[type], memory_order_acquire);
}

static void remember(const MsprofCommandHandle *command)
{
	if (command->type == PROF_COMMANDHANDLE_TYPE_START) {
		last_start = *command;
		started = true;
	} else if (command->type != PROF_COMMANDHANDLE_TYPE_INIT) {
		started = false;
	}
}

int32_t profSetProfCommand(void *command, uint32_t len)
{
	/* Callers know the parameters at the end in more than one length; nothing here reads them. */
	const uint32_t len_min = offsetof(MsprofCommandHandle, params);
	ProfCommandHandle told[MODULES_MAX];
	MsprofCommandHandle copy;
	int32_t result = OK;
	unsigned count;
	unsigned n;

	if (!command || len < len_min)
		return FAILED;
	memset(&copy, 0, sizeof(copy));
	memcpy(&copy, command, len < sizeof(copy) ? len : sizeof(copy));
	(void)pthread_mutex_lock(&lock);
	remember(&copy);
	count = module_count;
	memcpy(told, modules, sizeof(told));
	(void)pthread_mutex_unlock(&lock);
	for (n = 0; n < count; n++) {
		if (told[n](PROF_CTRL_SWITCH, &copy, sizeof(copy)) != OK)
			result = FAILED;
	}
	return result;
}

int32_t MsprofRegisterCallback(uint32_t moduleId, ProfCommandHandle handle)
{
	MsprofCommandHandle copy;
	bool replay = false;
	int32_t result = FAILED;

	(void)moduleId;
	if (!handle)
		return FAILED;
	(void)pthread_mutex_lock(&lock);
	if (module_count < MODULES_MAX) {
		modules[module_count++] = handle;
		copy = last_start;
		replay = started;
		result = OK;
	}
	(void)pthread_mutex_unlock(&lock);
	if (replay)
		result = handle(PROF_CTRL_SWITCH, &copy, sizeof(copy));
	return result;
}

uint64_t MsprofGetHashId(const char *hashInfo, size_t length)
{
	MsprofGetHashIdCallback callback;
	uint64_t hash = 0xcbf29ce484222325;
	size_t n;

	if (!hashInfo || length == 0)
		return 0;
	*(void **)&callback = callback_of(PROFILE_REPORT_GET_HASH_ID_C_CALLBACK);
	if (callback)
		return callback(hashInfo, length);
	/* FNV-1a. Without a tool nobody asks what the number stands for. */
	for (n = 0; n < length; n++)
		hash = (hash ^ (unsigned char)hashInfo[n]) * 0x100000001b3;
	return hash;
}

int32_t MsprofReportCompactInfo(uint32_t agingFlag, const void *data, uint32_t length)
{
	MsprofReportCompactCallback callback;

	if (!data || length != sizeof(struct MsprofCompactInfo))
		return FAILED;
	*(void **)&callback = callback_of(PROFILE_REPORT_COMPACT_CALLBACK);
	return callback ? callback(agingFlag, data, length) : OK;
}

/* Of a framework about its own calls. Nothing here listens to them. */
int32_t MsprofReportApi(uint32_t agingFlag, const struct MsprofApi *api)
{
	(void)agingFlag;
	return api ? OK : FAILED;
}

int32_t MsprofReportAdditionalInfo(uint32_t agingFlag, const void *data, uint32_t length)
{
	(void)agingFlag;
	return data && length ? OK : FAILED;
}

uint64_t MsprofSysCycleTime(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}
