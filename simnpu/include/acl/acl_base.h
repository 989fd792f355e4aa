/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types and result codes that every part of AscendCL shares. Names and values are those of the real headers, so a program
 * compiled against these runs on either.
 */
#ifndef ACL_BASE_H
#define ACL_BASE_H

#include <stddef.h>
#include <stdint.h>

typedef int aclError;
typedef void *aclrtStream;
typedef void *aclrtEvent;
typedef void *aclrtContext;

enum {
	ACL_SUCCESS = 0,
	ACL_ERROR_INVALID_PARAM = 100000,
	ACL_ERROR_UNINITIALIZE = 100001,
	ACL_ERROR_REPEAT_INITIALIZE = 100002,
	ACL_ERROR_INVALID_FILE = 100003,
	ACL_ERROR_REPEAT_FINALIZE = 100037,
	ACL_ERROR_RT_PARAM_INVALID = 107000,
	ACL_ERROR_RT_INVALID_DEVICEID = 107001,
	ACL_ERROR_RT_CONTEXT_NULL = 107002,
	ACL_ERROR_RT_STREAM_CONTEXT = 107003, /* the stream is of another context, or no stream */
	ACL_ERROR_RT_INVALID_HANDLE = 107017,
	ACL_ERROR_BAD_ALLOC = 200000,
	ACL_ERROR_RT_FEATURE_NOT_SUPPORT = 207000,
	ACL_ERROR_RT_MEMORY_ALLOCATION = 207001,
	ACL_ERROR_RT_RESOURCE_ALLOC_FAIL = 207005,
	ACL_ERROR_RT_DEVICE_OOM = 207018,
	ACL_ERROR_INTERNAL_ERROR = 500000,
	ACL_ERROR_RT_FAILURE = 500003,
	ACL_ERROR_RT_DEV_SETUP_ERROR = 507033,
	ACL_ERROR_RT_DRV_INTERNAL_ERROR = 507899,
};

#endif
