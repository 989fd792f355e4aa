/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What concerns the process as a whole: beginning, end, errors.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "impl.h"
#include "runtime/rt.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum { NEVER, RUNNING, ENDED } state; /* guarded by the lock */

static _Thread_local struct {
	aclError last;	  /* 0 when it was asked for */
	char detail[144]; /* what a library said of it, for as long as it is the last error */
	char text[192];
} error;

static const char *words_of(aclError code)
{
	switch (code) {
	case ACL_ERROR_INVALID_PARAM:
	case ACL_ERROR_RT_PARAM_INVALID:
		return "an argument is not valid";
	case ACL_ERROR_UNINITIALIZE:
		return "aclInit was not called";
	case ACL_ERROR_REPEAT_INITIALIZE:
		return "aclInit was called before";
	case ACL_ERROR_INVALID_FILE:
		return "the configuration cannot be read";
	case ACL_ERROR_REPEAT_FINALIZE:
		return "aclFinalize was called before";
	case ACL_ERROR_RT_INVALID_DEVICEID:
		return "there is no such device";
	case ACL_ERROR_RT_CONTEXT_NULL:
		return "the thread has no context, or the device was not set";
	case ACL_ERROR_RT_STREAM_CONTEXT:
		return "the stream is not of this context";
	case ACL_ERROR_RT_INVALID_HANDLE:
		return "the handle is not valid";
	case ACL_ERROR_BAD_ALLOC:
		return "the host has no memory";
	case ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
		return "this is not supported";
	case ACL_ERROR_RT_MEMORY_ALLOCATION:
		return "the device has no memory";
	case ACL_ERROR_RT_STREAM_SYNC_TIMEOUT:
		return "the stream did not end in time";
	case ACL_ERROR_RT_RESOURCE_ALLOC_FAIL:
		return "too many are in use";
	default:
		return "the driver failed";
	}
}

aclError acl_result(aclError code)
{
	if (code == ACL_ERROR_RT_AICORE_EXCEPTION)
		return aclSimFailed(code, rtSimFailure());
	if (code) {
		error.last = code;
		error.detail[0] = '\0';
	}
	return code;
}

aclError aclSimFailed(aclError code, const char *what)
{
	error.last = code;
	(void)snprintf(error.detail, sizeof(error.detail), "simnpu: %s", what);
	return code;
}

aclError aclSimNotSimulated(const char *function)
{
	char what[128];

	(void)snprintf(what, sizeof(what), "%s is not simulated", function);
	(void)fprintf(stderr, "simnpu: %s\n", what);
	return aclSimFailed(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, what);
}

const char *aclGetRecentErrMsgImpl(void)
{
	if (!error.last)
		return NULL;
	(void)snprintf(error.text, sizeof(error.text), "error %d: %s", error.last,
		       error.detail[0] ? error.detail : words_of(error.last));
	error.last = ACL_SUCCESS;
	return error.text;
}

aclError aclrtGetLastErrorImpl(aclrtLastErrLevel level)
{
	aclError last = aclrtPeekAtLastErrorImpl(level);

	error.last = ACL_SUCCESS;
	return last;
}

aclError aclrtPeekAtLastErrorImpl(aclrtLastErrLevel level)
{
	return level == ACL_RT_THREAD_LEVEL ? error.last : ACL_ERROR_INVALID_PARAM;
}

aclError aclInitImpl(const char *configPath)
{
	aclError result = ACL_SUCCESS;

	if (configPath && *configPath && access(configPath, R_OK) != 0)
		return acl_result(ACL_ERROR_INVALID_FILE);
	(void)pthread_mutex_lock(&lock);
	if (state == RUNNING)
		result = ACL_ERROR_REPEAT_INITIALIZE;
	else
		state = RUNNING;
	(void)pthread_mutex_unlock(&lock);
	return acl_result(result);
}

aclError aclFinalizeImpl(void)
{
	aclError result = ACL_SUCCESS;

	(void)pthread_mutex_lock(&lock);
	if (state == RUNNING)
		state = ENDED;
	else
		result = state == ENDED ? ACL_ERROR_REPEAT_FINALIZE : ACL_ERROR_UNINITIALIZE;
	(void)pthread_mutex_unlock(&lock);
	return acl_result(result);
}

static void before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	(void)pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork);
}
