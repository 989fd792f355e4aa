/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Python frames of the calling thread. Budget (make bench): about 5 ns a frame, 20 frames <= 0.3 us with the event they are
 * recorded with. What is read: three or four words of each frame, those of its code object that tell it from another, and the
 * ends of its file name and line table. Frames are skipped as the interpreter's own traceback skips them: those that have not
 * begun, and those that stand for a call from C.
 */
#include "collector/interp/interpreter.h"
#include "collector/sys.h"

#define OWNER_GENERATOR 1u

MSCOPE_INLINE uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 32;
}

/* 3.9 and 3.10: frames are objects. */
static uint32_t walk_objects(struct interp_frame *out, const void *frame, uint32_t depth,
			     uint64_t *hash)
{
	const struct interp_layout *at = &interp.at;
	uint32_t unit = at->minor == 9 ? 1 : 2, count = 0;
	uint64_t h = *hash;

	for (; frame != NULL && count < depth; frame = interp_pointer(frame, at->frame_previous)) {
		const void *code = interp_pointer(frame, at->frame_code);
		int32_t instruction = interp_i32(frame, at->frame_instruction);

		out[count].code = code;
		out[count].offset = instruction < 0 ? UINT32_MAX : (uint32_t)instruction * unit;
		h = mix(h, interp_code_print(code) + out[count].offset);
		count++;
	}
	*hash = h;
	return count;
}

static uint32_t walk(struct interp_frame *out, const void *frame, uint32_t depth, uint64_t *hash)
{
	const struct interp_layout at = interp.at;
	const void *code_type = interp.code_type;
	uint32_t count = 0;
	uint64_t h = *hash;

	for (; frame != NULL && count < depth; frame = interp_pointer(frame, at.frame_previous)) {
		uint8_t owner = ((const uint8_t *)frame)[at.frame_owner];
		const void *code;
		int64_t offset;

		if (owner >= at.owner_shim)
			continue;
		code = (const void *)((uintptr_t)interp_pointer(frame, at.frame_code) &
				      ~at.code_tag);
		if (MSCOPE_UNLIKELY(interp_pointer(code, at.object_type) != code_type))
			continue;
		offset = (const char *)interp_pointer(frame, at.frame_instruction) -
			 (const char *)code - at.code_start;
		if (MSCOPE_UNLIKELY(offset < 2 * (int64_t)interp_i32(code, at.code_traceable)) &&
		    owner != OWNER_GENERATOR)
			continue;
		out[count].code = code;
		out[count].offset =
			offset < 0 || offset > INT32_MAX ? UINT32_MAX : (uint64_t)offset;
		h = mix(h, interp_code_print(code) + out[count].offset);
		count++;
	}
	*hash = h;
	return count;
}

/*
 * While the interpreter shuts down, it may free the frames of threads that it no longer waits for. The main thread is the one that
 * shuts it down, so its own frames stay.
 */
static MSCOPE_COLD bool may_read_finalizing(void)
{
	return sys_gettid() == collector.pid;
}

static uint32_t frames_of(struct interp_frame *out, const void *thread_state, uint32_t depth,
			  uint64_t *hash)
{
	const void *frame = interp_pointer(thread_state, interp.at.thread_frame);

	if (interp.at.frame_indirect && frame != NULL)
		frame = interp_pointer(frame, interp.at.indirect_frame);
	if (interp.at.minor < 11)
		return walk_objects(out, frame, depth, hash);
	return walk(out, frame, depth, hash);
}

uint32_t interp_frames(struct interp_frame *out, uint32_t depth, uint64_t *hash)
{
	const void *thread_state = interp.thread_state();

	if (thread_state == NULL)
		return 0;
	if (MSCOPE_UNLIKELY(interp.finalizing != NULL && interp.finalizing() != 0) &&
	    !may_read_finalizing())
		return 0;
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.state, memory_order_acquire) !=
			    INTERP_READY) &&
	    !interp_verify_slow(thread_state))
		return 0;
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&interp.own_seen, memory_order_relaxed)))
		depth += INTERP_OWN_FRAMES;
	return frames_of(out, thread_state, depth, hash);
}
