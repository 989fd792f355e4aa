/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcupti.so: callbacks and records of kernels, for the driver of this folder. One subscriber at a time, as in CUPTI, and
 * one pair of functions for buffers, whoever registered it last. Full buffers come on threads of its own.
 */
#include <dlfcn.h>
#include <pthread.h>

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
static void (*listen_to_kernels)(fake_kernel_listener *);
static int (*context_device)(void *, uint32_t *);
static const char *(*name_of)(uint32_t);

static void find_driver(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	if (driver == NULL)
		return;
	*(void **)&listen_to = dlsym(driver, "fake_cuda_listen");
	*(void **)&listen_to_kernels = dlsym(driver, "fake_cuda_listen_kernels");
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

/* ---- activity records ---- */

#define KIND_CONCURRENT_KERNEL	10u
#define CUPTI_MAX_LIMIT		12
#define CUPTI_INVALID_OPERATION 7

/* As CUpti_ActivityKernel10 begins. */
struct kernel_record {
	uint32_t kind, configuration[3];
	uint64_t start, end, completed;
	uint32_t device, context, stream;
	uint32_t grid[3], block[3], memory[4];
	uint32_t correlation;
	int64_t grid_number;
	const char *name;
	char rest[112];
};

typedef void request(uint8_t **buffer, size_t *bytes, size_t *records);
typedef void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);

static pthread_mutex_t activity_lock = PTHREAD_MUTEX_INITIALIZER;
static request *buffer_wanted;
static complete *buffer_full;
static _Atomic bool kinds[64];
static size_t dropped;
static _Atomic uint32_t delivering;

/* Buffers that have records, the one that is filled first. */
static struct filled {
	struct filled *next;
	uint8_t *buffer;
	size_t bytes, used;
} * filled;

static uint64_t cupti_now(void)
{
	return fake_now_ns() * fake_setting("FAKE_CUPTI_RATE", 1);
}

static void hand_back(struct filled *buffer)
{
	struct kernel_record *record = (struct kernel_record *)(void *)buffer->buffer;
	uint64_t now = cupti_now();
	size_t i;

	for (i = 0; i < buffer->used / sizeof(*record); i++) {
		if (record[i].end > now)
			record[i].start = record[i].end = 0; /* flushed by force */
	}
	buffer_full(NULL, 0, buffer->buffer, buffer->bytes, buffer->used);
	free(buffer);
}

static void *deliver_buffer(void *buffer)
{
	hand_back(buffer);
	atomic_fetch_sub(&delivering, 1);
	return NULL;
}

static bool is_finished(const struct filled *buffer)
{
	const struct kernel_record *record = (const struct kernel_record *)(void *)buffer->buffer;
	uint64_t now = cupti_now();
	size_t i;

	for (i = 0; i < buffer->used / sizeof(*record); i++) {
		if (record[i].end > now)
			return false;
	}
	return true;
}

/* With the lock held. NULL: the tool has none. */
static struct filled *buffer_new(void)
{
	struct filled *fresh;
	uint8_t *buffer = NULL;
	size_t bytes = 0, records = 0;

	if (buffer_wanted != NULL)
		buffer_wanted(&buffer, &bytes, &records);
	if (buffer == NULL)
		return NULL;
	fresh = calloc(1, sizeof(*fresh));
	*fresh = (struct filled){.next = filled, .buffer = buffer, .bytes = bytes};
	filled = fresh;
	return fresh;
}

/* With the lock held: full buffers of finished kernels go to a thread. */
static void deliver_full(void)
{
	struct filled **at = &filled;
	pthread_t thread;

	while (*at != NULL) {
		struct filled *one = *at;

		if (one->bytes - one->used >= sizeof(struct kernel_record) || !is_finished(one)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		atomic_fetch_add(&delivering, 1);
		(void)pthread_create(&thread, NULL, deliver_buffer, one);
		(void)pthread_detach(thread);
	}
}

static void on_kernel(const struct fake_kernel *kernel)
{
	uint64_t rate = fake_setting("FAKE_CUPTI_RATE", 1);
	struct kernel_record record = {
		.kind = KIND_CONCURRENT_KERNEL,
		.start = kernel->start_ns * rate,
		.end = kernel->end_ns * rate,
		.device = kernel->device,
		.context = kernel->context_uid,
		.stream = kernel->stream,
		.correlation = kernel->correlation,
		.name = strdup(kernel->name), /* CUPTI keeps names, too */
	};

	if (!atomic_load(&kinds[KIND_CONCURRENT_KERNEL]))
		return;
	(void)pthread_mutex_lock(&activity_lock);
	if ((filled == NULL || filled->bytes - filled->used < sizeof(record)) &&
	    buffer_new() == NULL) {
		dropped++;
	} else {
		memcpy(filled->buffer + filled->used, &record, sizeof(record));
		filled->used += sizeof(record);
	}
	deliver_full();
	(void)pthread_mutex_unlock(&activity_lock);
}

FAKE_EXPORT int cuptiActivityRegisterCallbacks(request *wanted, complete *full);
FAKE_EXPORT int cuptiActivityRegisterCallbacks(request *wanted, complete *full)
{
	if (wanted == NULL || full == NULL)
		return CUPTI_INVALID;
	(void)pthread_mutex_lock(&activity_lock);
	buffer_wanted = wanted;
	buffer_full = full;
	(void)pthread_mutex_unlock(&activity_lock);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiActivityEnable(uint32_t kind);
FAKE_EXPORT int cuptiActivityEnable(uint32_t kind)
{
	if (kind >= 64)
		return CUPTI_INVALID;
	if (listen_to_kernels == NULL)
		find_driver();
	if (listen_to_kernels != NULL)
		listen_to_kernels(on_kernel);
	atomic_store(&kinds[kind], true);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiActivityDisable(uint32_t kind);
FAKE_EXPORT int cuptiActivityDisable(uint32_t kind)
{
	if (kind >= 64)
		return CUPTI_INVALID;
	atomic_store(&kinds[kind], false);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiActivityFlushAll(uint32_t flag);
FAKE_EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
	struct filled *all = NULL, *one, **at = &filled;

	if (buffer_full == NULL)
		return CUPTI_INVALID_OPERATION;
	(void)pthread_mutex_lock(&activity_lock);
	while ((one = *at) != NULL) {
		if (flag == 0 && !is_finished(one)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		one->next = all;
		all = one;
	}
	(void)pthread_mutex_unlock(&activity_lock);
	while ((one = all) != NULL) {
		all = one->next;
		hand_back(one);
	}
	while (atomic_load(&delivering) != 0)
		(void)usleep(100);
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record);
FAKE_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t bytes, void **record)
{
	uint8_t *next =
		*record == NULL ? buffer : (uint8_t *)*record + sizeof(struct kernel_record);

	if (next + sizeof(struct kernel_record) > buffer + bytes)
		return CUPTI_MAX_LIMIT;
	*record = next;
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out);
FAKE_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
	(void)context;
	(void)stream;
	*out = dropped;
	dropped = 0;
	return CUPTI_OK;
}

FAKE_EXPORT int cuptiGetTimestamp(uint64_t *out);
FAKE_EXPORT int cuptiGetTimestamp(uint64_t *out)
{
	*out = cupti_now();
	return CUPTI_OK;
}
