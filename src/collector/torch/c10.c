/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's allocators, seen from C: every one of them reports to functions of libc10.so, through the PLT, on the thread that
 * allocates. No Python is involved, and PyTorch's own profiler gets every report as well.
 *
 *     CUDA            always reports: the caching pool, sizes as the pool rounds them, and what it holds from the driver
 *     CPU             reports only while memory is profiled; we answer that it is when the session wants tensors of the host, and
 *                     from the beginning to the end where the program itself will say what it wants: the allocator warns on
 *                     stderr when it frees a tensor whose allocation it did not report, and reports wrong sizes
 *                     In a program that does not have us preloaded its first tensors are older than we are; there the
 *                     allocator's own calls of its reporter are redirected instead (slots.def), and it notices nothing.
 *     PrivateUse1     not taken: torch_npu reports the same through mstx
 */
#include <stdlib.h>

#include "collector/api.h"
#include "collector/process/process.h"
#include "collector/record/refused.h"
#include "collector/torch/pool.h"
#include "collector/torch/torch.h"
#include "collector/watch/watch_dump.h"

/* c10::Device: two bytes, passed by value in a register like any struct of that size. */
struct c10_device {
	int8_t type;
	int8_t index;
};

#define DEVICES 64u

#define HOOK HOOK_DEFINE
#include "collector/torch/hooks.def"
#undef HOOK
#define SLOT HOOK_DEFINE
#include "collector/torch/slots.def"
#undef SLOT

/* Last total recorded, + 1, by device: the pool repeats it at every call, and only a change is worth a record. */
static _Atomic uint64_t last_totals[DEVICES];
/* Of the writers that recorded them: a forked child begins again. */
static _Atomic uint32_t totals_generation;

static MSCOPE_COLD void forget_totals(uint32_t generation)
{
	uint32_t i;

	for (i = 0; i < DEVICES; i++)
		atomic_store_explicit(&last_totals[i], 0, memory_order_relaxed);
	atomic_store(&totals_generation, generation);
}

/* What the allocators of a device say they have handed out in all, at last; the host is the last one. */
static _Atomic uint64_t levels[DEVICES + 1];

uint64_t torch_level(void)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i <= DEVICES; i++)
		sum += atomic_load_explicit(&levels[i], memory_order_relaxed);
	return sum;
}

static void take_level(struct c10_device device, uint64_t allocated)
{
	uint32_t index = device.type == C10_CPU ? DEVICES : (uint32_t)(uint8_t)device.index;

	if (index <= DEVICES && (device.type == C10_CPU || device.type == C10_CUDA))
		atomic_store_explicit(&levels[index], allocated, memory_order_relaxed);
}

bool torch_pool_has_reported(void)
{
	uint32_t i;

	for (i = 0; i < DEVICES; i++) {
		if (atomic_load_explicit(&last_totals[i], memory_order_relaxed) != 0)
			return true;
	}
	return false;
}

void torch_decode(uint64_t key, struct context *out)
{
	out->vendor = device_key_vendor(key);
	out->pool = out->vendor == VENDOR_CPU ? POOL_host : POOL_pta;
	out->kind = BLOCK_ALLOC;
	out->device = (uint32_t)key;
	out->module = MODULE_UNKNOWN;
}

/*
 * Attaches only if the session wants tensors of the host: many processes have such tensors and nothing else to record, and must not
 * pay for it or leave files. The session does not change, so the answer is kept. A forked child goes on with what its parent wanted
 * last, perhaps for a window; `collector` still has that.
 */
static MSCOPE_COLD uint32_t attach_for_host_slow(uint32_t recording)
{
	/* 0: not asked, 1: no, 2: yes, or there is no session yet */
	static _Atomic uint32_t answer;

	if (recording == RECORDING_ATTACHING)
		return collector_attach_slow();
	/* The header is the parent's until this process attaches. */
	if (collector.header != NULL)
		return collector.chosen.host != 0 ? collector_attach_slow() : RECORDING_OFF;
	if (atomic_load_explicit(&answer, memory_order_relaxed) == 0)
		atomic_store_explicit(&answer,
				      getenv(SESSION_ENV) == NULL || session_wants_host() ? 2 : 1,
				      memory_order_relaxed);
	return atomic_load_explicit(&answer, memory_order_relaxed) == 2 ? collector_attach_slow()
									: RECORDING_OFF;
}

/* The acquire pairs with the store in collector_attach_slow(): a thread that sees the state sees what the session wants. */
static bool wants_host(void)
{
	uint32_t recording =
		atomic_load_explicit(&collector_switch.recording, memory_order_acquire);

	if (MSCOPE_UNLIKELY(recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING))
		recording = attach_for_host_slow(recording);
	return recording == RECORDING_EARLY ||
	       (recording != RECORDING_OFF && collector.chosen.host != 0);
}

static void event_total(uint32_t device, uint64_t bytes)
{
	struct event_pool_total event = {.reserved_bytes = bytes};
	uint32_t context, generation = atomic_load(&collector_switch.generation);
	struct writer *w;

	if (MSCOPE_UNLIKELY(atomic_load(&totals_generation) != generation))
		forget_totals(generation);
	if (device < DEVICES &&
	    (atomic_load_explicit(&last_totals[device], memory_order_relaxed) == bytes + 1 ||
	     atomic_exchange(&last_totals[device], bytes + 1) == bytes + 1))
		return;
	w = writer_enter();
	if (w == NULL)
		return;
	context = writer_context(w, SOURCE_TORCH, device_key(VENDOR_CUDA, device), torch_decode);
	WRITER_PUT(w, pool_total, context, &event);
	writer_leave(w);
}

/* A block of the pool, with what the pool has told about it besides. */
static void take_pool_report(uint64_t address, int64_t bytes, uint64_t reserved, int8_t device,
			     const void *caller)
{
	uint32_t number = device < 0 ? DEVICE_UNKNOWN : (uint32_t)device;
	uint64_t key =
		device < 0 ? device_key(VENDOR_CUDA, number) : vendor_device(VENDOR_CUDA, number);
	struct pool_entry entry;

	event_total((uint32_t)key, reserved);
	if (bytes > 0) {
		struct event_block_alloc_pool event = {.address = address,
						       .size_bytes = (uint64_t)bytes};

		if (!pool_take_alloc(device, key, address, (uint64_t)bytes, &entry)) {
			event_alloc(SOURCE_TORCH, key, torch_decode, address, (uint64_t)bytes,
				    caller);
			return;
		}
		event.requested_bytes = entry.size;
		event.stream = entry.stream;
		event.private_first = entry.private_first;
		event.private_second = entry.private_second;
		event_alloc_pool(SOURCE_TORCH, key, torch_decode, &event, caller);
	} else if (bytes < 0) {
		watch_freed(POOL_pta, address, (uint64_t)-bytes);
		event_free(SOURCE_TORCH, key, torch_decode, address, caller);
		pool_take_free(device, key, address, (uint64_t)-bytes);
	}
}

static void take_report(const void *ptr, int64_t bytes, uint64_t reserved, struct c10_device device,
			const void *caller)
{
	uint64_t key = device_key(VENDOR_CPU, DEVICE_HOST);

	if (bytes > 0)
		torch_notice_question();
	if (device.type == C10_CUDA && recording_now() != RECORDING_OFF)
		take_pool_report((uint64_t)(uintptr_t)ptr, bytes, reserved, device.index, caller);
	if (device.type != C10_CPU || !wants_host())
		return;
	if (bytes > 0) {
		event_alloc(SOURCE_TORCH, key, torch_decode, (uint64_t)(uintptr_t)ptr,
			    (uint64_t)bytes, caller);
	} else if (bytes < 0) {
		watch_freed(POOL_pta, (uint64_t)(uintptr_t)ptr, (uint64_t)-bytes);
		event_free(SOURCE_TORCH, key, torch_decode, (uint64_t)(uintptr_t)ptr, caller);
	}
}

/* A free is reported before the memory goes back, an allocation after it was made: the order that the trace needs. */
MSCOPE_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes,
									 size_t allocated,
									 size_t reserved,
									 struct c10_device device)
{
	hook__ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE *original =
		HOOK_ORIGINAL(_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE);

	take_level(device, allocated);
	take_report(ptr, bytes, reserved, device, __builtin_return_address(0));
	if (original != NULL)
		original(ptr, bytes, allocated, reserved, device);
}

/* The same until PyTorch 2.0, when totals were signed. */
MSCOPE_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE(void *ptr, int64_t bytes,
									 int64_t allocated,
									 int64_t reserved,
									 struct c10_device device)
{
	hook__ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE *original =
		HOOK_ORIGINAL(_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE);

	take_level(device, (uint64_t)allocated);
	take_report(ptr, bytes, (uint64_t)reserved, device, __builtin_return_address(0));
	if (original != NULL)
		original(ptr, bytes, allocated, reserved, device);
}

/* A request failed; on a device after the pool gave back its cache. The exception follows. Inline: stacks begin at `caller`. */
MSCOPE_INLINE void take_refusal(int64_t bytes, uint64_t allocated, uint64_t reserved,
				struct c10_device device, const void *caller)
{
	struct refusal refusal = {.requested_bytes = bytes > 0 ? (uint64_t)bytes : 0};
	uint64_t key;

	if (device.type == C10_CPU && wants_host()) {
		key = device_key(VENDOR_CPU, DEVICE_HOST);
		/* There is no pool behind it that would have totals of its own. */
		refusal.allocated_bytes = refusal.reserved_bytes = UINT64_MAX;
		refusal.call = OOM_TORCH_CPU;
	} else if (device.type == C10_CUDA && recording_now() != RECORDING_OFF) {
		key = device.index < 0 ? device_key(VENDOR_CUDA, DEVICE_UNKNOWN)
				       : vendor_device(VENDOR_CUDA, (uint32_t)device.index);
		refusal.allocated_bytes = allocated;
		refusal.reserved_bytes = reserved;
		refusal.call = OOM_TORCH_CUDA;
	} else {
		return;
	}
	event_oom_slow(SOURCE_TORCH, key, torch_decode, &refusal, caller);
}

MSCOPE_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes,
								       size_t allocated,
								       size_t reserved,
								       struct c10_device device)
{
	hook__ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE *original =
		HOOK_ORIGINAL(_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE);

	take_refusal(bytes, allocated, reserved, device, __builtin_return_address(0));
	if (original != NULL)
		original(bytes, allocated, reserved, device);
}

/* The same until PyTorch 2.0. */
MSCOPE_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE(int64_t bytes,
								       int64_t allocated,
								       int64_t reserved,
								       struct c10_device device)
{
	hook__ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE *original =
		HOOK_ORIGINAL(_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE);

	take_refusal(bytes, (uint64_t)allocated, (uint64_t)reserved, device,
		     __builtin_return_address(0));
	if (original != NULL)
		original(bytes, allocated, reserved, device);
}

/* torch_npu does not report its refusals there; the package hears of them (_allocator.py). */
MSCOPE_EXPORT void mscope_pool_refused(uint32_t device, uint64_t bytes)
{
	const struct refusal refusal = {.requested_bytes = bytes,
					.allocated_bytes = UINT64_MAX,
					.reserved_bytes = UINT64_MAX,
					.call = OOM_TORCH_NPU};

	if (recording_now() != RECORDING_OFF)
		event_oom_slow(SOURCE_TORCH, vendor_torch_device(device), torch_decode, &refusal,
			       __builtin_return_address(0));
}

/*
 * The CPU allocator asks at every allocation and free. In shadow the answer is yes as well.
 */
MSCOPE_EXPORT bool _ZN3c1022memoryProfilingEnabledEv(void)
{
	hook__ZN3c1022memoryProfilingEnabledEv *original;

	torch_notice_asked();
	if (wants_host() || collector.own_session)
		return true;
	original = HOOK_ORIGINAL(_ZN3c1022memoryProfilingEnabledEv);
	return original != NULL && original();
}

/* ---- without preload ---- */

/* Called when the block is there, and before it goes back: the order that the trace needs, as above. */
void slot__ZN3c1025ProfiledCPUMemoryReporter3NewEPvm(void *self, void *ptr, size_t bytes)
{
	hook__ZN3c1025ProfiledCPUMemoryReporter3NewEPvm *original =
		HOOK_ORIGINAL(_ZN3c1025ProfiledCPUMemoryReporter3NewEPvm);

	if (bytes != 0 && wants_host())
		event_alloc(SOURCE_TORCH, device_key(VENDOR_CPU, DEVICE_HOST), torch_decode,
			    (uint64_t)(uintptr_t)ptr, bytes, __builtin_return_address(0));
	torch_notice_question();
	if (original != NULL)
		original(self, ptr, bytes);
}

void slot__ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv(void *self, void *ptr)
{
	hook__ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv *original =
		HOOK_ORIGINAL(_ZN3c1025ProfiledCPUMemoryReporter6DeleteEPv);

	if (ptr != NULL && wants_host()) {
		watch_freed(POOL_pta, (uint64_t)(uintptr_t)ptr, 0);
		event_free(SOURCE_TORCH, device_key(VENDOR_CPU, DEVICE_HOST), torch_decode,
			   (uint64_t)(uintptr_t)ptr, __builtin_return_address(0));
	}
	if (original != NULL)
		original(self, ptr);
}

void slot__ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm(void *self, size_t bytes)
{
	hook__ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm *original =
		HOOK_ORIGINAL(_ZN3c1025ProfiledCPUMemoryReporter11OutOfMemoryEm);

	take_refusal((int64_t)bytes, UINT64_MAX, UINT64_MAX, (struct c10_device){.type = C10_CPU},
		     __builtin_return_address(0));
	if (original != NULL)
		original(self, bytes);
}
