/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of NVIDIA's driver, by libnvidia-ml.so.1, which takes nothing of a GPU for the answer. Devices have the numbers of NVML,
 * which are those of the machine in the order of the bus.
 *
 * The list of processes costs the driver more: it is asked for when the device's own figure has changed, when the engine asks, and
 * once in a while.
 */
#include <string.h>

#include "collector/sampler/source.h"

#define DEVICES_MAX   64u
#define PROCESSES_MAX 256u
#define ROUNDS	      10u /* between two lists of processes on a device that does not change */
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
} nvml;

static struct {
	void *handle; /* NULL: cannot be asked */
	unsigned long long used;
	bool known;
} devices[DEVICES_MAX];
static unsigned int device_count;

static bool open_library(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	unsigned int i;

	if (library == NULL || !sampler_find(library, "nvmlInit_v2", &nvml.init) ||
	    !sampler_find(library, "nvmlDeviceGetCount_v2", &nvml.count) ||
	    !sampler_find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml.handle) ||
	    !sampler_find(library, "nvmlDeviceGetMemoryInfo", &nvml.memory))
		return false;
	(void)sampler_find(library, "nvmlDeviceGetMemoryInfo_v2", &nvml.memory_v2);
	if (!sampler_find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml.processes))
		(void)sampler_find(library, "nvmlDeviceGetComputeRunningProcesses_v2",
				   &nvml.processes);
	if (nvml.init() != NVML_OK || nvml.count(&device_count) != NVML_OK)
		return false;
	if (device_count > DEVICES_MAX)
		device_count = DEVICES_MAX;
	for (i = 0; i < device_count; i++) {
		if (nvml.handle(i, &devices[i].handle) != NVML_OK)
			devices[i].handle = NULL;
	}
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

/* True: all were told. */
static bool sample_processes(unsigned int number)
{
	static struct process_info processes[PROCESSES_MAX];
	unsigned int count = PROCESSES_MAX, i;
	bool complete = true;

	if (nvml.processes == NULL ||
	    nvml.processes(devices[number].handle, &count, processes) != NVML_OK)
		return false;
	for (i = 0; i < count && i < PROCESSES_MAX; i++) {
		if (processes[i].used != ~0ull && processes[i].pid != 0)
			sampler_send(&(struct sampler_record){.vendor = VENDOR_CUDA,
							      .device = number,
							      .pid = processes[i].pid,
							      .bytes = processes[i].used});
		else
			complete = false;
	}
	return complete;
}

static void sample(bool asked)
{
	static unsigned int round;
	unsigned long long used, total;
	bool listed, all = asked || round++ % ROUNDS == 0;
	unsigned int i;

	for (i = 0; i < device_count; i++) {
		if (devices[i].handle == NULL || !memory_of(devices[i].handle, &used, &total))
			continue;
		listed = (all || !devices[i].known || devices[i].used != used) &&
			 sample_processes(i);
		devices[i].known = true;
		devices[i].used = used;
		sampler_send(&(struct sampler_record){.vendor = VENDOR_CUDA,
						      .device = i,
						      .bytes = used,
						      .total_bytes = total,
						      .listed = listed});
	}
}

const struct sampler_source sampler_nvml = {.open = open_library, .sample = sample};
