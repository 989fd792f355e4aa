/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices, contexts, streams, events and functions in streams: all of it the runtime's work.
 */
#include <pthread.h>

#include "impl.h"
#include "runtime/rt.h"

aclError aclrtSetDeviceImpl(int32_t deviceId)
{
	return acl_result(rtSetDevice(deviceId));
}

aclError aclrtResetDeviceImpl(int32_t deviceId)
{
	return acl_result(rtDeviceReset(deviceId));
}

aclError aclrtGetDeviceImpl(int32_t *deviceId)
{
	if (!deviceId)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	/* Tools ask at any moment, so the answer that there is none yet is not news for aclGetRecentErrMsg(). */
	return rtGetDevice(deviceId);
}

aclError aclrtGetDeviceCountImpl(uint32_t *count)
{
	int32_t found;
	aclError error;

	if (!count)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtGetDeviceCount(&found);
	if (!error)
		*count = (uint32_t)found;
	return acl_result(error);
}

aclError aclrtSynchronizeDeviceImpl(void)
{
	return acl_result(rtDeviceSynchronize());
}

aclError aclrtSynchronizeDeviceWithTimeoutImpl(int32_t timeout)
{
	return acl_result(timeout < -1 ? ACL_ERROR_INVALID_PARAM
				       : rtDeviceSynchronizeWithTimeout(timeout));
}

static char soc_name[64];

static void read_soc_name(void)
{
	(void)rtGetSocVersion(soc_name, sizeof(soc_name));
}

const char *aclrtGetSocNameImpl(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, read_soc_name);
	return soc_name;
}

aclError aclrtGetRunModeImpl(aclrtRunMode *runMode)
{
	if (!runMode)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*runMode = ACL_HOST;
	return ACL_SUCCESS;
}

aclError aclrtCreateContextImpl(aclrtContext *context, int32_t deviceId)
{
	if (!context)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtCtxCreate(context, 0, deviceId));
}

aclError aclrtDestroyContextImpl(aclrtContext context)
{
	if (!context)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtCtxDestroy(context));
}

aclError aclrtSetCurrentContextImpl(aclrtContext context)
{
	if (!context)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtCtxSetCurrent(context));
}

aclError aclrtGetCurrentContextImpl(aclrtContext *context)
{
	if (!context)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtCtxGetCurrent(context));
}

aclError aclrtCreateStreamImpl(aclrtStream *stream)
{
	if (!stream)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtStreamCreate(stream, 0));
}

aclError aclrtCreateStreamWithConfigImpl(aclrtStream *stream, uint32_t priority, uint32_t flag)
{
	(void)flag;
	if (!stream)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtStreamCreate(stream, (int32_t)priority));
}

aclError aclrtDestroyStreamImpl(aclrtStream stream)
{
	if (!stream)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtStreamDestroy(stream));
}

/* There is nothing to be forced: every task ends. */
aclError aclrtDestroyStreamForceImpl(aclrtStream stream)
{
	return aclrtDestroyStreamImpl(stream);
}

aclError aclrtSynchronizeStreamImpl(aclrtStream stream)
{
	return acl_result(rtStreamSynchronize(stream));
}

aclError aclrtSynchronizeStreamWithTimeoutImpl(aclrtStream stream, int32_t timeout)
{
	return acl_result(timeout < -1 ? ACL_ERROR_INVALID_PARAM
				       : rtStreamSynchronizeWithTimeout(stream, timeout));
}

aclError aclrtStreamQueryImpl(aclrtStream stream, aclrtStreamStatus *status)
{
	aclError error;
	bool idle;

	if (!status)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtSimStreamIdle(stream, &idle);
	if (!error)
		*status = idle ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
	return acl_result(error);
}

aclError aclrtStreamGetIdImpl(aclrtStream stream, int32_t *streamId)
{
	if (!streamId)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return rtGetStreamId(stream, streamId);
}

aclError aclrtCreateEventImpl(aclrtEvent *event)
{
	if (!event)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtEventCreate(event));
}

aclError aclrtCreateEventWithFlagImpl(aclrtEvent *event, uint32_t flag)
{
	(void)flag;
	return aclrtCreateEventImpl(event);
}

aclError aclrtCreateEventExWithFlagImpl(aclrtEvent *event, uint32_t flag)
{
	(void)flag;
	return aclrtCreateEventImpl(event);
}

aclError aclrtResetEventImpl(aclrtEvent event, aclrtStream stream)
{
	return acl_result(rtEventReset(event, stream));
}

aclError aclrtDestroyEventImpl(aclrtEvent event)
{
	return acl_result(rtEventDestroy(event));
}

aclError aclrtRecordEventImpl(aclrtEvent event, aclrtStream stream)
{
	return acl_result(rtEventRecord(event, stream));
}

aclError aclrtStreamWaitEventImpl(aclrtStream stream, aclrtEvent event)
{
	return acl_result(rtStreamWaitEvent(stream, event));
}

aclError aclrtSynchronizeEventImpl(aclrtEvent event)
{
	return acl_result(rtEventSynchronize(event));
}

aclError aclrtQueryEventStatusImpl(aclrtEvent event, aclrtEventRecordedStatus *status)
{
	int32_t found;
	aclError error;

	if (!status)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtEventQueryStatus(event, &found);
	if (!error)
		*status = (aclrtEventRecordedStatus)found;
	return acl_result(error);
}

aclError aclrtQueryEventWaitStatusImpl(aclrtEvent event, aclrtEventWaitStatus *status)
{
	aclrtEventRecordedStatus recorded;
	aclError error;

	if (!status)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = aclrtQueryEventStatusImpl(event, &recorded);
	if (!error)
		*status = recorded == ACL_EVENT_RECORDED_STATUS_COMPLETE
				  ? ACL_EVENT_WAIT_STATUS_COMPLETE
				  : ACL_EVENT_WAIT_STATUS_NOT_READY;
	return error;
}

aclError aclrtEventGetTimestampImpl(aclrtEvent event, uint64_t *timestamp)
{
	if (!timestamp)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtEventGetTimeStamp(timestamp, event));
}

aclError aclrtEventElapsedTimeImpl(float *ms, aclrtEvent startEvent, aclrtEvent endEvent)
{
	if (!ms)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtEventElapsedTime(ms, startEvent, endEvent));
}

aclError aclrtLaunchHostFuncImpl(aclrtStream stream, aclrtHostFunc fn, void *args)
{
	return acl_result(fn ? rtsLaunchHostFunc(stream, fn, args) : ACL_ERROR_INVALID_PARAM);
}

aclError aclrtSubscribeReportImpl(uint64_t threadId, aclrtStream stream)
{
	return acl_result(rtSubscribeReport(threadId, stream));
}

aclError aclrtUnSubscribeReportImpl(uint64_t threadId, aclrtStream stream)
{
	return acl_result(rtUnSubscribeReport(threadId, stream));
}

aclError aclrtLaunchCallbackImpl(aclrtCallback fn, void *userData, aclrtCallbackBlockType blockType,
				 aclrtStream stream)
{
	if (!fn)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtCallbackLaunch(fn, userData, stream, blockType == ACL_CALLBACK_BLOCK));
}

/* Threads ask in a loop: that nothing came is not news for aclGetRecentErrMsg(). */
aclError aclrtProcessReportImpl(int32_t timeout)
{
	return rtProcessReport(timeout);
}

aclError aclmdlRICaptureBeginImpl(aclrtStream stream, aclmdlRICaptureMode mode)
{
	if (mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	return acl_result(rtsStreamBeginCapture(stream));
}

aclError aclmdlRICaptureEndImpl(aclrtStream stream, aclmdlRI *modelRI)
{
	return acl_result(modelRI ? rtsStreamEndCapture(stream, modelRI) : ACL_ERROR_INVALID_PARAM);
}

aclError aclmdlRICaptureThreadExchangeModeImpl(aclmdlRICaptureMode *mode)
{
	static _Thread_local aclmdlRICaptureMode current = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
	aclmdlRICaptureMode before = current;

	if (!mode || *mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	current = *mode;
	*mode = before;
	return ACL_SUCCESS;
}

aclError aclmdlRIExecuteAsyncImpl(aclmdlRI modelRI, aclrtStream stream)
{
	return acl_result(rtsModelExecuteAsync(modelRI, stream));
}

aclError aclmdlRIDestroyImpl(aclmdlRI modelRI)
{
	return acl_result(rtsModelDestroy(modelRI));
}

/* A number that is the same for the same model. */
aclError aclmdlRIGetIdImpl(aclmdlRI modelRI, uint32_t *modelRIId)
{
	if (!modelRI || !modelRIId)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	*modelRIId = (uint32_t)((uintptr_t)modelRI >> 4);
	return ACL_SUCCESS;
}

aclError aclmdlRICaptureGetInfoImpl(aclrtStream stream, aclmdlRICaptureStatus *status,
				    aclmdlRI *modelRI)
{
	rtModel_t model = NULL;
	aclError error;

	if (!status)
		return acl_result(ACL_ERROR_INVALID_PARAM);
	error = rtSimStreamCapture(stream, &model);
	if (error)
		return acl_result(error);
	*status = model ? ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE : ACL_MODEL_RI_CAPTURE_STATUS_NONE;
	if (modelRI)
		*modelRI = model;
	return ACL_SUCCESS;
}
