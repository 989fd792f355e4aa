/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices and contexts. A context is a device and a default stream; each device has one of its own, shared by all threads
 * that set the device, and programs may create more. Which context a thread works in is known to that thread alone.
 */
#ifndef SIMNPU_RUNTIME_DEVICE_H
#define SIMNPU_RUNTIME_DEVICE_H

#include <stdint.h>

struct context;
struct stream;

enum {
	DEVICE_MAX = 64, /* more than the driver has */
};

/* From the id that a program uses to the one that the driver uses. */
int device_physical(int64_t logical, uint32_t *out);

/* The context of the calling thread: ACL_ERROR_RT_CONTEXT_NULL when it has none, or one that has ended. */
int context_current(struct context **out);

/* The driver's id of the context's device. */
uint32_t context_device(const struct context *context);

/* The context's default stream, which begins with the first wish for it. */
int context_stream(struct context *context, struct stream **out);

/* Keep contexts still over a fork. */
void device_lock(void);
void device_unlock(void);

#endif
