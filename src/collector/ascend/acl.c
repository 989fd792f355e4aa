/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ACL layer (libascendcl.so): when the runtime is initialised and finalised, and host memory of the program that it pins.
 */
#include "collector/ascend/ascend.h"

#define ACL_ERROR_INTERNAL 500000
#define ACL_HOST_PINNED	   0x10000000u

enum system_kind {
	SYSTEM_INIT = 1,
	SYSTEM_FINI = 2,
};

static void event_system(enum system_kind kind)
{
	struct event_system event = {.kind = kind};
	struct writer *w;
	uint32_t context;

	w = writer_enter_on();
	if (w == NULL)
		return;
	context = ascend_context(w, DEVICE_UNKNOWN);
	WRITER_PUT(w, system, context, &event);
	writer_leave(w);
}

MSCOPE_EXPORT int aclInit(const char *config)
{
	hook_aclInit *original = HOOK_ORIGINAL(aclInit);
	int r;

	if (original == NULL)
		return ACL_ERROR_INTERNAL;
	r = original(config);
	if (r == 0 && !recording_is_off())
		event_system(SYSTEM_INIT);
	return r;
}

MSCOPE_EXPORT int aclFinalize(void)
{
	hook_aclFinalize *original = HOOK_ORIGINAL(aclFinalize);
	int r;

	if (original == NULL)
		return ACL_ERROR_INTERNAL;
	if (recording_is_off())
		return original();
	launch_stop();
	r = original();
	if (r == 0)
		event_system(SYSTEM_FINI);
	return r;
}

static void decode_register(uint64_t flag, struct context *out)
{
	out->vendor = VENDOR_ASCEND;
	out->pool = POOL_host_pinned;
	out->kind = BLOCK_REGISTER;
	out->device = DEVICE_HOST;
	out->module = MODULE_UNKNOWN;
	out->flags = flag;
}

MSCOPE_EXPORT int aclrtHostRegisterV2(void *ptr, uint64_t size, uint32_t flag)
{
	hook_aclrtHostRegisterV2 *original = HOOK_ORIGINAL(aclrtHostRegisterV2);
	int r;

	if (original == NULL)
		return ACL_ERROR_INTERNAL;
	if (recording_now() == RECORDING_OFF)
		return original(ptr, size, flag);
	r = original(ptr, size, flag);
	/* Memory that is mapped and not pinned takes nothing. */
	if (r == 0 && (flag & ACL_HOST_PINNED))
		event_alloc(SOURCE_REGISTER, flag, decode_register, (uint64_t)(uintptr_t)ptr, size,
			    __builtin_return_address(0));
	return r;
}

MSCOPE_EXPORT int aclrtHostUnregister(void *ptr)
{
	hook_aclrtHostUnregister *original = HOOK_ORIGINAL(aclrtHostUnregister);
	int r;

	if (original == NULL)
		return ACL_ERROR_INTERNAL;
	if (recording_now() == RECORDING_OFF)
		return original(ptr);
	event_free(SOURCE_REGISTER, 0, decode_register, (uint64_t)(uintptr_t)ptr,
		   __builtin_return_address(0));
	r = original(ptr);
	if (r != 0)
		event_free_undo_slow(SOURCE_REGISTER, 0, decode_register, (uint64_t)(uintptr_t)ptr);
	return r;
}
