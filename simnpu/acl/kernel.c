/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches. None of them goes through a launch function of the runtime that programs also call themselves, so a tool
 * that hooks both sees a launch once.
 */
#include "impl.h"
#include "runtime/rt.h"

static aclError launch(void *function, uint32_t block_dim, const void *data, size_t size,
		       void *stream)
{
	rtArgsEx_t args = {.args = (void *)(uintptr_t)data, .argsSize = (uint32_t)size};

	if (!function || size > UINT32_MAX)
		return ACL_ERROR_INVALID_PARAM;
	return rtLaunchKernelByFuncHandleV3(function, block_dim, &args, stream, NULL);
}

aclError aclrtLaunchKernelImpl(aclrtFuncHandle funcHandle, uint32_t blockDim, const void *argsData,
			       size_t argsSize, aclrtStream stream)
{
	return acl_result(launch(funcHandle, blockDim, argsData, argsSize, stream));
}

aclError aclrtLaunchKernelV2Impl(aclrtFuncHandle funcHandle, uint32_t blockDim,
				 const void *argsData, size_t argsSize, aclrtLaunchKernelCfg *cfg,
				 aclrtStream stream)
{
	(void)cfg;
	return acl_result(launch(funcHandle, blockDim, argsData, argsSize, stream));
}

aclError aclrtLaunchKernelWithConfigImpl(aclrtFuncHandle funcHandle, uint32_t blockDim,
					 aclrtStream stream, aclrtLaunchKernelCfg *cfg,
					 aclrtArgsHandle argsHandle, void *reserve)
{
	if (!funcHandle || !argsHandle)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(
		rtsLaunchKernelWithConfig(funcHandle, blockDim, stream, cfg, argsHandle, reserve));
}

_Static_assert(sizeof(aclrtPlaceHolderInfo) == sizeof(rtHostInputInfo_t), "same layout");

aclError aclrtLaunchKernelWithHostArgsImpl(aclrtFuncHandle funcHandle, uint32_t blockDim,
					   aclrtStream stream, aclrtLaunchKernelCfg *cfg,
					   void *hostArgs, size_t argsSize,
					   aclrtPlaceHolderInfo *placeHolderArray,
					   size_t placeHolderNum)
{
	if (!funcHandle || argsSize > UINT32_MAX || placeHolderNum > UINT32_MAX)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsLaunchKernelWithHostArgs(
		funcHandle, blockDim, stream, cfg, hostArgs, (uint32_t)argsSize,
		(rtHostInputInfo_t *)(void *)placeHolderArray, (uint32_t)placeHolderNum));
}

aclError aclrtKernelArgsInitImpl(aclrtFuncHandle funcHandle, aclrtArgsHandle *argsHandle)
{
	if (!funcHandle || !argsHandle)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsKernelArgsInit(funcHandle, argsHandle));
}

aclError aclrtKernelArgsAppendImpl(aclrtArgsHandle argsHandle, void *param, size_t paramSize,
				   aclrtParamHandle *paramHandle)
{
	if (!argsHandle || !param || paramSize == 0 || !paramHandle)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsKernelArgsAppend(argsHandle, param, paramSize, paramHandle));
}

aclError aclrtKernelArgsFinalizeImpl(aclrtArgsHandle argsHandle)
{
	if (!argsHandle)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsKernelArgsFinalize(argsHandle));
}
