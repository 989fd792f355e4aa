/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver tells about a device: chip, clock and memory.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arena.h"
#include "ascend_hal.h"
#include "config.h"
#include "device.h"
#include "host.h"
#include "vmm.h"

enum {
	CLOCK_KHZ = 1000000 / SIMNPU_CLOCK_PERIOD_NS,
	HOST_CLOCK_KHZ = 1000000, /* the host counts nanoseconds */
	CHIP_910B = 5,
	CHIP_950 = 15,
	CHIP_ID_SHIFT = 8,
};

static struct {
	char name[64];
	bool is_new;
	bool expanded;
} soc;

static void read_environment(void)
{
	const char *name = getenv("SIMNPU_SOC");
	const char *expand = getenv("SIMNPU_EXPAND_STREAMS");

	if (!name || !*name)
		name = "Ascend910B1";
	(void)strncat(soc.name, name, sizeof(soc.name) - 1);
	soc.is_new = strstr(soc.name, "950") || strstr(soc.name, "960");
	soc.expanded = expand && strcmp(expand, "1") == 0;
}

static void read_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_environment);
}

const char *halSimSocName(void)
{
	read_once();
	return soc.name;
}

bool halSimSocIsNew(void)
{
	read_once();
	return soc.is_new;
}

bool halSimStreamsExpanded(void)
{
	read_once();
	return soc.expanded;
}

uint64_t halSimTime(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

enum simnpu_place halSimLocate(const void *address, uint32_t *device)
{
	bool of_host;

	if (arena_locate(address, &of_host, device) || vmm_locate(address, &of_host, device))
		return of_host ? SIMNPU_PLACE_HOST : SIMNPU_PLACE_DEVICE;
	*device = 0;
	return host_is_registered(address) ? SIMNPU_PLACE_HOST : SIMNPU_PLACE_UNKNOWN;
}

drvError_t halGetAPIVersion(int *ver)
{
	if (!ver)
		return DRV_ERROR_INVALID_VALUE;
	*ver = HAL_API_VERSION;
	return DRV_ERROR_NONE;
}

drvError_t halGetDeviceInfo(uint32_t devId, int32_t moduleType, int32_t infoType, int64_t *value)
{
	if (!value)
		return DRV_ERROR_INVALID_VALUE;
	if (devId >= config_get()->device_count)
		return DRV_ERROR_INVALID_DEVICE;
	if (moduleType != MODULE_TYPE_SYSTEM)
		return DRV_ERROR_NOT_SUPPORT;
	switch (infoType) {
	case INFO_TYPE_VERSION:
		*value = (halSimSocIsNew() ? CHIP_950 : CHIP_910B) << CHIP_ID_SHIFT;
		return DRV_ERROR_NONE;
	case INFO_TYPE_SYS_COUNT:
		*value = (int64_t)(halSimTime() / SIMNPU_CLOCK_PERIOD_NS);
		return DRV_ERROR_NONE;
	case INFO_TYPE_HOST_OSC_FREQUE:
		*value = HOST_CLOCK_KHZ;
		return DRV_ERROR_NONE;
	case INFO_TYPE_DEV_OSC_FREQUE:
		*value = CLOCK_KHZ;
		return DRV_ERROR_NONE;
	default:
		return DRV_ERROR_NOT_SUPPORT;
	}
}

drvError_t halMemGetInfo(uint32_t device, unsigned int type, struct MemInfo *info)
{
	struct arena *a;
	drvError_t error;

	if (!info || type < MEM_INFO_TYPE_DDR_SIZE || type > MEM_INFO_TYPE_HBM_P2P_SIZE)
		return DRV_ERROR_INVALID_VALUE;
	error = arena_of_device(device, &a);
	if (error)
		return error;
	*info = (struct MemInfo){0};
	if (type == MEM_INFO_TYPE_HBM_SIZE || type == MEM_INFO_TYPE_HBM_P2P_SIZE) {
		info->phy_info.total = config_get()->hbm_bytes;
		info->phy_info.free = arena_free_bytes(a);
	}
	return DRV_ERROR_NONE;
}
