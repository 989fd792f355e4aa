/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings that a program makes and may ask for again. None of them changes what the simulated device does.
 */
#include <stdatomic.h>

#include "impl.h"
#include "runtime/rt.h"

enum {
	DEVICES_MAX = 64,
	OPTIONS = ACL_OPT_STRONG_CONSISTENCY + 1,
	LIMITS = ACL_RT_DEV_RES_VECTOR_CORE + 1,
};

static _Atomic int saturation = ACL_RT_OVERFLOW_MODE_INFNAN;
static _Atomic int64_t options[OPTIONS];
static _Atomic uint32_t limits[DEVICES_MAX][LIMITS]; /* 0: as many cores as there are */
static _Atomic uint32_t overflow_switch;

aclError aclrtSetDeviceSatModeImpl(aclrtFloatOverflowMode mode)
{
	if (mode >= ACL_RT_OVERFLOW_MODE_UNDEF)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	saturation = (int)mode;
	return ACL_SUCCESS;
}

aclError aclrtGetDeviceSatModeImpl(aclrtFloatOverflowMode *mode)
{
	if (!mode)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*mode = (aclrtFloatOverflowMode)saturation;
	return ACL_SUCCESS;
}

aclError aclrtSetOpWaitTimeoutImpl(uint32_t timeout)
{
	(void)timeout;
	return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutImpl(uint32_t timeout)
{
	(void)timeout;
	return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutV2Impl(uint64_t timeout, uint64_t *actualTimeout)
{
	if (!actualTimeout)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*actualTimeout = timeout;
	return ACL_SUCCESS;
}

aclError aclrtSetSysParamOptImpl(aclSysParamOpt opt, int64_t value)
{
	if ((unsigned)opt >= OPTIONS)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	options[opt] = value;
	return ACL_SUCCESS;
}

aclError aclrtGetSysParamOptImpl(aclSysParamOpt opt, int64_t *value)
{
	if ((unsigned)opt >= OPTIONS || !value)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*value = options[opt];
	return ACL_SUCCESS;
}

aclError aclrtCtxSetSysParamOptImpl(aclSysParamOpt opt, int64_t value)
{
	return aclrtSetSysParamOptImpl(opt, value);
}

aclError aclrtCtxGetSysParamOptImpl(aclSysParamOpt opt, int64_t *value)
{
	return aclrtGetSysParamOptImpl(opt, value);
}

static _Atomic uint32_t *limit_of(int32_t device, aclrtDevResLimitType type)
{
	int32_t count;

	if (rtGetDeviceCount(&count) || device < 0 || device >= count || device >= DEVICES_MAX ||
	    (unsigned)type >= LIMITS)
		return NULL;
	return &limits[device][type];
}

aclError aclrtGetDeviceResLimitImpl(int32_t deviceId, aclrtDevResLimitType type, uint32_t *value)
{
	_Atomic uint32_t *limit = limit_of(deviceId, type);
	int64_t all = 0;

	if (!limit || !value)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	(void)aclrtGetDeviceInfoImpl((uint32_t)deviceId,
				     type == ACL_RT_DEV_RES_CUBE_CORE
					     ? ACL_DEV_ATTR_CUBE_CORE_NUM
					     : ACL_DEV_ATTR_VECTOR_CORE_NUM,
				     &all);
	*value = *limit ? *limit : (uint32_t)all;
	return ACL_SUCCESS;
}

aclError aclrtSetDeviceResLimitImpl(int32_t deviceId, aclrtDevResLimitType type, uint32_t value)
{
	_Atomic uint32_t *limit = limit_of(deviceId, type);

	if (!limit || value == 0)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*limit = value;
	return ACL_SUCCESS;
}

aclError aclrtResetDeviceResLimitImpl(int32_t deviceId)
{
	_Atomic uint32_t *limit = limit_of(deviceId, ACL_RT_DEV_RES_CUBE_CORE);

	if (!limit)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	limit[ACL_RT_DEV_RES_CUBE_CORE] = 0;
	limit[ACL_RT_DEV_RES_VECTOR_CORE] = 0;
	return ACL_SUCCESS;
}

aclError aclrtSetStreamFailureModeImpl(aclrtStream stream, uint64_t mode)
{
	return acl_result(stream && mode <= 1 ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM);
}

/* One switch for all streams: what it would find, never happens. */
aclError aclrtSetStreamOverflowSwitchImpl(aclrtStream stream, uint32_t flag)
{
	(void)stream;
	if (flag > 1)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	overflow_switch = flag;
	return ACL_SUCCESS;
}

aclError aclrtGetStreamOverflowSwitchImpl(aclrtStream stream, uint32_t *flag)
{
	(void)stream;
	if (!flag)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*flag = overflow_switch;
	return ACL_SUCCESS;
}

aclError aclrtSetExceptionInfoCallbackImpl(aclrtExceptionInfoCallback callback)
{
	(void)callback;
	return ACL_SUCCESS;
}

_Static_assert(sizeof(aclrtStreamAttrValue) == 16, "fixed by the interface");

aclError aclrtSetStreamAttributeImpl(aclrtStream stream, aclrtStreamAttr stmAttrType,
				     aclrtStreamAttrValue *value)
{
	if (!stream || !value || stmAttrType < ACL_STREAM_ATTR_FAILURE_MODE ||
	    stmAttrType > ACL_STREAM_ATTR_PRIORITY)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return ACL_SUCCESS;
}
