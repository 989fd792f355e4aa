/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcupti.so: the callback interface, for the driver of this folder. One subscriber at a time, as in CUPTI.
 */
#include <dlfcn.h>

#include "fake_cuda.h"

#define CUPTI_OK		   0
#define CUPTI_INVALID		   1
#define CUPTI_MULTIPLE_SUBSCRIBERS 39
#define CBID_MAX		   1024u

typedef void callback(void *userdata, uint32_t domain, uint32_t cbid, const void *data);

struct callback_data {
	uint32_t site;
	const char *name;
	const void *parameters;
	void *result;
	const char *symbol;
	void *context;
	uint32_t context_uid;
	uint64_t *correlation_data;
	uint32_t correlation;
};

struct resource_data {
	void *context;
	void *handle;
	void *descriptor;
};

/* What a caller holds is the address of this. */
static struct subscriber {
	_Atomic(callback *) call;
	void *userdata;
} subscribers[64];

static _Atomic uint32_t subscriptions;
static _Atomic(struct subscriber *) current;
static _Atomic bool enabled[8][CBID_MAX];

static void (*listen_to)(fake_listener *);
static int (*context_device)(void *, uint32_t *);
static const char *(*name_of)(uint32_t);

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (driver == NULL)
		return;
	*(void **)&listen_to = dlsym(driver, "fake_cuda_listen");
	*(void **)&context_device = dlsym(driver, "fake_cuda_context_device");
	*(void **)&name_of = dlsym(driver, "fake_cuda_name");
}

static void deliver(const struct fake_event *event)
{
	struct subscriber *subscriber = atomic_load(&current);
	callback *call;

	if (subscriber == NULL || event->domain >= 8 || event->cbid >= CBID_MAX ||
	    !atomic_load(&enabled[event->domain][event->cbid]))
		return;
	call = atomic_load(&subscriber->call);
	if (call == NULL)
		return;
	if (event->domain == FAKE_DOMAIN_RESOURCE) {
		struct resource_data data = {.context = event->context};

		call(subscriber->userdata, event->domain, event->cbid, &data);
	} else {
		struct callback_data data = {
			.site = event->site,
			.name = event->name,
			.parameters = event->parameters,
			.result = event->result,
			.symbol = event->symbol,
			.context = event->context,
			.context_uid = event->context_uid,
			.correlation_data = event->correlation_data,
			.correlation = event->correlation,
		};

		call(subscriber->userdata, event->domain, event->cbid, &data);
	}
}

FAKE_EXPORT int cuptiSubscribe(void **out, callback *call, void *userdata);
FAKE_EXPORT int cuptiSubscribe(void **out, callback *call, void *userdata)
{
	struct subscriber *none = NULL, *subscriber;
	uint32_t at;

	if (out == NULL || call == NULL)
		return CUPTI_INVALID;
	if (getenv("FAKE_CUPTI_BUSY") != NULL)
		return CUPTI_MULTIPLE_SUBSCRIBERS;
	at = atomic_fetch_add(&subscriptions, 1) % 64;
	subscriber = &subscribers[at];
	subscriber->userdata = userdata;
	atomic_store(&subscriber->call, call);
	if (!atomic_compare_exchange_strong(&current, &none, subscriber))
		return CUPTI_MULTIPLE_SUBSCRIBERS;
	if (listen_to == NULL)
		find_driver();
	if (listen_to != NULL)
		listen_to(deliver);
	*out = subscriber;
	return CUPTI_OK;
}

struct subscriber_parameters {
	size_t bytes;
	const char *name;
	char *old_name;
	size_t old_bytes;
};

FAKE_EXPORT int cuptiSubscribe_v2(void **out, callback *call, void *userdata,
				  struct subscriber_parameters *parameters);
FAKE_EXPORT int cuptiSubscribe_v2(void **out, callback *call, void *userdata,
				  struct subscriber_parameters *parameters)
{
	(void)parameters;
	return cuptiSubscribe(out, call, userdata);
}

FAKE_EXPORT int cuptiUnsubscribe(void *subscriber);
FAKE_EXPORT int cuptiUnsubscribe(void *subscriber)
{
	struct subscriber *mine = subscriber;
	uint32_t domain, cbid;

	if (mine == NULL || atomic_load(&current) != mine)
		return CUPTI_INVALID;
	for (domain = 0; domain < 8; domain++) {
		for (cbid = 0; cbid < CBID_MAX; cbid++)
			atomic_store(&enabled[domain][cbid], false);
	}
	atomic_store(&current, NULL);
	atomic_store(&mine->call, NULL);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t cbid);
FAKE_EXPORT int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t cbid)
{
	if (subscriber == NULL || atomic_load(&current) != subscriber || domain >= 8 ||
	    cbid >= CBID_MAX)
		return CUPTI_INVALID;
	atomic_store(&enabled[domain][cbid], on != 0);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiEnableDomain(uint32_t on, void *subscriber, uint32_t domain);
FAKE_EXPORT int cuptiEnableDomain(uint32_t on, void *subscriber, uint32_t domain)
{
	uint32_t cbid;
	int r = CUPTI_OK;

	for (cbid = 0; cbid < CBID_MAX && r == CUPTI_OK; cbid++)
		r = cuptiEnableCallback(on, subscriber, domain, cbid);
	return r;
}

FAKE_EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **out);
FAKE_EXPORT int cuptiGetCallbackName(uint32_t domain, uint32_t cbid, const char **out)
{
	if (name_of == NULL)
		find_driver();
	if (name_of == NULL || domain != FAKE_DOMAIN_DRIVER || out == NULL)
		return CUPTI_INVALID;
	*out = getenv("FAKE_CUPTI_SHIFTED") != NULL ? "cuOtherCall" : name_of(cbid);
	return *out == NULL ? CUPTI_INVALID : CUPTI_OK;
}

FAKE_EXPORT int cuptiGetDeviceId(void *context, uint32_t *out);
FAKE_EXPORT int cuptiGetDeviceId(void *context, uint32_t *out)
{
	return context_device != NULL && context_device(context, out) == 0 ? CUPTI_OK
									   : CUPTI_INVALID;
}

FAKE_EXPORT int cuptiGetContextId(void *context, uint32_t *out);
FAKE_EXPORT int cuptiGetContextId(void *context, uint32_t *out)
{
	if (context == NULL)
		return CUPTI_INVALID;
	memcpy(out, context, sizeof(*out)); /* first in the driver's struct context */
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiGetVersion(uint32_t *out);
FAKE_EXPORT int cuptiGetVersion(uint32_t *out)
{
	*out = (uint32_t)fake_setting("FAKE_CUPTI_VERSION", 26);
	return CUPTI_OK;
}
