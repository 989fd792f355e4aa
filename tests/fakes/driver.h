/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the stand-in driver.
 *
 *     driver.c   init, injection, devices, contexts, modules; how a call tells CUPTI of itself
 *     work.c     streams, events, launches, graphs
 *     memory.c   all memory calls                 names.c    which function a name means
 *     ptx.c      kernels, from their text
 */
#ifndef MSCOPE_TESTS_FAKE_DRIVER_H
#define MSCOPE_TESTS_FAKE_DRIVER_H

#include <pthread.h>

#include "fake_cuda.h"

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_CAPTURE_INVALIDATED = 901,
};

struct context {
	uint32_t uid;
	uint32_t device; /* as this process numbers it */
	uint32_t uses;	 /* of a primary context */
	bool alive;
};

struct location {
	uint32_t type; /* 1: device, 2 and more: host */
	int32_t id;
};

/* Begins a call: tells CUPTI. Its end is call_exit(). */
struct call {
	struct fake_event event;
	uint64_t correlation_data;
	int result;
};

void call_enter(struct call *call, uint32_t cbid, const char *name, const void *parameters,
		const char *symbol);
int call_exit(struct call *call, int result);

/* A function of the driver that CUPTI reports. `...` makes its parameters as CUPTI lays them out; `body` is its result. */
#define REPORTED(cbid, name, signature, body, members, ...)                                        \
	FAKE_EXPORT int name signature;                                                            \
	FAKE_EXPORT int name signature                                                             \
	{                                                                                          \
		struct members parameters = {__VA_ARGS__};                                         \
		struct call call;                                                                  \
                                                                                                   \
		call_enter(&call, cbid, #name, &parameters, NULL);                                 \
		return call_exit(&call, body);                                                     \
	}

#define PLAIN(name, signature)                                                                     \
	FAKE_EXPORT int name signature;                                                            \
	FAKE_EXPORT int name signature

/* The context of the calling thread, NULL if none. */
struct context *context_now(void);

/* Guards all memory of the driver. */
extern pthread_mutex_t driver_lock;

/* Takes or gives back what the device counts. False: there is no room. With the lock held. */
bool device_charge(uint32_t device, uint64_t bytes);
void device_release(uint32_t device, uint64_t bytes);
uint32_t device_count(void);
uint64_t device_free(uint32_t device);
uint64_t device_total(uint32_t device);

/* What cuModuleGetFunction() gives. */
struct kernel {
	char name[512];
	const char *text; /* of its module */
};

/* Tells CUPTI of a kernel that runs from a time to a time, by the time of day. */
void tell_kernel(const struct fake_kernel *kernel);

/* work.c: whether a call on this stream becomes a node of a graph: memory that is taken, or given back (`bytes` 0). */
bool capture_memory(void *stream, uint64_t *address, uint64_t bytes);

/* memory.c: what pools release when the program waits for the device. */
void memory_waited(void);
/* The memory of a graph's nodes: an address, which is backed while `on`. Without the lock. */
uint64_t graph_address(uint64_t bytes);
int graph_back(uint32_t device, uint64_t address, uint64_t bytes, bool on);

/* memory.c: all that a context holds. */
void memory_drop(uint32_t context_uid);

void *driver_function(const char *name, bool per_thread);

/* The context of this number, NULL: it is gone. */
struct context *context_of(uint32_t uid);

/* True, with the code to return: a stream is captured and this thread may not call this now, and the capture is broken by it. */
bool capture_breaks(int *out_error);

/* ptx.c: how many parameters a kernel has; all are words. Runs a kernel from its text, if all of it is known; else it does nothing. */
uint32_t ptx_parameters(const char *text, const char *name);
void ptx_run(const char *text, const char *name, uint32_t blocks, uint32_t threads,
	     void **arguments);

#endif
