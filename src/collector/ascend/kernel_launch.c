/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches. A launch is recorded once, however many layers of the runtime it passes. At kernel level the runtime's profiling
 * callback runs on the launching thread inside the call and has name, stream and task; it makes the record. Without it, and at
 * operator level, the launch is recorded without a name, so that it is counted all the same.
 *
 * Callbacks are registered and the device's channel is opened only at kernel level, since another profiler may need them.
 */
#include "collector/ascend/ascend.h"

#include <errno.h>
#include <string.h>

#include "collector/lock.h"
#include "collector/watch/watch_dump.h"

#define RT_ERROR_MISSING  0x99
#define ACL_ERROR_MISSING 500003
#define NUMBER_UNKNOWN	  UINT32_MAX

#define PROF_COMPACT 4
#define PROF_API     9
#define PROF_HASH    12

/* What the runtime hands to the compact callback. */
struct compact {
	uint16_t magic;
	uint16_t level;
	uint32_t type;
	uint32_t thread;
	uint32_t bytes;
	uint64_t time;
	union {
		struct {
			uint16_t device;
			uint16_t stream;
			uint32_t task;
			uint64_t kind;
			uint64_t name;
		} track;
		uint8_t expanded;
		uint8_t room[40];
	};
};

_Static_assert(sizeof(struct compact) == 64, "the runtime's layout");

#define COMPACT_MAGIC  0x5a5a
#define COMPACT_TRACK  802
#define COMPACT_EXPAND 804

/*
 * Where this thread is: not in a launch, in one, or in one that has been recorded; and above these two bits the low half of the
 * stack pointer of the hook, which tells when that launch was left by siglongjmp(). Half of our 16 bytes of static TLS.
 */
enum launch_state {
	LAUNCH_NONE = 0,
	LAUNCH_INSIDE = 1,
	LAUNCH_RECORDED = 2,
	LAUNCH_STATES = 3,
};

static __thread uint32_t launch_state __attribute__((tls_model("initial-exec")));

#define DEVICES	      64u
#define START_WAIT_NS UINT64_C(1000000000)

static _Atomic uint32_t ready[DEVICES]; /* 1: this device reports its kernels, or never will */
static struct lock start_lock = {.foreign = true}; /* guards what follows */
static uint32_t enrolled;			   /* 1: the callbacks are registered */

static void event_launch(uint32_t device, const char *name, uint32_t stream, uint32_t task)
{
	struct event_kernel_launch event = {.stream = stream, .task = task};
	struct writer *w = writer_enter();
	uint32_t context;

	if (w == NULL)
		return;
	w->kernel = name;
	if (recording_now() == RECORDING_ON) {
		context = ascend_context(w, device);
		event.name = writer_text(w, name);
		WRITER_PUT(w, kernel_launch, context, &event);
	}
	writer_leave(w);
}

/* ---- the runtime's callbacks ---- */

static int32_t on_compact(uint32_t aging, const void *data, uint32_t bytes)
{
	const struct compact *compact = data;

	(void)aging;
	if (data == NULL || bytes != sizeof(*compact))
		return 5;
	if (compact->magic != COMPACT_MAGIC)
		return 0;
	if (compact->type == COMPACT_EXPAND) {
		stars_set_expanded(compact->expanded == 1);
	} else if (compact->type == COMPACT_TRACK && compact->track.name != 0) {
		/* Tasks that are no kernels have no name. */
		event_launch(compact->track.device, name_get(compact->track.name),
			     compact->track.stream, stars_task(compact->track.task));
		if ((launch_state & LAUNCH_STATES) == LAUNCH_INSIDE)
			launch_state ^= LAUNCH_INSIDE | LAUNCH_RECORDED;
	}
	return 0;
}

static int32_t on_api(uint32_t aging, const void *api)
{
	(void)aging;
	(void)api;
	return 0;
}

/* The command that makes the runtime report its launches; the runtime's own layout. */
struct prof_command {
	uint64_t on;
	uint64_t on_high;
	uint32_t device_count;
	uint32_t devices[64];
	uint32_t model;
	uint32_t type;
	uint32_t cache;
	uint32_t parameters[1283];
};

_Static_assert(sizeof(struct prof_command) == 5424, "the runtime's layout");

#define PROF_TASK_TIME	   0x800u
#define PROF_RUNTIME_TRACE 0x4000000u
#define PROF_START	   1u

static struct prof_command command; /* too large for a small thread's stack */

static void enroll_callback(int32_t (*enroll)(int32_t, void *, uint32_t), int32_t type,
			    const void *callback)
{
	void *pointer;

	memcpy(&pointer, callback, sizeof(pointer));
	(void)enroll(type, pointer, sizeof(pointer));
}

/* Registers the callbacks once, and sends the command for each device: the runtime reports only devices that it names. */
static void prof_start(uint32_t device)
{
	int32_t (*compact)(uint32_t, const void *, uint32_t) = on_compact;
	int32_t (*api)(uint32_t, const void *) = on_api;
	uint64_t (*hash)(const char *, size_t) = name_put;
	int32_t (*enroll)(int32_t, void *, uint32_t);
	int32_t (*order)(void *, uint32_t);
	void *function;

	function = lookup_symbol("MsprofRegisterProfileCallback");
	memcpy(&enroll, &function, sizeof(function));
	function = lookup_symbol("profSetProfCommand");
	memcpy(&order, &function, sizeof(function));
	if (enroll == NULL || order == NULL) {
		if (!enrolled)
			collector_note("libprofapi.so is not loaded: kernels have no names");
		enrolled = 1;
		return;
	}
	if (!enrolled) {
		enroll_callback(enroll, PROF_HASH, &hash);
		enroll_callback(enroll, PROF_API, &api);
		enroll_callback(enroll, PROF_COMPACT, &compact);
		enrolled = 1;
	}
	command = (struct prof_command){
		.on = PROF_TASK_TIME | PROF_RUNTIME_TRACE,
		.device_count = 1,
		.devices = {device},
		.model = UINT32_MAX,
		.type = PROF_START,
	};
	(void)order(&command, sizeof(command));
}

/*
 * The first launch on a device. Threads that come at the same time wait, or their kernels would be missed; but not for ever, since
 * the holder of the lock is inside foreign code.
 */
MSCOPE_COLD static void start_slow(uint32_t device)
{
	int saved_errno = errno;

	if (!lock_take_within(&start_lock, START_WAIT_NS)) {
		/* No launch waits again. */
		atomic_store(&ready[device], 1);
		return;
	}
	if (atomic_load_explicit(&ready[device], memory_order_relaxed) == 0) {
		prof_start(device);
		stars_start(device);
		collector_write_notes();
		atomic_store_explicit(&ready[device], 1, memory_order_release);
	}
	lock_release(&start_lock);
	errno = saved_errno;
}

void launch_stop(void)
{
	uint32_t i;

	stars_stop();
	for (i = 0; i < DEVICES; i++)
		atomic_store(&ready[i], 0);
}

void launch_reset(void)
{
	uint32_t i;

	/* The runtime of a child starts anew. Callbacks that it inherited are registered once more, which does no harm. */
	enrolled = 0;
	for (i = 0; i < DEVICES; i++)
		atomic_store(&ready[i], 0);
}

/* ---- the hooks ---- */

/* A kernel for watch: its outputs are not known, and its name only after the launch. */
static struct watch_call kernel_call(void *stream)
{
	return (struct watch_call){.level = SESSION_LEVEL_KERNEL,
				   .device = ascend_current_device(),
				   .vendor = VENDOR_ASCEND,
				   .has_stream = true,
				   .stream = stream};
}

static bool is_watching(void)
{
	return (collector.chosen.level & SESSION_LEVEL_KERNEL) && watch_is_active();
}

static __attribute__((noinline)) struct watch_room *launch_begin(void *stream, const void *handed,
								 size_t handed_bytes)
{
	uint32_t hook_stack_pointer = (uint32_t)(uintptr_t)__builtin_dwarf_cfa();
	struct watch_call call;

	if (collector.chosen.level & SESSION_LEVEL_KERNEL) {
		uint32_t device = ascend_current_device();

		/* Pairs with the release in start_slow(). */
		if (device < DEVICES &&
		    atomic_load_explicit(&ready[device], memory_order_acquire) == 0)
			start_slow(device);
	}
	launch_state = (hook_stack_pointer & ~(uint32_t)LAUNCH_STATES) | LAUNCH_INSIDE;
	if (MSCOPE_LIKELY(!is_watching()))
		return NULL;
	call = kernel_call(stream);
	call.arguments = handed;
	call.argument_bytes = handed_bytes;
	return watch_launch_begin(&call);
}

static void launch_end(int result, struct watch_room *before, void *stream)
{
	struct watch_call call;

	if (result == 0 && (launch_state & LAUNCH_STATES) != LAUNCH_RECORDED)
		event_launch(ascend_current_device(), NULL, NUMBER_UNKNOWN, NUMBER_UNKNOWN);
	if (MSCOPE_UNLIKELY(before != NULL || is_watching())) {
		/* Copying may launch kernels, which are not the program's: the state stays "inside" until watch is done. */
		const struct writer *w = collector_writer;

		call = kernel_call(stream);
		call.name = w > WRITER_GONE && w->kernel != NULL ? w->kernel : "kernel";
		watch_launch_end(before, &call, result == 0);
	}
	launch_state = LAUNCH_NONE;
}

/* Attaching sets the level, so it must be over before a launch asks for it. */
static __attribute__((noinline)) bool launch_wanted(void)
{
	uint32_t hook_stack_pointer = (uint32_t)(uintptr_t)__builtin_dwarf_cfa();
	uint32_t recording = recording_now();

	if (recording == RECORDING_DETACHED || recording == RECORDING_ATTACHING)
		recording = collector_attach_slow();
	/* A launch inside another one is called from below it. */
	if (launch_state != LAUNCH_NONE &&
	    (int32_t)(hook_stack_pointer - (launch_state & ~(uint32_t)LAUNCH_STATES)) >= 0)
		launch_state = LAUNCH_NONE;
	return recording == RECORDING_ON && launch_state == LAUNCH_NONE;
}

/* `handed`: where the kernel's arguments are and how long, NULL and 0 where only the runtime knows. */
#define LAUNCH_HOOK(name, missing, parameters, arguments, handed, handed_bytes)                    \
	MSCOPE_EXPORT int name parameters                                                          \
	{                                                                                          \
		hook_##name *original = HOOK_ORIGINAL(name);                                       \
		struct watch_room *before;                                                         \
		int r;                                                                             \
                                                                                                   \
		if (MSCOPE_UNLIKELY(original == NULL))                                             \
			return missing;                                                            \
		if (recording_is_off() || !launch_wanted())                                        \
			return original arguments;                                                 \
		before = launch_begin(stream, handed, handed_bytes);                               \
		r = original arguments;                                                            \
		launch_end(r, before, stream);                                                     \
		return r;                                                                          \
	}

LAUNCH_HOOK(rtKernelLaunch, RT_ERROR_MISSING,
	    (const void *stub, uint32_t blocks, void *args, uint32_t bytes, void *desc,
	     void *stream),
	    (stub, blocks, args, bytes, desc, stream), args, bytes)
LAUNCH_HOOK(rtKernelLaunchWithHandleV2, RT_ERROR_MISSING,
	    (void *handle, uint64_t tiling, uint32_t blocks, void *args, void *desc, void *stream,
	     const void *cfg),
	    (handle, tiling, blocks, args, desc, stream, cfg), NULL, 0)
LAUNCH_HOOK(rtKernelLaunchWithFlagV2, RT_ERROR_MISSING,
	    (const void *stub, uint32_t blocks, void *args, void *desc, void *stream,
	     uint32_t flags, const void *cfg),
	    (stub, blocks, args, desc, stream, flags, cfg), NULL, 0)
LAUNCH_HOOK(rtAicpuKernelLaunchExWithArgs, RT_ERROR_MISSING,
	    (uint32_t type, const char *op, uint32_t blocks, const void *args, void *desc,
	     void *stream, uint32_t flags),
	    (type, op, blocks, args, desc, stream, flags), NULL, 0)
LAUNCH_HOOK(rtLaunchKernelByFuncHandle, RT_ERROR_MISSING,
	    (void *func, uint32_t blocks, void *args, void *stream), (func, blocks, args, stream),
	    NULL, 0)
LAUNCH_HOOK(rtLaunchKernelByFuncHandleV2, RT_ERROR_MISSING,
	    (void *func, uint32_t blocks, void *args, void *stream, const void *cfg),
	    (func, blocks, args, stream, cfg), NULL, 0)
LAUNCH_HOOK(aclrtLaunchKernelImpl, ACL_ERROR_MISSING,
	    (void *func, uint32_t blocks, const void *args, size_t bytes, void *stream),
	    (func, blocks, args, bytes, stream), args, bytes)
LAUNCH_HOOK(aclrtLaunchKernelV2Impl, ACL_ERROR_MISSING,
	    (void *func, uint32_t blocks, const void *args, size_t bytes, void *cfg, void *stream),
	    (func, blocks, args, bytes, cfg, stream), args, bytes)
LAUNCH_HOOK(aclrtLaunchKernelWithConfig, ACL_ERROR_MISSING,
	    (void *func, uint32_t blocks, void *stream, void *cfg, void *args, void *reserve),
	    (func, blocks, stream, cfg, args, reserve), NULL, 0)
LAUNCH_HOOK(aclrtLaunchKernelWithHostArgs, ACL_ERROR_MISSING,
	    (void *func, uint32_t blocks, void *stream, void *cfg, void *args, size_t bytes,
	     void *holders, size_t holder_count),
	    (func, blocks, stream, cfg, args, bytes, holders, holder_count), args, bytes)
