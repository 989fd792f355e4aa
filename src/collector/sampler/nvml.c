/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of NVIDIA's driver, by libnvidia-ml.so.1, which takes nothing of a GPU for the answer. NVML numbers devices in the order of
 * the bus; CUDA in another order (the fastest first, CUDA_VISIBLE_DEVICES), so a device goes by its UUID. A GPU that is divided
 * (MIG) stands for its parts: a program has one of these, and the figures of the whole GPU are not those of its device.
 *
 * The list of processes costs the driver more: it is asked for when the device's own figure has changed, when the engine asks, and
 * once in a while.
 */
#include <string.h>

#include "collector/sampler/source.h"

#define DEVICES_MAX   64u
#define PROCESSES_MAX 256u
#define ROUNDS	      10u /* between two lists of processes on a device that does not change */
#define TRIES	      4u  /* to get a device's figure and its list of the same moment */
#define NVML_OK	      0

/* Version 2 has apart what the driver keeps for itself on an idle device, which cuMemGetInfo() does not count either. */
struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

struct memory {
	unsigned long long total, free, used;
};

/* As of version 2 and 3 of the function; the first has no instances. */
struct process_info {
	unsigned int pid;
	unsigned long long used; /* all ones: not told, as of MIG */
	unsigned int gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct memory_v2) == 40 && sizeof(struct process_info) == 24,
	       "the driver's layouts");

#define MEMORY_V2 (sizeof(struct memory_v2) | 2u << 24)

static struct {
	int (*init)(void);
	int (*count)(unsigned int *out);
	int (*handle)(unsigned int index, void **out);
	int (*memory_v2)(void *device, struct memory_v2 *out);
	int (*memory)(void *device, struct memory *out);
	int (*processes)(void *device, unsigned int *count, struct process_info *out);
	int (*name)(void *device, char *out, unsigned int bytes);
	int (*uuid)(void *device, char *out, unsigned int bytes);
	int (*divided)(void *device, unsigned int *now, unsigned int *later);
	int (*parts)(void *device, unsigned int *most);
	int (*part)(void *device, unsigned int index, void **out);
} nvml;

static struct {
	void *handle;
	unsigned int number; /* of NVML */
	uint8_t uuid[16];    /* zeros: unknown */
	char name[SAMPLER_NAME_BYTES];
	unsigned long long used;
	bool known;
} devices[DEVICES_MAX];
static unsigned int device_count;

/* Reads GPU-8932f937-d72c-4106-c12f-20bd9faed9f6, or the same with MIG; false: another form. */
static bool read_uuid(const char *text, uint8_t *out)
{
	unsigned int digits = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return false;
	for (text += 4; *text != '\0'; text++) {
		int digit = *text >= '0' && *text <= '9'   ? *text - '0'
			    : *text >= 'a' && *text <= 'f' ? *text - 'a' + 10
			    : *text >= 'A' && *text <= 'F' ? *text - 'A' + 10
							   : -1;

		if (*text == '-')
			continue;
		if (digit < 0 || digits == 32)
			return false;
		out[digits / 2] = (uint8_t)(out[digits / 2] << 4 | digit);
		digits++;
	}
	return digits == 32;
}

static void add_device(void *handle, unsigned int number)
{
	char text[96] = "";
	uint8_t uuid[16] = {0};

	if (device_count == DEVICES_MAX)
		return;
	devices[device_count].handle = handle;
	devices[device_count].number = number;
	if (nvml.name != NULL && nvml.name(handle, text, sizeof(text) - 1) == NVML_OK)
		memcpy(devices[device_count].name, text, strnlen(text, sizeof(devices[0].name)));
	text[0] = '\0';
	if (nvml.uuid != NULL && nvml.uuid(handle, text, sizeof(text) - 1) == NVML_OK &&
	    read_uuid(text, uuid))
		memcpy(devices[device_count].uuid, uuid, sizeof(uuid));
	device_count++;
}

static void add_gpu(unsigned int number)
{
	unsigned int now = 0, later, most = 0, i;
	void *handle, *part;

	if (nvml.handle(number, &handle) != NVML_OK)
		return;
	if (nvml.divided == NULL || nvml.divided(handle, &now, &later) != NVML_OK || now == 0) {
		add_device(handle, number);
		return;
	}
	if (nvml.parts == NULL || nvml.part == NULL || nvml.parts(handle, &most) != NVML_OK)
		return;
	for (i = 0; i < most; i++) {
		if (nvml.part(handle, i, &part) == NVML_OK)
			add_device(part, number);
	}
}

static bool open_library(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	unsigned int count, i;

	if (library == NULL || !sampler_find(library, "nvmlInit_v2", &nvml.init) ||
	    !sampler_find(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
	    !sampler_find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) ||
	    !sampler_find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory))
		return false;
	(void)sampler_find(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2);
	if (!sampler_find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes))
		(void)sampler_find(library, "nvmlDeviceGetComputeRunningProcesses_v2",
				   &nvml.processes);
	(void)sampler_find(library, "nvmlDeviceGetName", &nvml.name);
	(void)sampler_find(library, "nvmlDeviceGetUUID", &nvml.uuid);
	(void)sampler_find(library, "nvmlDeviceGetMigMode", &nvml.divided);
	(void)sampler_find(library, "nvmlDeviceGetMaxMigDeviceCount", &nvml.parts);
	(void)sampler_find(library, "nvmlDeviceGetMigDeviceHandleByIndex", &nvml.part);
	if (nvml.init() != NVML_OK || nvml.count(&count) != NVML_OK)
		return false;
	for (i = 0; i < count && i < DEVICES_MAX; i++)
		add_gpu(i);
	return device_count > 0;
}

/* False: the device does not tell. */
static bool memory_of(void *device, unsigned long long *out_used, unsigned long long *out_total)
{
	struct memory_v2 new = {.version = MEMORY_V2};
	struct memory old = {0};

	if (nvml.memory_v2 != NULL && nvml.memory_v2(device, &new) == NVML_OK) {
		*out_used = new.used;
		*out_total = new.total - new.reserved;
		return true;
	}
	if (nvml.memory(device, &old) != NVML_OK)
		return false;
	*out_used = old.used;
	*out_total = old.total;
	return true;
}

static void tell(unsigned int index, struct sampler_record record)
{
	record.vendor = VENDOR_CUDA;
	record.device = devices[index].number;
	record.by_uuid = 1;
	memcpy(record.uuid, devices[index].uuid, sizeof(record.uuid));
	memcpy(record.name, devices[index].name, sizeof(record.name));
	sampler_send(&record);
}

static struct {
	struct process_info entries[PROCESSES_MAX];
	unsigned int count;
	bool complete; /* the driver gave the bytes of each */
} list;

static void list_processes(unsigned int index)
{
	unsigned int i;

	list.count = PROCESSES_MAX;
	list.complete = nvml.processes != NULL &&
			nvml.processes(devices[index].handle, &list.count, list.entries) == NVML_OK;
	if (!list.complete)
		list.count = 0;
	list.count = list.count < PROCESSES_MAX ? list.count : PROCESSES_MAX;
	for (i = 0; i < list.count; i++) {
		if (list.entries[i].used == ~0ull || list.entries[i].pid == 0)
			list.complete = false;
	}
}

static void tell_processes(unsigned int index)
{
	unsigned int i;

	for (i = 0; i < list.count; i++) {
		if (list.entries[i].used != ~0ull && list.entries[i].pid != 0)
			tell(index, (struct sampler_record){.pid = list.entries[i].pid,
							    .bytes = list.entries[i].used});
	}
}

/*
 * The device's figure and the list of processes are two questions, and another process may come or go between them. They are of one
 * moment if the figure is the same after the list was made; else both are asked for again, a few times.
 */
static void sample_device(unsigned int index, bool all)
{
	unsigned long long used, total, after;
	unsigned int tries = 0;
	bool listed = false;

	if (!memory_of(devices[index].handle, &used, &total))
		return;
	if (all || !devices[index].known || devices[index].used != used) {
		list_processes(index);
		while (tries++ < TRIES && memory_of(devices[index].handle, &after, &total) &&
		       after != used) {
			used = after;
			list_processes(index);
		}
		tell_processes(index);
		listed = list.complete;
	}
	devices[index].known = true;
	devices[index].used = used;
	tell(index, (struct sampler_record){.bytes = used, .total_bytes = total, .listed = listed});
}

static void sample(bool asked)
{
	static unsigned int round;
	bool all = asked || round++ % ROUNDS == 0;
	unsigned int i;

	for (i = 0; i < device_count; i++)
		sample_device(i, all);
}

const struct sampler_source sampler_nvml = {.open = open_library, .sample = sample};
