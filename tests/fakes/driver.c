/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libcuda.so.1: devices, contexts, modules. See README.md.
 */
#include "driver.h"

#include <dlfcn.h>

#define CONTEXTS_MAX 64u
#define STACK_MAX    16u
#define MODULE_COST  (2 * FAKE_MIB)

pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(fake_listener *) listener;
static _Atomic(fake_kernel_listener *) kernel_listener;
static _Atomic uint32_t correlations;
static struct fake_state *state;
static _Atomic int is_initialized;
static uint32_t visible[FAKE_DEVICES_MAX], visible_count;
static struct context contexts[CONTEXTS_MAX];
static uint32_t context_uids;
static struct context *primaries[FAKE_DEVICES_MAX];
static _Thread_local struct context *stack[STACK_MAX];
static _Thread_local uint32_t depth;

FAKE_EXPORT void fake_cuda_listen(fake_listener *to)
{
	atomic_store(&listener, to);
}

FAKE_EXPORT void fake_cuda_listen_kernels(fake_kernel_listener *to)
{
	atomic_store(&kernel_listener, to);
}

/* ---- what CUPTI is told ---- */

void tell_kernel(const struct fake_kernel *kernel)
{
	fake_kernel_listener *to = atomic_load(&kernel_listener);

	if (to != NULL)
		to(kernel);
}

void call_enter(struct call *call, uint32_t cbid, const char *name, const void *parameters,
		const char *symbol)
{
	fake_listener *to = atomic_load(&listener);
	struct context *context = context_now();

	call->correlation_data = 0;
	call->event = (struct fake_event){
		.domain = FAKE_DOMAIN_DRIVER,
		.cbid = cbid,
		.site = FAKE_ENTER,
		.name = name,
		.parameters = parameters,
		.symbol = symbol,
		.context = context,
		.context_uid = context == NULL ? 0 : context->uid,
		.correlation = atomic_fetch_add(&correlations, 1) + 1,
		.correlation_data = &call->correlation_data,
	};
	if (to != NULL)
		to(&call->event);
}

int call_exit(struct call *call, int result)
{
	fake_listener *to = atomic_load(&listener);

	call->event.site = FAKE_EXIT;
	call->result = result;
	call->event.result = &call->result;
	if (to != NULL)
		to(&call->event);
	return result;
}

static void tell_resource(uint32_t cbid, struct context *context)
{
	fake_listener *to = atomic_load(&listener);
	struct fake_event event = {.domain = FAKE_DOMAIN_RESOURCE,
				   .cbid = cbid,
				   .context = context,
				   .context_uid = context->uid};

	if (to != NULL)
		to(&event);
}

FAKE_EXPORT int fake_cuda_context_device(void *context, uint32_t *out_device)
{
	struct context *c = context;

	if (c < contexts || c >= contexts + CONTEXTS_MAX)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out_device = c->device;
	return CUDA_SUCCESS;
}

/* ---- devices ---- */

uint32_t device_count(void)
{
	return visible_count;
}

static struct fake_process *own_row(uint32_t device)
{
	struct fake_device *shared = &state->devices[visible[device]];
	int32_t self = getpid();
	uint32_t i;

	for (i = 0; i < FAKE_PROCESSES_MAX; i++) {
		if (atomic_load(&shared->processes[i].pid) == self)
			return &shared->processes[i];
	}
	for (i = 0; i < FAKE_PROCESSES_MAX; i++) {
		int32_t before = atomic_load(&shared->processes[i].pid);

		if (!fake_lives(before) &&
		    atomic_compare_exchange_strong(&shared->processes[i].pid, &before, self)) {
			atomic_store(&shared->processes[i].used, 0);
			return &shared->processes[i];
		}
	}
	abort();
}

uint64_t device_free(uint32_t device)
{
	uint64_t used = fake_used(state, visible[device]);

	uint64_t total = fake_total(visible[device]);

	return used < total ? total - used : 0;
}

bool device_charge(uint32_t device, uint64_t bytes)
{
	if (device >= visible_count || bytes > device_free(device))
		return false;
	atomic_fetch_add(&own_row(device)->used, bytes);
	return true;
}

void device_release(uint32_t device, uint64_t bytes)
{
	atomic_fetch_sub(&own_row(device)->used, bytes);
}

uint64_t device_total(uint32_t device)
{
	return fake_total(visible[device]);
}

/* The card that CUDA has by this number: unless told otherwise the fastest is first, here the last on the bus. */
static uint32_t in_order(uint32_t number)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	bool reversed = fake_setting("FAKE_CUDA_FASTEST_LAST", 0) != 0 &&
			(order == NULL || strcmp(order, "PCI_BUS_ID") != 0);

	return reversed ? fake_device_count() - 1 - number : number;
}

/* A device by one item of CUDA_VISIBLE_DEVICES; FAKE_DEVICES_MAX: none. */
static uint32_t by_name(const char *item)
{
	uint32_t found = FAKE_DEVICES_MAX, i;
	char text[64], old[96], parent[64];

	if (*item >= '0' && *item <= '9') {
		unsigned long number = strtoul(item, NULL, 10);

		return number < fake_device_count() ? in_order((uint32_t)number) : found;
	}
	fake_uuid_text(FAKE_DEVICES_MAX, parent, sizeof(parent));
	for (i = 0; i < fake_device_count(); i++) {
		fake_uuid_text(i, text, sizeof(text));
		(void)snprintf(old, sizeof(old), "MIG-%s/%u/0", parent, i - fake_whole_count() + 1);
		if (text[0] == 'M' && (strcmp(item, text) == 0 || strcmp(item, old) == 0))
			return i;
		/* A beginning will do, if it is of one GPU only. */
		if (text[0] == 'G' && strncmp(item, "GPU-", 4) == 0 &&
		    strncmp(item, text, strlen(item)) == 0) {
			if (found != FAKE_DEVICES_MAX)
				return FAKE_DEVICES_MAX;
			found = i;
		}
	}
	return found;
}

/* As CUDA: the first item that is no device ends the list, one that comes twice empties it, and a part of a card is the only device. */
static void read_visible(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char copy[1024], *item, *rest = copy;
	uint32_t i, device;

	visible_count = 0;
	for (i = 0; list == NULL && i < fake_device_count(); i++)
		visible[visible_count++] = in_order(i);
	(void)snprintf(copy, sizeof(copy), "%s", list == NULL ? "" : list);
	while ((item = strsep(&rest, ",")) != NULL && visible_count < FAKE_DEVICES_MAX) {
		item += strspn(item, " ");
		device = by_name(item);
		if (device == FAKE_DEVICES_MAX)
			break;
		for (i = 0; i < visible_count && visible[i] != device; i++)
			;
		if (i < visible_count) {
			visible_count = 0;
			break;
		}
		visible[visible_count++] = device;
		if (device >= fake_whole_count())
			break;
	}
}

static void inject(void)
{
	const char *path = getenv("CUDA_INJECTION64_PATH");
	void *library = path == NULL || *path == '\0' ? NULL : dlopen(path, RTLD_NOW);
	int (*initialize)(void);

	if (library == NULL)
		return;
	*(void **)&initialize = dlsym(library, "InitializeInjection");
	if (initialize != NULL)
		(void)initialize();
}

/* As a real driver: a child that was forked behind cuInit cannot use CUDA. */
static void forked(void)
{
	if (atomic_load(&is_initialized))
		atomic_store(&is_initialized, -1);
}

PLAIN(cuInit, (unsigned int flags))
{
	bool first = false;

	(void)flags;
	if (atomic_load(&is_initialized) < 0)
		return CUDA_ERROR_NOT_INITIALIZED;
	(void)pthread_mutex_lock(&driver_lock);
	if (!atomic_load(&is_initialized)) {
		state = fake_state_open();
		read_visible();
		(void)pthread_atfork(NULL, NULL, forked);
		atomic_store(&is_initialized, 1);
		first = true;
	}
	(void)pthread_mutex_unlock(&driver_lock);
	if (first)
		inject();
	return visible_count == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

static bool usable(int device)
{
	return atomic_load(&is_initialized) > 0 && device >= 0 && (uint32_t)device < visible_count;
}

PLAIN(cuDriverGetVersion, (int *out))
{
	*out = 13000;
	return CUDA_SUCCESS;
}

PLAIN(cuDeviceGetCount, (int *out))
{
	*out = (int)visible_count;
	return atomic_load(&is_initialized) > 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

PLAIN(cuDeviceGet, (int *out, int ordinal))
{
	*out = ordinal;
	return usable(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PLAIN(cuDeviceGetName, (char *out, int bytes, int device))
{
	(void)snprintf(out, (size_t)bytes, "Stand-in GPU");
	return usable(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PLAIN(cuDeviceTotalMem_v2, (size_t * out, int device))
{
	*out = usable(device) ? device_total((uint32_t)device) : 0;
	return usable(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PLAIN(cuDeviceGetAttribute, (int *out, int attribute, int device))
{
	*out = attribute == 75 ? 9 : 1; /* compute capability 9.1 */
	return usable(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PLAIN(cuDeviceGetUuid_v2, (unsigned char *out, int device))
{
	if (fake_setting("FAKE_CUDA_NO_UUIDS", 0) != 0)
		return CUDA_ERROR_NOT_FOUND;
	if (usable(device))
		fake_uuid(visible[device], out);
	return usable(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

PLAIN(cuDeviceGetPCIBusId, (char *out, int bytes, int device))
{
	if (!usable(device))
		return CUDA_ERROR_INVALID_DEVICE;
	(void)snprintf(out, (size_t)bytes, "0000:%02X:00.0", 0x10 + visible[device]);
	return CUDA_SUCCESS;
}

/* ---- contexts ---- */

struct context *context_now(void)
{
	return depth == 0 ? NULL : stack[depth - 1];
}

static struct context *context_new(uint32_t device)
{
	struct context *context = NULL;
	uint32_t i;

	(void)pthread_mutex_lock(&driver_lock);
	for (i = 0; i < CONTEXTS_MAX && contexts[i].alive; i++)
		;
	if (i < CONTEXTS_MAX &&
	    device_charge(device, fake_setting("FAKE_CUDA_CONTEXT_MB", 256) * FAKE_MIB)) {
		context = &contexts[i];
		*context = (struct context){.uid = ++context_uids, .device = device, .alive = true};
	}
	(void)pthread_mutex_unlock(&driver_lock);
	if (context != NULL)
		tell_resource(1, context);
	return context;
}

static void context_end(struct context *context)
{
	tell_resource(2, context);
	memory_drop(context->uid);
	(void)pthread_mutex_lock(&driver_lock);
	device_release(context->device, fake_setting("FAKE_CUDA_CONTEXT_MB", 256) * FAKE_MIB);
	context->alive = false;
	(void)pthread_mutex_unlock(&driver_lock);
	if (context_now() == context)
		depth--;
}

static int context_create(void **out, int device)
{
	if (!usable(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*out = context_new((uint32_t)device);
	if (*out == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++ % STACK_MAX] = *out;
	return CUDA_SUCCESS;
}

struct create_v2 {
	void **out;
	unsigned int flags;
	int device;
};

REPORTED(235, cuCtxCreate_v2, (void **out, unsigned int flags, int device),
	 context_create(out, device), create_v2, out, flags, device)

struct create_v4 {
	void **out;
	void *parameters;
	unsigned int flags;
	int device;
};

REPORTED(757, cuCtxCreate_v4, (void **out, void *more, unsigned int flags, int device),
	 context_create(out, device), create_v4, out, more, flags, device)

static int context_destroy(struct context *context)
{
	if (context == NULL || !context->alive)
		return CUDA_ERROR_INVALID_CONTEXT;
	context_end(context);
	return CUDA_SUCCESS;
}

struct one_pointer {
	void *pointer;
};

REPORTED(322, cuCtxDestroy_v2, (void *context), context_destroy(context), one_pointer, context)

struct primary_retain {
	void **out;
	int device;
};

static int primary_retain(void **out, int device)
{
	if (!usable(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (primaries[device] == NULL)
		primaries[device] = context_new((uint32_t)device);
	if (primaries[device] == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	primaries[device]->uses++;
	*out = primaries[device];
	return CUDA_SUCCESS;
}

REPORTED(386, cuDevicePrimaryCtxRetain, (void **out, int device), primary_retain(out, device),
	 primary_retain, out, device)

struct one_int {
	int value;
};

static int primary_release(int device, bool all)
{
	if (!usable(device) || primaries[device] == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (all || --primaries[device]->uses == 0) {
		context_end(primaries[device]);
		primaries[device] = NULL;
	}
	return CUDA_SUCCESS;
}

REPORTED(544, cuDevicePrimaryCtxRelease_v2, (int device), primary_release(device, false), one_int,
	 device)
REPORTED(545, cuDevicePrimaryCtxReset_v2, (int device), primary_release(device, true), one_int,
	 device)

PLAIN(cuDevicePrimaryCtxGetState, (int device, unsigned int *flags, int *active))
{
	if (!usable(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*flags = 0;
	*active = primaries[device] != NULL;
	return CUDA_SUCCESS;
}

PLAIN(cuCtxGetCurrent, (void **out))
{
	*out = context_now();
	return CUDA_SUCCESS;
}

PLAIN(cuCtxSetCurrent, (void *context))
{
	if (depth == 0)
		depth = 1;
	stack[depth - 1] = context;
	return CUDA_SUCCESS;
}

PLAIN(cuCtxPushCurrent_v2, (void *context))
{
	stack[depth++ % STACK_MAX] = context;
	return CUDA_SUCCESS;
}

PLAIN(cuCtxPopCurrent_v2, (void **out))
{
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (out != NULL)
		*out = stack[depth];
	return CUDA_SUCCESS;
}

PLAIN(cuCtxGetDevice, (int *out))
{
	if (context_now() == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*out = (int)context_now()->device;
	return CUDA_SUCCESS;
}

PLAIN(cuCtxGetId, (void *context, uint64_t *out))
{
	*out = context == NULL ? 0 : ((struct context *)context)->uid;
	return context == NULL ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

struct context *context_of(uint32_t uid)
{
	uint32_t i;

	for (i = 0; i < CONTEXTS_MAX; i++) {
		if (contexts[i].alive && contexts[i].uid == uid)
			return &contexts[i];
	}
	return NULL;
}

/* ---- modules ---- */

struct module {
	uint32_t device;
	char *text;
};

struct load_data {
	void **out;
	const void *image;
};

static int module_load(void **out, const void *image)
{
	struct context *context = context_now();
	struct module *module;
	bool room;
	int error;

	if (capture_breaks(&error))
		return error;
	if (context == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	(void)pthread_mutex_lock(&driver_lock);
	room = device_charge(context->device, MODULE_COST);
	(void)pthread_mutex_unlock(&driver_lock);
	if (!room)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module = malloc(sizeof(*module));
	module->device = context->device;
	module->text = strdup(image);
	*out = module;
	tell_resource(6, context);
	return CUDA_SUCCESS;
}

REPORTED(19, cuModuleLoadData, (void **out, const void *image), module_load(out, image), load_data,
	 out, image)

static int module_unload(void *module)
{
	struct module *m = module;

	(void)pthread_mutex_lock(&driver_lock);
	device_release(m->device, MODULE_COST);
	(void)pthread_mutex_unlock(&driver_lock);
	free(m->text);
	free(m);
	return CUDA_SUCCESS;
}

REPORTED(22, cuModuleUnload, (void *module), module_unload(module), one_pointer, module)

/* A kernel is what the PTX text has as .entry. */
PLAIN(cuModuleGetFunction, (void **out, void *module, const char *name))
{
	struct module *m = module;
	struct kernel *kernel;
	const char *at;
	size_t length = strlen(name);

	for (at = strstr(m->text, ".entry "); at != NULL; at = strstr(at + 1, ".entry ")) {
		if (strncmp(at + 7, name, length) == 0 &&
		    strchr("( \n\t", at[7 + length]) != NULL) {
			kernel = malloc(sizeof(*kernel));
			(void)snprintf(kernel->name, sizeof(kernel->name), "%s", name);
			kernel->text = m->text;
			*out = kernel;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_NOT_FOUND;
}

PLAIN(cuFuncGetParamInfo, (void *function, size_t index, size_t *out_offset, size_t *out_bytes))
{
	const struct kernel *kernel = function;

	if (index >= ptx_parameters(kernel->text, kernel->name))
		return CUDA_ERROR_INVALID_VALUE;
	*out_offset = 8 * index;
	*out_bytes = 8;
	return CUDA_SUCCESS;
}

/* ---- errors, names ---- */

PLAIN(cuGetErrorName, (int error, const char **out))
{
	*out = error == CUDA_SUCCESS		   ? "CUDA_SUCCESS"
	       : error == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
						   : "CUDA_ERROR";
	return CUDA_SUCCESS;
}

#define PER_THREAD 2u

PLAIN(cuGetProcAddress, (const char *name, void **out, int version, uint64_t flags))
{
	(void)version;
	*out = driver_function(name, (flags & PER_THREAD) != 0);
	return *out == NULL ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

PLAIN(cuGetProcAddress_v2,
      (const char *name, void **out, int version, uint64_t flags, int *out_status))
{
	int r = cuGetProcAddress(name, out, version, flags);

	if (out_status != NULL)
		*out_status = r == CUDA_SUCCESS ? 0 : 1;
	return r;
}
