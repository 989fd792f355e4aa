/* SPDX-License-Identifier: Apache-2.0 */
#include "collector/record/refused.h"

#include <errno.h>

#include "collector/interp/interpreter.h"
#include "collector/quiet.h"
#include "collector/record/hot.h"
#include "collector/vendor.h"

#define LATELY_NS UINT64_C(2000000000)

/* When the latest came, 0: none has. */
static _Atomic uint64_t latest_ns;

bool refused_lately(void)
{
	uint64_t latest = atomic_load_explicit(&latest_ns, memory_order_relaxed);

	return latest != 0 && clock_ns() - latest < LATELY_NS;
}

/* A driver is asked outside of the record path, as foreign code; not at all where a system call might kill. */
static void ask_driver(const struct context *context, struct event_oom *event)
{
	const struct vendor_ops *ops = vendor_ops(context->vendor);
	uint64_t left, total;

	event->free_bytes = event->total_bytes = UINT64_MAX;
	if (ops->memory == NULL || context->device == DEVICE_UNKNOWN || quiet_is_on() ||
	    !ops->memory(context->device, &left, &total))
		return;
	event->free_bytes = left;
	event->total_bytes = total;
}

MSCOPE_COLD void event_oom_slow(uint32_t source, uint64_t key, context_decode *decode,
				const struct refusal *refusal, const void *caller)
{
	struct event_oom event = {.requested_bytes = refusal->requested_bytes,
				  .flag = refusal->flag,
				  .allocated_bytes = refusal->allocated_bytes,
				  .reserved_bytes = refusal->reserved_bytes,
				  .call = refusal->call};
	int saved_errno = errno;
	struct context context = {0};
	struct writer *w;
	uint32_t number;

	atomic_store_explicit(&latest_ns, clock_ns(), memory_order_relaxed);
	if (recording_now() == RECORDING_SHADOW)
		return;
	decode(key, &context);
	ask_driver(&context, &event);
	w = writer_enter_on();
	if (w != NULL) {
		number = writer_context(w, source, key, decode);
		event.stack = stack_capture(w, caller, REFUSED_FRAMES,
					    interp_find_slow() ? REFUSED_FRAMES : 0);
		WRITER_PUT(w, oom, number, &event);
		writer_leave(w);
	}
	errno = saved_errno;
}
