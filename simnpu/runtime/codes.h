/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime's results: 0 or a code of acl/acl_base.h.
 */
#ifndef SIMNPU_RUNTIME_CODES_H
#define SIMNPU_RUNTIME_CODES_H

#include "acl/acl_base.h"
#include "ascend_hal.h"

/* What the runtime makes of a code of the driver. */
static inline int code_of_driver(drvError_t error)
{
	switch (error) {
	case DRV_ERROR_NONE:
		return ACL_SUCCESS;
	case DRV_ERROR_OUT_OF_MEMORY:
		return ACL_ERROR_RT_MEMORY_ALLOCATION;
	case DRV_ERROR_NO_DEVICE:
	case DRV_ERROR_INVALID_DEVICE:
		return ACL_ERROR_RT_INVALID_DEVICEID;
	case DRV_ERROR_INVALID_VALUE:
	case DRV_ERROR_PARA_ERROR:
	case DRV_ERROR_INVALID_MALLOC_TYPE:
		return ACL_ERROR_RT_PARAM_INVALID;
	case DRV_ERROR_INVALID_HANDLE:
		return ACL_ERROR_RT_INVALID_HANDLE;
	case DRV_ERROR_NO_RESOURCES:
		return ACL_ERROR_RT_RESOURCE_ALLOC_FAIL;
	case DRV_ERROR_NOT_SUPPORT:
		return ACL_ERROR_RT_FEATURE_NOT_SUPPORT;
	default:
		return ACL_ERROR_RT_DRV_INTERNAL_ERROR;
	}
}

#endif
