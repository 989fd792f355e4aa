/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for libnvidia-ml.so.1: devices, memory, processes, as the driver of this folder counts them.
 */
#include "fake_cuda.h"

#define NVML_OK		   0
#define NVML_UNINITIALIZED 1
#define NVML_INVALID	   2
#define NVML_NOT_FOUND	   6
#define NVML_TOO_SMALL	   7

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

struct process_info {
	unsigned int pid;
	unsigned long long used;
	unsigned int gpu_instance, compute_instance;
};

struct pci_info {
	char legacy[16];
	unsigned int domain, bus, device, id, subsystem;
	char bus_id[32];
};

static struct fake_state *state;
static char handles[FAKE_DEVICES_MAX]; /* a device's handle is the address of its byte */

static uint32_t number_of(const void *handle)
{
	return (uint32_t)((const char *)handle - handles);
}

static bool is_device(const void *handle)
{
	return state != NULL && (const char *)handle >= handles &&
	       number_of(handle) < fake_device_count();
}

#define NVML(name, parameters)                                                                     \
	FAKE_EXPORT int name parameters;                                                           \
	FAKE_EXPORT int name parameters

NVML(nvmlInit_v2, (void))
{
	if (state == NULL)
		state = fake_state_open();
	return state == NULL ? NVML_UNINITIALIZED : NVML_OK;
}

NVML(nvmlShutdown, (void))
{
	return NVML_OK;
}

FAKE_EXPORT const char *nvmlErrorString(int result);
FAKE_EXPORT const char *nvmlErrorString(int result)
{
	return result == NVML_OK ? "Success" : "Failure";
}

NVML(nvmlSystemGetDriverVersion, (char *out, unsigned int bytes))
{
	(void)snprintf(out, bytes, "580.00.fake");
	return NVML_OK;
}

NVML(nvmlSystemGetCudaDriverVersion_v2, (int *out))
{
	*out = 13000;
	return NVML_OK;
}

NVML(nvmlDeviceGetCount_v2, (unsigned int *out))
{
	*out = fake_device_count();
	return state == NULL ? NVML_UNINITIALIZED : NVML_OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void **out))
{
	if (state == NULL)
		return NVML_UNINITIALIZED;
	if (index >= fake_device_count())
		return NVML_INVALID;
	*out = &handles[index];
	return NVML_OK;
}

NVML(nvmlDeviceGetIndex, (void *device, unsigned int *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	*out = number_of(device);
	return NVML_OK;
}

NVML(nvmlDeviceGetName, (void *device, char *out, unsigned int bytes))
{
	if (!is_device(device))
		return NVML_INVALID;
	(void)snprintf(out, bytes, "Stand-in GPU");
	return NVML_OK;
}

NVML(nvmlDeviceGetUUID, (void *device, char *out, unsigned int bytes))
{
	if (!is_device(device))
		return NVML_INVALID;
	(void)snprintf(out, bytes, "GPU-%08x-0000-0000-0000-000000000000", number_of(device));
	return NVML_OK;
}

NVML(nvmlDeviceGetHandleByUUID, (const char *uuid, void **out))
{
	unsigned int number;

	if (sscanf(uuid, "GPU-%8x", &number) != 1)
		return NVML_INVALID;
	return nvmlDeviceGetHandleByIndex_v2(number, out) == NVML_OK ? NVML_OK : NVML_NOT_FOUND;
}

NVML(nvmlDeviceGetPciInfo_v3, (void *device, struct pci_info *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	*out = (struct pci_info){.bus = 0x10 + number_of(device)};
	(void)snprintf(out->legacy, sizeof(out->legacy), "0000:%02X:00.0", out->bus);
	(void)snprintf(out->bus_id, sizeof(out->bus_id), "00000000:%02X:00.0", out->bus);
	return NVML_OK;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, void **out))
{
	unsigned int domain, number;

	if (sscanf(bus, "%x:%x:", &domain, &number) != 2 || number < 0x10)
		return NVML_INVALID;
	return nvmlDeviceGetHandleByIndex_v2(number - 0x10, out) == NVML_OK ? NVML_OK
									    : NVML_NOT_FOUND;
}

NVML(nvmlDeviceGetMemoryInfo, (void *device, struct memory *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	*out = (struct memory){.total = fake_total(), .used = fake_used(state, number_of(device))};
	out->free = out->total - out->used;
	return NVML_OK;
}

NVML(nvmlDeviceGetMemoryInfo_v2, (void *device, struct memory_v2 *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	out->total = fake_total();
	out->reserved = 0;
	out->used = fake_used(state, number_of(device));
	out->free = out->total - out->used;
	return NVML_OK;
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3,
     (void *device, unsigned int *count, struct process_info *out))
{
	unsigned int room = *count, found = 0, i;
	const struct fake_device *shared;

	if (!is_device(device))
		return NVML_INVALID;
	shared = &state->devices[number_of(device)];
	if (fake_other(number_of(device)) != 0) {
		if (found < room && out != NULL)
			out[found] =
				(struct process_info){1, fake_other(number_of(device)), ~0u, ~0u};
		found++;
	}
	for (i = 0; i < FAKE_PROCESSES_MAX; i++) {
		int32_t pid = atomic_load(&shared->processes[i].pid);
		uint64_t used = atomic_load(&shared->processes[i].used);

		if (!fake_lives(pid) || used == 0)
			continue;
		if (found < room && out != NULL)
			out[found] = (struct process_info){(unsigned int)pid, used, ~0u, ~0u};
		found++;
	}
	*count = found;
	return found > room ? NVML_TOO_SMALL : NVML_OK;
}
