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
static uint32_t walk_objects(struct python_frame *out, const void *frame, uint32_t depth,
			     uint64_t *hash)
{
	const struct python_layout *at = &python.at;
	uint32_t unit = at->minor == 9 ? 1 : 2, count = 0;
	uint64_t h = *hash;

	for (; frame != NULL && count < depth; frame = python_pointer(frame, at->frame_previous)) {
		const void *code = python_pointer(frame, at->frame_code);
		int32_t instruction = python_i32(frame, at->frame_instruction);

		out[count].code = code;
		out[count].offset = instruction < 0 ? UINT32_MAX : (uint32_t)instruction * unit;
		h = mix(h, python_code_print(code) + out[count].offset);
		count++;
	}
	*hash = h;
	return count;
}

static uint32_t walk(struct python_frame *out, const void *frame, uint32_t depth, uint64_t *hash)
{
	const struct python_layout at = python.at;
	const void *code_type = python.code_type;
	uint32_t count = 0;
	uint64_t h = *hash;

	for (; frame != NULL && count < depth; frame = python_pointer(frame, at.frame_previous)) {
		uint8_t owner = ((const uint8_t *)frame)[at.frame_owner];
		const void *code;
		int64_t offset;

		if (owner >= at.owner_shim)
			continue;
		code = (const void *)((uintptr_t)python_pointer(frame, at.frame_code) &
				      ~at.code_tag);
		if (MSCOPE_UNLIKELY(python_pointer(code, at.object_type) != code_type))
			continue;
		offset = (const char *)python_pointer(frame, at.frame_instruction) -
			 (const char *)code - at.code_start;
		if (MSCOPE_UNLIKELY(offset < 2 * (int64_t)python_i32(code, at.code_traceable)) &&
		    owner != OWNER_GENERATOR)
			continue;
		out[count].code = code;
		out[count].offset =
			offset < 0 || offset > INT32_MAX ? UINT32_MAX : (uint64_t)offset;
		h = mix(h, python_code_print(code) + out[count].offset);
		count++;
	}
	*hash = h;
	return count;
}

/*
 * While the interpreter goes down, the frames of a thread that it no longer waits for may be given back under the thread. The main
 * thread is the one that takes it down.
 */
static MSCOPE_COLD bool may_read_finalizing(void)
{
	return sys_gettid() == collector.pid;
}

static uint32_t frames_of(struct writer *w, const void *thread_state, uint32_t depth,
			  uint64_t *hash)
{
	const void *frame = python_pointer(thread_state, python.at.thread_frame);

	if (python.at.frame_indirect && frame != NULL)
		frame = python_pointer(frame, python.at.indirect_frame);
	if (python.at.minor < 11)
		return walk_objects(w->python_frames, frame, depth, hash);
	return walk(w->python_frames, frame, depth, hash);
}

uint32_t python_frames(struct writer *w, uint32_t depth, uint64_t *hash)
{
	const void *thread_state = python.thread_state();

	if (thread_state == NULL)
		return 0;
	if (MSCOPE_UNLIKELY(python.finalizing != NULL && python.finalizing() != 0) &&
	    !may_read_finalizing())
		return 0;
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&python.state, memory_order_acquire) !=
			    PYTHON_READY) &&
	    !python_verify_slow(thread_state)) {
		if (atomic_load_explicit(&collector.note_count, memory_order_relaxed) != 0)
			writer_put_notes(w);
		return 0;
	}
	if (MSCOPE_UNLIKELY(atomic_load_explicit(&python.own_seen, memory_order_relaxed)))
		depth += COLLECTOR_OWN_FRAMES;
	return frames_of(w, thread_state, depth, hash);
}

static uint32_t make_words(struct writer *w, uint32_t count, uint32_t depth, const void **out)
{
	/* A word is half the size of a frame, so that words written from the front never reach a frame that is yet to be read. */
	uint64_t *words = (uint64_t *)(void *)w->python_frames;
	uint32_t i, used = 0;

	for (i = 0; i < count && used < depth; i++) {
		struct python_frame frame = w->python_frames[i];
		uint32_t code = python_code(w, frame.code);

		if (code != 0)
			words[used++] = code | frame.offset << 32;
	}
	*out = words;
	return used;
}

uint32_t python_frames_define(struct writer *w, uint32_t count, uint32_t depth, const void **out)
{
	uint32_t seen = atomic_load_explicit(&python.own_seen, memory_order_relaxed);
	uint32_t used = make_words(w, count, depth, out);
	uint64_t hash = 0;

	/* The first frame of our own that is met took the place of another: look once more, and further. */
	if (seen == 0 && atomic_load_explicit(&python.own_seen, memory_order_relaxed) != 0)
		used = make_words(w, python_frames(w, depth, &hash), depth, out);
	return used;
}
