/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated CUDA cannot do, and what nobody computed: told to a listener in the process, and as the text of the error. */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATE_MAX 128

typedef void sim_listener(uint32_t kind, const char *what);

static sim_listener *listener;
static __thread int last_error;
static __thread char failed[256];

SIM_API void simcuda_listen(sim_listener *wanted);
SIM_API int cudaGetLastError(void);
SIM_API int cudaPeekAtLastError(void);
SIM_API const char *cudaGetErrorName(int code);
SIM_API int cuGetErrorString(int code, const char **out);
SIM_API int cuGetErrorName(int code, const char **out);
SIM_API int cuptiGetResultString(int code, const char **out);

/* One listener a process; the thread that is told is the one that called. */
void simcuda_listen(sim_listener *wanted)
{
	__atomic_store_n(&listener, wanted, __ATOMIC_RELEASE);
}

void sim_tell(enum sim_told kind, const char *what)
{
	sim_listener *wanted = __atomic_load_n(&listener, __ATOMIC_ACQUIRE);

	if (wanted != NULL)
		wanted((uint32_t)kind, what);
}

int sim_error(int code)
{
	last_error = code;
	return code;
}

int sim_fail(const char *what)
{
	(void)snprintf(failed, sizeof(failed), "simcuda: %.240s", what);
	sim_tell(SIM_MISSING, what);
	return SIM_NOT_SUPPORTED;
}

int cudaGetLastError(void)
{
	int code = last_error;

	last_error = SIM_OK;
	return code;
}

int cudaPeekAtLastError(void)
{
	return last_error;
}

const char *cudaGetErrorString(int code)
{
	switch (code) {
	case SIM_OK:
		return "no error";
	case SIM_INVALID_VALUE:
		return "invalid argument";
	case SIM_OUT_OF_MEMORY:
		return "out of memory";
	case SIM_INVALID_DEVICE:
		return "invalid device ordinal";
	case SIM_NOT_READY:
		return "device not ready";
	case SIM_NOT_SUPPORTED:
		return failed[0] != '\0' ? failed : "simcuda: not supported";
	default:
		return "simcuda: error";
	}
}

const char *cudaGetErrorName(int code)
{
	return code == SIM_OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : cudaGetErrorString(code);
}

int cuptiGetResultString(int code, const char **out)
{
	(void)code;
	*out = "there is no profiler on a simulated card";
	return SIM_OK;
}

int cuGetErrorString(int code, const char **out)
{
	*out = cudaGetErrorString(code);
	return SIM_OK;
}

int cuGetErrorName(int code, const char **out)
{
	*out = cudaGetErrorName(code);
	return SIM_OK;
}

/* What the function's library calls "not supported", or else an internal error: never its success. */
static long code_of(const char *name)
{
	static const struct {
		const char *prefix;
		long code;
	} codes[] = {
		{"cudnn", 3000}, {"cublas", 15},    {"cusparse", 10}, {"cusolver", 9},
		{"cufft", 16},	 {"curand", 999},   {"nccl", 3},      {"nvrtc", 11},
		{"cupti", 27},	 {"nvmlDevice", 3}, {"nvml", 12},     {"cuFile", 5000},
		{"cuda", 801},	 {"nvshmem", -1},
	};
	size_t i;

	for (i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		if (strncmp(name, codes[i].prefix, strlen(codes[i].prefix)) == 0)
			return codes[i].code;
	}
	return SIM_NOT_SUPPORTED;
}

/* It answers with a text, so that no code may take its place. */
static bool is_text(const char *name)
{
	static const char *const ends[] = {"ErrorString", "ErrorName", "StatusString", "StatusName",
					   "ncclGetLastError"};
	size_t length = strlen(name), i;

	for (i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		size_t end = strlen(ends[i]);

		if (length >= end && strcmp(name + length - end, ends[i]) == 0)
			return true;
	}
	return false;
}

long simcuda_not_written(const char *name)
{
	char what[256];
	bool profiler = strncmp(name, "cupti", 5) == 0;

	if (is_text(name))
		return (long)(intptr_t)cudaGetErrorString(SIM_NOT_SUPPORTED);
	(void)snprintf(what, sizeof(what), "%s is not simulated", name);
	/* A profiler that gets nothing changes no tensor. */
	if (!profiler)
		(void)sim_fail(what);
	/* Libraries above the runtime have errors of their own. */
	if (strncmp(name, "cuda", 4) == 0)
		(void)sim_error(SIM_NOT_SUPPORTED);
	return code_of(name);
}

/* ---- functions that are looked up by name ---- */

static char *late_names[LATE_MAX];

#define LATE(n)                                                                                    \
	static long late_##n(void)                                                                 \
	{                                                                                          \
		return simcuda_not_written(late_names[0x##n]);                                     \
	}
#define LATE_8(n)                                                                                  \
	LATE(n##0) LATE(n##1) LATE(n##2) LATE(n##3) LATE(n##4) LATE(n##5) LATE(n##6) LATE(n##7)
#define LATE_16(n)                                                                                 \
	LATE_8(n)                                                                                  \
	LATE(n##8) LATE(n##9) LATE(n##a) LATE(n##b) LATE(n##c) LATE(n##d) LATE(n##e) LATE(n##f)
#define NAME(n) late_##n,
#define NAME_8(n)                                                                                  \
	NAME(n##0) NAME(n##1) NAME(n##2) NAME(n##3) NAME(n##4) NAME(n##5) NAME(n##6) NAME(n##7)
#define NAME_16(n)                                                                                 \
	NAME_8(n)                                                                                  \
	NAME(n##8) NAME(n##9) NAME(n##a) NAME(n##b) NAME(n##c) NAME(n##d) NAME(n##e) NAME(n##f)
LATE_16(0)
LATE_16(1)
LATE_16(2)
LATE_16(3)
LATE_16(4)
LATE_16(5)
LATE_16(6)
LATE_16(7)

static long (*const late_functions[LATE_MAX])(void) = {
	NAME_16(0) NAME_16(1) NAME_16(2) NAME_16(3) NAME_16(4) NAME_16(5) NAME_16(6) NAME_16(7)};

void *sim_missing_function(const char *name)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	void *found = NULL;
	size_t i;

	(void)pthread_mutex_lock(&lock);
	for (i = 0; i < LATE_MAX; i++) {
		if (late_names[i] == NULL)
			late_names[i] = strdup(name);
		if (late_names[i] == NULL)
			break;
		if (strcmp(late_names[i], name) == 0) {
			memcpy(&found, &late_functions[i], sizeof(found));
			break;
		}
	}
	(void)pthread_mutex_unlock(&lock);
	return found;
}
