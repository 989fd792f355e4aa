/* SPDX-License-Identifier: Apache-2.0 */
#include "device.h"
#include "known.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "codes.h"
#include "hal/device.h"
#include "runtime/rt.h"
#include "slab.h"
#include "stream.h"

enum {
	CONTEXT_MAX = 1 << 16,
};

/* All but the serial is written before that and fixed, except `stream`, which the lock guards. */
struct context {
	struct slab_entry entry;
	_Atomic uint64_t
		serial;	 /* tells apart the contexts that had this place, one after the other */
	uint32_t device; /* physical */
	int32_t logical;
	bool primary;
	struct stream *stream;
};

static struct slab contexts = SLAB_INIT(struct context, CONTEXT_MAX);

/* Which devices the program sees, and in which order. Read once. */
static struct {
	uint32_t count;
	uint32_t physical[DEVICE_MAX];
} visible;

/* Guards what follows. Taken before any other lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_serial;
static struct {
	struct context *primary;
	uint32_t users; /* calls of rtSetDevice() without rtDeviceReset() */
} devices[DEVICE_MAX];

static _Thread_local struct {
	struct context *context;
	uint64_t serial;
} current;

/* One item of the list, blanks around it allowed, ended by a comma or the end. NULL for anything else. */
static const char *parse_item(const char *text, uint32_t limit, uint32_t *out)
{
	uint32_t value = 0;

	text += strspn(text, " \t");
	if (*text < '0' || *text > '9')
		return NULL;
	for (; *text >= '0' && *text <= '9'; text++) {
		value = value * 10 + (uint32_t)(*text - '0');
		if (value >= limit)
			return NULL;
	}
	text += strspn(text, " \t");
	if (*text && *text != ',')
		return NULL;
	*out = value;
	return text;
}

static bool is_listed(uint32_t physical)
{
	uint32_t n;

	for (n = 0; n < visible.count; n++) {
		if (visible.physical[n] == physical)
			return true;
	}
	return false;
}

/* A list with anything wrong in it shows no device at all. */
static void read_list(const char *text, uint32_t device_count)
{
	uint32_t physical;

	for (;;) {
		text = parse_item(text, device_count, &physical);
		if (!text || is_listed(physical)) {
			visible.count = 0;
			return;
		}
		visible.physical[visible.count++] = physical;
		if (!*text++)
			return;
	}
}

static void read_visible(void)
{
	const char *text = getenv("ASCEND_RT_VISIBLE_DEVICES");
	uint32_t count = 0;
	uint32_t n;

	if (drvGetDevNum(&count))
		return;
	if (count > DEVICE_MAX)
		count = DEVICE_MAX;
	if (text) {
		read_list(text, count);
		return;
	}
	for (n = 0; n < count; n++)
		visible.physical[n] = n;
	visible.count = count;
}

static uint32_t visible_count(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_visible);
	return visible.count;
}

int device_physical(int64_t logical, uint32_t *out)
{
	if (logical < 0 || logical >= visible_count())
		return ACL_ERROR_RT_INVALID_DEVICEID;
	*out = visible.physical[logical];
	return ACL_SUCCESS;
}

void device_lock(void)
{
	(void)pthread_mutex_lock(&lock);
}

void device_unlock(void)
{
	(void)pthread_mutex_unlock(&lock);
}

/* With the lock. */
static struct context *new_context(uint32_t physical, int32_t logical, bool primary)
{
	struct context *context = slab_take(&contexts);

	if (!context)
		return NULL;
	context->device = physical;
	context->logical = logical;
	context->primary = primary;
	context->stream = NULL;
	/* Pairs with the acquire in serial_of(). */
	atomic_store_explicit(&context->serial, ++last_serial, memory_order_release);
	return context;
}

/* With the lock: ends the context and returns what is left to be freed without it. */
static struct stream *end_context(struct context *context)
{
	struct stream *stream = context->stream;

	slab_give(&contexts, context);
	return stream;
}

static uint64_t serial_of(struct context *context)
{
	/* Pairs with the release in new_context(). */
	return atomic_load_explicit(&context->serial, memory_order_acquire);
}

static void make_current(struct context *context)
{
	current.context = context;
	current.serial = serial_of(context);
}

int context_current(struct context **out)
{
	struct context *context = current.context;

	if (!context || !slab_holds(&contexts, context) || serial_of(context) != current.serial)
		return ACL_ERROR_RT_CONTEXT_NULL;
	*out = context;
	return ACL_SUCCESS;
}

uint32_t context_device(const struct context *context)
{
	return context->device;
}

int context_stream(struct context *context, struct stream **out)
{
	int error = ACL_SUCCESS;

	device_lock();
	if (!context->stream)
		error = stream_new(context, &context->stream);
	if (!error)
		*out = context->stream;
	device_unlock();
	return error;
}

rtError_t rtSetDevice(int32_t devId)
{
	struct context *context;
	uint32_t physical;
	int error;

	error = device_physical(devId, &physical);
	if (error)
		return error;
	device_lock();
	context = devices[physical].primary;
	if (!context)
		context = new_context(physical, devId, true);
	if (context) {
		devices[physical].primary = context;
		devices[physical].users++;
		make_current(context);
	}
	device_unlock();
	return context ? ACL_SUCCESS : ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
}

rtError_t rtDeviceReset(int32_t devId)
{
	struct stream *stream = NULL;
	uint32_t physical;
	int error;

	error = device_physical(devId, &physical);
	if (error)
		return error;
	device_lock();
	if (devices[physical].users == 0) {
		error = ACL_ERROR_RT_CONTEXT_NULL;
	} else if (--devices[physical].users == 0) {
		stream = end_context(devices[physical].primary);
		devices[physical].primary = NULL;
	}
	device_unlock();
	if (stream)
		(void)stream_free(stream);
	return error;
}

rtError_t rtGetDevice(int32_t *devId)
{
	struct context *context;
	int error;

	if (!devId)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = context_current(&context);
	if (!error)
		*devId = context->logical;
	return error;
}

rtError_t rtGetDeviceCount(int32_t *cnt)
{
	if (!cnt)
		return ACL_ERROR_RT_PARAM_INVALID;
	*cnt = (int32_t)visible_count();
	return ACL_SUCCESS;
}

rtError_t rtDeviceSynchronize(void)
{
	return rtDeviceSynchronizeWithTimeout(-1);
}

rtError_t rtDeviceSynchronizeWithTimeout(int32_t timeout)
{
	struct context *context;
	int error = context_current(&context);

	if (!error)
		error = stream_wait_device(context->device, timeout);
	known_tell();
	return error;
}

rtError_t rtSimDeviceInUse(int32_t devId, bool *inUse)
{
	uint32_t physical;
	int error;

	if (!inUse)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = device_physical(devId, &physical);
	if (error)
		return error;
	device_lock();
	*inUse = devices[physical].users > 0;
	device_unlock();
	return ACL_SUCCESS;
}

rtError_t rtGetSocVersion(char *ver, uint32_t maxLen)
{
	const char *name = halSimSocName();

	if (!ver || maxLen <= strlen(name))
		return ACL_ERROR_RT_PARAM_INVALID;
	(void)strcpy(ver, name);
	return ACL_SUCCESS;
}

rtError_t rtCtxCreate(rtContext_t *createCtx, uint32_t flags, int32_t devId)
{
	struct context *context;
	uint32_t physical;
	int error;

	(void)flags;
	if (!createCtx)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = device_physical(devId, &physical);
	if (error)
		return error;
	device_lock();
	context = new_context(physical, devId, false);
	device_unlock();
	if (!context)
		return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
	make_current(context);
	*createCtx = context;
	return ACL_SUCCESS;
}

rtError_t rtCtxDestroy(rtContext_t destroyCtx)
{
	struct context *context = destroyCtx;
	struct stream *stream = NULL;
	int error = ACL_SUCCESS;

	device_lock();
	/* A device's own context ends with its last reset. */
	if (!slab_holds(&contexts, context) || context->primary)
		error = ACL_ERROR_RT_PARAM_INVALID;
	else
		stream = end_context(context);
	device_unlock();
	if (stream)
		(void)stream_free(stream);
	return error;
}

rtError_t rtCtxSetCurrent(rtContext_t currentCtx)
{
	if (!slab_holds(&contexts, currentCtx))
		return ACL_ERROR_RT_PARAM_INVALID;
	make_current(currentCtx);
	return ACL_SUCCESS;
}

rtError_t rtCtxGetCurrent(rtContext_t *currentCtx)
{
	struct context *context;
	int error;

	if (!currentCtx)
		return ACL_ERROR_RT_PARAM_INVALID;
	error = context_current(&context);
	if (!error)
		*currentCtx = context;
	return error;
}
