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
/* A device's handle is the address of its byte; the last is the card that is divided. */
static char handles[FAKE_DEVICES_MAX + 1];
#define DIVIDED (&handles[FAKE_DEVICES_MAX])

static uint32_t number_of(const void *handle)
{
	return (uint32_t)((const char *)handle - handles);
}

static bool is_device(const void *handle)
{
	return state != NULL && (const char *)handle >= handles &&
	       (handle == DIVIDED ? fake_whole_count() < fake_device_count()
				  : number_of(handle) < fake_device_count());
}

/* Of the card that is divided: of all parts. */
static unsigned long long total_of(const void *device)
{
	unsigned long long total = 0;
	uint32_t i;

	if (device != DIVIDED)
		return fake_total(number_of(device));
	for (i = fake_whole_count(); i < fake_device_count(); i++)
		total += fake_total(i);
	return total;
}

static unsigned long long used_of(const void *device)
{
	unsigned long long used = 0;
	uint32_t i;

	if (device != DIVIDED)
		return fake_used(state, number_of(device));
	for (i = fake_whole_count(); i < fake_device_count(); i++)
		used += fake_used(state, i);
	return used;
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
	*out = fake_whole_count() + (fake_whole_count() < fake_device_count());
	return state == NULL ? NVML_UNINITIALIZED : NVML_OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void **out))
{
	if (state == NULL)
		return NVML_UNINITIALIZED;
	if (index > fake_whole_count() || (index == fake_whole_count() && !is_device(DIVIDED)))
		return NVML_INVALID;
	*out = index == fake_whole_count() ? DIVIDED : &handles[index];
	return NVML_OK;
}

NVML(nvmlDeviceGetIndex, (void *device, unsigned int *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	*out = device == DIVIDED			 ? fake_whole_count()
	       : number_of(device) >= fake_whole_count() ? number_of(device) - fake_whole_count()
							 : number_of(device);
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
	fake_uuid_text(number_of(device), out, bytes);
	return NVML_OK;
}

NVML(nvmlDeviceGetHandleByUUID, (const char *uuid, void **out))
{
	char text[64];
	uint32_t i;

	for (i = 0; i <= FAKE_DEVICES_MAX; i++) {
		fake_uuid_text(i, text, sizeof(text));
		if (is_device(&handles[i]) && strcmp(uuid, text) == 0) {
			*out = &handles[i];
			return NVML_OK;
		}
	}
	return NVML_NOT_FOUND;
}

/* ---- a card that is divided ---- */

NVML(nvmlDeviceGetMigMode, (void *device, unsigned int *now, unsigned int *later))
{
	if (!is_device(device))
		return NVML_INVALID;
	*now = *later = device == DIVIDED;
	return NVML_OK;
}

NVML(nvmlDeviceGetMaxMigDeviceCount, (void *device, unsigned int *out))
{
	*out = device == DIVIDED ? 7 : 0;
	return is_device(device) ? NVML_OK : NVML_INVALID;
}

NVML(nvmlDeviceGetMigDeviceHandleByIndex, (void *device, unsigned int index, void **out))
{
	if (device != DIVIDED || !is_device(device))
		return NVML_INVALID;
	if (index >= fake_device_count() - fake_whole_count())
		return NVML_NOT_FOUND;
	*out = &handles[fake_whole_count() + index];
	return NVML_OK;
}

NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (void *part, void **out))
{
	if (!is_device(part) || part == DIVIDED || number_of(part) < fake_whole_count())
		return NVML_INVALID;
	*out = DIVIDED;
	return NVML_OK;
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
	*out = (struct memory){.total = total_of(device), .used = used_of(device)};
	out->free = out->total - out->used;
	return NVML_OK;
}

NVML(nvmlDeviceGetMemoryInfo_v2, (void *device, struct memory_v2 *out))
{
	if (!is_device(device))
		return NVML_INVALID;
	out->total = total_of(device);
	out->reserved = 0;
	out->used = used_of(device);
	out->free = out->total - out->used;
	return NVML_OK;
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3,
     (void *device, unsigned int *count, struct process_info *out))
{
	unsigned int room = *count, found = 0, i;
	const struct fake_device *shared;

	if (!is_device(device) || device == DIVIDED)
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
