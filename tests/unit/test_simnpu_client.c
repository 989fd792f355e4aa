/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What frameworks ask of the simulated AscendCL beyond memory and launches: waits that end, functions in streams, where an
 * address lies, versions, options, descriptions, and the words for what is not simulated.
 */
#include "unit.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>

#define assert_ok(call) assert_int_equal(call, ACL_SUCCESS)

static int set_device(void **state)
{
	(void)state;
	return aclInit(NULL) || aclrtSetDevice(0);
}

static int reset_device(void **state)
{
	(void)state;
	return aclrtResetDevice(0) || aclFinalize();
}

static void wait_for_semaphore(void *semaphore)
{
	(void)sem_wait(semaphore);
}

static void a_wait_with_a_limit_ends(void **state)
{
	aclrtStreamStatus status;
	aclrtStream stream;
	sem_t semaphore;

	(void)state;
	assert_int_equal(sem_init(&semaphore, 0, 0), 0);
	assert_ok(aclrtCreateStream(&stream));
	assert_ok(aclrtStreamQuery(stream, &status));
	assert_int_equal(status, ACL_STREAM_STATUS_COMPLETE);
	assert_ok(aclrtLaunchHostFunc(stream, wait_for_semaphore, &semaphore));
	assert_ok(aclrtStreamQuery(stream, &status));
	assert_int_equal(status, ACL_STREAM_STATUS_NOT_READY);
	assert_int_equal(aclrtSynchronizeStreamWithTimeout(stream, 20),
			 ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
	assert_int_equal(aclrtSynchronizeDeviceWithTimeout(20), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
	assert_int_equal(aclrtSynchronizeStreamWithTimeout(stream, -2), ACL_ERROR_INVALID_PARAM);
	(void)sem_post(&semaphore);
	assert_ok(aclrtSynchronizeStreamWithTimeout(stream, 10000));
	assert_ok(aclrtSynchronizeDeviceWithTimeout(-1));
	assert_ok(aclrtStreamQuery(stream, &status));
	assert_int_equal(status, ACL_STREAM_STATUS_COMPLETE);
	assert_ok(aclrtDestroyStreamForce(stream));
	(void)sem_destroy(&semaphore);
}

static void events_of_all_kinds_can_be_asked(void **state)
{
	aclrtEventWaitStatus waited;
	aclrtStream stream;
	aclrtEvent first;
	aclrtEvent second;
	uint64_t begin = 0;
	uint64_t end = 0;
	sem_t semaphore;
	float ms = -1;

	(void)state;
	assert_int_equal(sem_init(&semaphore, 0, 0), 0);
	assert_ok(aclrtCreateStream(&stream));
	assert_ok(aclrtCreateEventWithFlag(&first, 8));
	assert_ok(aclrtCreateEventExWithFlag(&second, 1));
	assert_ok(aclrtRecordEvent(first, stream));
	assert_ok(aclrtLaunchHostFunc(stream, wait_for_semaphore, &semaphore));
	assert_ok(aclrtRecordEvent(second, stream));
	assert_ok(aclrtQueryEventWaitStatus(second, &waited));
	assert_int_equal(waited, ACL_EVENT_WAIT_STATUS_NOT_READY);
	assert_int_not_equal(aclrtEventGetTimestamp(second, &end), ACL_SUCCESS);
	(void)sem_post(&semaphore);
	assert_ok(aclrtSynchronizeStream(stream));
	assert_ok(aclrtQueryEventWaitStatus(second, &waited));
	assert_int_equal(waited, ACL_EVENT_WAIT_STATUS_COMPLETE);
	assert_ok(aclrtEventGetTimestamp(first, &begin));
	assert_ok(aclrtEventGetTimestamp(second, &end));
	assert_true(begin > 0 && end >= begin);
	assert_ok(aclrtEventElapsedTime(&ms, first, second));
	assert_true(ms >= 0);
	assert_ok(aclrtResetEvent(first, stream));
	assert_ok(aclrtDestroyEvent(first));
	assert_ok(aclrtDestroyEvent(second));
	assert_ok(aclrtDestroyStream(stream));
	(void)sem_destroy(&semaphore);
}

struct processor {
	sem_t subscribed;
	pthread_t thread;
	pthread_t ran_on; /* of the last callback */
	int count;
};

static void note_thread(void *data)
{
	struct processor *p = data;

	p->ran_on = pthread_self();
	p->count++;
}

static void *process_two(void *data)
{
	struct processor *p = data;

	(void)sem_wait(&p->subscribed);
	(void)aclrtProcessReport(-1);
	(void)aclrtProcessReport(10000);
	return NULL;
}

static void callbacks_run_on_the_thread_that_subscribed(void **state)
{
	struct processor p = {.count = 0};
	aclrtStream stream;

	(void)state;
	assert_int_equal(sem_init(&p.subscribed, 0, 0), 0);
	assert_ok(aclrtCreateStream(&stream));
	assert_int_equal(aclrtLaunchCallback(note_thread, &p, ACL_CALLBACK_BLOCK, stream),
			 ACL_ERROR_STREAM_NOT_SUBSCRIBE);
	assert_int_equal(aclrtProcessReport(0), ACL_ERROR_THREAD_NOT_SUBSCRIBE);
	assert_int_equal(pthread_create(&p.thread, NULL, process_two, &p), 0);
	assert_ok(aclrtSubscribeReport((uint64_t)p.thread, stream));
	assert_int_equal(aclrtSubscribeReport((uint64_t)p.thread, stream),
			 ACL_ERROR_REPEAT_SUBSCRIBE);
	assert_ok(aclrtLaunchCallback(note_thread, &p, ACL_CALLBACK_NO_BLOCK, stream));
	assert_ok(aclrtLaunchCallback(note_thread, &p, ACL_CALLBACK_BLOCK, stream));
	(void)sem_post(&p.subscribed);
	assert_ok(aclrtSynchronizeStream(stream));
	assert_int_equal(p.count, 2);
	assert_true(pthread_equal(p.ran_on, p.thread));
	assert_int_equal(pthread_join(p.thread, NULL), 0);
	assert_ok(aclrtUnSubscribeReport((uint64_t)p.thread, stream));

	assert_ok(aclrtSubscribeReport((uint64_t)pthread_self(), stream));
	assert_int_equal(aclrtProcessReport(10), ACL_ERROR_WAIT_CALLBACK_TIMEOUT);
	assert_ok(aclrtUnSubscribeReport((uint64_t)pthread_self(), stream));
	assert_ok(aclrtDestroyStream(stream));
	(void)sem_destroy(&p.subscribed);
}

static void an_address_is_known_by_its_place(void **state)
{
	static char registered[8192];
	aclrtPtrAttributes attributes;
	void *on_device;
	void *on_host;
	void *mapped;

	(void)state;
	assert_ok(aclrtMalloc(&on_device, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
	assert_ok(aclrtMallocHost(&on_host, 4096));
	assert_ok(aclrtHostRegister(registered, sizeof(registered), ACL_HOST_REGISTER_MAPPED,
				    &mapped));
	assert_ptr_equal(mapped, registered);

	assert_ok(aclrtPointerGetAttributes((char *)on_device + 100, &attributes));
	assert_int_equal(attributes.location.type, ACL_MEM_LOCATION_TYPE_DEVICE);
	assert_int_equal(attributes.location.id, 0);
	assert_ok(aclrtPointerGetAttributes(on_host, &attributes));
	assert_int_equal(attributes.location.type, ACL_MEM_LOCATION_TYPE_HOST);
	assert_ok(aclrtPointerGetAttributes(registered + 8000, &attributes));
	assert_int_equal(attributes.location.type, ACL_MEM_LOCATION_TYPE_HOST);
	assert_ok(aclrtPointerGetAttributes(&attributes, &attributes));
	assert_int_equal(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);

	assert_ok(aclrtHostUnregister(registered));
	assert_ok(aclrtPointerGetAttributes(registered, &attributes));
	assert_int_equal(attributes.location.type, ACL_MEM_LOCATION_TYPE_UNREGISTERED);
	assert_ok(aclrtFreeHost(on_host));
	assert_ok(aclrtFree(on_device));
}

static void a_batch_ends_with_the_first_copy_that_fails(void **state)
{
	char a[4] = "abc";
	char b[4] = "";
	char c[4] = "";
	void *dsts[] = {b, c, c};
	void *srcs[] = {a, a, NULL};
	size_t maxs[] = {4, 4, 4};
	size_t sizes[] = {4, 2, 4};
	size_t failed = 99;

	(void)state;
	assert_ok(aclrtMemcpyBatch(dsts, maxs, srcs, sizes, 2, NULL, NULL, 0, &failed));
	assert_string_equal(b, "abc");
	assert_string_equal(c, "ab");
	assert_int_equal(failed, 99);
	assert_int_equal(aclrtMemcpyBatch(dsts, maxs, srcs, sizes, 3, NULL, NULL, 0, &failed),
			 ACL_ERROR_INVALID_PARAM);
	assert_int_equal(failed, 2);
	memset(b, 0, sizeof(b));
	assert_ok(aclrtMemcpyBatchAsync(dsts, maxs, srcs, sizes, 2, NULL, NULL, 0, &failed, NULL));
	assert_ok(aclrtSynchronizeStream(NULL));
	assert_string_equal(b, "abc");
}

static void the_device_says_what_it_is(void **state)
{
	aclCANNPackageVersion version;
	const aclCannAttr *list;
	char text[128];
	aclrtUuid uuid;
	int64_t value;
	size_t count;
	int32_t flag;
	uint32_t ctx_flags;

	(void)state;
	assert_ok(aclsysGetVersionStr(text, text));
	assert_string_equal(text, "9.0.0");
	assert_ok(aclsysGetCANNVersion(ACL_PKG_NAME_RUNTIME, &version));
	assert_string_equal(version.version, "9.0.0");
	assert_string_equal(version.majorVersion, "9");
	assert_string_equal(version.minorVersion, "0");
	assert_ok(aclGetCannAttributeList(&list, &count));
	assert_int_equal(count, 3);
	assert_ok(aclGetCannAttribute(ACL_CANN_ATTR_BF16, &flag));
	assert_int_equal(flag, 1);
	assert_ok(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_CUBE_CORE_NUM, &value));
	assert_int_equal(value, 24);
	assert_ok(aclrtGetDeviceInfo(0, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, &value));
	assert_true(value == 64LL << 30);
	assert_int_equal(aclrtGetDeviceInfo(99, ACL_DEV_ATTR_CUBE_CORE_NUM, &value),
			 ACL_ERROR_INVALID_PARAM);
	assert_ok(aclGetDeviceCapability(0, ACL_DEVICE_INFO_VECTOR_CORE_NUM, &value));
	assert_int_equal(value, 48);
	assert_ok(aclrtDeviceGetUuid(3, &uuid));
	assert_memory_equal(uuid.bytes, "simnpu0000000003", 16);
	assert_ok(aclrtDeviceCanAccessPeer(&flag, 0, 1));
	assert_int_equal(flag, 1);
	assert_int_equal(aclrtDeviceEnablePeerAccess(99, 0), ACL_ERROR_RT_INVALID_DEVICEID);
	assert_ok(aclrtGetPrimaryCtxState(0, &ctx_flags, &flag));
	assert_int_equal(flag, 1);
	assert_ok(aclrtGetPrimaryCtxState(5, NULL, &flag));
	assert_int_equal(flag, 0);
}

static void settings_are_kept(void **state)
{
	uint32_t cores;
	int64_t value;
	char text[8];

	(void)state;
	assert_ok(aclrtSetSysParamOpt(ACL_OPT_DETERMINISTIC, 1));
	assert_ok(aclrtGetSysParamOpt(ACL_OPT_DETERMINISTIC, &value));
	assert_int_equal(value, 1);
	assert_ok(aclrtGetDeviceResLimit(1, ACL_RT_DEV_RES_CUBE_CORE, &cores));
	assert_int_equal(cores, 24);
	assert_ok(aclrtSetDeviceResLimit(1, ACL_RT_DEV_RES_CUBE_CORE, 8));
	assert_ok(aclrtGetDeviceResLimit(1, ACL_RT_DEV_RES_CUBE_CORE, &cores));
	assert_int_equal(cores, 8);
	assert_ok(aclrtResetDeviceResLimit(1));
	assert_ok(aclrtGetDeviceResLimit(1, ACL_RT_DEV_RES_CUBE_CORE, &cores));
	assert_int_equal(cores, 24);

	assert_int_equal(aclGetCompileoptSize(ACL_OP_JIT_COMPILE), sizeof("disable"));
	assert_ok(aclGetCompileopt(ACL_OP_JIT_COMPILE, text, sizeof(text)));
	assert_string_equal(text, "disable");
	assert_ok(aclSetCompileopt(ACL_ALLOW_HF32, "11"));
	assert_ok(aclGetCompileopt(ACL_ALLOW_HF32, text, 3));
	assert_string_equal(text, "11");
	assert_int_equal(aclGetCompileopt(ACL_ALLOW_HF32, text, 2), ACL_ERROR_INVALID_PARAM);
}

static void descriptions_say_what_they_were_told(void **state)
{
	const int64_t dims[] = {2, 3, 4};
	aclTensorDesc *desc;
	aclDataBuffer *buffer;
	int64_t dim;

	(void)state;
	desc = aclCreateTensorDesc(ACL_BF16, 3, dims, ACL_FORMAT_ND);
	assert_int_equal(aclGetTensorDescType(desc), ACL_BF16);
	assert_int_equal(aclGetTensorDescFormat(desc), ACL_FORMAT_ND);
	assert_int_equal(aclGetTensorDescNumDims(desc), 3);
	assert_int_equal(aclGetTensorDescElementCount(desc), 24);
	assert_int_equal(aclGetTensorDescSize(desc), 48);
	assert_ok(aclGetTensorDescDimV2(desc, 2, &dim));
	assert_int_equal(dim, 4);
	assert_int_equal(aclGetTensorDescDimV2(desc, 3, &dim), ACL_ERROR_INVALID_PARAM);
	aclDestroyTensorDesc(desc);
	assert_null(aclCreateTensorDesc(ACL_FLOAT, 1, NULL, ACL_FORMAT_ND));
	buffer = aclCreateDataBuffer(&dim, sizeof(dim));
	assert_ptr_equal(aclGetDataBufferAddr(buffer), &dim);
	assert_int_equal(aclGetDataBufferSizeV2(buffer), sizeof(dim));
	assert_ok(aclDestroyDataBuffer(buffer));
}

/* stderr is not looked at: the words are the same. */
static void what_is_not_simulated_is_named(void **state)
{
	aclopAttr *attr = aclopCreateAttr();
	int (*missing)(void);

	(void)state;
	(void)aclGetRecentErrMsg();
	assert_int_equal(aclrtMalloc(NULL, 1, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_PARAM);
	assert_int_equal(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
	assert_int_equal(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_ERROR_INVALID_PARAM);
	assert_int_equal(aclrtGetLastError(ACL_RT_THREAD_LEVEL), ACL_SUCCESS);

	*(void **)&missing = dlsym(RTLD_DEFAULT, "aclrtBinaryLoadFromData");
	assert_non_null(missing);
	assert_int_equal(missing(), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
	assert_string_equal(aclGetRecentErrMsg(),
			    "error 207000: simnpu: aclrtBinaryLoadFromData is not simulated");
	assert_ok(aclopSetAttrInt(attr, "axis", 1));
	assert_int_equal(aclopCompileAndExecute("TransData", 0, NULL, NULL, 0, NULL, NULL, attr,
						ACL_ENGINE_SYS, ACL_COMPILE_SYS, NULL, NULL),
			 ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
	assert_string_equal(aclGetRecentErrMsg(), "error 207000: simnpu: aclopCompileAndExecute of "
						  "TransData is not simulated");
	aclopDestroyAttr(attr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_with_a_limit_ends),
		cmocka_unit_test(events_of_all_kinds_can_be_asked),
		cmocka_unit_test(callbacks_run_on_the_thread_that_subscribed),
		cmocka_unit_test(an_address_is_known_by_its_place),
		cmocka_unit_test(a_batch_ends_with_the_first_copy_that_fails),
		cmocka_unit_test(the_device_says_what_it_is),
		cmocka_unit_test(settings_are_kept),
		cmocka_unit_test(descriptions_say_what_they_were_told),
		cmocka_unit_test(what_is_not_simulated_is_named),
	};

	return cmocka_run_group_tests(tests, set_device, reset_device);
}
