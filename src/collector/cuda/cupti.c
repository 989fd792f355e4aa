/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUPTI, NVIDIA's interface for tools: the driver's calls on the thread that makes them, before and behind. Programs find the driver by
 * themselves (cuGetProcAddress), so nothing that is preloaded sees these calls.
 *
 * The driver loads the library that CUDA_INJECTION64_PATH names and calls its InitializeInjection(), which is us. A program that has
 * used CUDA before is subscribed to directly (mscope_cuda()).
 *
 * CUPTI has one subscriber. We yield: another caller of cuptiSubscribe() finds it free, because our hook of that function gives
 * up ours first. From then on calls of the driver are not seen, and the trace says so. cuptiFinalize() is never called.
 *
 * Whatever is missing or strange here costs rows of the driver, and nothing else: a note says what it was.
 */
#include "collector/cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/api.h"
#include "collector/loader/walk.h"
#include "collector/lock.h"
#include "collector/process/process.h"

#define HOOK HOOK_DEFINE
#include "collector/cuda/hooks.def"
#undef HOOK

#define CUPTI_NOT_INITIALIZED	   15
#define CUPTI_MULTIPLE_SUBSCRIBERS 39
#define DOMAIN_DRIVER		   1u
#define DOMAIN_RESOURCE		   3u
#define RESOURCE_CONTEXT_MADE	   1u
#define RESOURCE_CONTEXT_ENDS	   2u
#define RESOURCE_CODE_LOADED	   6u
#define RESOURCE_GRAPH_MADE	   18u /* ready to be launched */
#define NUMBERS			   1024u
#define CONTEXTS		   64u
#define SUBSCRIBE_WAIT_NS	   UINT64_C(1000000000)

/* CUpti_ResourceData. */
struct cupti_resource {
	void *context;
	void *handle;
	void *descriptor;
};

enum subscription {
	SUBSCRIPTION_NONE = 0,
	SUBSCRIPTION_OURS,
	SUBSCRIPTION_YIELDED, /* another tool has it */
	SUBSCRIPTION_FAILED,  /* not tried again */
};

static struct lock subscription_lock = {.foreign = true}; /* guards what follows */
static _Atomic uint32_t subscription;
static void *subscriber;
static bool launches; /* callbacks of launches are on */

static _Atomic(driver_call_handler *) handlers[NUMBERS];

/* Functions of the CUPTI that is used, all of one library. Set before the first callback. */
static struct {
	int (*subscribe)(void **subscriber, cupti_callback *callback, void *userdata);
	int (*unsubscribe)(void *subscriber);
	int (*enable)(uint32_t on, void *subscriber, uint32_t domain, uint32_t number);
	int (*name)(uint32_t domain, uint32_t number, const char **out); /* NULL: it has none */
	int (*device)(void *context, uint32_t *out);			 /* the same */
	int (*context_number)(void *context, uint32_t *out);		 /* the same */
} cupti;

/* ---- contexts ---- */

/* CUDA contexts by their numbers, which are never used again; an entry is taken over when many were made since. */
static struct context_entry {
	_Atomic(void *) context; /* NULL: none, or it is about to change */
	_Atomic uint32_t number;
	_Atomic uint32_t device; /* as the machine numbers it */
} contexts[CONTEXTS];

static MSCOPE_COLD __attribute__((noinline)) uint32_t find_device_slow(void *context,
								       uint32_t number)
{
	struct context_entry *entry = &contexts[number % CONTEXTS];
	uint32_t device = 0;

	/* Of a green context CUPTI may not tell; the thread that calls has it set. */
	if ((cupti.device == NULL || cupti.device(context, &device) != CUPTI_SUCCESS) &&
	    (device = cuda_device_here()) == DEVICE_UNKNOWN)
		return DEVICE_UNKNOWN;
	device = cuda_physical_device(device);
	atomic_store(&entry->context, NULL);
	atomic_store(&entry->number, number);
	atomic_store(&entry->device, device);
	/* Publishes the two before it. Pairs with the acquire in cupti_device(). */
	atomic_store_explicit(&entry->context, context, memory_order_release);
	return device;
}

uint32_t cupti_device(void *context, uint32_t number)
{
	const struct context_entry *entry = &contexts[number % CONTEXTS];

	if (context == NULL)
		return DEVICE_UNKNOWN;
	if (MSCOPE_LIKELY(atomic_load_explicit(&entry->context, memory_order_acquire) == context &&
			  atomic_load_explicit(&entry->number, memory_order_relaxed) == number))
		return atomic_load_explicit(&entry->device, memory_order_relaxed);
	return find_device_slow(context, number);
}

/* All that a context holds ends with it, without further calls. */
static MSCOPE_COLD void context_ends(void *context)
{
	struct event_driver_context_end event = {0};
	uint32_t number = 0;
	struct writer *w;

	if (cupti.context_number == NULL || cupti.context_number(context, &number) != CUPTI_SUCCESS)
		return;
	event.number = number;
	w = writer_enter();
	if (w == NULL)
		return;
	WRITER_PUT(w, driver_context_end, 0, &event);
	writer_leave(w);
}

/* The driver takes memory of its own for what it has just made: a record says so, and the next figures of the driver how much. */
static MSCOPE_COLD void take_cost(uint32_t resource, void *context)
{
	struct event_driver_cost event = {.kind = resource == RESOURCE_CONTEXT_MADE  ? COST_CONTEXT
						  : resource == RESOURCE_CODE_LOADED ? COST_CODE
										     : COST_GRAPH};
	uint32_t device = 0;
	struct writer *w;

	if (context == NULL || cupti.device == NULL ||
	    cupti.device(context, &device) != CUPTI_SUCCESS)
		return;
	event.device = cuda_physical_device(device);
	w = writer_enter();
	if (w == NULL)
		return;
	WRITER_PUT(w, driver_cost,
		   writer_device(w, device_key(VENDOR_CUDA, (uint32_t)event.device)), &event);
	writer_leave(w);
}

/* ---- the callback ---- */

static void on_callback(void *userdata, uint32_t domain, uint32_t number, const void *data)
{
	driver_call_handler *handler;
	struct driver_call call;
	int saved_errno;

	(void)userdata;
	if (recording_now() == RECORDING_OFF || data == NULL)
		return;
	saved_errno = errno;
	if (domain == DOMAIN_DRIVER && number < NUMBERS && !reading_is_own()) {
		handler = atomic_load_explicit(&handlers[number], memory_order_acquire);
		call = (struct driver_call){.data = data};
		call.before = call.data->site == 0;
		if (handler != NULL && call.data->parameters != NULL && call.data->kept != NULL &&
		    (call.before || call.data->result != NULL)) {
			call.result = call.before ? 0 : *call.data->result;
			handler(&call);
		}
	} else if (domain == DOMAIN_RESOURCE && number == RESOURCE_CONTEXT_ENDS) {
		context_ends(((const struct cupti_resource *)data)->context);
	} else if (domain == DOMAIN_RESOURCE) {
		take_cost(number, ((const struct cupti_resource *)data)->context);
	}
	errno = saved_errno;
}

/* ---- finding CUPTI ---- */

/* The loader's own functions. The collector must not need libdl; a program that uses CUDA has it. */
static struct lookup_function loader_open = {.name = "dlopen"};
static struct lookup_function loader_symbol = {.name = "dlsym"};
static struct lookup_function loader_close = {.name = "dlclose"};

void *cupti_function(void *library, const char *name)
{
	void *(*find)(void *, const char *) =
		(void *(*)(void *, const char *))lookup_function(&loader_symbol);

	if (library == NULL)
		return lookup_symbol(name);
	return find == NULL ? NULL : find(library, name);
}

/* How an attempt with one library ended: CUPTI's code, or no such library. */
#define TRIED_NOTHING (-1)

static int try_library(void *library)
{
	int (*close_library)(void *) = (int (*)(void *))lookup_function(&loader_close);
	int r = TRIED_NOTHING;

	*(void **)&cupti.subscribe = cupti_function(library, "cuptiSubscribe");
	*(void **)&cupti.unsubscribe = cupti_function(library, "cuptiUnsubscribe");
	*(void **)&cupti.enable = cupti_function(library, "cuptiEnableCallback");
	*(void **)&cupti.name = cupti_function(library, "cuptiGetCallbackName");
	*(void **)&cupti.device = cupti_function(library, "cuptiGetDeviceId");
	*(void **)&cupti.context_number = cupti_function(library, "cuptiGetContextId");
	activity_find(library);
	if (cupti.subscribe != NULL && cupti.unsubscribe != NULL && cupti.enable != NULL)
		r = cupti.subscribe(&subscriber, on_callback, NULL);
	/* Of another CUDA than the driver is. */
	if (r != CUPTI_SUCCESS && library != NULL && close_library != NULL)
		(void)close_library(library);
	return r;
}

static int try_path(const char *path)
{
	void *(*open)(const char *, int) =
		(void *(*)(const char *, int))lookup_function(&loader_open);
	void *library = open == NULL ? NULL : open(path, RTLD_NOW | RTLD_LOCAL);

	return library == NULL ? TRIED_NOTHING : try_library(library);
}

static int try_file(const char *directory, const char *rest)
{
	char path[SESSION_PATH_MAX];
	int length = snprintf(path, sizeof(path), "%s%s", directory, rest);

	return length > 0 && (size_t)length < sizeof(path) && access(path, R_OK) == 0
		       ? try_path(path)
		       : TRIED_NOTHING;
}

/* Directory of Python packages that a loaded object lies in. */
static int visit_packages(struct dl_phdr_info *info, size_t size, void *arg)
{
	static const char *const names[] = {"/site-packages/", "/dist-packages/"};
	char *out = arg;
	size_t i;

	(void)size;
	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		const char *at = info->dlpi_name == NULL ? NULL : strstr(info->dlpi_name, names[i]);
		size_t length = at == NULL ? 0 : (size_t)(at - info->dlpi_name) + strlen(names[i]);

		if (length != 0 && length < SESSION_PATH_MAX) {
			memcpy(out, info->dlpi_name, length);
			out[length] = '\0';
			return 1;
		}
	}
	return 0;
}

/* Whether to go on with the next library: this one is not there, or does not fit. */
static bool goes_on(int tried, int *worst)
{
	if (tried != TRIED_NOTHING && *worst == TRIED_NOTHING)
		*worst = tried;
	if (tried == CUPTI_SUCCESS || tried == CUPTI_MULTIPLE_SUBSCRIBERS) {
		*worst = tried;
		return false;
	}
	return true;
}

/* Subscribes with the first CUPTI that can. What the program itself has loaded is the only one: a second beside it would not work. */
static int try_all(void)
{
	static const char *const in_packages[] = {"nvidia/cu13/lib/libcupti.so.13",
						  "nvidia/cuda_cupti/lib/libcupti.so.12",
						  "nvidia/cuda_cupti/lib/libcupti.so.11.8"};
	static const char *const names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8",
					    "libcupti.so"};
	static const char *const in_toolkit[] = {"/extras/CUPTI/lib64/libcupti.so",
						 "/lib64/libcupti.so"};
	const char *homes[] = {getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"};
	const char *named = getenv("CUPTI_LIBRARY");
	char packages[SESSION_PATH_MAX] = "";
	int worst = TRIED_NOTHING;
	size_t i;

	if (named != NULL && named[0] != '\0')
		return try_path(named);
	if (lookup_symbol("cuptiSubscribe") != NULL)
		return try_library(NULL);
	(void)loader_walk(visit_packages, packages);
	for (i = 0; packages[0] != '\0' && i < MSCOPE_COUNT(in_packages); i++) {
		if (!goes_on(try_file(packages, in_packages[i]), &worst))
			return worst;
	}
	for (i = 0; i < MSCOPE_COUNT(names); i++) {
		if (!goes_on(try_path(names[i]), &worst))
			return worst;
	}
	for (i = 0; i < MSCOPE_COUNT(homes) * MSCOPE_COUNT(in_toolkit); i++) {
		if (homes[i / 2] != NULL &&
		    !goes_on(try_file(homes[i / 2], in_toolkit[i % 2]), &worst))
			return worst;
	}
	return worst;
}

/* ---- subscribing ---- */

/* Names of a number's versions may differ: cuMemHostAlloc and cuMemHostAlloc_v2. */
static bool is_name(const char *said, const char *ours)
{
	size_t length = strcspn(ours, "_");

	return strncmp(said, ours, length) == 0 && (said[length] == '_' || said[length] == '\0');
}

/* CUPTI of another time might mean another call by a number; one that cannot be asked is believed. */
static bool is_call(const struct driver_call_row *row)
{
	const char *said = NULL;

	return cupti.name == NULL ||
	       cupti.name(DOMAIN_DRIVER, row->number, &said) != CUPTI_SUCCESS || said == NULL ||
	       is_name(said, row->name);
}

/* Returns how many calls CUPTI means by other numbers. */
static uint32_t enable_calls(bool of_launches, bool on)
{
	uint32_t strange = 0, i;

	for (i = 0; i < driver_call_count; i++) {
		const struct driver_call_row *row = &driver_call_rows[i];

		if (row->launch != of_launches)
			continue;
		if (!is_call(row)) {
			strange++;
			continue;
		}
		atomic_store_explicit(&handlers[row->number], row->handler, memory_order_release);
		/* Older ones do not know all of them. */
		(void)cupti.enable(on, subscriber, DOMAIN_DRIVER, row->number);
	}
	return strange;
}

/* Kernels are rows when the user asked for their level: every launch costs two callbacks. */
bool cupti_wants_launches(void)
{
	return (collector.chosen.events & SESSION_LAUNCH) &&
	       (collector.chosen.level & SESSION_LEVEL_KERNEL);
}

/* The trace's own word on which part of it has calls of the driver. */
static void event_source(enum driver_source state)
{
	struct event_driver_source event = {.vendor = VENDOR_CUDA, .state = state};
	uint32_t recording = recording_now();
	struct writer *w;

	/* A forked child that does nothing else leaves no trace. */
	if (recording != RECORDING_ON && recording != RECORDING_SHADOW)
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	WRITER_PUT(w, driver_source, 0, &event);
	writer_leave(w);
}

static void put_late(void)
{
	struct writer *w = writer_enter();

	if (w == NULL)
		return;
	WRITER_PUT(w, late_hooks, 0, &(struct event_late_hooks){0});
	writer_leave(w);
}

static int visit_driver(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t wanted = *(const uintptr_t *)arg, start = UINTPTR_MAX, end = 0;
	bool is_it = false;
	uint32_t i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t first = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		is_it = is_it || wanted - first < p->p_memsz;
		start = first < start ? first : start;
		end = first + p->p_memsz > end ? first + p->p_memsz : end;
	}
	if (is_it)
		stack_add_driver(start, end - start);
	return is_it;
}

/* Stacks begin where the program calls the driver, not inside of it. */
static void know_driver(void *function)
{
	uintptr_t address = (uintptr_t)function;

	if (function != NULL)
		(void)loader_walk(visit_driver, &address);
}

/* With the lock held. The new state. */
static enum subscription subscribe(bool late)
{
	static const uint32_t resources[] = {RESOURCE_CONTEXT_MADE, RESOURCE_CONTEXT_ENDS,
					     RESOURCE_CODE_LOADED, RESOURCE_GRAPH_MADE};
	size_t i;
	int r = try_all();
	uint32_t strange;

	if (r != CUPTI_SUCCESS) {
		subscriber = NULL;
		if (r == TRIED_NOTHING)
			collector_note(
				"calls of the CUDA driver are not recorded: CUPTI was not found; set CUPTI_LIBRARY to its path");
		else if (r == CUPTI_MULTIPLE_SUBSCRIBERS)
			collector_note(
				"calls of the CUDA driver are not recorded: another tool uses CUPTI");
		else
			collector_note(
				"calls of the CUDA driver are not recorded: CUPTI refused with error %d",
				r);
		return SUBSCRIPTION_FAILED;
	}
	know_driver((void *)cupti.subscribe);
	know_driver(lookup_symbol("cuInit"));
	strange = enable_calls(false, true);
	launches = cupti_wants_launches();
	if (launches) {
		strange += enable_calls(true, true);
		activity_begin();
	}
	for (i = 0; i < MSCOPE_COUNT(resources); i++)
		(void)cupti.enable(1, subscriber, DOMAIN_RESOURCE, resources[i]);
	if (strange != 0)
		collector_note(
			"this CUPTI numbers %u of %u calls of the CUDA driver differently; they are not recorded",
			strange, driver_call_count);
	/* From the first call on it goes without saying, and a process that does nothing else leaves no trace. */
	if (late) {
		put_late();
		event_source(DRIVER_SOURCE_BEGINS);
	}
	return SUBSCRIPTION_OURS;
}

static void adjust_launches(void)
{
	if (launches != cupti_wants_launches()) {
		launches = !launches;
		(void)enable_calls(true, launches);
		if (launches)
			activity_begin();
		else
			(void)activity_end(false);
	}
}

MSCOPE_COLD void cupti_begin(bool late)
{
	int saved_errno = errno;
	uint32_t state;

	if (!lock_take_within(&subscription_lock, SUBSCRIBE_WAIT_NS))
		return;
	state = atomic_load(&subscription);
	if (state == SUBSCRIPTION_OURS)
		adjust_launches();
	else if (state == SUBSCRIPTION_NONE)
		atomic_store(&subscription, subscribe(late));
	lock_release(&subscription_lock);
	collector_write_notes();
	errno = saved_errno;
}

/* ---- other subscribers ---- */

static MSCOPE_COLD void give_up(enum subscription state)
{
	int saved_errno = errno;

	if (!lock_take_within(&subscription_lock, SUBSCRIBE_WAIT_NS))
		return;
	if (atomic_load(&subscription) == SUBSCRIPTION_OURS) {
		(void)activity_end(state == SUBSCRIPTION_YIELDED);
		if (state == SUBSCRIPTION_YIELDED)
			event_source(DRIVER_SOURCE_YIELDS);
		(void)cupti.unsubscribe(subscriber);
		subscriber = NULL;
	}
	atomic_store(&subscription, state);
	lock_release(&subscription_lock);
	errno = saved_errno;
}

MSCOPE_EXPORT int cuptiSubscribe(void **other, cupti_callback *callback, void *userdata)
{
	hook_cuptiSubscribe *original = HOOK_ORIGINAL(cuptiSubscribe);

	if (original == NULL)
		return CUPTI_NOT_INITIALIZED;
	give_up(SUBSCRIPTION_YIELDED);
	return original(other, callback, userdata);
}

MSCOPE_EXPORT int cuptiSubscribe_v2(void **other, cupti_callback *callback, void *userdata,
				    void *parameters)
{
	hook_cuptiSubscribe_v2 *original = HOOK_ORIGINAL(cuptiSubscribe_v2);

	if (original == NULL)
		return CUPTI_NOT_INITIALIZED;
	give_up(SUBSCRIPTION_YIELDED);
	return original(other, callback, userdata, parameters);
}

/* Another tool is about to use activity records, with or without callbacks of its own. */
static MSCOPE_COLD void give_up_activity(void)
{
	int saved_errno = errno;

	if (!lock_take_within(&subscription_lock, SUBSCRIBE_WAIT_NS))
		return;
	if (activity_end(true))
		event_source(DRIVER_SOURCE_TIMES_YIELD);
	lock_release(&subscription_lock);
	errno = saved_errno;
}

MSCOPE_EXPORT int cuptiActivityRegisterCallbacks(activity_request *request,
						 activity_complete *complete)
{
	hook_cuptiActivityRegisterCallbacks *original =
		HOOK_ORIGINAL(cuptiActivityRegisterCallbacks);

	if (original == NULL)
		return CUPTI_NOT_INITIALIZED;
	give_up_activity();
	return original(request, complete);
}

MSCOPE_EXPORT int cuptiActivityEnable(uint32_t kind)
{
	hook_cuptiActivityEnable *original = HOOK_ORIGINAL(cuptiActivityEnable);

	if (original == NULL)
		return CUPTI_NOT_INITIALIZED;
	give_up_activity();
	return original(kind);
}

MSCOPE_EXPORT int cuptiActivityEnableContext(void *context, uint32_t kind)
{
	hook_cuptiActivityEnableContext *original = HOOK_ORIGINAL(cuptiActivityEnableContext);

	if (original == NULL)
		return CUPTI_NOT_INITIALIZED;
	give_up_activity();
	return original(context, kind);
}

/* ---- how it begins ---- */

static int visit_order(struct dl_phdr_info *info, size_t size, void *arg)
{
	uintptr_t own = (uintptr_t)&subscription_lock, libc = (uintptr_t)getenv;
	bool *before = arg;
	uint32_t i;

	(void)size;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + p->p_vaddr;

		if (p->p_type != PT_LOAD)
			continue;
		if (own - start < p->p_memsz) {
			*before = true;
			return 1;
		}
		if (libc - start < p->p_memsz)
			return 1;
	}
	return 0;
}

/*
 * Whether calls of cuptiSubscribe() come to us: where we are preloaded, and so stand before libc, or where the calls of a script were
 * redirected. Elsewhere we must not stand in the way of another tool.
 */
static bool can_yield(void)
{
	bool before = false;

	(void)loader_walk(visit_order, &before);
	return before || collector.own_session;
}

static bool is_recording(void)
{
	uint32_t recording = recording_now();

	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		recording = collector_attach_slow();
	return recording != RECORDING_OFF && recording != RECORDING_BROKEN;
}

bool cuda_is_wanted(void)
{
	return can_yield() && is_recording();
}

/* The driver calls it in cuInit(). Its result is not used. */
MSCOPE_EXPORT int InitializeInjection(void)
{
	hook_InitializeInjection *active;

	if (session_is_disabled())
		return 1;
	if (lookup_is_passive_quiet()) {
		active = HOOK_ORIGINAL(InitializeInjection);
		return active == NULL ? 1 : active();
	}
	if (cuda_is_wanted())
		cupti_begin(false);
	return 1;
}

MSCOPE_EXPORT int32_t mscope_cuda(uint32_t on)
{
	static struct lookup_function driver = {.name = "cuInit"};
	static struct lookup_function count = {.name = "cuDeviceGetCount"};
	int (*ask)(int *) = (int (*)(int *))lookup_function(&count);
	int devices = 0;

	if (on == 0) {
		give_up(SUBSCRIPTION_NONE);
		return 1;
	}
	/* A driver that is not initialised will call us. */
	if (lookup_function(&driver) == NULL || ask == NULL || ask(&devices) != 0)
		return 0;
	if (is_recording())
		cupti_begin(true);
	return 1;
}

void cupti_reset(void)
{
	memset(contexts, 0, sizeof(contexts));
	activity_reset();
}
