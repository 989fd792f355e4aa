/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device and the software are: figures of an Ascend 910B1, and a version that frameworks make decisions by.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ascend_hal.h"
#include "impl.h"
#include "runtime/rt.h"

enum {
	AICPU_CORES = 6,
	CUBE_CORES = 24,
	VECTOR_CORES = 48,
	L2_BYTES = 192 << 20,
	VERSION_MAX = 128,
};

_Static_assert(sizeof(aclCANNPackageVersion) == 512, "fixed by the interface");

static const char *version(void)
{
	const char *set = getenv("SIMNPU_CANN");

	return set && *set && strlen(set) < VERSION_MAX ? set : "9.0.0";
}

static bool device_exists(int64_t device)
{
	int32_t count;

	return !rtGetDeviceCount(&count) && device >= 0 && device < count;
}

aclError aclsysGetVersionStrImpl(char *pkgName, char *versionStr)
{
	if (!pkgName || !versionStr)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	(void)strcpy(versionStr, version());
	return ACL_SUCCESS;
}

/* Copies what stands before the next point into `part`, and returns what stands behind it. */
static const char *split(const char *text, char part[64])
{
	size_t length = strcspn(text, ".");

	memset(part, 0, 64);
	memcpy(part, text, length < 63 ? length : 63);
	return text[length] ? text + length + 1 : text + length;
}

aclError aclsysGetCANNVersionImpl(aclCANNPackageName name, aclCANNPackageVersion *out)
{
	const char *rest = version();

	if (!out || name > ACL_PKG_NAME_DRIVER)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*out = (aclCANNPackageVersion){0};
	(void)strcpy(out->version, rest);
	rest = split(rest, out->majorVersion);
	rest = split(rest, out->minorVersion);
	rest = split(rest, out->releaseVersion);
	(void)split(rest, out->patchVersion);
	return ACL_SUCCESS;
}

aclError aclGetCannAttributeListImpl(const aclCannAttr **cannAttrList, size_t *num)
{
	static const aclCannAttr all[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16,
					  ACL_CANN_ATTR_JIT_COMPILE};

	if (!cannAttrList || !num)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*cannAttrList = all;
	*num = sizeof(all) / sizeof(all[0]);
	return ACL_SUCCESS;
}

aclError aclGetCannAttributeImpl(aclCannAttr cannAttr, int32_t *value)
{
	if (!value || cannAttr < ACL_CANN_ATTR_INF_NAN || cannAttr > ACL_CANN_ATTR_JIT_COMPILE)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*value = cannAttr != ACL_CANN_ATTR_JIT_COMPILE;
	return ACL_SUCCESS;
}

aclError aclrtGetDeviceInfoImpl(uint32_t deviceId, aclrtDevAttr attr, int64_t *value)
{
	struct MemInfo memory;

	if (!value || !device_exists(deviceId))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	switch (attr) {
	case ACL_DEV_ATTR_AICPU_CORE_NUM:
		*value = AICPU_CORES;
		return ACL_SUCCESS;
	case ACL_DEV_ATTR_AICORE_CORE_NUM:
	case ACL_DEV_ATTR_CUBE_CORE_NUM:
		*value = CUBE_CORES;
		return ACL_SUCCESS;
	case ACL_DEV_ATTR_VECTOR_CORE_NUM:
		*value = VECTOR_CORES;
		return ACL_SUCCESS;
	case ACL_DEV_ATTR_L2_CACHE_SIZE:
		*value = L2_BYTES;
		return ACL_SUCCESS;
	case ACL_DEV_ATTR_PHY_CHIP_ID:
		*value = deviceId;
		return ACL_SUCCESS;
	case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
		/* Devices are alike. */
		if (halMemGetInfo(0, MEM_INFO_TYPE_HBM_SIZE, &memory))
			return acl_result(ACL_ERROR_RT_DRV_INTERNAL_ERROR);
		*value = (int64_t)memory.phy_info.total;
		return ACL_SUCCESS;
	default:
		return acl_result(ACL_ERROR_INVALID_PARAM);
	}
}

aclError aclGetDeviceCapabilityImpl(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value)
{
	static const aclrtDevAttr attributes[] = {
		[ACL_DEVICE_INFO_AI_CORE_NUM] = ACL_DEV_ATTR_AICORE_CORE_NUM,
		[ACL_DEVICE_INFO_VECTOR_CORE_NUM] = ACL_DEV_ATTR_VECTOR_CORE_NUM,
		[ACL_DEVICE_INFO_L2_SIZE] = ACL_DEV_ATTR_L2_CACHE_SIZE,
	};

	if (deviceInfo < ACL_DEVICE_INFO_AI_CORE_NUM || deviceInfo > ACL_DEVICE_INFO_L2_SIZE)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return aclrtGetDeviceInfoImpl(deviceId, attributes[deviceInfo], value);
}

aclError aclrtGetDeviceUtilizationRateImpl(int32_t deviceId, aclrtUtilizationInfo *utilizationInfo)
{
	if (!utilizationInfo || !device_exists(deviceId))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	utilizationInfo->cubeUtilization = 0;
	utilizationInfo->vectorUtilization = 0;
	utilizationInfo->aicpuUtilization = 0;
	utilizationInfo->memoryUtilization = 0;
	return ACL_SUCCESS;
}

aclError aclrtDeviceGetUuidImpl(int32_t deviceId, aclrtUuid *uuid)
{
	char text[sizeof(uuid->bytes) + 1];

	if (!uuid || !device_exists(deviceId))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	(void)snprintf(text, sizeof(text), "simnpu%010d", deviceId);
	memcpy(uuid->bytes, text, sizeof(uuid->bytes));
	return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgidImpl(int32_t *pid)
{
	if (!pid)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*pid = getpid();
	return ACL_SUCCESS;
}

/* Both names mean the same number here: the place among the visible devices. */
aclError aclrtGetLogicDevIdByUserDevIdImpl(const int32_t userDevid, int32_t *const logicDevId)
{
	if (!logicDevId || !device_exists(userDevid))
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*logicDevId = userDevid;
	return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxStateImpl(int32_t deviceId, uint32_t *flags, int32_t *active)
{
	bool in_use;
	aclError error;

	if (!active)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtSimDeviceInUse(deviceId, &in_use);
	if (error)
		return acl_result(error);
	if (flags)
		*flags = 0;
	*active = in_use;
	return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeerImpl(int32_t *canAccessPeer, int32_t deviceId,
				      int32_t peerDeviceId)
{
	if (!canAccessPeer || deviceId == peerDeviceId)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	if (!device_exists(deviceId) || !device_exists(peerDeviceId))
		return acl_result(ACL_ERROR_RT_INVALID_DEVICEID);
	*canAccessPeer = 1;
	return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccessImpl(int32_t peerDeviceId, uint32_t flags)
{
	(void)flags;
	return acl_result(device_exists(peerDeviceId) ? ACL_SUCCESS
						      : ACL_ERROR_RT_INVALID_DEVICEID);
}

aclError aclrtDeviceDisablePeerAccessImpl(int32_t peerDeviceId)
{
	return aclrtDeviceEnablePeerAccessImpl(peerDeviceId, 0);
}
